"""sequential passes on every message once and in order, one at a time."""

from __future__ import annotations

from headpond.pipes.machines.machine import WAKE, Arrive, Fail, Settle, Submit
from headpond.pipes.machines.packet import Kind
from headpond.pipes.machines.resend import ResendSender
from headpond.pipes.machines.sequential import SequentialReceiver
from tests.pipes.machines.machines import EPOCH, data, feed, kinds, packet, passed


def test_sequential_sends_the_next_only_after_the_confirm() -> None:
    sender = ResendSender(epoch=EPOCH, window=1, buffer=1024)
    effects = sender.step(Submit([b"a", b"b"]), 0.0)
    assert kinds(effects) == [(Kind.DATA, (0,))]
    assert sender.step(WAKE, 0.1).packets == []
    assert kinds(sender.step(Arrive([packet(Kind.CONFIRM, (0,))]), 0.2)) == [(Kind.DATA, (1,))]


def test_a_lost_confirm_does_not_block_sequential() -> None:
    sender, receiver = ResendSender(epoch=EPOCH, window=1, buffer=1024), SequentialReceiver(epoch=1)
    first = sender.step(Submit([b"a", b"b"]), 0.0)
    receiver.step(Arrive(first.packets), 0.1)  # and its confirm is lost
    assert sender.wake_at is not None
    again = sender.step(WAKE, sender.wake_at)
    answer = receiver.step(Arrive(again.packets), 2.0)
    assert (passed(answer), receiver.counts.duplicate) == ([], 1)
    assert kinds(sender.step(Arrive(answer.packets), 2.1)) == [(Kind.DATA, (1,))]


def test_a_late_copy_does_not_come_between() -> None:
    machine = SequentialReceiver(epoch=1)
    assert feed(machine, 0, 1, 0, 2, 1, 2, 3) == [0, 1, 2, 3]


def test_a_receiver_started_in_the_middle_continues_from_there() -> None:
    machine = SequentialReceiver(epoch=2)
    effects = machine.step(Arrive([data([7])]), 0.0)
    assert passed(effects) == [7]
    assert kinds(effects) == [(Kind.CONFIRM, (7,))]


def test_a_message_behind_a_gap_is_passed_on_with_a_notice() -> None:
    machine = SequentialReceiver(epoch=2)
    feed(machine, 3)
    effects = machine.step(Arrive([data([6])]), 0.0)
    assert passed(effects) == [6]
    assert [(notice.what, *notice.numbers) for notice in effects.notices] == [("gap", 4, 5)]


def test_sequential_can_wait_for_the_work_to_be_done() -> None:
    machine = SequentialReceiver(epoch=1, confirm="settled")
    assert machine.step(Arrive([data([0])]), 0.0).packets == []
    assert machine.step(Arrive([data([0])]), 0.0).packets == []
    machine.step(Fail(EPOCH, (0,)), 0.0)
    assert feed(machine, 0) == [0]
    assert kinds(machine.step(Settle(EPOCH, (0,)), 0.0)) == [(Kind.CONFIRM, (0,))]
