"""A lease has one holder: just after a program of a leased subscription got a message, no other one gets one.

A consumer hands out messages until its lease is over by its own clock, and the node lets the next one begin a
margin later. Refusals, deadlines and a start of the node end a lease early; so does a program that ends.
"""

from __future__ import annotations

from collections.abc import Iterator

from headpond.broker.subscriptions.attachment import lease_us
from headpond.sim.history import Delivered, History, Settled
from headpond.sim.plan import Plan, SubscriptionPlan


def check(history: History, plan: Plan) -> Iterator[str]:
    for each in plan.subscriptions:
        leased = each.mode == "resilient" and each.kind in ("unique", "failover")
        if each.name in history.begun_again or each.node in history.restored:
            continue
        if leased and not each.refuse and each.policy.deadline is None:
            yield from _check(history, each)


def _check(history: History, plan: SubscriptionPlan) -> Iterator[str]:
    lease_s = plan.policy.lease or 0.0
    margin_s = lease_us(lease_s) / 1e6 - lease_s
    last_s: dict[tuple[str, int], float] = {}
    """When each program was last seen alive: it got or settled a message."""
    for event in history.events:
        if isinstance(event, Delivered | Settled):
            got = event if isinstance(event, Delivered) else event.delivery
            last_s[got.consumer, got.life] = event.at_s
    before: Delivered | None = None
    for event in history.of(Delivered):
        if event.subscription != plan.name:
            continue
        if (
            before is not None
            and event.consumer != before.consumer
            and before.connected_starts == event.connected_starts == event.node_starts
            and event.at_s < before.at_s + margin_s
            and event.at_s < last_s[before.consumer, before.life]
        ):
            what = f"{before.consumer}#{before.life} got {before.shard}/{before.entry} at {before.at_s:.3f}"
            yield f"{plan.name}: {what}, and {event.consumer}#{event.life} one at {event.at_s:.3f}"
        before = event
