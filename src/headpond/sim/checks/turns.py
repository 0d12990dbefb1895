"""In turn: a resilient subscription gives out a message, or that of a key, when all before it are settled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from headpond.sim.history import Delivered, History, Read, Settled
from headpond.sim.plan import Plan, SubscriptionPlan


def check(history: History, plan: Plan) -> Iterator[str]:
    begun_again = history.begun_again
    restored = history.restored
    for subscription in plan.subscriptions:
        if subscription.name in begun_again or subscription.node in restored:
            continue
        if subscription.mode == "resilient":
            yield from _check(history, subscription)


def _check(history: History, plan: SubscriptionPlan) -> Iterator[str]:
    keyed = plan.kind == "key_shared"
    lanes: dict[tuple[int, bytes | None], list[int]] = defaultdict(list)
    """By shard, or by shard and key: the entries that are not settled, the last one first."""
    for read in sorted(history.of(Read), key=lambda each: -each.entry):
        if (read.topic, read.node) == (plan.topic, plan.node) and not (keyed and read.key is None):
            lanes[read.shard, read.key if keyed else None].append(read.entry)
    settled: set[tuple[int, int]] = set()
    for event in history.events:
        if isinstance(event, Settled) and event.delivery.subscription == plan.name and event.how != "nack":
            settled.add((event.delivery.shard, event.delivery.entry))
        if not isinstance(event, Delivered) or event.subscription != plan.name:
            continue
        lane = lanes[event.shard, event.key if keyed else None]
        while lane and (event.shard, lane[-1]) in settled:
            lane.pop()
        if lane and lane[-1] < event.entry and not (keyed and event.key is None):
            who = f"{event.consumer}#{event.life} at {event.at_s:.3f}"
            yield f"{plan.name}: {who} got {event.shard}/{event.entry}, and {lane[-1]} was not settled"
