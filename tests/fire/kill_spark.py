"""Topic to Spark to topic under fire: ``python -m tests.fire.kill_spark [--scale X]``, ``make torture-spark``.

A driver (spark_driver) reads a topic and writes each new row to another. The program injects one kind of
failure after the other, each in the middle of a batch: tasks raise or are killed before and after they stage,
stage twice, or outlive their driver; the node, the driver or both are killed (SIGKILL) while a batch is
planned, between stage and commit, and between commit and checkpoint. After each kind all rows must have
arrived, none twice; in the end the program checks every row.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Self

import pyarrow as pa

import headpond.sync
from tests.client.reading import values_at
from tests.fire.real_node import RealNode

SOURCE, SINK = "torture-in", "torture-out"
ROWS = 60
"""New rows for each injected failure, about one batch."""
AGAIN = 15
"""Earlier rows that are sent again: the query drops them."""
KEYS = 17
AT_ONCE = {
    "in-write.raise": 4,
    "staged.raise": 4,
    "in-write.kill": 3,
    "staged.kill": 3,
    "staged.twice": 2,
    "in-write.node": 2,
    "staged.node": 2,
}
"""Failures of a kind that are injected into one batch; they may need two."""
ROUNDS = 8
KILLS_DRIVER = ("zombie", "driver", "both")
STEP_S_MAX = 300.0
POLL_S = 0.05

KINDS = {
    "in-write.raise": "a task raises in the middle of its rows",
    "staged.raise": "a task raises behind its stage",
    "in-write.kill": "a task is killed in the middle of its rows",
    "staged.kill": "a task is killed behind its stage",
    "staged.twice": "a task stages its rows twice",
    "in-write.zombie": "driver killed, its task goes on",
    "planning.node": "node killed: a batch is planned",
    "in-write.node": "node killed: rows are being staged",
    "staged.node": "node killed: behind a stage",
    "before-commit.node": "node killed: before the commit",
    "after-commit.node": "node killed: before the checkpoint",
    "planning.driver": "driver killed: a batch is planned",
    "in-write.driver": "driver killed: rows are being staged",
    "staged.driver": "driver killed: behind a stage",
    "before-commit.driver": "driver killed: before the commit",
    "after-commit.driver": "driver killed: before the checkpoint",
    "planning.both": "both killed: a batch is planned",
    "staged.both": "both killed: behind a stage",
    "before-commit.both": "both killed: before the commit",
    "after-commit.both": "both killed: before the checkpoint",
}
TIMES = {"raise": 30, "kill": 25, "twice": 25, "node": 22, "zombie": 5, "driver": 4, "both": 4}
"""How often each kind with this fate is injected at scale 1; a driver takes long to start."""


def plan(scale: float, drivers: float) -> list[tuple[str, int]]:
    """Rounds of failures that the driver survives, with kills of the driver between them.

    So a run that ends early has tried every kind.
    """
    times = {kind: TIMES[kind.partition(".")[2]] for kind in KINDS}
    kills = [kind for kind in KINDS if kind.endswith(KILLS_DRIVER)]
    turns = [kind for turn in range(max(times.values())) for kind in kills if turn < times[kind] * drivers]
    steps: list[tuple[str, int]] = []
    for number in range(ROUNDS):
        for kind in (each for each in KINDS if each not in kills):
            wanted = round(times[kind] * scale)
            share = wanted * (number + 1) // ROUNDS - wanted * number // ROUNDS
            steps += [(kind, share)] if share else []
        first, last = len(turns) * number // ROUNDS, len(turns) * (number + 1) // ROUNDS
        steps += [(kind, 1) for kind in turns[first:last]]
    return steps


@dataclass
class Row:
    """A line of the table: the result of one kind."""

    injected: int = 0
    redone: int = 0
    """Runs of a batch beyond its first."""
    tasks: int = 0
    """Attempts beyond the first of a task in its run."""
    orphaned: int = 0
    lost: int = 0
    repeated: int = 0


@dataclass
class Ledger:
    kinds: dict[str, Row] = field(default_factory=dict)
    drivers: int = 0
    nodes: int = 0
    queries: int = 0
    """Queries that failed and that their driver started again."""
    batches: int = 0
    sent: int = 0
    wanted: int = 0
    received: int = 0
    unique: int = 0
    strangers: int = 0
    seconds: float = 0.0

    @property
    def injected(self) -> int:
        return sum(row.injected for row in self.kinds.values())

    @property
    def balanced(self) -> bool:
        late = any(row.lost or row.repeated for row in self.kinds.values())
        return 0 < self.wanted == self.received == self.unique and not self.strangers and not late

    def __str__(self) -> str:
        names = ("injected", "batches redone", "tasks again", "stages orphaned", "rows lost", "rows repeated")
        lines = [f"{'':<42}" + "".join(f"{name:>16}" for name in names)]
        for kind, row in self.kinds.items():
            counts = (row.injected, row.redone, row.tasks, row.orphaned, row.lost, row.repeated)
            lines.append(f"{KINDS[kind]:<42}" + "".join(f"{count:>16,}" for count in counts))
        rows = list(self.kinds.values())
        sums = [sum(getattr(row, name) for row in rows) for name in Row.__dataclass_fields__]
        lines.append(f"{'all':<42}" + "".join(f"{count:>16,}" for count in sums))
        lines.append("")
        lines.append(
            f"{self.injected:,} failures in {self.seconds:,.0f} s; {self.batches:,} batches; drivers started "
            f"{self.drivers}, nodes {self.nodes}, queries that failed under a living driver {self.queries}"
        )
        lines.append(
            f"sent {self.sent:,} ({self.wanted:,} different)  received {self.received:,}  "
            f"unique {self.unique:,}  strangers {self.strangers}  R {self.r:.6f}  UR {self.ur:.6f}"
        )
        return "\n".join(lines)

    @property
    def r(self) -> float:
        return self.unique / self.wanted if self.wanted else 0.0

    @property
    def ur(self) -> float:
        return self.unique / self.received if self.received else 0.0


class Torture:
    """Node, driver and the rows between them. ``with`` ends all processes."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.ledger = Ledger()
        self._random = random.Random(seed)
        self._node = RealNode(folder / "node")
        self._driver: subprocess.Popen[bytes] | None = None
        self._ended = Event()
        self._fault: Exception | None = None
        self._warden = Thread(target=self._tend, daemon=True)
        (folder / "fuses").mkdir()
        (folder / "told").touch()

    def __enter__(self) -> Self:
        self._node.start()
        self._note_node()
        self._client = headpond.sync.connect(self._node.url)
        self._client.admin.create_topic(SOURCE, 2)
        self._client.admin.create_topic(SINK, 4)
        self._producer = self._client.producer(SOURCE, refill=None)
        self._start_driver()
        self._warden.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()
        self._ended.set()
        self._warden.join()
        if self._driver is not None:
            self._driver.kill()
            self._driver.wait()
        self._node.kill()

    # --- the victims --------------------------------------------------------------------------------

    def _note_node(self) -> None:
        self.ledger.nodes += 1
        (self.folder / "node.pid").write_text(str(self._node.pid))

    def _start_driver(self) -> None:
        command = [sys.executable, "-m", "tests.fire.spark_driver"]
        command += [str(self.folder), self._node.url, SOURCE, SINK]
        with (self.folder / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )
        (self.folder / "driver.pid").write_text(str(self._driver.pid))
        self.ledger.drivers += 1

    def _tend(self) -> None:
        """A thread that restarts each killed process."""
        try:
            while not self._ended.wait(POLL_S):
                if not self._node.alive:
                    self._node.kill()
                    self._node.start()
                    self._note_node()
                assert self._driver is not None
                if self._driver.poll() is not None:
                    self._start_driver()
        except Exception as fault:
            self._fault = fault

    def _await(self, reached: Callable[[], bool]) -> bool:
        """Waits for the condition; False if it takes too long."""
        deadline = time.monotonic() + STEP_S_MAX
        while not reached():
            if self._fault is not None:
                raise self._fault
            if time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    # --- one kind -----------------------------------------------------------------------------------

    def inject(self, kind: str, times: int) -> None:
        row = self.ledger.kinds.setdefault(kind, Row())
        told_before = len(self._told())
        orphans_before = self._orphans()
        while times:
            laid = min(times, AT_ONCE.get(kind, 1))
            for number in range(laid):
                (self.folder / "fuses" / f"{kind}.{number}").touch()
            while self._fuses():  # a batch may have had too few tasks for all fuses
                self.send()
                if not self._await(lambda: not self._fuses() or self._stored() >= self.ledger.wanted):
                    raise TimeoutError(f"{kind} did not happen; see {self.folder / 'driver.log'}")
            times -= laid
            row.injected += laid
            if kind.endswith("zombie"):
                self._end_zombie()
        self._settle()
        found = self._stored()
        row.lost += max(0, self.ledger.wanted - found)
        row.repeated += max(0, found - self.ledger.wanted)
        row.orphaned += max(0, self._orphans() - orphans_before)
        redone, tasks = runs_again(self._told()[told_before:])
        row.redone += redone
        row.tasks += tasks

    def _fuses(self) -> bool:
        return any((self.folder / "fuses").iterdir())

    def _end_zombie(self) -> None:
        """Releases the zombie after the next driver has written its rows: it must have no effect."""
        self._settle()
        (self.folder / "zombie.go").touch()
        if not self._await((self.folder / "zombie.done").exists):
            raise TimeoutError("the zombie did not stage its rows")
        for name in ("zombie.go", "zombie.done", "zombie.lives"):
            (self.folder / name).unlink(missing_ok=True)

    def send(self) -> None:
        """New rows and some earlier ones, in order, each with its key."""
        first = self.ledger.wanted
        numbers = list(range(first, first + ROWS))
        numbers += [self._random.randrange(first + ROWS) for _ in range(AGAIN)]
        rows = {
            "value": [f"row {number}".encode() for number in numbers],
            "key": [f"key {number % KEYS}".encode() for number in numbers],
            "id": [str(number) for number in numbers],
        }
        self._producer.send_batch(pa.table(rows))
        self.ledger.sent += len(numbers)
        self.ledger.wanted += ROWS

    def _settle(self) -> None:
        """Waits until the sink has at least this many rows."""
        self._await(lambda: self._stored() >= self.ledger.wanted)

    # --- what there is ------------------------------------------------------------------------------

    def _stored(self) -> int:
        return sum(shard.entry_next for shard in self._client.admin.show_topic(SINK).shard_list)

    def _orphans(self) -> int:
        return sum(writer.stages for writer in self._client.admin.list_writers())

    def _told(self) -> list[list[str]]:
        return [line.split() for line in (self.folder / "told").read_text().splitlines()]

    def count(self) -> None:
        """Compares every row of the sink with the rows sent."""
        found = Counter(asyncio.run(values_at(self._node.url, SINK)))
        wanted = {f"row {number}".encode() for number in range(self.ledger.wanted)}
        self.ledger.received = found.total()
        self.ledger.unique = sum(1 for value in wanted if found[value])
        self.ledger.strangers = sum(1 for value in found if value not in wanted)
        self.ledger.queries = sum(1 for words in self._told() if words[0] == "query")
        self.ledger.batches = sum(writer.batches for writer in self._client.admin.list_writers())


def runs_again(told: list[list[str]]) -> tuple[int, int]:
    """How many runs of batches, and attempts of tasks, were not the first."""
    tasks = Counter(tuple(words[1:]) for words in told if words[0] == "task")
    runs = {(batch, driver, stage) for batch, driver, stage, _ in tasks}
    batches = {batch for batch, _, _ in runs}
    return len(runs) - len(batches), tasks.total() - len(tasks)


def run(
    folder: Path,
    steps: Sequence[tuple[str, int]],
    *,
    seed: int = 1,
    seconds_max: float = float("inf"),
    say: Callable[[str], None] = lambda _: None,
) -> Ledger:
    """Injects each kind this many times; starts no step after ``seconds_max``."""
    began = time.monotonic()
    with Torture(folder, seed) as torture:
        ledger = torture.ledger
        torture.send()
        torture._settle()
        for number, (kind, times) in enumerate(steps, 1):
            if time.monotonic() - began > seconds_max:
                break
            torture.inject(kind, times)
            ledger.seconds = time.monotonic() - began
            say(
                f"{ledger.seconds:6.0f} s  {number:>2} of {len(steps)}  {KINDS[kind]:<42} {times:>3} times  "
                f"{ledger.injected:>4} failures so far, {ledger.wanted:,} rows"
            )
        torture.count()
        return ledger


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="of failures that leave the driver alive")
    parser.add_argument("--drivers", type=float, default=1.0, help="of those that kill it")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="no step is begun later")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    steps = plan(asked.scale, asked.drivers)
    logging.getLogger("headpond").setLevel(logging.ERROR)  # lost connections are expected here
    failures = sum(times for _, times in steps)
    print(f"{failures} failures of {len(KINDS)} kinds in {len(steps)} steps", flush=True)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        ledger = run(
            Path(folder),
            steps,
            seed=asked.seed,
            seconds_max=60 * asked.minutes,
            say=lambda line: print(line, flush=True),
        )
    print(f"\n{ledger}")
    sys.exit(0 if ledger.balanced else 1)


if __name__ == "__main__":
    main()
