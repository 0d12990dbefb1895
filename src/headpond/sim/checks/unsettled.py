"""After healing everything is settled: a program acknowledged or skipped it, or it is a dead letter."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import History, Read, Settled
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    dead = {(read.topic, read.value) for read in history.of(Read)}
    settled = {
        (each.delivery.subscription, each.delivery.shard, each.delivery.entry, each.delivery.value)
        for each in history.of(Settled)
        if each.how != "nack"
    }
    for subscription in plan.subscriptions:
        name, log = subscription.name, (subscription.topic, subscription.node)
        for read in history.of(Read):
            if (read.topic, read.node) != log or (name, read.shard, read.entry, read.value) in settled:
                continue
            if (f"{read.topic}.dead", read.value) not in dead:
                yield f"no program of {name} settled {read.shard}/{read.entry} {read.value[:30]!r}"
