"""Every state of every machine meets every event, and follows its table."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product

import pytest

from headpond.pipes.machines.machine import Effects
from tests.pipes.machines.machines import CASES, Case, Event, inputs_of

MOMENTS = (1.0, 1000.0)
"""Soon after the state was reached, when no timer is due, and long after."""


def is_empty(effects: Effects) -> bool:
    made = (effects.packets, effects.delivered, effects.confirmed, effects.settled, effects.accepted)
    return not any(len(each) for each in made)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_each_state_can_be_reached(case: Case) -> None:
    assert {state: make().state for state, make in case.states.items()} == {s: s for s in case.states}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_event_ends_in_a_state_that_the_table_names(case: Case) -> None:
    for state, event in product(case.states, Event):
        outcome = case.table.get((state, event), {state})
        for each in inputs_of(event):
            for now in MOMENTS:
                machine = case.states[state]()
                machine.step(each, now)
                assert machine.state in outcome, (state, event, each)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_event_that_the_table_ignores_leaves_only_a_count(case: Case) -> None:
    for state, event in set(product(case.states, Event)) - set(case.table):
        for each in inputs_of(event):
            machine = case.states[state]()
            before = asdict(machine.counts)
            assert is_empty(machine.step(each, 1.0)), (state, event, each)
            assert asdict(machine.counts) != before, (state, event, each)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_needless_wake_does_nothing(case: Case) -> None:
    for state, make in case.states.items():
        machine = make()
        early = machine.wake_at is None or machine.wake_at > 1.0
        assert early, state
        effects = machine.step(inputs_of(Event.WAKE)[0], 1.0)
        assert is_empty(effects)
        assert machine.state is state
