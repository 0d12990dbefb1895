"""What programs saw themselves: a reader gets every entry in order or hears that it is gone, and more."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import Broken, Gone, History, Read, Seen
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    for broken in history.of(Broken):
        yield broken.what
    restored = history.restored
    gone = {
        (event.topic, event.node, event.shard, entry)
        for event in history.of(Gone)
        for entry in range(event.start, event.end)
    }
    there = {(read.topic, read.node, read.shard, read.entry) for read in history.of(Read)}
    last: dict[tuple[str, str, int], int] = {}
    for seen in history.of(Seen):
        lane = (seen.reader, seen.topic, seen.shard)
        for entry in range(last.get(lane, -1) + 1, seen.entry):
            place = (seen.topic, seen.node, seen.shard, entry)
            if place in there and place not in gone and seen.node not in restored:
                yield f"{seen.reader} did not get {seen.shard}/{entry} before {seen.shard}/{seen.entry}"
        if seen.entry <= last.get(lane, -1):
            yield f"{seen.reader} got {seen.shard}/{seen.entry} after {seen.shard}/{last[lane]}"
        last[lane] = seen.entry
