"""Rows wait for those before them; none is dropped, and rows out of order are marked."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headpond.spark.pipeline.reorder import ReorderBuffer, released


def arrivals(held: ReorderBuffer, *batches: list[int]) -> list[tuple[int, bool]]:
    return [one for batch in batches for one in released(held, [(index, index) for index in batch])]


def test_early_rows_wait_for_the_gap_to_be_filled() -> None:
    held = ReorderBuffer({}, 0, 100)
    assert arrivals(held, [2, 1]) == []
    assert arrivals(held, [0]) == [(0, False), (1, False), (2, False)]
    assert held.rows == {} and held.next_index == 3


def test_giving_up_a_gap_releases_the_rows_behind_it_and_marks_late_ones() -> None:
    held = ReorderBuffer({}, 0, 100)
    arrivals(held, [1, 2, 5])
    assert list(held.give_up()) == [(1, False), (2, False)]
    assert arrivals(held, [0]) == [(0, True)]
    assert list(held.give_up()) == [(5, False)]


def test_a_repeat_passes_marked() -> None:
    held = ReorderBuffer({}, 0, 100)
    assert arrivals(held, [0, 0, 2, 2]) == [(0, False), (0, True), (2, True)]
    assert arrivals(held, [1]) == [(1, False), (2, False)]


def test_a_group_may_begin_at_any_index_without_first() -> None:
    assert arrivals(ReorderBuffer({}, None, 100), [7, 8]) == [(7, False), (8, False)]


def test_no_more_than_held_max_rows_wait() -> None:
    held = ReorderBuffer({}, 0, 3)
    assert arrivals(held, [2, 3, 5, 7]) == [(2, False), (3, False)]
    assert len(held.rows) == 2


def test_a_row_without_an_index_waits_for_nothing() -> None:
    assert list(released(ReorderBuffer({}, 0, 9), [(None, "x"), (0, "y")])) == [("x", True), ("y", False)]


@given(st.lists(st.lists(st.integers(0, 30), max_size=10), max_size=10), st.integers(1, 20))
def test_every_row_is_released_once_and_rows_in_order_rise(batches: list[list[int]], held_max: int) -> None:
    held = ReorderBuffer({}, 0, held_max)
    out = arrivals(held, *batches)
    while held.rows:
        out += held.give_up()
    assert sorted(index for index, _ in out) == sorted(index for batch in batches for index in batch)
    in_order = [index for index, late in out if not late]
    assert in_order == sorted(set(in_order))
