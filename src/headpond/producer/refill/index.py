"""The places of segments and snapshots in a refill file, at 20 bytes of memory per segment."""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from typing import NamedTuple

from headpond.model.identity import SegmentKey
from headpond.model.ranges import RangeSet

SEGMENTS_MAX = 4 * 1024 * 1024
"""How many segments a file may hold, so that its index stays below 100 MB."""


class FrameSpan(NamedTuple):
    offset: int
    size: int

    @property
    def end(self) -> int:
        return self.offset + self.size


class _Shelf:
    """One shard, sorted by segment."""

    __slots__ = ("held", "offsets", "rows", "segments", "sizes", "snapshots", "snapshots_sorted")

    def __init__(self) -> None:
        self.segments = array("I")
        self.offsets = array("Q")
        self.sizes = array("I")
        self.rows = array("I")
        self.held = RangeSet()
        self.snapshots: dict[int, FrameSpan] = {}
        self.snapshots_sorted: list[int] = []

    def find(self, segment: int) -> int | None:
        at = bisect_left(self.segments, segment)
        return at if at < len(self.segments) and self.segments[at] == segment else None

    def add(self, segment: int, place: FrameSpan, rows: int) -> None:
        # Segments come in order, except those that a slower destination rejected later.
        at = len(self.segments)
        if at and segment < self.segments[-1]:
            at = bisect_left(self.segments, segment)
        self.segments.insert(at, segment)
        self.offsets.insert(at, place.offset)
        self.sizes.insert(at, place.size)
        self.rows.insert(at, rows)
        self.held.add(segment, segment + 1)

    def remove(self, at: int) -> None:
        segment = self.segments.pop(at)
        for column in (self.offsets, self.sizes, self.rows):
            column.pop(at)
        self.held.discard(segment, segment + 1)

    def place(self, at: int) -> FrameSpan:
        return FrameSpan(self.offsets[at], self.sizes[at])


class RefillIndex:
    def __init__(self) -> None:
        self.count = 0
        """Segments in all."""
        self.rows = 0
        """Rows in all of them."""
        self._shelves: dict[int, _Shelf] = {}

    @property
    def shards(self) -> list[int]:
        """The shards with a segment or snapshot, sorted."""
        return sorted(self._shelves)

    def held(self, shard: int) -> RangeSet:
        """The readable segments of a shard. Not to be changed."""
        shelf = self._shelves.get(shard)
        return RangeSet() if shelf is None else shelf.held

    def add(self, key: SegmentKey, place: FrameSpan, rows: int) -> bool:
        """False, and nothing happens, if the segment is there already."""
        shelf = self._shelf(key.shard)
        if key.segment in shelf.held:
            return False
        shelf.add(key.segment, place, rows)
        self.count += 1
        self.rows += rows
        return True

    def _shelf(self, shard: int) -> _Shelf:
        shelf = self._shelves.get(shard)
        if shelf is None:
            shelf = self._shelves[shard] = _Shelf()
        return shelf

    def remove(self, key: SegmentKey) -> None:
        shelf = self._shelves[key.shard]
        at = shelf.find(key.segment)
        assert at is not None, "only a present segment is removed"
        self.count -= 1
        self.rows -= shelf.rows[at]
        shelf.remove(at)

    def place(self, key: SegmentKey) -> FrameSpan | None:
        shelf = self._shelves.get(key.shard)
        at = None if shelf is None else shelf.find(key.segment)
        return None if shelf is None or at is None else shelf.place(at)

    def run(self, key: SegmentKey, bytes_max: int) -> Iterator[tuple[SegmentKey, FrameSpan]]:
        """Segments that follow one another from ``key`` on, while they fit; the first always does."""
        shelf = self._shelves.get(key.shard)
        start = None if shelf is None else shelf.find(key.segment)
        if shelf is None or start is None:
            return
        for at in range(start, len(shelf.segments)):
            segment = key.segment + at - start
            bytes_max -= shelf.sizes[at]
            if shelf.segments[at] != segment or (bytes_max < 0 and at > start):
                return
            yield SegmentKey(key.shard, segment), shelf.place(at)

    def totals(self, shard: int, first: int, end: int) -> tuple[int, int]:
        """Rows and bytes of the segments ``first <= n < end``."""
        shelf = self._shelves.get(shard)
        if shelf is None:
            return 0, 0
        start, stop = bisect_left(shelf.segments, first), bisect_left(shelf.segments, end)
        return sum(shelf.rows[start:stop]), sum(shelf.sizes[start:stop])

    def add_snapshot(self, key: SegmentKey, place: FrameSpan) -> None:
        """Remembers the snapshot at a segment; of two the later one counts."""
        shelf = self._shelf(key.shard)
        if key.segment not in shelf.snapshots:
            insort(shelf.snapshots_sorted, key.segment)
        shelf.snapshots[key.segment] = place

    def remove_snapshot(self, key: SegmentKey) -> None:
        shelf = self._shelves[key.shard]
        del shelf.snapshots[key.segment]
        shelf.snapshots_sorted.remove(key.segment)

    def snapshots(self, shard: int) -> list[int]:
        """The segments at which there are snapshots, sorted. Not to be changed."""
        shelf = self._shelves.get(shard)
        return [] if shelf is None else shelf.snapshots_sorted

    def snapshot_before(self, key: SegmentKey) -> tuple[int, FrameSpan] | None:
        """The last snapshot at or before a segment."""
        shelf = self._shelves.get(key.shard)
        at = 0 if shelf is None else bisect_right(shelf.snapshots_sorted, key.segment)
        if shelf is None or at == 0:
            return None
        segment = shelf.snapshots_sorted[at - 1]
        return segment, shelf.snapshots[segment]

    def missing_of(self, shard: int, ranges: RangeSet) -> int:
        """How many of these segments are not here."""
        held = self.held(shard)
        return sum(end - first for run in ranges for first, end in held.missing(*run))

    def undecodable(self, shard: int) -> Iterator[tuple[int, int]]:
        """Of a typed topic: runs of segments that no snapshot leads to."""
        snapshots = self.snapshots(shard)
        for first, end in self.held(shard):
            at = bisect_left(snapshots, first)
            usable = min(snapshots[at], end) if at < len(snapshots) else end
            if usable > first:
                yield first, usable

    def cut(self, end: int) -> None:
        """Forgets everything at or after ``end`` in the file."""
        for shard, shelf in self._shelves.items():
            for at in reversed([at for at, offset in enumerate(shelf.offsets) if offset >= end]):
                self.remove(SegmentKey(shard, shelf.segments[at]))
            for segment in [each for each, place in shelf.snapshots.items() if place.offset >= end]:
                self.remove_snapshot(SegmentKey(shard, segment))
