"""A key has one consumer at a time in a key_shared subscription.

In runs without a fault: a consumer that loses its connection loses its keys, and its program does not know.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from headpond.sim.history import Delivered, History, Settled
from headpond.sim.plan import Plan

Place = tuple[str, int, bytes | None]


def check(history: History, plan: Plan) -> Iterator[str]:
    if not plan.is_calm:
        return
    names = {
        each.name for each in plan.subscriptions if each.kind == "key_shared" and each.policy.deadline is None
    }
    hands: dict[Place, dict[int, Delivered]] = defaultdict(dict)
    """By subscription, shard and key: the messages that programs have in hand, by entry."""
    for event in history.events:
        if isinstance(event, Settled):
            hands[_place(event.delivery)].pop(event.delivery.entry, None)
        elif isinstance(event, Delivered) and event.subscription in names and event.key is not None:
            others = [each for each in hands[_place(event)].values() if each.consumer != event.consumer]
            if others:
                held = f"{others[0].consumer} has {others[0].shard}/{others[0].entry} of its key in hand"
                yield f"{event.consumer} got {event.shard}/{event.entry}, while {held}"
            hands[_place(event)][event.entry] = event


def _place(event: Delivered) -> Place:
    return event.subscription, event.shard, event.key
