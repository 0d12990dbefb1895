"""A message dies once: the dead-letter topic has at most one copy for each subscription that may give it up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from headpond.sim.history import History, Read
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    again, restored = history.begun_again, history.restored
    causes = Counter(
        (f"{each.topic}.dead", each.node) for each in plan.subscriptions if each.policy.max_attempts
    )
    twice = {(f"{each.topic}.dead", each.node) for each in plan.subscriptions if each.name in again}
    dead = [read for read in history.of(Read) if read.topic.endswith(".dead") and read.node not in restored]
    for (topic, node, value), count in Counter((read.topic, read.node, read.value) for read in dead).items():
        most = causes[topic, node]
        if count > most and (topic, node) not in twice:
            yield f"{value[:40]!r} is {count} times in {topic}; {most} subscriptions may give it up"
