"""A set of entries, stored as a compressed bitmap: a million entries in any pattern cost a few hundred KiB.

Queries take spans (``start <= n < end``) and do not visit single entries. Their cost depends on the content of
the set and not on the span, which may come from anyone. ``of`` and ``add`` build the spans they are given, so
the entries must exist.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator

from pyroaring import BitMap64

from headpond.model.errors import BadFrame
from headpond.model.ranges import RangeSet

SPAN_ENTRIES_MAX = 2**40
"""A bitmap costs memory for every 65,536 entries of a run. Only a bug would add a longer span."""

Span = tuple[int, int]


class EntrySet:
    __slots__ = ("bits",)

    def __init__(self, bits: BitMap64 | None = None) -> None:
        self.bits = BitMap64() if bits is None else bits
        """For hot paths: whether it is empty costs no call here."""

    @classmethod
    def of(cls, spans: Iterable[Span]) -> EntrySet:
        made = cls()
        for start, end in spans:
            made.add(start, end)
        return made

    def add(self, start: int, end: int) -> None:
        if end - start > SPAN_ENTRIES_MAX:
            raise OverflowError(f"a set of entries is not built from the span {start} to {end}")
        if start < end:
            self.bits.add_range(start, end)

    def discard(self, start: int, end: int) -> None:
        if start < end:
            self.bits.remove_range(start, end)

    def remove(self, start: int, end: int) -> int:
        """Discards the entries of ``[start, end)``; returns how many were in the set."""
        if end - start == 1:
            found = int(start in self.bits)
        else:
            found = int(self.bits.range_cardinality(start, end)) if start < end else 0
        if found:
            self.bits.remove_range(start, end)
        return found

    def count(self, start: int, end: int) -> int:
        """The number of entries of ``[start, end)`` in the set."""
        if end - start == 1:  # the most frequent query; the bitmap would count all entries before
            return int(start in self.bits)
        return int(self.bits.range_cardinality(start, end)) if start < end else 0

    def run_end(self, start: int) -> int:
        """The first entry at or after ``start`` that is not in the set."""
        step = 1
        while self.bits.contains_range(start, start + step):
            step *= 2
        inside, outside = step // 2, step  # [start, start + inside) is in the set, not all up to outside
        while outside - inside > 1:
            middle = (inside + outside) // 2
            if self.bits.contains_range(start, start + middle):
                inside = middle
            else:
                outside = middle
        return start + inside

    def spans(self, start: int, end: int) -> Iterator[Span]:
        """The parts of ``[start, end)`` that are in the set."""
        at = start
        while at < end and (first := self._next(at)) is not None and first < end:
            at = self.run_end(first)
            yield first, min(at, end)

    def missing(self, start: int, end: int) -> Iterator[Span]:
        """The parts of ``[start, end)`` that are not in the set."""
        at = start
        for first, last in self.spans(start, end):
            if at < first:
                yield at, first
            at = last
        if at < end:
            yield at, end

    def common(self, other: EntrySet) -> EntrySet:
        """The intersection."""
        return EntrySet(self.bits & other.bits)

    def include(self, other: EntrySet) -> None:
        self.bits |= other.bits

    def exclude(self, other: EntrySet) -> None:
        self.bits -= other.bits

    def within(self, start: int, end: int) -> EntrySet:
        """A new set: the entries in ``[start, end)``."""
        if not self.bits:
            return EntrySet()
        start, end = max(start, int(self.bits.min())), min(end, int(self.bits.max()) + 1)
        return EntrySet(self.bits & BitMap64(range(start, end))) if start < end else EntrySet()

    def among(self, spans: RangeSet) -> EntrySet:
        """A new set: the entries in one of the spans, which do not overlap."""
        found = EntrySet()
        for start, end in spans:
            found.include(self.within(start, end))
        return found

    def next_ones(self, start: int, count: int) -> EntrySet:
        """A new set: the first ``count`` entries at or after ``start``."""
        before = int(self.bits.rank(start - 1)) if start > 0 else 0
        last = min(before + count, len(self.bits)) - 1
        return self.within(start, int(self.bits[last]) + 1) if last >= before else EntrySet()

    def parts(self, length: int) -> Iterator[EntrySet]:
        """The set, divided into sets that span at most ``length`` entries each."""
        start = self.first
        while start is not None:
            yield self.within(start, min(start + length, self.end))
            start = self._next(start + length)

    def meets(self, other: EntrySet) -> bool:
        """Whether the sets intersect."""
        return bool(self.bits.intersect(other.bits))

    def copy(self) -> EntrySet:
        return EntrySet(BitMap64(self.bits))

    @classmethod
    def of_entries(cls, entries: Iterable[int]) -> EntrySet:
        return cls(BitMap64(entries))

    def numbers(self) -> array[int]:
        """All entries in order, as unsigned 64-bit integers."""
        found: array[int] = self.bits.to_array()
        return found

    @property
    def first(self) -> int | None:
        return self._next(0)

    @property
    def end(self) -> int:
        """One past the largest entry; 0 for the empty set."""
        return int(self.bits.max()) + 1 if self.bits else 0

    def _next(self, start: int) -> int | None:
        if not self.bits or self.bits.max() < start:
            return None
        return int(self.bits.next_set_bit(start))

    def clear(self) -> None:
        self.bits.clear()

    def encode(self) -> bytes:
        self.bits.run_optimize()
        return bytes(self.bits.serialize())

    @classmethod
    def decode(cls, data: bytes) -> EntrySet:
        try:
            return cls(BitMap64.deserialize(data))
        except (ValueError, RuntimeError) as error:
            raise BadFrame(f"a set of entries that cannot be read: {error}") from error

    def __le__(self, other: EntrySet) -> bool:
        """Whether it is a subset of the other."""
        return bool(self.bits <= other.bits)

    def __contains__(self, entry: int) -> bool:
        return entry in self.bits

    def __len__(self) -> int:
        return len(self.bits)

    def __bool__(self) -> bool:
        return bool(self.bits)

    def __repr__(self) -> str:
        return f"EntrySet({list(self.spans(0, self.end))[:8]})"
