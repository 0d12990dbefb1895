"""A refused message waits: it does not come again before its backoff is over.

In runs without a fault, and not where a consumer may step back: what it refuses then is another's already.
"""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Delivered, History, Settled
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    if not plan.is_calm:
        return
    policies = {
        each.name: each.policy
        for each in plan.subscriptions
        if each.policy.deadline is None and each.kind != "failover"
    }
    due: dict[tuple[str, int, int], float] = {}
    for event in history.events:
        if isinstance(event, Settled) and event.how == "nack" and event.delivery.subscription in policies:
            refused = event.delivery
            wait_s = policies[refused.subscription].backoff_s(refused.attempt)
            due[refused.subscription, refused.shard, refused.entry] = event.at_s + wait_s
        elif isinstance(event, Delivered):
            due_s = due.pop((event.subscription, event.shard, event.entry), 0.0)
            if event.at_s < due_s:
                what = f"{event.subscription} {event.shard}/{event.entry}"
                yield f"{what} came at {event.at_s:.3f}, and its backoff lasted until {due_s:.3f}"
