"""After healing everything is delivered: programs, or the dead-letter topic, got every message."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Delivered, History, Read
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    dead = {(read.topic, read.value) for read in history.of(Read)}
    for subscription in plan.subscriptions:
        name, log = subscription.name, (subscription.topic, subscription.node)
        got = {(event.shard, event.entry) for event in history.of(Delivered) if event.subscription == name}
        for read in history.of(Read):
            if (read.topic, read.node) != log or (read.shard, read.entry) in got:
                continue
            if (f"{read.topic}.dead", read.value) not in dead:
                yield f"{name} never got {read.shard}/{read.entry} {read.value[:30]!r}"
