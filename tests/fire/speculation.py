"""Spark runs slow tasks a second time on another worker: two attempts stage the same rows, one counts."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import headpond.sync
from tests.fire.lost_worker import fill, lost_and_repeated
from tests.fire.real_node import RealNode
from tests.spark.standalone import Cluster, submit

PROGRAM = Path(__file__).with_name("straggler.py")
SPECULATION = {
    "spark.speculation": "true",
    "spark.speculation.interval": "100ms",
    "spark.speculation.multiplier": "1.1",
    "spark.speculation.quantile": "0.5",
}

Task = tuple[str, str]
"""Batch and partition."""


@dataclass
class Found:
    """The result."""

    sent: int
    copies: int = 0
    lost: int = 0
    repeated: int = 0
    orphans: int = 0
    """Stages at the node that no batch has."""
    began: dict[Task, list[str]] = field(default_factory=dict)
    """The workers on which attempts of a task began."""
    staged: dict[Task, list[str]] = field(default_factory=dict)
    """The workers on which attempts of a task staged all of their rows."""

    @property
    def twice(self) -> int:
        return sum(1 for workers in self.began.values() if len(set(workers)) > 1)

    @property
    def staged_twice(self) -> int:
        return sum(1 for workers in self.staged.values() if len(set(workers)) > 1)

    @property
    def exact(self) -> bool:
        """Every row once, and tasks really ran twice: half of the stragglers staged all that they had."""
        shown = self.twice and self.staged_twice and self.orphans >= self.staged_twice
        return bool(shown) and (self.copies, self.lost, self.repeated) == (self.sent, 0, 0)

    def __str__(self) -> str:
        return (
            f"speculation: {len(self.began)} tasks wrote, {self.twice} of them on both workers; "
            f"{self.staged_twice} were staged twice in whole, {self.orphans} stages are no batch's\n"
            f"{self.sent:,} sent, {self.copies:,} copies, {self.lost} lost, {self.repeated} repeated"
        )


def run(folder: Path, messages: int) -> Found:
    found = Found(messages)
    with (
        RealNode(folder / "node") as node,
        Cluster(folder / "spark") as cluster,
        headpond.sync.connect(node.url) as client,
    ):
        fill(client, messages)
        submit(cluster, PROGRAM, node.url, str(folder), conf=SPECULATION)
        found.copies, found.lost, found.repeated = lost_and_repeated(client)
        found.orphans = sum(writer.stages for writer in client.admin.list_writers())
    for line in (folder / "told").read_text().splitlines():
        what, batch, partition, _, worker = line.split()
        by_task = found.began if what == "began" else found.staged
        by_task.setdefault((batch, partition), []).append(worker)
    return found
