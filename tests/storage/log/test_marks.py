"""Marks hold exactly the admitted segments, also after an undo and a restart."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.model.errors import BadFrame
from headpond.storage.log.marks import DAY_US, RECENT_MAX, RECENT_STORED_MAX, Marks

A, B = b"a" * 16, b"b" * 16


def admit(marks: Marks, block: bytes, segment: int, at_us: int = 0, *, durable: bool = True) -> None:
    marks.admit(block, segment, (segment + 1, segment * 10, 2), at_us)
    if durable:
        marks.settle([block])


def forget(marks: Marks, now_us: int, keep: bytes | None = None) -> int:
    return marks.forget(now_us, DAY_US, 30 * DAY_US, keep)


def test_the_next_segment_is_one_past_the_highest_whatever_holes_there_are() -> None:
    marks = Marks()
    assert marks.next(A) == 0 and marks.get(A) is None
    admit(marks, A, 0)
    admit(marks, A, 5)
    assert marks.next(A) == 6 and marks.next(B) == 0
    known = marks.get(A)
    assert known is not None
    assert 3 not in known.admitted and 5 in known.admitted
    assert known.recent[5] == (6, 50, 2)
    admit(marks, A, 3)
    assert marks.next(A) == 6 and 3 in known.admitted


def test_withdrawing_undoes_admitting() -> None:
    marks = Marks()
    admit(marks, A, 0)
    admit(marks, A, 1)
    admit(marks, B, 0)
    marks.withdraw(A, 1)
    marks.withdraw(B, 0)
    assert marks.next(A) == 1 and B not in marks
    known = marks.get(A)
    assert known is not None and list(known.recent) == [0]
    marks.withdraw(B, 7)  # an unknown block is no fault


def test_places_are_remembered_for_the_latest_segments_only() -> None:
    marks = Marks()
    for segment in range(RECENT_MAX + 5):
        admit(marks, A, segment)
    known = marks.get(A)
    assert known is not None
    assert list(known.recent) == list(range(5, RECENT_MAX + 5))
    assert list(known.admitted) == [(0, RECENT_MAX + 5)]


def test_the_place_of_a_segment_that_is_not_durable_stays_in_memory() -> None:
    marks = Marks()
    for segment in range(RECENT_MAX + 500):
        admit(marks, A, segment, durable=False)
    known = marks.get(A)
    assert known is not None
    assert list(known.recent) == list(range(RECENT_MAX + 500))
    for _ in range(200):
        marks.settle([A])
    assert list(known.recent) == list(range(200, RECENT_MAX + 500))
    for segment in range(RECENT_MAX + 499, 199, -1):
        marks.withdraw(A, segment)
    assert known.pending == 0 and list(known.admitted) == [(0, 200)]


def test_a_block_with_pending_segments_is_not_forgotten() -> None:
    marks = Marks()
    admit(marks, A, 0, durable=False)
    admit(marks, B, 0)
    assert forget(marks, 90 * DAY_US, B) == 0
    marks.settle([A])
    assert forget(marks, 90 * DAY_US, B) == 1 and A not in marks


def test_a_block_that_continues_after_its_end_is_open_again() -> None:
    marks = Marks()
    admit(marks, A, 0)
    marks.end(A, 10)
    admit(marks, A, 1, at_us=20)
    assert forget(marks, 2 * DAY_US) == 0


def test_marks_that_are_too_long_for_a_head_lose_the_longest_silent_blocks() -> None:
    marks = Marks()
    blocks = [bytes([number]) * 16 for number in range(100)]
    for number, block in enumerate(blocks):
        admit(marks, block, 0, at_us=number, durable=number != 1)
    whole = len(marks.encode())
    data, gone = marks.encode_within(whole // 2, keep=blocks[0])
    assert len(data) <= whole // 2 and 50 <= gone < 55
    kept = [blocks[0], blocks[1], *blocks[gone + 2 :]]
    assert list(Marks.decode(data).admitted()) == kept == list(marks.admitted())
    assert marks.encode_within(len(data)) == (data, 0)


def test_a_block_is_forgotten_a_day_after_its_end_or_a_month_after_its_last_segment() -> None:
    marks = Marks()
    admit(marks, A, 0, at_us=0)
    admit(marks, B, 0, at_us=0)
    marks.end(A, 10)
    assert forget(marks, DAY_US + 9) == 0
    assert forget(marks, DAY_US + 10) == 1 and A not in marks
    assert forget(marks, 30 * DAY_US - 1) == 0
    assert forget(marks, 30 * DAY_US) == 1 and B not in marks
    assert len(marks) == 0


def test_undoing_an_end_leaves_the_block_open() -> None:
    marks = Marks()
    admit(marks, A, 0)
    marks.end(A, 5)
    marks.reopen(A)
    known = marks.get(A)
    assert known is not None and known.ended_us is None
    marks.end(B, 5)
    marks.reopen(B)
    assert B not in marks


@settings(max_examples=50)
@given(st.lists(st.tuples(st.sampled_from([A, B]), st.integers(0, 80), st.integers(0, 2**50)), max_size=120))
def test_marks_come_back_from_their_bytes(admissions: list[tuple[bytes, int, int]]) -> None:
    marks = Marks()
    for block, segment, at_us in admissions:
        admit(marks, block, segment, at_us)
    marks.end(A, 3)
    again = Marks.decode(marks.encode())
    assert again.admitted() == marks.admitted()
    for block in (A, B):
        known, restored = marks.get(block), again.get(block)
        if known is None:
            assert restored is None
            continue
        assert restored is not None
        assert (restored.touched_us, restored.ended_us) == (known.touched_us, known.ended_us)
        assert list(restored.recent.items()) == list(known.recent.items())[-RECENT_STORED_MAX:]


def test_bytes_that_are_no_marks_are_refused() -> None:
    with pytest.raises(BadFrame):
        Marks.decode(b"\xc1 nonsense")
