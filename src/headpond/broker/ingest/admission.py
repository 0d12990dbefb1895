"""Admission: decides about a segment by its number, per (topic, block, shard).

1. The next segment expected is admitted.
2. One that was admitted before is a repeat if its ``origin_crc`` is the same, else a conflict: the
   producer's sequence went backwards.
3. One beyond the next expected leaves a gap, which the answer names.
4. A sender that has nothing earlier declares the hole; admission continues behind it. A segment for the hole
   that comes later by another path is admitted, flagged late.

Marks are sets of ranges, not a high-water mark, so nothing that arrives late is lost.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headpond.storage.log.marks import Stored
from headpond.storage.log.shard_log import ShardLog
from headpond.wire.title import Predecessor

DECLARED_MAX = 10_000
"""Holes kept that nothing was stored behind yet."""


@dataclass(frozen=True, slots=True)
class Admit:
    late: bool = False
    """It fills a hole behind which admission continued."""
    new: bool = False
    """The shard has nothing of the block yet."""


@dataclass(frozen=True, slots=True)
class Early:
    expected: int


@dataclass(frozen=True, slots=True)
class Again:
    """It was admitted before; ``Admission.compare`` tells whether it is the same."""

    recent: Stored | None
    """The first copy; None if it is no longer in memory, so that the files must be searched."""


class Repeat(NamedTuple):
    first_entry: int | None
    """Of the first copy; None if the log has dropped it."""


class Refused(NamedTuple):
    """It was refused for good before; its number is used."""


class Conflicting(NamedTuple):
    """Another content was stored under its number."""


ADMIT, ADMIT_NEW = Admit(), Admit(new=True)

Verdict = Admit | Early | Again


class Admission:
    """The rules over one shard's log. Declared holes are kept until a segment behind them is stored."""

    def __init__(self, log: ShardLog) -> None:
        self._log = log
        self.declared: dict[bytes, int] = {}
        """By block: where a hole ends that nothing was stored behind yet."""

    def next(self, block: bytes) -> int:
        """The segment expected next from a block."""
        return max(self._log.marks.next(block), self.declared.get(block, 0))

    def declare(self, block: bytes, segment: int) -> int:
        """The sender has nothing before ``segment``; returns how many segments that leaves out."""
        hole = segment - self.next(block)
        if hole <= 0:
            return 0
        self.declared.pop(block, None)
        self.declared[block] = segment
        if len(self.declared) > DECLARED_MAX:  # its sender declares it again when it gets a gap
            del self.declared[next(iter(self.declared))]
        return hole

    def decide(self, block: bytes, segment: int) -> Verdict:
        known = self._log.marks.get(block)
        expected = known.admitted.end if known is not None else 0
        if self.declared:
            expected = max(expected, self.declared.get(block, 0))
        if segment == expected:
            return ADMIT if known is not None else ADMIT_NEW
        if segment > expected:
            return Early(expected)
        if known is None or segment not in known.admitted:
            return Admit(late=True, new=known is None)
        return Again(known.recent.get(segment))

    def compare(self, block: bytes, stored: Stored | None, origin_crc: int) -> Repeat | Refused | Conflicting:
        """What a segment is that was admitted before: ``stored`` is its first copy, None if no file has it."""
        if stored is None:
            return Repeat(None)
        stored_crc, first_entry, count = stored
        if stored_crc != origin_crc:
            return Conflicting()
        if count:
            return Repeat(first_entry)
        # In a state topic that follows another, a number without rows is one that compaction emptied there.
        tally = self._log.marks.book.tallies.get(block)
        return Repeat(None) if tally is not None and tally.refused.get("compacted") else Refused()

    def admitted(self, block: bytes, segment: int) -> None:
        """A segment was appended: a hole declared before it is now in the marks themselves."""
        if self.declared.get(block, -1) <= segment:
            self.declared.pop(block, None)

    def forget(self) -> None:
        """A failed sync put the marks back: senders declare their holes again."""
        self.declared.clear()


def predecessor_done(admissions: list[Admission], predecessor: Predecessor) -> bool:
    """Whether every segment of an earlier block was admitted or declared lost."""
    return all(
        admissions[shard].next(predecessor.block) >= segment_next
        for shard, segment_next in predecessor.segments_next.items()
    )
