"""Spark's sink under fire: ``python -m tests.fire.kill_spark [--lives N] [--seed N]``, ``make torture-spark``.

A driver writes rows through a shuffle to a topic while it, its tasks and the node are killed (SIGKILL) between
stage, commit and checkpoint, a few of them in every life of the driver. In the end every row is in the topic
once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import penstock
from tests.client.reading import values_at
from tests.fire.real_node import RealNode
from tests.fire.spark_driver import POINTS, VICTIMS

TOPIC = "torture"
ROWS = 100
"""In a file, and so in a batch."""
FILES_A_LIFE = 2
LIFE_S_MAX = 600.0


@dataclass
class Ledger:
    kills: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By point and victim."""
    rows: int = 0
    lost: int = 0
    repeated: int = 0
    lives: int = 0
    batches: int = 0

    @property
    def balanced(self) -> bool:
        return self.rows > 0 and not self.lost and not self.repeated

    def __str__(self) -> str:
        lines = [f"{'killed':<16}" + "".join(f"{point:>15}" for point in POINTS)]
        lines += [
            f"{victim:<16}" + "".join(f"{self.kills[point, victim]:>15}" for point in POINTS)
            for victim in VICTIMS
        ]
        total = sum(self.kills.values())
        lines.append(f"{total} kills in {self.lives} lives of the driver; {self.batches} batches committed")
        lines.append(f"{self.rows} rows written, {self.lost} lost, {self.repeated} repeated")
        return "\n".join(lines)


class Torture:
    def __init__(self, folder: Path, node: RealNode, seed: int) -> None:
        self.folder = folder
        self.node = node
        self.ledger = Ledger()
        self._random = random.Random(seed)
        self._files = 0
        for name in ("input", "fuses"):
            (folder / name).mkdir()

    def add_files(self) -> None:
        for _ in range(FILES_A_LIFE):
            first = self._files * ROWS
            lines = [json.dumps({"value": f"row {number}"}) for number in range(first, first + ROWS)]
            (self.folder / "input" / f"{self._files:05}.json").write_text("\n".join(lines))
            self._files += 1

    def lay_fuses(self) -> list[tuple[str, str]]:
        """One for the driver, and some for tasks and the node at points that come before it."""
        end = self._random.randrange(len(POINTS))
        fuses = [(POINTS[end], "driver")]
        for point in POINTS[: end + 1]:
            if point in ("in-write", "staged") and self._random.random() < 0.5:
                fuses.append((point, "task"))
            if self._random.random() < 0.4:
                fuses.append((point, "node"))
        for point, victim in fuses:
            (self.folder / "fuses" / f"{point}.{victim}").touch()
        return fuses

    def live(self, *, fuses: bool = True) -> bool:
        """One life of the driver; whether it ended by itself, with everything written."""
        laid = self.lay_fuses() if fuses else []
        (self.folder / "node.pid").write_text(str(self.node.pid))
        command = [sys.executable, "-m", "tests.fire.spark_driver", str(self.folder), self.node.url, TOPIC]
        with (self.folder / "driver.log").open("ab") as log:
            driver = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        (self.folder / "driver.pid").write_text(str(driver.pid))
        deadline = time.monotonic() + LIFE_S_MAX
        try:
            while driver.poll() is None:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"the driver hangs; see {self.folder / 'driver.log'}")
                if not self.node.alive:
                    self.revive()
                time.sleep(0.05)
        finally:
            if driver.poll() is None:
                driver.kill()
            driver.wait()
        if not self.node.alive:
            self.revive()
        self.ledger.lives += 1
        for point, victim in laid:
            fuse = self.folder / "fuses" / f"{point}.{victim}"
            if fuse.exists():
                fuse.unlink()
            else:
                self.ledger.kills[point, victim] += 1
        return driver.returncode == 0

    def revive(self) -> None:
        self.node.kill()
        self.node.start()
        (self.folder / "node.pid").write_text(str(self.node.pid))

    def count(self) -> Ledger:
        """What the topic holds, against what was written."""
        found = Counter(asyncio.run(values_at(self.node.url, TOPIC)))
        wanted = {f"row {number}".encode() for number in range(self._files * ROWS)}
        self.ledger.rows = len(wanted)
        self.ledger.lost = sum(1 for value in wanted if not found[value])
        self.ledger.repeated = sum(count - 1 for count in found.values() if count > 1)
        self.ledger.lost += sum(1 for value in found if value not in wanted)
        with penstock.sync.connect(self.node.url) as client:
            (writer,) = client.admin.list_writers()
            self.ledger.batches = writer.batches
        return self.ledger


def run(folder: Path, *, lives: int, seed: int) -> Ledger:
    with RealNode(folder / "node") as node:
        torture = Torture(folder, node, seed)
        for _ in range(lives):
            torture.add_files()
            torture.live()
        for _ in range(5):  # a batch that failed for want of a node is done by the next driver
            if torture.live(fuses=False):
                break
        return torture.count()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lives", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ledger = run(Path(folder), lives=asked.lives, seed=asked.seed)
    print(ledger)
    sys.exit(0 if ledger.balanced else 1)


if __name__ == "__main__":
    main()
