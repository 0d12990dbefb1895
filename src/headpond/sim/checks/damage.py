"""No damage without a cause: a node has every entry that it gave out, unless a disk was damaged."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Gone, History
from headpond.sim.plan import Plan

CAUSES = frozenset({"damage", "old backup"})
"""The faults that damage disks."""


def check(history: History, plan: Plan) -> Iterator[str]:
    for gone in history.of(Gone) if not CAUSES & plan.faults.keys() else ():
        if gone.reason == "damaged":
            yield f"{gone.node} lost {gone.topic} {gone.shard}/{gone.start} to {gone.end - 1}"
