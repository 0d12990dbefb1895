"""A staged batch is in its topic whole and once, or not at all; a committed one is there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headpond.sim.history import Batch, History, Read
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    found = Counter((read.node, read.topic, read.value) for read in history.of(Read))
    for batch in history.of(Batch):
        if plan.topic(batch.topic).soft_ttl is not None:
            continue  # rows may be gone already
        counts = [found[batch.node, batch.topic, row] for rows in batch.rows for row in rows]
        wanted = (1,) if batch.committed else (0, 1)
        if len(set(counts)) > 1 or counts[0] not in wanted:
            kind = "committed" if batch.committed else "open"
            times = sorted(set(counts))
            yield f"rows of the {kind} batch {batch.number} of {batch.writer} are there {times} times"
