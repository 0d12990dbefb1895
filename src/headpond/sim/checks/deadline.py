"""A message that no program refused comes again after its deadline, not before.

In runs without a fault: a consumer that loses its connection gives back what it holds.
"""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Delivered, History, Settled
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    if not plan.is_calm:
        return
    deadlines = {
        each.name: each.policy.deadline or float("inf")
        for each in plan.subscriptions
        if each.kind != "failover"  # a consumer that steps back loses what it holds
    }
    refused = {
        (each.delivery.subscription, each.delivery.shard, each.delivery.entry)
        for each in history.of(Settled)
        if each.how == "nack"
    }
    for event in history.of(Delivered):
        sent = history.sent.get(event.value)
        if event.attempt == 1 or sent is None or (event.subscription, event.shard, event.entry) in refused:
            continue
        if event.at_s < (due_s := sent.at_s + deadlines.get(event.subscription, 0.0)):
            what = f"{event.subscription} {event.shard}/{event.entry} attempt {event.attempt}"
            yield f"{what} came at {event.at_s:.3f}, and its deadline was not before {due_s:.3f}"
