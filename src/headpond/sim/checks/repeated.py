"""No unflagged repeat: of all deliveries of a message in a subscription, at most one has attempt 1."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Delivered, History
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    first: dict[tuple[str, str, int, int], Delivered] = {}
    for event in history.of(Delivered):
        if event.attempt > 1:
            continue
        place = (event.node, event.subscription, event.shard, event.entry)
        before = first.setdefault(place, event)
        if before is not event:
            who = [
                f"{each.consumer}#{each.life} at {each.at_s:.3f} (node start {each.node_starts})"
                for each in (before, event)
            ]
            yield f"{event.subscription} {event.shard}/{event.entry}: as attempt 1 to {' and '.join(who)}"
