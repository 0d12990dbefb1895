"""Whole systems under faults: the pinned seeds keep every promise, and a seed always gives the same run."""

from __future__ import annotations

import pytest

from headpond.sim.plan import draw
from headpond.sim.runner import run_quietly

SEEDS_EACH = 10


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
