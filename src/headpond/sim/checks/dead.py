"""A message dies once: the dead-letter topic has at most one copy for each subscription that may give it up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headpond.sim.history import History, Read
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    causes = Counter(f"{each.topic}.dead" for each in plan.subscriptions if each.policy.max_attempts)
    copies = Counter((read.topic, read.value) for read in history.of(Read) if read.topic.endswith(".dead"))
    for (topic, value), count in copies.items():
        if count > causes[topic]:
            yield f"{value[:40]!r} is {count} times in {topic}; {causes[topic]} subscriptions may give it up"
