from __future__ import annotations

from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.transport.outbox import Finished, Held, Outbox
from penstock.wire.control import AckItem, Hole, decode_control
from penstock.wire.frame import Frame, FrameType, decode_at

BLOCK = b"b" * 16
ALL = 2**30


def outbox_of(*bodies: bytes, window_bytes: int = ALL) -> Outbox[bytes]:
    outbox: Outbox[bytes] = Outbox(BLOCK, window_bytes=window_bytes)
    for body in bodies:
        outbox.add(0, body, body)
    return outbox


def sent(outbox: Outbox[bytes], bytes_max: int = ALL) -> list[tuple[int, bytes]]:
    """Numbers and bodies of what is to be written now."""
    frames = [decode_at(frame, 0, ALL) for frame, _, _ in outbox.take(bytes_max)]
    return [(frame.segment, frame.body) for frame in frames if frame and frame.type == FrameType.SEGMENT]


def stored(segment: int) -> AckItem:
    return AckItem(segment, "stored", 0)


def refused(segment: int, code: str, expected: int | None = None) -> AckItem:
    return AckItem(segment, "rejected", None, code, code, expected)


def test_segments_are_numbered_in_order_when_they_are_first_sent() -> None:
    outbox = outbox_of(b"a", b"b")
    assert sent(outbox) == [(0, b"a"), (1, b"b")]
    assert sent(outbox) == []
    assert outbox.segments_next == {0: 2}


def test_the_window_stops_sending_until_an_answer_comes() -> None:
    outbox = outbox_of(b"a" * 100, b"b" * 100, b"c" * 100, window_bytes=150)
    assert [number for number, _ in sent(outbox)] == [0, 1]
    outbox.answer(0, stored(0))
    assert [number for number, _ in sent(outbox)] == [2]
    assert outbox.in_flight_segments == 2


def test_a_gap_goes_back_to_what_the_node_expects() -> None:
    outbox = outbox_of(b"a", b"b", b"c")
    sent(outbox)
    outbox.answer(0, stored(0))
    assert outbox.answer(0, refused(2, "gap", expected=1)) is None
    assert sent(outbox) == [(1, b"b"), (2, b"c")]
    assert outbox.resent == 2


def test_a_window_of_gaps_makes_one_step_back() -> None:
    outbox = outbox_of(*[b"%d" % number for number in range(5)])
    sent(outbox)
    outbox.answer(0, refused(1, "gap", expected=0))
    assert len(sent(outbox)) == 5
    for number in (2, 3, 4):  # the answers to the first sending of these
        assert outbox.answer(0, refused(number, "gap", expected=0)) is None
    assert sent(outbox) == []


def test_a_retryable_refusal_holds_its_shard_alone_and_keeps_the_order() -> None:
    outbox = outbox_of(b"a", b"b")
    outbox.add(1, b"other", b"other")
    sent(outbox)
    held = outbox.answer(0, refused(0, "disk-full"))
    assert isinstance(held, Held)
    outbox.add(0, b"c", b"c")
    outbox.add(1, b"more", b"more")
    assert sent(outbox) == [(1, b"more")]
    assert outbox.answer(0, refused(1, "gap", expected=0)) is None
    outbox.release(0)
    assert sent(outbox) == [(0, b"a"), (1, b"b"), (2, b"c")]


def test_refusals_of_a_whole_window_hold_its_shard_once() -> None:
    outbox = outbox_of(b"a", b"b", b"c", b"d")
    for setbacks in (1, 2):
        sent(outbox)
        held = outbox.answer(0, refused(0, "disk-full"))
        assert isinstance(held, Held)
        assert held.setbacks == setbacks
        assert [outbox.answer(0, refused(number, "disk-full")) for number in (1, 2, 3)] == [None] * 3
        outbox.release(0)
    assert [number for number, _ in sent(outbox)] == [0, 1, 2, 3]


def test_a_refusal_of_an_earlier_segment_takes_a_held_shard_further_back() -> None:
    outbox = outbox_of(b"a", b"b")
    sent(outbox)
    assert isinstance(outbox.answer(0, refused(1, "disk-full")), Held)
    assert outbox.answer(0, refused(0, "disk-full")) is None
    outbox.release(0)
    assert sent(outbox) == [(0, b"a"), (1, b"b")]


def test_a_final_refusal_ends_its_segment_and_nothing_else() -> None:
    outbox = outbox_of(b"a", b"b")
    sent(outbox)
    answer = outbox.answer(0, refused(0, "bad-segment"))
    assert isinstance(answer, Finished)
    assert answer.parcel == b"a"
    assert isinstance(outbox.answer(0, stored(1)), Finished)
    assert outbox.unfinished == 0


def test_after_a_reconnect_all_that_is_unconfirmed_is_sent_again_with_the_same_bytes() -> None:
    outbox = outbox_of(b"a", b"b", b"c")
    first = outbox.take(ALL)
    outbox.answer(0, stored(1))
    outbox.reconnect()
    assert [frame for frame, _, _ in outbox.take(ALL)] == [first[0][0], first[2][0]]


def test_answers_that_come_twice_out_of_order_or_for_nothing_change_nothing() -> None:
    outbox = outbox_of(b"a", b"b")
    sent(outbox)
    assert isinstance(outbox.answer(0, stored(1)), Finished)
    assert isinstance(outbox.answer(0, stored(0)), Finished)
    for answer in (stored(0), stored(1), stored(7), refused(0, "gap", 0), refused(1, "disk-full")):
        assert outbox.answer(0, answer) is None
    assert outbox.answer(5, stored(0)) is None
    assert (outbox.in_flight_bytes, outbox.in_flight_segments, outbox.unfinished) == (0, 0, 0)


def test_what_is_given_up_before_it_was_sent_leaves_no_hole() -> None:
    outbox: Outbox[str] = Outbox(BLOCK, window_bytes=ALL)
    outbox.add(0, b"old", "old", deadline=1.0)
    outbox.add(0, b"new", "new", deadline=9.0)
    assert outbox.expire(now=2.0) == ["old"]
    [(_, parcel, number)] = outbox.take(ALL)
    assert (parcel, number) == ("new", 0)


def test_what_is_given_up_after_it_was_sent_is_declared_as_a_hole_if_the_node_misses_it() -> None:
    outbox: Outbox[str] = Outbox(BLOCK, window_bytes=ALL)
    outbox.add(0, b"old", "old", deadline=1.0)
    outbox.take(ALL)
    assert outbox.expire(now=2.0) == ["old"]
    outbox.add(0, b"new", "new", deadline=9.0)
    outbox.take(ALL)
    outbox.answer(0, refused(1, "gap", expected=0))
    hole, again = outbox.take(ALL)
    frame = decode_at(hole[0], 0, ALL)
    assert frame is not None
    assert decode_control(frame.type, frame.body) == Hole(BLOCK, 0, 1)
    assert again[1:] == ("new", 1)


@pytest.mark.parametrize("expected", [0, 1, 5, None])
def test_a_node_that_answers_gap_for_ever_is_asked_with_pauses(expected: int | None) -> None:
    outbox = outbox_of(b"a", b"b")
    sent(outbox)
    for _ in range(10):
        answer = outbox.answer(0, refused(1, "gap", expected))
        if isinstance(answer, Held):
            return
        sent(outbox)
    raise AssertionError("it never pauses")


def test_progress_lets_a_shard_go_back_without_pause_again() -> None:
    outbox = outbox_of(*[b"%d" % number for number in range(8)])
    sent(outbox)
    for number in range(6):
        assert isinstance(outbox.answer(0, stored(number)), Finished)
        assert outbox.answer(0, refused(7, "gap", expected=number + 1)) is None
        assert sent(outbox)[0] == (number + 1, b"%d" % (number + 1))


class Delivery(RuleBasedStateMachine):
    """An outbox and a node that loses, refuses and forgets answers: each segment is stored once, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.outbox: Outbox[int] = Outbox(BLOCK, window_bytes=120)
        self.added: dict[int, list[int]] = {0: [], 1: []}
        self.parcels = 0
        self.wire: list[Frame] = []
        self.answers: list[tuple[int, AckItem]] = []
        self.stored: dict[int, list[int]] = {0: [], 1: []}
        self.finished: list[int] = []
        self.held: set[int] = set()

    @rule(shard=st.integers(0, 1), size=st.integers(1, 60))
    def add(self, shard: int, size: int) -> None:
        self.outbox.add(shard, b"%d:" % self.parcels + b"x" * size, self.parcels)
        self.added[shard].append(self.parcels)
        self.parcels += 1

    @rule(bytes_max=st.integers(1, 200))
    def write(self, bytes_max: int) -> None:
        for data, _, _ in self.outbox.take(bytes_max):
            frame = decode_at(data, 0, ALL)
            assert frame is not None
            assert frame.type == FrameType.SEGMENT, "nothing is ever given up here"
            self.wire.append(frame)

    @precondition(lambda self: self.wire)
    @rule(full=st.booleans())
    def arrive(self, full: bool) -> None:
        frame = self.wire.pop(0)
        done = self.stored[frame.shard]
        parcel = int(frame.body.split(b":")[0])
        if frame.segment < len(done):
            assert done[frame.segment] == parcel, "a number came again with other content"
            answer = AckItem(frame.segment, "duplicate", 0)
        elif frame.segment > len(done):
            answer = refused(frame.segment, "gap", expected=len(done))
        elif full:
            answer = refused(frame.segment, "disk-full")
        else:
            done.append(parcel)
            answer = stored(frame.segment)
        self.answers.append((frame.shard, answer))

    @precondition(lambda self: self.answers)
    @rule(data=st.data(), twice=st.booleans())
    def answer(self, data: Any, twice: bool) -> None:
        """Answers may overtake each other, and come twice."""
        shard, item = self.answers.pop(data.draw(st.integers(0, min(3, len(self.answers) - 1))))
        for _ in range(1 + twice):
            result = self.outbox.answer(shard, item)
            if isinstance(result, Finished):
                self.finished.append(result.parcel)
            elif isinstance(result, Held):
                self.held.add(result.shard)

    @rule()
    def release(self) -> None:
        while self.held:
            self.outbox.release(self.held.pop())

    @rule()
    def reconnect(self) -> None:
        self.wire.clear()
        self.answers.clear()
        self.outbox.reconnect()

    @invariant()
    def each_is_stored_once_and_in_order(self) -> None:
        for shard, done in self.stored.items():
            assert done == self.added[shard][: len(done)]
        assert len(self.finished) == len(set(self.finished))

    @invariant()
    def the_books_balance(self) -> None:
        assert self.outbox.unfinished == self.parcels - len(self.finished)
        assert self.outbox.in_flight_bytes >= 0
        assert self.outbox.in_flight_segments >= 0

    def teardown(self) -> None:
        """Once the faults end, everything arrives."""
        self.reconnect()
        for _ in range(20 * self.parcels + 20):
            self.release()
            self.write(ALL)
            while self.wire:
                self.arrive(full=False)
            for shard, item in self.answers:
                result = self.outbox.answer(shard, item)
                if isinstance(result, Finished):
                    self.finished.append(result.parcel)
                elif isinstance(result, Held):
                    self.held.add(result.shard)
            self.answers.clear()
        assert self.stored == self.added
        assert sorted(self.finished) == list(range(self.parcels))
        assert (self.outbox.in_flight_bytes, self.outbox.in_flight_segments) == (0, 0)


TestDelivery = Delivery.TestCase
TestDelivery.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
