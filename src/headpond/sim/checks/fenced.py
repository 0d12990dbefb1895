"""A single producer has one process: when another one has stored a message, it stores none any longer.

Messages that a process spilled may come later: another process or an operator sends them.
"""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import History, Read
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    single = {producer.name for producer in plan.producers if producer.single}
    lives: dict[tuple[str, int, str], list[int]] = {}
    """By topic, shard and producer: its processes in the order of the log."""
    for read in sorted(history.of(Read), key=lambda each: (each.topic, each.shard, each.entry)):
        sent = history.sent.get(read.value)
        if sent is None or sent.producer not in single or sent.outcome != "stored":
            continue
        if (read.node, read.topic) != (sent.node, sent.topic):
            continue
        seen = lives.setdefault((read.topic, read.shard, sent.producer), [])
        if sent.life in seen[:-1]:
            who = f"{sent.producer}#{sent.life}"
            yield f"{who} stored {read.shard}/{read.entry} after {sent.producer}#{seen[-1]} had stored"
        if sent.life not in seen:
            seen.append(sent.life)
