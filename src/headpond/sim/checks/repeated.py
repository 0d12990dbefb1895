"""No unflagged repeat: of all deliveries of a message in a subscription, at most one has attempt 1.

A seek begins again.
"""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Delivered, History, Seek
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    first: dict[tuple[str, str, int, int], Delivered] = {}
    restored = history.restored
    seeks = list(history.of(Seek))
    for event in history.of(Delivered):
        if event.attempt > 1 or event.node in restored:
            continue
        place = (event.node, event.subscription, event.shard, event.entry)
        before = first.get(place)
        if before is None or sought_between(seeks, before, event, plan):
            first[place] = event
            continue
        who = [
            f"{each.consumer}#{each.life} at {each.at_s:.3f} (node start {each.node_starts})"
            for each in (before, event)
        ]
        yield f"{event.subscription} {event.shard}/{event.entry}: as attempt 1 to {' and '.join(who)}"


def sought_between(seeks: list[Seek], before: Delivered, after: Delivered, plan: Plan) -> bool:
    """Whether the subscription may have been moved to its begin between two deliveries."""
    return any(
        seek.subscription == before.subscription
        and seek.at_s <= after.at_s
        and (seek.done_s is None or before.at_s <= seek.done_s + plan.transit_s)
        for seek in seeks
    )
