"""Runs many seeds, in several processes, and adds up what they showed."""

from __future__ import annotations

import logging
import multiprocessing
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from headpond.sim.plan import Plan, draw
from headpond.sim.world import Outcome, run

SEEDS_PER_TASK = 8
TASKS_PER_PROCESS = 25
"""Then a fresh process takes over, so that memory cannot grow."""


@dataclass
class Failure:
    seed: int
    violations: list[str]
    """Broken promises: the name of the check, and what it found."""
    trace: list[str] = field(default_factory=list)
    """Of the smallest run found that breaks the same promise."""


@dataclass
class Scoreboard:
    """The sum of the runs of some seeds."""

    seeds: int = 0
    simulated_s: float = 0.0
    took_s: float = 0.0
    messages: int = 0
    """That programs sent."""
    deliveries: int = 0
    faults: dict[str, int] = field(default_factory=dict)
    """How often each happened."""
    points: dict[str, int] = field(default_factory=dict)
    """How often processes came to each place at which they could be killed."""
    kills: dict[str, int] = field(default_factory=dict)
    """How often a process was killed there."""
    failures: list[Failure] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        self.seeds += 1
        self.simulated_s += outcome.seconds
        self.messages += outcome.messages
        self.deliveries += outcome.deliveries
        self.faults = dict(Counter(self.faults) + outcome.faults)
        self.points = dict(Counter(self.points) + outcome.points)
        self.kills = dict(Counter(self.kills) + outcome.kills)
        if outcome.violations:
            self.failures.append(Failure(outcome.seed, outcome.violations))

    @property
    def speed(self) -> float:
        """Simulated seconds per second."""
        return self.simulated_s / self.took_s if self.took_s else 0.0

    @property
    def points_left(self) -> list[str]:
        """Points at which no process was killed."""
        return sorted(set(self.points) - set(self.kills))


@dataclass
class Repeats:
    """Seeds that ran twice."""

    seeds: int = 0
    lines: int = 0
    """Of their traces."""
    different: list[int] = field(default_factory=list)
    """Seeds whose traces differ."""


def run_quietly(plan: Plan) -> Outcome:
    """Runs a plan without logs: what the product logs under faults is not news."""
    logging.disable(logging.CRITICAL)
    try:
        return run(plan)
    finally:
        logging.disable(logging.NOTSET)


def _run_some(seeds: list[int]) -> list[Outcome]:
    outcomes = [run_quietly(draw(seed)) for seed in seeds]
    for outcome in outcomes:
        outcome.trace.clear()  # it can be had again
    return outcomes


def run_seeds(seeds: Iterable[int], jobs: int, on_progress: Callable[[Scoreboard], None]) -> Scoreboard:
    """Runs seeds and calls ``on_progress`` after every few."""
    board, began_s = Scoreboard(), time.monotonic()
    for outcomes in _outcomes(list(seeds), jobs):
        for outcome in outcomes:
            board.add(outcome)
        board.took_s = time.monotonic() - began_s
        on_progress(board)
    return board


def _outcomes(seeds: list[int], jobs: int) -> Iterator[list[Outcome]]:
    tasks = [seeds[at : at + SEEDS_PER_TASK] for at in range(0, len(seeds), SEEDS_PER_TASK)]
    if jobs == 1:
        yield from map(_run_some, tasks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(jobs, mp_context=context, max_tasks_per_child=TASKS_PER_PROCESS) as pool:
        yield from pool.map(_run_some, tasks)
