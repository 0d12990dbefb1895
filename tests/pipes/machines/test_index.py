"""index passes on rising numbers only, and reports the others."""

from __future__ import annotations

from headpond.pipes.machines.index import IndexReceiver
from headpond.pipes.machines.machine import Arrive
from tests.pipes.machines.machines import EPOCH, data, feed, passed


def test_index_passes_only_numbers_above_the_last() -> None:
    machine = IndexReceiver(epoch=1)
    assert feed(machine, 0, 2, 1, 2, 5, 4) == [0, 2, 5]
    assert (machine.counts.late, machine.counts.duplicate) == (2, 1)


def test_relaxed_index_also_passes_a_repeat_of_the_last() -> None:
    assert feed(IndexReceiver(epoch=1, strict=False), 0, 0, 2, 2, 1, 2) == [0, 0, 2, 2, 2]


def test_a_run_and_single_messages_give_the_same() -> None:
    numbers = [0, 3, 1, 3, 4]
    one_by_one = feed(IndexReceiver(epoch=1), *numbers)
    assert passed(IndexReceiver(epoch=1).step(Arrive([data(numbers)]), 0.0)) == one_by_one == [0, 3, 4]


def test_a_restarted_sender_at_number_0_is_recognised() -> None:
    machine = IndexReceiver(epoch=1)
    assert feed(machine, 0, 1, 2) == [0, 1, 2]
    assert feed(machine, 0, 1, epoch=EPOCH + 1) == [0, 1]
    assert machine.counts.restarts == 1


def test_messages_of_a_restarted_sender_without_a_new_epoch_count_as_repeats() -> None:
    """This is the fault that the directory does not tolerate: why a session has an epoch."""
    machine = IndexReceiver(epoch=1)
    feed(machine, 0, 1, 2)
    assert feed(machine, 0, 1, 2) == []


def test_late_numbers_are_reported() -> None:
    machine = IndexReceiver(epoch=1)
    feed(machine, 0, 5)
    effects = machine.step(Arrive([data([3])]), 0.0)
    assert [(notice.what, notice.epoch, *notice.numbers) for notice in effects.notices] == [("late", EPOCH, 3)]


def test_messages_of_an_earlier_session_are_dropped_and_reported() -> None:
    machine = IndexReceiver(epoch=1)
    feed(machine, 0, epoch=EPOCH + 1)
    effects = machine.step(Arrive([data([7])]), 0.0)
    assert (passed(effects), machine.counts.stale) == ([], 1)
    assert effects.notices[0].what == "stale"
