"""Producer order: a shard's log has the messages of a producer's process in the order it sent them."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import History, Read
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    last: dict[tuple[str, str, int, str, int], Read] = {}
    for read in sorted(history.of(Read), key=lambda each: (each.node, each.topic, each.shard, each.entry)):
        sent = history.sent.get(read.value)
        if sent is None or read.topic != sent.topic:
            continue
        lane = (read.node, read.topic, read.shard, sent.producer, sent.life)
        before = last.get(lane)
        if before is not None and history.sent[before.value].number > sent.number:
            yield f"{read.value[:30]!r} stands after {before.value[:30]!r} in shard {read.shard}"
        last[lane] = read
