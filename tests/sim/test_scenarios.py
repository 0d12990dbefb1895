"""Each scenario keeps every promise, and has a guard whose removal it notices (planted_scenarios.py)."""

from __future__ import annotations

import pytest

from headpond.model.errors import BadRequest
from headpond.sim.runner import run_quietly
from headpond.sim.scenarios import SCENARIOS, plan_of
from tests.root import ROOT
from tests.sim.planted_scenarios import GUARDS

SEEDS = 2
FOUND = [("reconnect", 106)]
"""Seeds that found a bug of this product."""


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_promise_is_kept(name: str) -> None:
    broken = {
        seed: outcome.violations[0]
        for seed in range(SEEDS)
        if (outcome := run_quietly(plan_of(seed, name))).violations
    }
    assert not broken


@pytest.mark.parametrize(("name", "seed"), FOUND)
def test_a_bug_does_not_come_back(name: str, seed: int) -> None:
    assert not run_quietly(plan_of(seed, name)).violations


def test_the_page_lists_every_scenario() -> None:
    page = (ROOT / "docs" / "simulation.md").read_text()
    table = [f"| `{name}` | {scenario.about} |" for name, scenario in SCENARIOS.items()]
    assert "\n".join(["| scenario | what went wrong |", "|---|---|", *table, ""]) in page


def test_an_unknown_name_is_refused_with_the_names_that_exist() -> None:
    with pytest.raises(BadRequest) as refused:
        plan_of(0, "power")
    assert "power-cut" in refused.value.hint


def test_every_scenario_has_a_guard_that_can_be_removed() -> None:
    assert {fault.scenario for fault in GUARDS} == set(SCENARIOS)
