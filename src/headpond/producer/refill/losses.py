"""The segments that a refill file lost with its bad bytes, as exactly as the rest of the file allows.

A STATUS lists the segments written before it and their total number. So after bad bytes the next STATUS names
the lost segments. Where that STATUS is bad itself, the headers of the bad frames may still name them; lost
segments without a name are counted.
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
    """None where no segment is lost, or the lost ones are not known."""
    first: int = 0
    segments_end: int = 0
    """The segments ``first <= n < segments_end`` of the shard."""
    unnamed: int = 0
    """The number of lost segments whose numbers are not known."""

    @property
    def lost(self) -> str:
        """The lost segments, for a person."""
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
    """Bad bytes whose lost segments are not known yet."""

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
        """The number of shards, once it is known."""
        self._file = file
        self._index = index
        self._count = 0

    def hidden(self, bad: Bad) -> bool:
        """Whether the disk could not read some of these bytes."""
        return bool(self._file.unreadable.overlap(bad.offset, bad.end))

    def add(self, bad: Bad, why: str = "") -> None:
        self.holes.append(UnreadBytes(bad, why or (UNREADABLE if self.hidden(bad) else CHECKSUM)))

    def lacks(self, note: Status) -> bool:
        """Whether a note has segments that are neither in the file nor known to be lost."""
        if note.segments_total > self._index.count + self._count + self.unnamed:
            return True
        return any(
            self.lost.get(shard, RangeSet()).missing(*run)
            for shard, first, end in note.written
            for run in self._index.held(shard).missing(first, end)
        )

    def account(self, status: Status, place: int) -> list[Run]:
        """The runs that a STATUS at ``place`` lists and that were not found: they are lost."""
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
        """Holes after the last STATUS: only their headers name their segments."""
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
        """In a typed topic, segments that can be read and not decoded are lost as well."""
        for shard in self._index.shards:
            for first, end in self._index.undecodable(shard):
                self.lost.setdefault(shard, RangeSet()).add(first, end)
                place = self._index.place(SegmentKey(shard, first))
                assert place is not None, "an undecodable segment is in the index"
                self.damage.append(Damage(place.offset, place.end, UNDECODABLE, shard, first, end))

    def _lose(self, holes: list[UnreadBytes], shard: int, first: int, end: int) -> list[Run]:
        """Counts segments as lost, in the hole whose headers name them, else in the first."""
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
        """The frames named by the headers in bad bytes, as long as each leads to the next."""
        at = bad.offset
        while at + OVERHEAD_BYTES <= bad.end:
            header = self._file.read_at(at, HEADER_BYTES)
            if len(header) < HEADER_BYTES:  # the file was cut off
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
