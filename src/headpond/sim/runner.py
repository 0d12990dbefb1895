"""Runs many plans, in several processes, and adds up what they showed."""

from __future__ import annotations

import logging
import multiprocessing
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from headpond.sim.plan import FAULTS, WEATHER, Plan
from headpond.sim.world import Outcome, run

PLANS_PER_TASK = 8
TASKS_PER_PROCESS = 25
"""Then fresh processes take over, so that memory cannot grow; ``max_tasks_per_child`` may hang instead."""
SEEDS_TO_COVER = 1000
"""From so many seeds on, a process is killed at every point that any process came to."""

Spread = Callable[[list[Plan]], Iterator[list[Outcome]]]
"""Runs plans somewhere, and returns their outcomes in any order."""


@dataclass
class Failure:
    seed: int
    kill_at: tuple[str, ...]
    """Points at which processes were killed, one after the other, beside the faults."""
    violations: list[str]
    """Broken promises: the name of the check, and what it found."""
    trace: list[str] = field(default_factory=list)
    """Of the smallest run found that breaks the same promise."""


@dataclass
class Scoreboard:
    """The sum of the runs of some seeds."""

    seeds: int = 0
    again: int = 0
    """Further runs of these seeds, each with a kill at a point at which no process had been killed."""
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
        self.seeds += not outcome.kill_at
        self.again += bool(outcome.kill_at)
        self.simulated_s += outcome.seconds
        self.messages += outcome.messages
        self.deliveries += outcome.deliveries
        for mine, its in (
            (self.faults, outcome.faults),
            (self.points, outcome.points),
            (self.kills, outcome.kills),
        ):
            for name, count in its.items():
                mine[name] = mine.get(name, 0) + count
        if outcome.violations:
            self.failures.append(Failure(outcome.seed, outcome.kill_at, outcome.violations))

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


def run_twice(plans: Sequence[Plan], on_progress: Callable[[Repeats], None]) -> Repeats:
    """Runs plans in two processes with different hashes of text, so that no order of a set has an effect."""
    repeats = Repeats()
    with _process(hashes="1") as one, _process(hashes="2") as other:
        for plan, once, twice in zip(plans, one.map(_trace, plans), other.map(_trace, plans), strict=True):
            repeats.seeds += 1
            repeats.lines += len(once)
            if once != twice:
                repeats.different.append(plan.seed)
            on_progress(repeats)
    return repeats


def _pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"), _end_with_parent)


def _end_with_parent() -> None:
    """A signal may end the command at any time, and its processes have minutes of work left."""
    parent = multiprocessing.parent_process()
    assert parent is not None, "it runs in a process of a pool"

    def wait() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=wait, daemon=True).start()


@contextmanager
def _process(hashes: str) -> Iterator[ProcessPoolExecutor]:
    before = os.environ.get("PYTHONHASHSEED")
    with _pool(1) as pool:
        os.environ["PYTHONHASHSEED"] = hashes
        pool.submit(int).result()  # the process starts now
        if before is None:
            del os.environ["PYTHONHASHSEED"]
        else:
            os.environ["PYTHONHASHSEED"] = before
        yield pool


def _trace(plan: Plan) -> list[str]:
    return run_quietly(plan).trace


def run_some(plans: Iterable[Plan]) -> list[Outcome]:
    outcomes = [run_quietly(plan) for plan in plans]
    for outcome in outcomes:
        outcome.trace.clear()  # it can be had again
    return outcomes


def run_plans(plans: Sequence[Plan], spread: Spread, on_progress: Callable[[Scoreboard], None]) -> Scoreboard:
    """Runs plans and calls ``on_progress`` after every few.

    For each point at which no process was killed, a seed that came to it runs again, and a process is killed
    there: a seed gives the same run up to that kill. This happens from ``SEEDS_TO_COVER`` seeds on.
    """
    board, began_s = Scoreboard(faults=_kinds(plans)), time.monotonic()
    by_seed = {plan.seed: plan for plan in plans}
    came: dict[str, Plan] = {}
    """By point: a plan whose run came to it, the one with the fewest kills."""
    tried: set[str] = set()

    def add(found: Iterator[list[Outcome]]) -> None:
        nonlocal came
        for outcomes in found:
            for outcome in outcomes:
                board.add(outcome)
                plan = replace(by_seed[outcome.seed], kill_at=outcome.kill_at)
                came = dict.fromkeys(outcome.points, plan) | came
            board.took_s = time.monotonic() - began_s
            on_progress(board)

    add(spread(list(plans)))
    while board.seeds >= SEEDS_TO_COVER and (left := set(board.points_left) - tried):
        tried |= left  # recovery has points that a run comes to only after a kill
        doomed = [(came[point], point) for point in sorted(left)]
        add(spread([replace(plan, kill_at=(*plan.kill_at, point)) for plan, point in doomed]))
    return board


def _kinds(plans: Sequence[Plan]) -> dict[str, int]:
    """The kinds of faults that can happen, none of which has happened yet."""
    names = {name for plan in plans for name in plan.faults}
    names |= {name for name in WEATHER if any(getattr(plan.weather, name) for plan in plans)}
    everything = len(plans) >= SEEDS_TO_COVER
    return dict.fromkeys([*FAULTS, *WEATHER] if everything else sorted(names), 0)


def in_processes(jobs: int) -> Spread:
    """Runs plans in so many processes; 1: in this one."""

    def spread(plans: list[Plan]) -> Iterator[list[Outcome]]:
        tasks = [plans[at : at + PLANS_PER_TASK] for at in range(0, len(plans), PLANS_PER_TASK)]
        if jobs == 1:
            yield from map(run_some, tasks)
            return
        size = jobs * TASKS_PER_PROCESS
        for at in range(0, len(tasks), size):
            with _pool(jobs) as pool:
                yield from pool.map(run_some, tasks[at : at + size])

    return spread
