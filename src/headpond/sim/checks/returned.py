"""Nothing settled comes back: after a settlement is on the node's disk, no program gets the message again."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Delivered, History, Settled
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    restored = history.restored
    sought = history.begun_again
    confirmed: dict[tuple[str, str, int, int], float] = {}
    for settled in history.of(Settled):
        if settled.confirmed_s is not None and settled.how != "nack":
            d = settled.delivery
            place = (d.node, d.subscription, d.shard, d.entry)
            confirmed[place] = min(confirmed.get(place, settled.confirmed_s), settled.confirmed_s)
    for event in history.of(Delivered):
        if event.node in restored or event.subscription in sought:
            continue
        at_s = confirmed.get((event.node, event.subscription, event.shard, event.entry))
        if at_s is not None and event.at_s > at_s + plan.transit_s:
            what = f"{event.subscription} {event.shard}/{event.entry}"
            yield f"{what} was settled at {at_s:.3f} and came at {event.at_s:.3f}"
