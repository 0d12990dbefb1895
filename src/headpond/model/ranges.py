"""A set of integers, stored as sorted, disjoint, half-open ranges.

For numbers that come mostly in runs: admitted segments, damaged or missing entries. Adding and testing take a
binary search; memory is a pair of ints per run.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class RangeSet:
    __slots__ = ("_ends", "_starts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []
        for start, end in ranges:
            self.add(start, end)

    def add(self, start: int, end: int) -> None:
        """Adds ``start <= n < end``; ranges that touch become one."""
        if start >= end:
            return
        starts, ends = self._starts, self._ends
        if ends and start == ends[-1]:  # the common case: the last run grows
            ends[-1] = end
            return
        left = bisect_left(ends, start)
        right = bisect_right(starts, end)
        if left < right:
            start = min(start, starts[left])
            end = max(end, ends[right - 1])
        starts[left:right] = [start]
        ends[left:right] = [end]

    def discard(self, start: int, end: int) -> None:
        """Removes ``start <= n < end``."""
        if start >= end:
            return
        left = bisect_right(self._ends, start)
        right = bisect_left(self._starts, end)
        if left >= right:
            return
        first, last = self._starts[left], self._ends[right - 1]
        self._starts[left:right] = ([first] if first < start else []) + ([end] if end < last else [])
        self._ends[left:right] = ([start] if first < start else []) + ([last] if end < last else [])

    def missing(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of ``[start, end)`` that are not in the set."""
        gaps: list[tuple[int, int]] = []
        at = start
        for index in range(bisect_right(self._ends, start), len(self._starts)):
            if at >= end:
                return gaps
            if self._starts[index] > at:
                gaps.append((at, min(self._starts[index], end)))
            at = self._ends[index]
        if at < end:
            gaps.append((at, end))
        return gaps

    def overlap(self, start: int, end: int) -> list[tuple[int, int]]:
        """The parts of ``[start, end)`` that are in the set."""
        found: list[tuple[int, int]] = []
        if start >= end:
            return found
        for index in range(bisect_right(self._ends, start), len(self._starts)):
            if self._starts[index] >= end:
                break
            found.append((max(start, self._starts[index]), min(end, self._ends[index])))
        return found

    def copy(self) -> RangeSet:
        twin = RangeSet()
        twin._starts = self._starts.copy()
        twin._ends = self._ends.copy()
        return twin

    @property
    def end(self) -> int:
        """One past the largest number; 0 for the empty set."""
        return self._ends[-1] if self._ends else 0

    @property
    def count(self) -> int:
        """The number of integers in the set."""
        return sum(self._ends) - sum(self._starts)

    def __contains__(self, number: int) -> bool:
        index = bisect_right(self._starts, number) - 1
        return index >= 0 and number < self._ends[index]

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return iter(zip(self._starts, self._ends, strict=True))

    def __len__(self) -> int:
        """The number of ranges."""
        return len(self._starts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RangeSet) and self._starts == other._starts and self._ends == other._ends

    __hash__ = None  # type: ignore[assignment]  # mutable

    def __repr__(self) -> str:
        return f"RangeSet({', '.join(f'[{a}, {b})' for a, b in self)})"


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Ascending numbers as ranges."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number:
            found[-1] = (found[-1][0], number + 1)
        else:
            found.append((number, number + 1))
    return found


def overlap(spans: Iterable[tuple[int, int]], start: int, end: int) -> list[tuple[int, int]]:
    """The parts of the spans that are in ``[start, end)``."""
    return [(max(a, start), min(b, end)) for a, b in spans if a < end and b > start]
