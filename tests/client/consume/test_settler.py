from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headpond.client.consume.settler import SPANS_MAX, Nack, Settler
from headpond.wire.control.codec import encode_control
from headpond.wire.control.consuming import Settle


def test_consecutive_acks_are_one_range_also_across_takes() -> None:
    settler = Settler(1, 1)
    for entry in range(5):
        settler.ack(0, entry, entry + 1)
    assert [settle.acked for settle in settler.take()] == [[(0, 5)]]
    settler.ack(0, 5, 6)
    assert [settle.acked for settle in settler.take()] == [[(5, 6)]]
    assert settler.take() == []


def test_settlements_are_kept_until_they_are_confirmed() -> None:
    settler = Settler(1, 2)
    settler.ack(0, 0, 1)
    settler.ack(1, 0, 1)
    first, second = settler.take()
    assert (first.number, second.number) == (1, 2)
    settler.confirm(1)
    assert list(settler.unconfirmed) == [second]
    settler.confirm(2)
    assert not settler.unconfirmed


def test_drop_counts_unconfirmed_settlements_and_not_confirmed_ones() -> None:
    settler = Settler(1, 2)
    settler.ack(0, 0, 10)
    settler.take()
    settler.confirm(1)
    settler.ack(0, 10, 15)
    settler.take()
    settler.skip(1, 0, 3)
    settler.nack(1, 7, Nack())
    assert settler.drop() == 9
    assert (settler.pending, list(settler.unconfirmed), settler.take(), settler.drop()) == (0, [], [], 0)


def test_the_refusal_of_a_message_that_came_again_is_not_sent_again() -> None:
    settler = Settler(1, 2)
    settler.ack(0, 3, 4)
    for entry in (7, 8):
        settler.nack(0, entry, Nack(1.5))
    settler.nack(1, 7, Nack())
    settler.take()
    settler.came_again(0, [(5, 8)])
    here, there = settler.unconfirmed
    assert (here.acked, here.nacked) == ([(3, 4)], [(8, 1.5)])
    assert there.nacked == [(7, None)]


def test_a_refusal_follows_the_acknowledgements_of_other_shards() -> None:
    settler = Settler(1, 3)
    settler.ack(2, 3, 4)
    settler.nack(0, 4, Nack())
    settler.skip(1, 5, 6)
    taken = settler.take()
    assert [(each.number, each.shard) for each in taken] == [(1, 1), (2, 2), (3, 0)]


def test_many_ranges_are_cut_into_frames_that_fit() -> None:
    settler = Settler(1, 1)
    for entry in range(0, 2 * (SPANS_MAX + 5), 2):
        settler.ack(0, entry, entry + 1)
        settler.nack(0, entry + 1, Nack(1.5))
    frames = settler.take()
    assert len(frames) == 2
    assert sum(len(frame.acked) for frame in frames) == SPANS_MAX + 5
    assert sum(len(frame.nacked) for frame in frames) == SPANS_MAX + 5
    for frame in frames:
        encode_control(frame)


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["ack", "skip", "take"]), st.integers(0, 1), st.integers(0, 30)), max_size=60
    )
)
def test_take_returns_exactly_the_recorded_settlements(steps: list[tuple[str, int, int]]) -> None:
    settler = Settler(1, 2)
    given: set[tuple[str, int, int]] = set()
    taken: list[Settle] = []
    for step, shard, entry in steps:
        if step == "take":
            taken += settler.take()
        else:
            getattr(settler, step)(shard, entry, entry + 1)
            given.add((step, shard, entry))
    taken += settler.take()
    found = {
        (kind, settle.shard, entry)
        for settle in taken
        for kind, spans in (("ack", settle.acked), ("skip", settle.skipped))
        for start, end in spans
        for entry in range(start, end)
    }
    assert found == given
    assert [settle.number for settle in taken] == list(range(1, len(taken) + 1))
