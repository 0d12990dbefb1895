"""Whole systems under faults: the pinned seeds keep every promise, and a seed always gives the same run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headpond.sim.plan import draw
from headpond.sim.runner import run_quietly
from headpond.sim.scenarios import plan_of

SEEDS_EACH = 10
FOUND = (710, 713, 1026, 1646, 4334, 4490, 4717, 5576, 5975, 7010, 7804)
FOUND_IN_A_GROUP = (2, 284, 318, 375, 439, 1457, 4035)
"""Seeds that once failed."""


@pytest.mark.parametrize(
    ("seed", "scenario"), [*((each, None) for each in FOUND), *((each, "cluster") for each in FOUND_IN_A_GROUP)]
)
def test_a_seed_that_once_failed_keeps_every_promise(seed: int, scenario: str | None) -> None:
    assert run_quietly(plan_of(seed, scenario)).violations == []


@pytest.mark.parametrize(
    ("seed", "point"), [(0, "disk rename admin_log/*.new"), (141, "disk sync writers/*.new")]
)
def test_members_that_are_killed_as_they_first_take_over_start_again(seed: int, point: str) -> None:
    outcome = run_quietly(replace(plan_of(seed, "cluster"), kill_at=(point,)))
    assert outcome.violations == []
    assert outcome.kills[point]


@pytest.mark.parametrize("first", range(0, 200, SEEDS_EACH))
def test_every_promise_is_kept(first: int) -> None:
    broken = {
        seed: outcome.violations[0]
        for seed in range(first, first + SEEDS_EACH)
        if (outcome := run_quietly(draw(seed))).violations
    }
    assert not broken


def test_a_seed_gives_the_same_run_again() -> None:
    for seed in range(5):
        assert run_quietly(draw(seed)).trace == run_quietly(draw(seed)).trace
