"""Nothing settled comes back: after a settlement is on the node's disk, no program gets the message again.

The process that settled it never does once it knows that. Another one may have it on the way, but not on a
connection that it made later.
"""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Delivered, History, Settled
from headpond.sim.plan import Plan

Place = tuple[str, str, int, int]


def check(history: History, plan: Plan) -> Iterator[str]:
    restored = history.restored
    sought = history.begun_again
    confirmed: dict[Place, float] = {}
    known: dict[tuple[str, int, Place], float] = {}
    """The same for the process that settled it."""
    for settled in history.of(Settled):
        if settled.confirmed_s is not None and settled.how != "nack":
            d = settled.delivery
            place = (d.node, d.subscription, d.shard, d.entry)
            confirmed[place] = min(confirmed.get(place, settled.confirmed_s), settled.confirmed_s)
            known.setdefault((d.consumer, d.life, place), settled.confirmed_s)
    for event in history.of(Delivered):
        if event.node in restored or event.subscription in sought:
            continue
        place = (event.node, event.subscription, event.shard, event.entry)
        at_s = confirmed.get(place)
        if at_s is None:
            continue
        late_s = min(at_s + plan.transit_s, known.get((event.consumer, event.life, place), float("inf")))
        if event.connected_s > at_s or event.at_s > late_s:
            what = f"{event.subscription} {event.shard}/{event.entry}"
            yield f"{what} was settled at {at_s:.3f} and came at {event.at_s:.3f}"
