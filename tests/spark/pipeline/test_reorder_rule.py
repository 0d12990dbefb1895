"""Rows wait for those before them; nothing is dropped, and what is out of order says so."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headpond.spark.pipeline.steps.reorder import ReorderBuffer, released


def arrivals(held: ReorderBuffer, *batches: list[int]) -> list[tuple[int, bool]]:
    return [one for batch in batches for one in released(held, [(index, index) for index in batch])]


def test_early_rows_wait_for_the_gap_to_be_filled() -> None:
    held = ReorderBuffer({}, 0, 100)
    assert arrivals(held, [2, 1]) == []
    assert arrivals(held, [0]) == [(0, False), (1, False), (2, False)]
    assert held.rows == {} and held.next_index == 3


def test_a_gap_that_is_given_up_lets_the_rest_go_on_and_marks_what_comes_late() -> None:
    held = ReorderBuffer({}, 0, 100)
    arrivals(held, [1, 2, 5])
    assert list(held.give_up()) == [(1, False), (2, False)]
    assert arrivals(held, [0]) == [(0, True)]
    assert list(held.give_up()) == [(5, False)]


def test_a_repeat_goes_on_marked() -> None:
    held = ReorderBuffer({}, 0, 100)
    assert arrivals(held, [0, 0, 2, 2]) == [(0, False), (0, True), (2, True)]
    assert arrivals(held, [1]) == [(1, False), (2, False)]


def test_a_group_may_begin_anywhere_if_told_so() -> None:
    assert arrivals(ReorderBuffer({}, None, 100), [7, 8]) == [(7, False), (8, False)]


def test_no_more_rows_wait_than_told() -> None:
    held = ReorderBuffer({}, 0, 3)
    assert arrivals(held, [2, 3, 5, 7]) == [(2, False), (3, False)]
    assert len(held.rows) == 2


def test_a_row_without_an_index_waits_for_nothing() -> None:
    assert list(released(ReorderBuffer({}, 0, 9), [(None, "x"), (0, "y")])) == [("x", True), ("y", False)]


@given(st.lists(st.lists(st.integers(0, 30), max_size=10), max_size=10), st.integers(1, 20))
def test_everything_comes_out_once_and_what_is_in_order_rises(batches: list[list[int]], held_max: int) -> None:
    held = ReorderBuffer({}, 0, held_max)
    out = arrivals(held, *batches)
    while held.rows:
        out += held.give_up()
    assert sorted(index for index, _ in out) == sorted(index for batch in batches for index in batch)
    in_order = [index for index, late in out if not late]
    assert in_order == sorted(set(in_order))
