"""continuous holds early messages, asks for missing ones, and passes on every message once and in order."""

from __future__ import annotations

from itertools import pairwise

from headpond.pipes.machines.continuous import ASKED_MAX, ContinuousReceiver, ContinuousSender
from headpond.pipes.machines.machine import WAKE, Arrive, Submit
from headpond.pipes.machines.packet import Kind, Packet
from tests.pipes.machines.machines import EPOCH, data, feed, kinds, packet, passed


def test_continuous_holds_early_messages_until_their_turn() -> None:
    machine = ContinuousReceiver(epoch=1)
    assert feed(machine, 0, 2, 3, 1, 1, 3, 4) == [0, 1, 2, 3, 4]
    assert machine.counts.duplicate == 2


def test_relaxed_continuous_also_passes_a_repeat_of_the_last() -> None:
    assert feed(ContinuousReceiver(epoch=1, strict=False), 0, 0, 2, 1, 2, 0) == [0, 0, 1, 2, 2]


def test_a_gap_that_stays_open_is_asked_for_and_asked_for_again() -> None:
    machine = ContinuousReceiver(epoch=1)
    machine.step(Arrive([data([0, 3, 5])]), 0.0)
    now, waits = 0.0, []
    for _ in range(3):
        assert machine.wake_at is not None
        waits.append(machine.wake_at - now)
        now = machine.wake_at
        assert kinds(machine.step(WAKE, now)) == [(Kind.GAP, (1, 2, 4))]
    assert waits[0] < waits[1] < waits[2]


def test_a_gap_that_closes_in_time_is_not_asked_for() -> None:
    machine = ContinuousReceiver(epoch=1)
    machine.step(Arrive([data([1])]), 0.0)
    machine.step(Arrive([data([0])]), 0.01)
    assert machine.wake_at is None
    assert machine.step(WAKE, 10.0).packets == []


def test_the_sender_answers_a_gap_from_its_buffer() -> None:
    sender = ContinuousSender(epoch=EPOCH)
    sender.step(Submit([b"a", b"b", b"c"]), 0.0)
    (again,) = sender.step(Arrive([packet(Kind.GAP, (2, 0, 0, 9))]), 5.0).packets
    assert (again.kind, list(again.numbers), again.payloads) == (Kind.DATA, [2, 0], [b"c", b"a"])


def sent_and_seen(count: int, takes_s: float) -> ContinuousSender:
    """A sender that knows how long a message takes, with so many more on their way since second 10."""
    sender = ContinuousSender(epoch=EPOCH)
    sender.step(Submit([b"x"]), 0.0)
    sender.step(Arrive([packet(Kind.PROGRESS, (1, 1, 0))]), takes_s)
    sender.step(Submit([b"x"] * count), 10.0)
    return sender


def test_a_message_on_its_way_is_not_sent_again_however_often_it_is_asked_for() -> None:
    sender = sent_and_seen(3, takes_s=1.0)
    for now in (10.1, 10.2, 11.0, 11.5):
        assert sender.step(Arrive([packet(Kind.GAP, (1, 2, 3))]), now).packets == []
    # Two came meanwhile; the third did not, and its time is over.
    sender.step(Arrive([packet(Kind.PROGRESS, (3, 3, 0))]), 12.0)
    assert sender.wake_at is not None
    assert kinds(sender.step(WAKE, 13.5)) == [(Kind.DATA, (3,))]
    assert sender.counts.resent == 1


def test_each_copy_doubles_the_time_until_the_next() -> None:
    sender = sent_and_seen(1, takes_s=0.1)
    sent_at, now = [10.0], 10.0
    while len(sent_at) < 5:
        now += 0.05
        effects = [sender.step(Arrive([packet(Kind.GAP, (1,))]), now), sender.step(WAKE, now)]
        sent_at += [now for each in effects for answer in each.packets if answer.kind == Kind.DATA]
    waits = [after - before for before, after in pairwise(sent_at)]
    assert all(1.5 * before < after for before, after in pairwise(waits))


def test_the_time_a_message_waited_for_its_turn_is_not_the_time_it_takes() -> None:
    """Else what waits behind a gap would make the next answer slower, and so on without end."""
    sender = ContinuousSender(epoch=EPOCH)
    sender.step(Submit([b"a", b"b"]), 0.0)
    sender.step(Arrive([packet(Kind.PROGRESS, (0, 2, 59_900_000))]), 60.0)
    assert kinds(sender.step(Arrive([packet(Kind.GAP, (0,))]), 60.0)) == [(Kind.DATA, (0,))]
    assert kinds(sender.step(Arrive([packet(Kind.GAP, (0,))]), 61.0)) == [(Kind.DATA, (0,))]


def test_a_number_is_asked_for_more_and_more_seldom_though_others_move() -> None:
    machine = ContinuousReceiver(epoch=1)
    machine.step(Arrive([data([1000])]), 0.0)
    asked: list[int] = []
    for step in range(100):
        machine.step(Arrive([data([step])]), step * 0.06)  # there is progress all the time
        packets = machine.step(WAKE, step * 0.06 + 0.055).packets
        asked += [number for each in packets if each.kind == Kind.GAP for number in each.numbers]
    assert 3 < asked.count(500) < 15


def test_progress_makes_room_at_the_sender() -> None:
    sender = ContinuousSender(epoch=EPOCH, window=2)
    assert sender.step(Submit([b"a", b"b", b"c"]), 0.0).accepted == range(2)
    assert sender.step(Arrive([packet(Kind.PROGRESS, (1,))]), 0.1).confirmed == [(EPOCH, range(1))]
    assert sender.room == 1


def test_progress_past_the_last_number_is_not_believed() -> None:
    sender = ContinuousSender(epoch=EPOCH)
    sender.step(Submit([b"a"]), 0.0)
    assert sender.step(Arrive([packet(Kind.PROGRESS, (7,))]), 0.1).confirmed == []
    assert (sender.unconfirmed, sender.counts.unknown) == (1, 1)


def test_the_loss_of_the_last_message_is_found_by_a_probe() -> None:
    sender, receiver = ContinuousSender(epoch=EPOCH), ContinuousReceiver(epoch=1)
    first = sender.step(Submit([b"a", b"b"]), 0.0).packets[0]
    receiver.step(Arrive([first._replace(numbers=[0], payloads=[b"a"])]), 0.1)
    assert sender.wake_at is not None
    probe = sender.step(WAKE, sender.wake_at)
    assert kinds(probe) == [(Kind.PROBE, (1,))]
    answer = receiver.step(Arrive(probe.packets), 2.0)
    assert kinds(answer) == [(Kind.PROGRESS, (1, 1, 1_900_000)), (Kind.GAP, (1,))]
    again = sender.step(Arrive(answer.packets), 2.1)
    assert passed(receiver.step(Arrive(again.packets), 2.2)) == [1]


def test_a_message_that_the_queue_had_no_room_for_is_asked_for_later() -> None:
    machine = ContinuousReceiver(epoch=1, queue=1)
    machine.step(Arrive([data([1, 2])]), 0.0)
    assert machine.counts.refused == 1
    assert feed(machine, 0) == [0, 1]
    assert machine.wake_at is not None
    assert kinds(machine.step(WAKE, machine.wake_at)) == [(Kind.GAP, (2,))]


def test_a_restarted_receiver_continues_at_the_floor() -> None:
    sender, receiver = ContinuousSender(epoch=EPOCH), ContinuousReceiver(epoch=2)
    sender.step(Submit([b"a", b"b", b"c", b"d"]), 0.0)
    sender.step(Arrive([packet(Kind.PROGRESS, (2,), origin=1)]), 0.1)
    receiver.step(Arrive([data([3])]), 0.2)
    assert receiver.wake_at is not None
    asked = receiver.step(WAKE, receiver.wake_at)
    assert kinds(asked)[1:] == [(Kind.GAP, (0, 1, 2))]
    answer = sender.step(Arrive(asked.packets), 0.35)
    assert kinds(answer) == [(Kind.FLOOR, (2,))]
    effects = receiver.step(Arrive(answer.packets), 0.4)
    assert [(notice.what, *notice.numbers) for notice in effects.notices] == [("skipped", 0, 1)]
    assert sender.wake_at is not None
    again = sender.step(WAKE, sender.wake_at)
    assert passed(receiver.step(Arrive(again.packets), 2.0)) == [2, 3]


def test_a_restarted_sender_ends_the_wait_for_its_lost_messages() -> None:
    machine = ContinuousReceiver(epoch=1)
    feed(machine, 0, 4)
    effects = machine.step(Arrive([data([0], EPOCH + 1)]), 0.0)
    assert passed(effects) == [0]
    assert [(notice.what, *notice.numbers) for notice in effects.notices] == [("given up", 4)]


def test_without_gap_requests_the_sender_keeps_nothing_and_the_receiver_asks_nothing() -> None:
    sender = ContinuousSender(epoch=EPOCH, gaps=False)
    sender.step(Submit([b"a"]), 0.0)
    assert (sender.unconfirmed, sender.wake_at) == (0, None)
    receiver = ContinuousReceiver(epoch=1, gaps=False)
    effects = receiver.step(Arrive([data([2])]), 0.0)
    assert (effects.packets, receiver.wake_at) == ([], None)


def test_a_huge_number_costs_no_more_than_a_small_one() -> None:
    machine = ContinuousReceiver(epoch=1)
    machine.step(Arrive([data([2**62])]), 0.0)
    assert machine.wake_at is not None
    _, asked = machine.step(WAKE, machine.wake_at).packets
    assert len(asked.numbers) == ASKED_MAX


def test_a_probe_of_another_session_is_only_counted() -> None:
    machine = ContinuousReceiver(epoch=1)
    feed(machine, 0, epoch=EPOCH + 1)
    probe = Packet(Kind.PROBE, EPOCH, 0, (9,))
    effects = machine.step(Arrive([probe]), 0.0)
    assert (effects.packets, machine.counts.stale) == ([], 1)
