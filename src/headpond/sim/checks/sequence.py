"""The messages of a key come in order in a key_shared subscription: no first delivery before an earlier one.

In runs without a fault, and where no program refuses or lets a deadline pass.
"""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Delivered, History
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    names = {
        each.name
        for each in plan.subscriptions
        if each.kind == "key_shared" and not each.refuse and each.policy.deadline is None
    }
    last: dict[tuple[str, int, bytes], Delivered] = {}
    for event in history.of(Delivered) if plan.is_calm else ():
        if event.subscription not in names or event.key is None or event.attempt > 1:
            continue
        lane = (event.subscription, event.shard, event.key)
        before = last.get(lane)
        if before is not None and before.entry > event.entry:
            who = f"{event.consumer} got {event.shard}/{event.entry} at {event.at_s:.3f}"
            yield f"{who}, after {before.consumer} got {before.entry} of the same key"
        last[lane] = event
