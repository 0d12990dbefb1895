"""Alarms: every part acts at its time, without polling."""

from __future__ import annotations

from headpond.broker.context import Alarms


class Clock:
    us = 0

    def __call__(self) -> int:
        return self.us


def test_an_alarm_rings_at_the_earliest_time_it_was_armed_for_and_once() -> None:
    clock, rung = Clock(), list[str]()
    alarms = Alarms(clock)
    one, two = alarms.add(lambda: rung.append("one")), alarms.add(lambda: rung.append("two"))
    for time_us in (30, 10, 20):
        one.by(time_us)
    two.by(15)
    two.by(None)
    assert alarms.due_us == 10
    clock.us = 10
    alarms.ring()
    assert rung == ["one"]
    clock.us = 40
    alarms.ring()
    alarms.ring()
    assert rung == ["one", "two"]


def test_an_alarm_that_is_armed_while_it_rings_is_due_again() -> None:
    clock = Clock()
    alarms = Alarms(clock)
    alarm = alarms.add(lambda: alarm.by(clock.us + 5))
    alarm.by(0)
    alarms.ring()
    assert alarms.due_us == 5


def test_a_stopping_node_begins_no_background_work() -> None:
    alarms, rung = Alarms(Clock()), list[str]()
    alarms.add(lambda: rung.append("retention"), while_stopping=False).by(0)
    alarms.add(lambda: rung.append("deadlines")).by(0)
    alarms.stopping = True
    alarms.ring()
    assert rung == ["deadlines"]
