"""No message is altered or invented: whatever is read or delivered was sent, with the same value and key."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Batch, Delivered, History, Read
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    staged = {(batch.topic, row) for batch in history.of(Batch) for rows in batch.rows for row in rows}
    seen: list[Read | Delivered] = [*history.of(Read), *history.of(Delivered)]
    for event in seen:
        sent = history.sent.get(event.value)
        if sent is None and (event.topic.removesuffix(".dead"), event.value) in staged:
            continue
        if sent is None:
            yield f"{event.value[:60]!r} at {event.shard}/{event.entry} was never sent"
        elif (sent.key, sent.topic) != (event.key, event.topic.removesuffix(".dead")):
            yield f"{event.value[:60]!r} was sent to {sent.topic} with key {sent.key!r}, not {event.key!r}"
