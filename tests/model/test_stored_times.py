"""How old an entry is, from few marks: never too young, and at most a quarter and 100 ms too old."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headpond.model.stored_times import MARKS_MAX, RATIO, STEP_US, StoredTimes


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 30)), min_size=1, max_size=600))
def test_an_age_is_right_within_a_quarter(steps: list[tuple[int, int]]) -> None:
    times = StoredTimes()
    stored: list[tuple[int, int, int]] = []
    entry = now_us = 0
    for entries, pause in steps:
        now_us += 2**pause
        times.note(entry, now_us)
        stored.append((entry, entry + entries, now_us))
        entry += entries
    for first, end, at_us in stored:
        for one in (first, end - 1):
            found = times.stored_us(one)
            assert found is not None and found <= at_us
            assert now_us - found <= RATIO * (now_us - at_us) + 2 * STEP_US


def test_the_marks_of_years_are_few() -> None:
    times = StoredTimes()
    for entry in range(20_000):
        times.note(entry, entry * 3_600_000_000)
        assert len(times._entries) <= MARKS_MAX


def test_what_is_older_than_all_that_is_known_is_at_least_as_old() -> None:
    assert StoredTimes().stored_us(3) is None
    assert StoredTimes([(5, 1_000_000)]).stored_us(4) == 1_000_000
    assert StoredTimes([(5, 1_000_000)]).stored_us(9) == 1_000_000
