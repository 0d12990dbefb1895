"""A receipt is right: the message is at the entry that it names."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import History, Read
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    places = {(read.node, read.value, read.shard, read.entry) for read in history.of(Read)}
    for sent in history.sent.values():
        topic = plan.topic(sent.topic)
        if topic.kind == "state" or topic.soft_ttl is not None or history.put_back_after(sent.node, sent.at_s):
            continue  # it may be gone
        if sent.entry is not None and (sent.node, sent.value, sent.shard, sent.entry) not in places:
            yield f"{sent.value[:40]!r} is not at {sent.shard}/{sent.entry}, which its receipt names"
