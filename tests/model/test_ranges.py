"""A set of ranges behaves as a plain set of its numbers."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.ranges import RangeSet

BOUND = st.integers(0, 30)
STEPS = st.lists(st.tuples(st.booleans(), BOUND, BOUND), max_size=20)


def build(steps: list[tuple[bool, int, int]]) -> tuple[RangeSet, set[int]]:
    ranges, numbers = RangeSet(), set[int]()
    for adds, start, end in steps:
        if adds:
            ranges.add(start, end)
            numbers |= set(range(start, end))
        else:
            ranges.discard(start, end)
            numbers -= set(range(start, end))
    return ranges, numbers


def spans(numbers: set[int]) -> list[tuple[int, int]]:
    """The numbers as the fewest sorted ranges."""
    starts = sorted(n for n in numbers if n - 1 not in numbers)
    ends = sorted(n + 1 for n in numbers if n + 1 not in numbers)
    return list(zip(starts, ends, strict=True))


@given(STEPS)
@settings(deadline=None)
def test_it_holds_the_numbers_as_the_fewest_sorted_ranges(steps: list[tuple[bool, int, int]]) -> None:
    ranges, numbers = build(steps)
    assert list(ranges) == spans(numbers)
    assert len(ranges) == len(spans(numbers))
    assert ranges.count == len(numbers)
    assert ranges.end == max(numbers, default=-1) + 1
    assert [n in ranges for n in range(-1, 32)] == [n in numbers for n in range(-1, 32)]


@given(STEPS, BOUND, BOUND)
@settings(deadline=None)
def test_missing_and_overlap_share_out_a_window(
    steps: list[tuple[bool, int, int]], start: int, end: int
) -> None:
    ranges, numbers = build(steps)
    window = set(range(start, end))
    assert ranges.missing(start, end) == spans(window - numbers)
    assert ranges.overlap(start, end) == spans(window & numbers)


@given(STEPS)
@settings(deadline=None)
def test_sets_of_the_same_numbers_are_equal_however_they_were_made(steps: list[tuple[bool, int, int]]) -> None:
    ranges, numbers = build(steps)
    assert ranges == RangeSet((n, n + 1) for n in sorted(numbers, reverse=True))
    assert ranges == RangeSet(ranges)
    assert ranges != RangeSet([*ranges, (50, 51)])


@given(STEPS)
@settings(deadline=None)
def test_a_copy_goes_its_own_way(steps: list[tuple[bool, int, int]]) -> None:
    ranges, numbers = build(steps)
    twin = ranges.copy()
    twin.add(0, 100)
    assert list(ranges) == spans(numbers)
    assert list(twin) == [(0, 100)]


def test_ranges_that_touch_become_one() -> None:
    ranges = RangeSet([(0, 3), (6, 9)])
    ranges.add(3, 6)
    assert list(ranges) == [(0, 9)]
    assert repr(ranges) == "RangeSet([0, 9))"
