"""A set of entries behaves as a plain set of numbers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.model.entry_set import EntrySet
from headpond.model.ranges import RangeSet

SPANS = st.lists(st.tuples(st.booleans(), st.integers(0, 200), st.integers(0, 40)), max_size=30)


def as_set(spans: list[tuple[int, int]]) -> set[int]:
    return {entry for start, end in spans for entry in range(start, end)}


def build(steps: list[tuple[bool, int, int]]) -> tuple[EntrySet, set[int]]:
    entries, model = EntrySet(), set[int]()
    for add, start, length in steps:
        if add:
            entries.add(start, start + length)
            model |= set(range(start, start + length))
        else:
            entries.discard(start, start + length)
            model -= set(range(start, start + length))
    return entries, model


@given(SPANS, st.integers(0, 240), st.integers(0, 240))
def test_it_agrees_with_a_plain_set(steps: list[tuple[bool, int, int]], start: int, end: int) -> None:
    entries, model = build(steps)
    window = set(range(start, end))
    assert len(entries) == len(model)
    assert as_set(list(entries.spans(start, end))) == model & window
    assert as_set(list(entries.missing(start, end))) == window - model
    assert entries.count(start, end) == len(model & window)
    assert entries.run_end(start) == next(n for n in range(start, 500) if n not in model)
    assert entries.first == min(model, default=None)
    assert entries.end == max(model, default=-1) + 1
    assert all((entry in entries) == (entry in model) for entry in range(250))


@given(SPANS, st.lists(st.tuples(st.integers(0, 240), st.sampled_from([0, 1, 30, 2**62])), max_size=5))
def test_among_many_spans_equals_a_plain_set(
    steps: list[tuple[bool, int, int]], asked: list[tuple[int, int]]
) -> None:
    entries, model = build(steps)
    wanted = RangeSet((start, start + length) for start, length in asked)
    assert list(entries.among(wanted).numbers()) == sorted(each for each in model if each in wanted)


def test_a_query_over_all_numbers_costs_only_the_content_of_the_set() -> None:
    entries = EntrySet.of([(5, 9), (70_000, 70_002)])
    assert list(entries.within(0, 2**64 - 1).numbers()) == [5, 6, 7, 8, 70_000, 70_001]
    assert list(entries.missing(0, 2**62)) == [(0, 5), (9, 70_000), (70_002, 2**62)]
    assert not EntrySet().within(0, 2**62)
    with pytest.raises(OverflowError, match="0 to 4611686018427387904"):
        EntrySet.of([(0, 2**62)])


@given(SPANS)
def test_it_survives_being_written_and_read(steps: list[tuple[bool, int, int]]) -> None:
    entries, model = build(steps)
    assert as_set(list(EntrySet.decode(entries.encode()).spans(0, 1000))) == model


@given(SPANS, st.integers(0, 260), st.integers(0, 80))
def test_its_next_ones_and_its_parts_are_those_of_a_plain_set(
    steps: list[tuple[bool, int, int]], start: int, count: int
) -> None:
    entries, model = build(steps)
    found = entries.next_ones(start, count)
    assert list(found.numbers()) == sorted(entry for entry in model if entry >= start)[:count]
    parts = [list(part.numbers()) for part in entries.parts(count + 1)]
    assert [entry for part in parts for entry in part] == sorted(model)
    assert all(0 < part[-1] - part[0] + 1 <= count + 1 for part in parts)


@given(SPANS, SPANS)
def test_intersection_union_and_difference_equal_those_of_plain_sets(
    steps: list[tuple[bool, int, int]], others: list[tuple[bool, int, int]]
) -> None:
    entries, model = build(steps)
    other, other_model = build(others)
    assert as_set(list(entries.common(other).spans(0, 1000))) == model & other_model
    assert (entries <= other) == (model <= other_model) and entries <= entries
    more, less = (EntrySet.of(entries.spans(0, 1000)) for _ in range(2))
    more.include(other)
    less.exclude(other)
    assert as_set(list(more.spans(0, 1000))) == model | other_model
    assert as_set(list(less.spans(0, 1000))) == model - other_model
    assert as_set(list(other.spans(0, 1000))) == other_model, "the other one is as it was"
