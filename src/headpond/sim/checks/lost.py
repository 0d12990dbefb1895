"""Nothing acknowledged is lost: a message with the receipt ``stored`` or ``spilled`` is in its log, once.

A state topic may drop a message when its key has a later one; a topic with a time to live, when every
subscription has got it or has given it up. A node that is put back to an old copy has what that copy has; a
producer that is put back has spilled what that copy has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headpond.sim.history import Delivered, History, Read, Sent
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    found = Counter((read.node, read.value) for read in history.of(Read) if not read.topic.endswith(".dead"))
    for (node, value), times in found.items():
        if times > 1:
            yield f"{value[:40]!r} is {times} times in the log of {node}"
    set_back = history.set_back
    latest = {(read.topic, read.key) for read in history.of(Read)}
    delivered = {(event.subscription, event.value) for event in history.of(Delivered)}
    dead = {read.value for read in history.of(Read) if read.topic.endswith(".dead")}
    delivered |= {
        (each.name, value) for each in plan.subscriptions if each.policy.max_attempts for value in dead
    }
    for sent in history.sent.values():
        if sent.outcome not in ("stored", "duplicate", "spilled") or found[sent.node, sent.value]:
            continue
        if history.put_back_after(sent.node, sent.at_s):
            continue
        if sent.outcome == "spilled" and sent.producer in set_back:
            continue
        topic = plan.topic(sent.topic)
        if topic.kind == "state" and (sent.topic, sent.key) in latest:
            continue
        if topic.soft_ttl is not None and _got_by_all(sent, plan, delivered):
            continue
        yield f"{sent.value[:40]!r} was {sent.outcome} at {sent.shard}/{sent.entry} and is not in the log"


def _got_by_all(sent: Sent, plan: Plan, delivered: set[tuple[str, bytes]]) -> bool:
    place = (sent.topic, sent.node)
    return all(
        (subscription.name, sent.value) in delivered
        for subscription in plan.subscriptions
        if (subscription.topic, subscription.node) == place
    )
