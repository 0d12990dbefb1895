"""No message is altered or invented: what is read or delivered was sent so, and an entry never changes."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Batch, Delivered, History, Read, Seen
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    staged = {(batch.topic, row) for batch in history.of(Batch) for rows in batch.rows for row in rows}
    restored = history.restored
    entries: dict[tuple[str, str, int, int], bytes] = {}
    seen: list[Read | Delivered | Seen] = [*history.of(Read), *history.of(Seen), *history.of(Delivered)]
    for event in seen:
        place = (event.node, event.topic, event.shard, event.entry)
        if entries.setdefault(place, event.value) != event.value and event.node not in restored:
            yield f"{place} was {entries[place][:60]!r} and {event.value[:60]!r}"
        topic = event.topic.removesuffix(".dead")
        sent = history.sent.get(event.value)
        if sent is None and (topic, event.value) in staged:
            continue
        if sent is None:
            yield f"{event.value[:60]!r} at {event.shard}/{event.entry} was never sent"
        elif (sent.key, sent.topic) != (event.key, topic):
            yield f"{event.value[:60]!r} was sent to {sent.topic} with key {sent.key!r}, not {event.key!r}"
