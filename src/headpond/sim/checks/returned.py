"""Nothing settled comes back: after a settlement is on the node's disk, no program gets the message again."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Delivered, History, Settled
from headpond.sim.plan import Plan

TRANSIT_S = 40.0
"""A copy may be in transit, or wait in a client that stands still, for so long."""


def check(history: History, plan: Plan) -> Iterator[str]:
    confirmed: dict[tuple[str, str, int, int], float] = {}
    for settled in history.of(Settled):
        if settled.confirmed_s is not None and settled.how != "nack":
            d = settled.delivery
            place = (d.node, d.subscription, d.shard, d.entry)
            confirmed[place] = min(confirmed.get(place, settled.confirmed_s), settled.confirmed_s)
    for event in history.of(Delivered):
        at_s = confirmed.get((event.node, event.subscription, event.shard, event.entry))
        if at_s is not None and event.at_s > at_s + TRANSIT_S * min(plan.tempo, 10.0):
            what = f"{event.subscription} {event.shard}/{event.entry}"
            yield f"{what} was settled at {at_s:.3f} and came at {event.at_s:.3f}"
