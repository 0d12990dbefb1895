"""Many seeds: what they showed is added up, and a process is killed at every point that processes came to."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headpond.sim import runner
from headpond.sim.plan import FAULTS
from headpond.sim.runner import Scoreboard, in_processes, run_plans
from headpond.sim.scenarios import plan_of


@pytest.mark.timeout(600)
def test_a_process_is_killed_at_points_at_which_the_faults_killed_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "SEEDS_TO_COVER", 1)
    boards: list[Scoreboard] = []
    plan = replace(plan_of(0, "power-cut"), seconds=3.0, faults={})
    board = run_plans([plan], in_processes(1), boards.append)
    assert board.seeds == 1 and board.again > 20 and boards[-1] is board
    assert board.points_left == []
    assert not board.failures
    assert set(FAULTS) <= board.faults.keys()  # a kind that never happened is there with 0


@pytest.mark.timeout(300)
def test_fresh_processes_take_over_after_some_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "PLANS_PER_TASK", 1)
    monkeypatch.setattr(runner, "TASKS_PER_PROCESS", 1)
    plan = replace(plan_of(0, "power-cut"), seconds=1.0, faults={})
    plans = [replace(plan, seed=seed) for seed in range(5)]
    assert run_plans(plans, in_processes(2), lambda board: None).seeds == 5
