"""A refused message waits: it does not come again before its backoff is over, also over a start of the node.

In runs without a fault. Where the node is only stopped and started, it must have confirmed the refusal before.
Not where a consumer may step back: what it refuses then is another's already.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from headpond.sim.history import Delivered, History, Settled
from headpond.sim.plan import Plan

STARTS = ("kill node", "restart node")


def check(history: History, plan: Plan) -> Iterator[str]:
    started = {name: rate for name, rate in plan.faults.items() if name not in STARTS}
    if not replace(plan, faults=started).is_calm:
        return
    policies = {
        each.name: each.policy
        for each in plan.subscriptions
        if each.policy.deadline is None and each.kind != "failover"
    }
    last: dict[tuple[str, int, int], Delivered] = {}
    refused: dict[tuple[str, int, int], tuple[float, Settled]] = {}
    for event in history.events:
        if isinstance(event, Settled) and event.how == "nack" and event.delivery.subscription in policies:
            place = _place(event.delivery)
            if last[place] is event.delivery:
                wait_s = policies[place[0]].backoff_s(event.delivery.attempt)
                refused[place] = (event.at_s + wait_s, event)
        elif isinstance(event, Delivered):
            place = _place(event)
            last[place] = event
            if (before := refused.pop(place, None)) is None:
                continue
            due_s, nack = before
            if event.at_s < due_s and (not plan.faults or _confirmed(nack, event.at_s)):
                what = f"{event.subscription} {event.shard}/{event.entry}"
                yield f"{what} came at {event.at_s:.3f}, and its backoff lasted until {due_s:.3f}"


def _confirmed(nack: Settled, at_s: float) -> bool:
    """Whether the node that delivered the message had the refusal before that time."""
    mine = nack.confirmed_starts == nack.delivery.node_starts
    return mine and nack.confirmed_s is not None and nack.confirmed_s < at_s


def _place(event: Delivered) -> tuple[str, int, int]:
    return event.subscription, event.shard, event.entry
