"""The timeout: learned from round trips, doubled in silence, and never without a limit."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headpond.pipes.machines.compose import sender_of
from headpond.pipes.machines.machine import Submit
from headpond.pipes.machines.timeout import Timeout, TimeoutSettings

SETTINGS = TimeoutSettings(initial_s=1.0, min_s=0.01, max_s=30.0)


def timeout() -> Timeout:
    return Timeout(SETTINGS)


def test_before_anything_was_measured_it_is_the_initial_one() -> None:
    assert timeout().base_s == 1.0


def test_steady_round_trips_make_it_twice_the_round_trip() -> None:
    machine = timeout()
    for second in range(50):
        machine.measured(0.1, float(second))
    assert machine.base_s == pytest.approx(0.2, rel=0.01)


def test_round_trips_that_vary_make_it_longer_than_the_longest() -> None:
    machine = timeout()
    for second in range(50):
        machine.measured(0.1 if second % 2 else 0.3, float(second))
    assert machine.base_s > 0.3


def test_all_the_sendings_of_one_silence_double_it_once() -> None:
    machine = timeout()
    for sent_at in (0.0, 0.1, 0.2):
        machine.ran_out(sent_at, 1.2)
    assert machine.base_s == 2.0
    machine.ran_out(1.2, 3.2)
    assert machine.base_s == 4.0


def test_a_measurement_since_the_sending_means_that_only_the_message_was_lost() -> None:
    machine = timeout()
    machine.measured(0.1, 5.0)
    before = machine.base_s
    machine.ran_out(4.9, 5.2)
    assert machine.base_s == before


def test_a_measurement_ends_all_doubling() -> None:
    machine = timeout()
    machine.ran_out(0.0, 1.0)
    machine.ran_out(1.0, 3.0)
    machine.measured(0.1, 4.0)
    assert machine.base_s < 0.5


def test_a_confirm_that_measures_nothing_leaves_a_little_of_a_long_silence() -> None:
    machine = timeout()
    machine.measured(0.1, 0.0)
    estimate = machine.base_s
    now = 1.0
    for _ in range(20):
        machine.ran_out(now, now + machine.base_s)
        now += machine.base_s
    assert machine.base_s == 30.0
    machine.confirmed()
    assert machine.base_s == pytest.approx(8 * estimate)


def test_many_confirms_that_measure_nothing_let_it_grow_past_any_round_trip() -> None:
    machine = timeout()
    machine.measured(0.01, 0.0)
    now, round_trip_s, confirms = 1.0, 5.0, 0
    while machine.base_s < round_trip_s:  # no message would be confirmed before it is sent again
        machine.ran_out(now, now + machine.base_s)
        now += machine.base_s
        machine.confirmed()
        confirms += 1
        assert confirms < 200


@given(st.lists(st.tuples(st.sampled_from("mcrh"), st.floats(0, 100)), max_size=60))
def test_it_stays_within_its_limits(events: list[tuple[str, float]]) -> None:
    machine = timeout()
    now = 0.0
    for what, value in events:
        now += value
        if what == "m":
            machine.measured(value, now)
        elif what == "c":
            machine.confirmed()
        elif what == "h":
            machine.heard(now)
        else:
            machine.ran_out(now - value, now)
        assert SETTINGS.min_s <= machine.base_s <= SETTINGS.max_s
        assert now < machine.deadline(now) <= now + 1.1 * SETTINGS.max_s


def test_a_route_may_set_the_floor_and_the_default_bears_a_busy_program() -> None:
    assert TimeoutSettings.at_least(20) == TimeoutSettings()
    assert TimeoutSettings().min_s >= 0.02
    slow = TimeoutSettings.at_least(45_000)
    assert (slow.initial_s, slow.min_s, slow.max_s) == (45.0, 45.0, 45.0)


@pytest.mark.parametrize("pipe", ["resend", "resend_many", "stream", "sequential"])
def test_the_setting_reaches_every_sender_that_sends_again(pipe: str) -> None:
    sender = sender_of(f"{pipe}(timeout=5000)", epoch=1)
    sender.step(Submit([b"x"]), 0.0)
    assert sender.wake_at == 5.0
