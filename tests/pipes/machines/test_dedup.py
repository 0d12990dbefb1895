"""dedup: each message once, a memory with a bound, and no forgetting in silence."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headpond.pipes.machines.dedup import DedupReceiver
from headpond.pipes.machines.index import IndexReceiver
from headpond.pipes.machines.machine import Arrive, Effects, Fail, Settle
from tests.pipes.machines.machines import data

EPOCH = 5


def passed(effects: Effects) -> list[tuple[int, int]]:
    return [(run.epoch, number) for run in effects.delivered for number in run.numbers]


def notices_of(effects: Effects) -> list[tuple[str, int, list[int]]]:
    return [(notice.what, notice.epoch, list(notice.numbers)) for notice in effects.notices]


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=8), max_size=20))
def test_each_number_passes_once_with_its_own_payload(runs: list[list[int]]) -> None:
    machine = DedupReceiver(epoch=1)
    got = []
    for numbers in runs:
        for run in machine.step(Arrive([data(numbers)]), 0.0).delivered:
            got += list(zip(run.numbers, run.payloads, strict=True))
    first_seen = dict.fromkeys(number for numbers in runs for number in numbers)
    assert got == [(number, b"%d" % number) for number in first_seen]


def test_the_same_number_of_another_session_is_another_message() -> None:
    machine = DedupReceiver(epoch=1)
    effects = machine.step(Arrive([data([0]), data([0], EPOCH + 1), data([0])]), 0.0)
    assert passed(effects) == [(EPOCH, 0), (EPOCH + 1, 0)]


def test_a_late_message_of_an_earlier_session_still_passes() -> None:
    """It is a message like any other, and a high-water mark would have thrown it away."""
    machine = DedupReceiver(epoch=1)
    machine.step(Arrive([data([0, 5], EPOCH), data([0], EPOCH + 1)]), 0.0)
    assert passed(machine.step(Arrive([data([3], EPOCH)]), 0.0)) == [(EPOCH, 3)]


def test_memory_is_bounded_and_given_up_numbers_are_reported() -> None:
    machine = DedupReceiver(epoch=1, window=3)
    effects = machine.step(Arrive([data([1, 2, 3, 5])]), 0.0)
    assert notices_of(effects) == [("given up", EPOCH, [0])]
    assert machine.counts.abandoned == 1
    assert passed(machine.step(Arrive([data([0])]), 0.0)) == []
    assert passed(machine.step(Arrive([data([4, 5])]), 0.0)) == [(EPOCH, 4)]


def test_numbers_in_order_need_no_memory_at_all() -> None:
    machine = DedupReceiver(epoch=1, window=1)
    for first in range(0, 1000, 10):
        effects = machine.step(Arrive([data(range(first, first + 10))]), 0.0)
        assert (len(passed(effects)), effects.notices) == (10, [])


def test_thousands_of_sessions_are_distinguished() -> None:
    machine = DedupReceiver(epoch=1)
    for session in range(5000):
        assert passed(machine.step(Arrive([data([0], session)]), 0.0)) == [(session, 0)]
    for session in range(5000):
        assert passed(machine.step(Arrive([data([0], session)]), 0.0)) == []
    assert machine.counts.refused == 0


def test_one_worker_too_many_does_not_evict_another_in_silence() -> None:
    machine = DedupReceiver(epoch=1, sessions_max=64)
    for worker in range(64):
        assert passed(machine.step(Arrive([data([0], worker)]), 0.0)) == [(worker, 0)]
    effects = machine.step(Arrive([data([0, 1], 64)]), 10.0)
    assert (passed(effects), notices_of(effects)) == ([], [("refused", 64, [0, 1])])
    assert effects.refused == [(64, [0, 1])]
    assert machine.counts.refused == 2
    for worker in range(64):
        assert passed(machine.step(Arrive([data([0], worker)]), 20.0)) == []


def test_a_session_that_was_silent_for_long_makes_room_with_a_notice() -> None:
    machine = DedupReceiver(epoch=1, sessions_max=2, retire_after_s=60.0)
    machine.step(Arrive([data([0], 1)]), 0.0)
    machine.step(Arrive([data([0], 2)]), 50.0)
    effects = machine.step(Arrive([data([0], 3)]), 61.0)
    assert (passed(effects), notices_of(effects)) == ([(3, 0)], [("retired", 1, [0])])


def test_a_session_met_in_its_middle_costs_no_memory_and_loses_nothing() -> None:
    machine = DedupReceiver(epoch=1, ids_max=2)
    for first in range(500, 1500, 100):
        assert len(passed(machine.step(Arrive([data(range(first, first + 100))]), 0.0))) == 100
    assert passed(machine.step(Arrive([data([700, 1499])]), 0.0)) == []
    assert machine.counts.refused == 0
    assert len(passed(machine.step(Arrive([data(range(500))]), 0.0))) == 500, "what came late is not lost"
    assert passed(machine.step(Arrive([data([0, 499, 500, 1499, 1500])]), 0.0)) == [(EPOCH, 1500)]


def test_all_sessions_share_one_bound_of_ids_and_a_number_that_fills_a_hole_still_passes() -> None:
    machine = DedupReceiver(epoch=1, ids_max=4, retire_after_s=60.0)
    machine.step(Arrive([data([0, 2, 4], 1), data([0, 2, 4], 2)]), 0.0)
    effects = machine.step(Arrive([data([1, 1, 8, 4], 2)]), 1.0)
    assert passed(effects) == [(2, 1)]
    assert (effects.refused, machine.counts.refused) == ([(2, [8])], 1)
    assert passed(machine.step(Arrive([data([8], 2)]), 2.0)) == [(2, 8)], "there is room again"
    later = machine.step(Arrive([data([10], 3), data([12], 3)]), 61.5)
    assert ("retired", 1, [0]) in notices_of(later)
    assert passed(later) == [(3, 10), (3, 12)]


@given(st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=8), max_size=20), st.integers(0, 40))
def test_the_same_messages_pass_wherever_a_session_is_met(runs: list[list[int]], first: int) -> None:
    machine = DedupReceiver(epoch=1)
    got = [
        number for numbers in [[first], *runs] for _, number in passed(machine.step(Arrive([data(numbers)]), 0))
    ]
    assert got == list(dict.fromkeys([first, *(number for numbers in runs for number in numbers)]))


def test_a_failed_message_passes_again_once() -> None:
    machine = DedupReceiver(epoch=1)
    machine.step(Arrive([data([0, 1, 3])]), 0.0)
    machine.step(Fail(EPOCH, (0, 3)), 0.0)
    assert passed(machine.step(Arrive([data([0, 1, 3, 0, 3])]), 0.0)) == [(EPOCH, 0), (EPOCH, 3)]


def test_failures_are_remembered_within_the_bound() -> None:
    machine = DedupReceiver(epoch=1, window=2)
    machine.step(Arrive([data(range(10))]), 0.0)
    machine.step(Fail(EPOCH, range(10)), 0.0)
    assert machine.counts.refused == 8
    assert passed(machine.step(Arrive([data(range(10))]), 0.0)) == [(EPOCH, 0), (EPOCH, 1)]


def test_a_dropped_copy_is_settled_towards_a_pipe_that_waits() -> None:
    machine = DedupReceiver(epoch=1, settles=True)
    assert machine.step(Arrive([data([0])]), 0.0).settled == []
    assert machine.step(Arrive([data([0, 1])]), 0.0).settled == [(EPOCH, [0])]
    assert machine.step(Settle(EPOCH, (1,)), 0.0).settled == [(EPOCH, (1,))]


def test_by_index_late_messages_are_dropped_too() -> None:
    machine = IndexReceiver(epoch=1)
    assert passed(machine.step(Arrive([data([0, 2, 1, 2, 3])]), 0.0)) == [(EPOCH, 0), (EPOCH, 2), (EPOCH, 3)]
