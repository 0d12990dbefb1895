"""Many busy shards on one node: rounds of one small segment a shard, each round acknowledged before the next.

Frames are made by hand, so that the node is what is measured. Beside it: the same node without its commit
journal, where every log is synced by itself. Syncs are counted in the node, those of its checkpoints with them.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from bench.figure import Figure, quantile
from bench.limits import Limits
from bench.node import running_node
from bench.sender import Sender

SHARDS = 512
BUSY = (1, 4, 40, 400)
A_SYNC_A_LOG = "[log]\ncommit_journal_bytes = 1\n"


@dataclass(frozen=True, slots=True)
class Rounds:
    times_ms: list[float]
    syncs: int

    @property
    def syncs_each(self) -> float:
        return self.syncs / len(self.times_ms)

    @property
    def p50_ms(self) -> float:
        return quantile(self.times_ms, 0.5)

    @property
    def per_s(self) -> float:
        return len(self.times_ms) / sum(self.times_ms) * 1e3


def rounds(folder: Path, shards: int, seconds: float, settings: str) -> Rounds:
    with tempfile.TemporaryDirectory(dir=folder) as place, running_node(Path(place), settings) as node:
        sender = Sender(node.address, "busy", shards=SHARDS)
        for _ in range(3):
            sender.round(shards)  # makes the files
        times: list[float] = []
        before, until = node.syncs(), time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            sender.round(shards)
            times.append((time.perf_counter() - began) * 1e3)
        found = Rounds(times, node.syncs() - before)
        sender.close()
    return found


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    figures: list[Figure] = []
    for shards in BUSY:
        found = rounds(folder, shards, seconds, "")
        beside = rounds(folder, shards, seconds, A_SYNC_A_LOG)
        name, other = f"{shards} busy shards", "a sync a log"
        figures += [
            Figure(f"{name}: syncs a round", found.syncs_each, "syncs", other, beside.syncs_each),
            Figure(f"{name}: rounds", found.per_s, "rounds/s", other, beside.per_s),
            Figure(
                f"{name}: a round, p50",
                quantile(found.times_ms, 0.5),
                "ms",
                other,
                quantile(beside.times_ms, 0.5),
            ),
            Figure(f"{name}: messages", found.per_s * shards, "messages/s", other, beside.per_s * shards),
        ]
    return figures
