"""A message that is refused holds up its key alone: those of other keys come in time.

In runs without a fault.
"""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Delivered, History
from headpond.sim.plan import Plan

PATIENCE_S = 8.0


def check(history: History, plan: Plan) -> Iterator[str]:
    poisoned = {each.name: each for each in plan.subscriptions if each.poison is not None}
    for event in history.of(Delivered) if plan.is_calm else ():
        mine, sent = poisoned.get(event.subscription), history.sent.get(event.value)
        if mine is None or sent is None or event.key == mine.poison or event.attempt > 1:
            continue
        if (waited_s := event.at_s - sent.at_s) > PATIENCE_S:
            what = f"{event.subscription} {event.shard}/{event.entry} of key {event.key!r}"
            yield f"{what} came {waited_s:.1f} s after it was sent, and key {mine.poison!r} is refused"
