"""A link copies everything: after healing, each node has every message of the nodes that it copies."""

from __future__ import annotations

from collections.abc import Iterator

from headpond.sim.history import History, Read
from headpond.sim.plan import Plan


def check(history: History, plan: Plan) -> Iterator[str]:
    found: dict[str, set[tuple[str, bytes]]] = {node: set() for node in plan.nodes}
    for read in history.of(Read):
        if not read.topic.endswith(".dead"):
            found[read.node].add((read.topic, read.value))
    for link in plan.links:
        ways = [(link.other, link.node), (link.node, link.other)]
        for source, sink in ways if link.both else ways[:1]:
            for topic, value in sorted(found[source] - found[sink]):
                yield f"{sink} lacks {value[:40]!r} of {topic}, which {source} has"
