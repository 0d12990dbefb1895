"""A program gets no message that it has in hand, unless a deadline may have passed or it stepped back."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Delivered, History, Settled
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    again, restored = history.begun_again, history.restored
    patient = {
        each.name
        for each in plan.subscriptions
        if each.policy.deadline is None and each.kind != "failover"
        if each.name not in again and each.node not in restored
    }
    hands: set[tuple[str, str, int, int, int]] = set()
    for event in history.events:
        if isinstance(event, Settled):
            hands.discard(_place(event.delivery))
        elif isinstance(event, Delivered) and event.subscription in patient:
            if _place(event) in hands:
                what = f"{event.shard}/{event.entry} at {event.at_s:.3f}"
                yield f"{event.consumer}#{event.life} got {what}, and had it in hand"
            hands.add(_place(event))


def _place(event: Delivered) -> tuple[str, str, int, int, int]:
    return event.subscription, event.consumer, event.life, event.shard, event.entry
