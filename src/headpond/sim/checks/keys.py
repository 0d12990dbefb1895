"""A key has one shard: all messages with that key are in it."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import History, Read
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    shards: dict[tuple[str, str, bytes], int] = {}
    for read in history.of(Read):
        if read.key is not None and not read.topic.endswith(".dead"):
            first = shards.setdefault((read.topic, read.node, read.key), read.shard)
            if first != read.shard:
                yield f"key {read.key!r} of {read.topic} is in shard {first} and in shard {read.shard}"
