"""What Spark and a node have used of the processors, by kind of process."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import NamedTuple

from bench.figure import quantile
from bench.node import Node

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")


class SparkCpu(NamedTuple):
    """Seconds, of processes that live and of their children that ended."""

    java: float
    workers: float
    """Spark's Python processes."""
    node: float

    @property
    def spark(self) -> float:
        return self.java + self.workers

    @property
    def all(self) -> float:
        return sum(self)

    def since(self, before: SparkCpu) -> SparkCpu:
        return SparkCpu(*(now - then for now, then in zip(self, before, strict=True)))


def spark_cpu(node: Node) -> SparkCpu:
    """Of the Spark that this process started, and of its node."""
    names: dict[int, str] = {}
    parents: dict[int, int] = {}
    used_s: dict[int, float] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            with contextlib.suppress(OSError):
                start, _, rest = (place / "stat").read_text().rpartition(")")
                fields, pid = rest.split(), int(place.name)
                names[pid] = start.partition("(")[2]
                parents[pid] = int(fields[1])
                used_s[pid] = sum(map(int, fields[11:15])) / _TICKS_PER_S
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    java = sum(used_s[pid] for pid in family if names[pid] == "java")
    workers = sum(used_s[pid] for pid in family - {os.getpid(), node.pid} if names[pid] != "java")
    return SparkCpu(java, workers, node.cpu_s())


def median_cpu(turns: list[SparkCpu]) -> SparkCpu:
    return SparkCpu(*(quantile(list(kind), 0.5) for kind in zip(*turns, strict=True)))
