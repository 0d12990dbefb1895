"""Shows that the simulator finds bugs: plants each fault of planted.py in a copy of the source, and runs seeds.

::

    python -m tests.sim.plant [--seeds N] [--jobs J] [--only WORDS]

A fault gets the first seeds whose plan has what it needs; the guard of a scenario, the first 10 seeds of that
scenario. Prints one line for each fault: the seed that caught it and the check that did. Exits with 1 if a
fault was not caught.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple

from headpond.sim.plan import WEATHER, Plan, draw
from tests.sim.planted import FAULTS, PlantedFault
from tests.sim.planted_scenarios import GUARDS

SOURCE = Path(__file__).parents[2] / "src"
SEED_S_MAX = 120
"""A seed that computes for longer hangs."""
SOUND_FAILS = "the sound source fails too"
SCENARIO_SEEDS = 30
SEARCH = """
import signal
import sys
from headpond.sim.runner import run_quietly
from headpond.sim.scenarios import plan_of

for seed in map(int, sys.argv[3:]):
    print(seed, flush=True)
    signal.setitimer(signal.ITIMER_PROF, float(sys.argv[2]))
    if violations := run_quietly(plan_of(seed, sys.argv[1] or None)).violations:
        sys.exit(violations[0])
"""
"""Prints the seeds that it runs, and ends with the first violation, or by a signal if a seed hangs."""


class Finding(NamedTuple):
    fault: PlantedFault
    seed: int
    violation: str
    """Empty if no seed caught the fault."""

    @property
    def check(self) -> str:
        return self.violation.partition(":")[0]

    @property
    def caught(self) -> bool:
        return bool(self.violation) and self.check != SOUND_FAILS

    def __str__(self) -> str:
        scenario = f"{self.fault.scenario}: " if self.fault.scenario else ""
        text = f"{scenario + self.fault.name:<80} "
        if not self.violation:
            return f"{text}NOT CAUGHT"
        expected = self.check in self.fault.breaks
        return f"{text}seed {self.seed}, {self.check if expected else self.violation[:200]}"


def planted_text(source: str, fault: PlantedFault) -> str:
    """The source of its file with the fault."""
    assert source.count(fault.old) == 1, (
        f"{fault.file}: {fault.old!r} stands there {source.count(fault.old)} times"
    )
    return source.replace(fault.old, fault.new)


def words_of(plan: Plan) -> set[str]:
    """What a plan has, in the words of ``PlantedFault.needs``."""
    words = {*plan.faults, *(name for name in WEATHER if getattr(plan.weather, name))}
    words |= {"writers"} if plan.writers else set()
    words |= {"calm"} if plan.is_calm else set()
    words |= {"slow disk"} if plan.disk_s >= 0.2 else set()
    words |= {"shards"} if any(topic.shards > 1 for topic in plan.topics) else set()
    for producer in plan.producers:
        words |= {"single"} if producer.single else set()
        words |= {"refill", *producer.options} if producer.refill else set(producer.options)
    for each in plan.subscriptions:
        words |= {each.kind, f"{each.mode} {each.kind}", each.mode}
        words |= {"several"} if each.consumers > 1 else set()
        words |= {"dies"} if each.policy.max_attempts and each.refuse else set()
        words |= {"deadline"} if each.policy.deadline is not None else set()
        words |= {"refuses"} if each.refuse else set()
    return words


def seeds_for(fault: PlantedFault) -> Iterator[int]:
    """The seeds whose plans have what it needs, in order."""
    if fault.scenario is not None:
        yield from range(SCENARIO_SEEDS)
        return
    for seed in count():
        words = words_of(draw(seed))
        if all(words & set(need.split("|")) for need in fault.needs):
            yield seed


def copy_source(source: Path, target: Path) -> Path:
    return shutil.copytree(source, target, ignore=shutil.ignore_patterns("spark", "cli"))


def find(fault: PlantedFault, seeds: int, source: Path) -> Finding:
    """Runs seeds in order, in a fresh process, up to the one that catches the fault.

    A seed that also fails with the sound source shows nothing.
    """
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = copy_source(source, Path(folder) / "src")
        path = copy / "headpond" / fault.file
        path.write_text(planted_text(path.read_text(), fault))
        seed, violation, left = -1, "", list(islice(seeds_for(fault), seeds))
        while left:
            seed, violation = search(copy, fault.scenario, left)
            if not violation or not search(source, fault.scenario, [seed])[1]:
                break
            violation = f"{SOUND_FAILS}: {violation}"
            left = left[left.index(seed) + 1 :]
    return Finding(fault, seed, violation)


def search(source: Path, scenario: str | None, seeds: list[int]) -> tuple[int, str]:
    """The first seed that fails with this source, and how; the last one and nothing if none fails."""
    done = subprocess.run(
        [sys.executable, "-c", SEARCH, scenario or "", str(SEED_S_MAX), *map(str, seeds)],
        cwd=source,
        env={**os.environ, "PYTHONPATH": str(source)},
        capture_output=True,
        text=True,
    )
    said = done.stderr.strip().splitlines() or ["it ended without a word"]
    ran = done.stdout.split()
    assert ran, said[-1]
    if done.returncode == -signal.SIGPROF:
        return int(ran[-1]), f"hangs: no result within {SEED_S_MAX} s"
    return int(ran[-1]), said[-1] if done.returncode else ""


def findings(faults: list[PlantedFault], seeds: int, jobs: int) -> Iterator[Finding]:
    with tempfile.TemporaryDirectory(prefix="sound-") as folder, ThreadPoolExecutor(jobs) as pool:
        source = copy_source(SOURCE, Path(folder) / "src")  # the source may change while this runs
        yield from pool.map(lambda fault: find(fault, seeds, source), faults)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.sim.plant", description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=100, help="how many seeds a fault gets at most")
    parser.add_argument("--jobs", type=int, default=2, help="how many faults are planted at a time")
    parser.add_argument("--only", default="", help="faults whose name, file or scenario has these words")
    asked = parser.parse_args()
    chosen = [
        fault
        for fault in [*FAULTS, *GUARDS]
        if any(asked.only in text for text in (fault.name, fault.file, fault.scenario or ""))
    ]
    missed = 0
    for finding in findings(chosen, asked.seeds, asked.jobs):
        print(finding, flush=True)
        missed += not finding.caught
    print(f"{len(chosen) - missed} of {len(chosen)} planted faults were caught within {asked.seeds} seeds each")
    return 1 if missed or not chosen else 0


if __name__ == "__main__":
    sys.exit(main())
