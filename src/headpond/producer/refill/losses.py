"""Which segments a refill file lost with its bad bytes, as exactly as what is left can tell.

A STATUS lists the segments that were written before it and says how many there were in all. So behind bad bytes
the next STATUS names what is lost. Where the one that should is bad itself, the headers of the bad frames may
still say what they were; what nobody names is counted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from headpond.model.identity import SegmentKey
from headpond.model.ranges import RangeSet
from headpond.producer.refill.form import TYPES, Status
from headpond.producer.refill.index import RefillIndex
from headpond.storage.frame_file import Bad
from headpond.storage.salvage import SalvagedFile
from headpond.wire.frame import HEADER, HEADER_BYTES, OVERHEAD_BYTES, FrameType


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes ``offset <= n < end`` of the file, and the segments that are lost because of them."""

    offset: int
    end: int
    why: str
    shard: int | None = None
    """None where no segment is lost, or where it is not known which."""
    first: int = 0
    segments_end: int = 0
    """The segments ``first <= n < segments_end`` of the shard."""
    unnamed: int = 0
    """How many segments are lost of which the numbers are not known."""

    @property
    def lost(self) -> str:
        """For a person: which segments."""
        if self.shard is not None:
            last = self.segments_end - 1
            which = f"segment {last:,}" if last == self.first else f"segments {self.first:,}–{last:,}"
            return f"{which} of shard {self.shard}"
        if self.unnamed:
            return f"{self.unnamed:,} segment{'s' if self.unnamed > 1 else ''} of unknown number"
        return "no segment"

    def __str__(self) -> str:
        return f"bytes {self.offset:,}–{max(self.offset, self.end - 1):,}: {self.why}; lost: {self.lost}"


CHECKSUM: Final = "the checksum fails"
UNREADABLE: Final = "the disk cannot read them"
CUT_SHORT: Final = "the file was cut short"
UNDECODABLE: Final = "the snapshot or the segments before them are gone, so they cannot be decoded"
_ABSENT: Final = "segments that should stand before this are not there"

Run = tuple[int, int, int]
"""Shard, first segment, one past the last."""


@dataclass
class UnreadBytes:
    """Bad bytes whose loss is not known yet."""

    bad: Bad
    why: str
    lost: dict[int, RangeSet] = field(default_factory=dict)


class Losses:
    def __init__(self, file: SalvagedFile, index: RefillIndex) -> None:
        self.lost: dict[int, RangeSet] = {}
        self.unnamed = 0
        self.damage: list[Damage] = []
        self.holes: list[UnreadBytes] = []
        """Since the last STATUS."""
        self.shards: int | None = None
        """How many shards there are, once that is known."""
        self._file = file
        self._index = index
        self._count = 0

    def hidden(self, bad: Bad) -> bool:
        """Whether the disk could not read these bytes, or some of them."""
        return bool(self._file.unreadable.overlap(bad.offset, bad.end))

    def add(self, bad: Bad, why: str = "") -> None:
        self.holes.append(UnreadBytes(bad, why or (UNREADABLE if self.hidden(bad) else CHECKSUM)))

    def lacks(self, note: Status) -> bool:
        """Whether a note tells of segments that are neither there nor known to be lost."""
        if note.segments_total > self._index.count + self._count + self.unnamed:
            return True
        return any(
            self.lost.get(shard, RangeSet()).missing(*run)
            for shard, first, end in note.written
            for run in self._index.held(shard).missing(first, end)
        )

    def account(self, status: Status, place: int) -> list[Run]:
        """What a STATUS at ``place`` lists and was not found; these runs are lost."""
        missing = [
            (shard, *run)
            for shard, first, end in status.written
            for run in self._index.held(shard).missing(first, end)
        ]
        if not self.holes and not missing:
            return []
        holes = self.holes or [UnreadBytes(Bad(place, place), _ABSENT)]
        self.holes = []
        lost = [run for each in missing for run in self._lose(holes, *each)]
        unnamed = status.segments_total - self._index.count - self._count - self.unnamed
        for hole in holes:
            for type_, key in self._claimed(hole.bad):
                if unnamed > 0 and type_ == FrameType.SEGMENT and self._is_new(key):
                    lost += self._lose([hole], key.shard, key.segment, key.segment + 1)
                    unnamed -= 1
        self._report(holes, max(0, unnamed))
        return lost

    def account_rest(self) -> list[Run]:
        """Holes behind the last STATUS: only their own headers say what they were."""
        lost: list[Run] = []
        for hole in self.holes:
            claimed = list(self._claimed(hole.bad))
            for type_, key in claimed:
                if type_ == FrameType.SEGMENT and self._is_new(key):
                    lost += self._lose([hole], key.shard, key.segment, key.segment + 1)
            self._report([hole], 0 if claimed else 1)
        self.holes = []
        return lost

    def lose_undecodable(self) -> None:
        """Of a typed topic: what can be read and cannot be decoded is lost as well."""
        for shard in self._index.shards:
            for first, end in self._index.undecodable(shard):
                self.lost.setdefault(shard, RangeSet()).add(first, end)
                place = self._index.place(SegmentKey(shard, first))
                assert place is not None, "what is undecodable is held"
                self.damage.append(Damage(place.offset, place.end, UNDECODABLE, shard, first, end))

    def _lose(self, holes: list[UnreadBytes], shard: int, first: int, end: int) -> list[Run]:
        """Counts segments as lost, in the hole whose headers say so, else in the first."""
        lost = self.lost.setdefault(shard, RangeSet())
        fresh = lost.missing(first, end)
        for start, stop in fresh:
            lost.add(start, stop)
            self._count += stop - start
            holes[0].lost.setdefault(shard, RangeSet()).add(start, stop)
        for hole in holes[1:]:
            for type_, key in self._claimed(hole.bad):
                at = (key.segment, key.segment + 1)
                if type_ == FrameType.SEGMENT and key.shard == shard and key.segment in holes[0].lost[shard]:
                    holes[0].lost[shard].discard(*at)
                    hole.lost.setdefault(shard, RangeSet()).add(*at)
        return [(shard, start, stop) for start, stop in fresh]

    def _is_new(self, key: SegmentKey) -> bool:
        known = (self._index.held(key.shard), self.lost.get(key.shard, RangeSet()))
        return not any(key.segment in ranges for ranges in known)

    def _claimed(self, bad: Bad) -> Iterator[tuple[int, SegmentKey]]:
        """What the headers in bad bytes say, as long as they lead from one to the next."""
        at = bad.offset
        while at + OVERHEAD_BYTES <= bad.end:
            header = self._file.read_at(at, HEADER_BYTES)
            if len(header) < HEADER_BYTES:  # it was cut off
                return
            type_, shard, segment, size = HEADER.unpack(header)
            at += OVERHEAD_BYTES + size
            if type_ not in TYPES or at > bad.end or (self.shards is not None and shard >= self.shards):
                return
            yield type_, SegmentKey(shard, segment)

    def _report(self, holes: list[UnreadBytes], unnamed: int) -> None:
        self.unnamed += unnamed
        for hole in holes:
            bad = hole.bad
            runs = [(shard, *run) for shard, ranges in sorted(hole.lost.items()) for run in ranges]
            self.damage += [Damage(bad.offset, bad.end, hole.why, *run) for run in runs]
            if not runs or (unnamed and hole is holes[-1]):
                self.damage.append(Damage(bad.offset, bad.end, hole.why, unnamed=unnamed))
                unnamed = 0
