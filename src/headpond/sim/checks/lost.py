"""Nothing acknowledged is lost: a message with the receipt ``stored`` or ``spilled`` is in its log, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headpond.sim.history import History, Read
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    found = Counter(read.value for read in history.of(Read) if not read.topic.endswith(".dead"))
    for sent in history.sent.values():
        if sent.outcome in ("stored", "duplicate", "spilled") and not found[sent.value]:
            yield f"{sent.value[:40]!r} was {sent.outcome} at {sent.shard}/{sent.entry} and is not in the log"
        if found[sent.value] > 1:
            yield f"{sent.value[:40]!r} is {found[sent.value]} times in the log"
