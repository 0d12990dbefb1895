"""Who takes part in a run, by part: nodes, topics, links, and the programs that use them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Collection
from dataclasses import dataclass, field, replace

from headpond.model.policy import Policy
from headpond.sim.plan import KINDS, MODES, ProducerPlan, SubscriptionPlan, TopicPlan, WriterPlan

PARTS = ("nodes", "producers", "links", "spark")
CLUSTER = "cluster"
"""A part that runs alone: it has the programs of a node, and their names."""
EXPIRY_S = 60.0
SPARK_PREFIX = b"spark:"
"""Spark puts it before each value, so that a copy is not taken for its original."""


@dataclass(frozen=True)
class Sender:
    """A program that sends."""

    plan: ProducerPlan
    nodes: tuple[str, ...]
    """Where it sends; the second gets copies."""
    typed: bool = False

    @property
    def name(self) -> str:
        return self.plan.name


@dataclass(frozen=True)
class Stager:
    """A program that stages batches and commits them."""

    plan: WriterPlan
    nodes: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.plan.name


@dataclass(frozen=True)
class Taker:
    """A program that consumes."""

    name: str
    plan: SubscriptionPlan
    nodes: tuple[str, ...]
    reads: str = "one"
    """``one`` node; ``all`` (copies at several nodes); ``any`` (a service of several addresses); ``moves`` (to
    the second node, which follows the first)."""


@dataclass(frozen=True)
class Link:
    """A node that copies from another."""

    name: str
    reader: str
    source: str
    subscriptions: tuple[str, ...] = ()


@dataclass
class Part:
    """Processes that have nothing to do with those of other parts."""

    name: str
    nodes: tuple[str, ...] = ()
    topics: dict[str, TopicPlan] = field(default_factory=dict)
    """By name; every node of the part has every topic in the end."""
    senders: list[Sender] = field(default_factory=list)
    takers: list[Taker] = field(default_factory=list)
    stagers: list[Stager] = field(default_factory=list)
    grouped: bool = False
    """Whether each node is a group of three members over three NATS servers."""
    links: list[Link] = field(default_factory=list)
    restored: str = ""
    """The node that is put back to an old copy of its data."""
    spark: tuple[str, str] | None = None
    """The topics that Spark copies from and to."""

    @property
    def programs(self) -> list[Sender | Taker | Stager]:
        return [*self.senders, *self.takers, *self.stagers]


def cast(parts: Collection[str], seed: int) -> list[Part]:
    chance = random.Random(f"{seed} cast")
    makers = {
        "nodes": _nodes,
        "producers": _producers,
        "links": _links,
        "spark": _spark,
        CLUSTER: _cluster,
    }
    return [makers[name](chance) for name in makers if name in parts]


def _topics(*plans: TopicPlan) -> dict[str, TopicPlan]:
    return {plan.name: plan for plan in plans}


def _subscription(name: str, topic: str, node: str, chance: random.Random, **given: object) -> SubscriptionPlan:
    options: dict[str, object] = {
        "kind": "shared",
        "mode": "non_resilient",
        "consumers": 1,
        "policy": Policy(lease=1.0, backoff=0.05, backoff_max=0.5, max_attempts=0),
        "think_s": chance.choice([0.0, 0.005]),
        "refuse": chance.choice([0.0, 0.03]),
        "hold": 1,
        "credit_bytes": chance.choice([3000, 1 << 20]),
    }
    return SubscriptionPlan(name=name, topic=topic, node=node, **options | given)  # type: ignore[arg-type]


def _sender(
    name: str,
    topic: str,
    nodes: tuple[str, ...],
    way: str,
    *,
    keys: float = 1.0,
    refill: bool = False,
    burst: int = 8,
    pause_s: float = 0.8,
) -> Sender:
    options: dict[str, object] = {"batch_rows": 64, "spill_after": 0.5 if refill else 120.0}
    plan = ProducerPlan(
        name, topic, nodes[0], refill, True, False, keys, pause_s, burst, way=way, options=options
    )
    return Sender(plan, nodes)


def _nodes(chance: random.Random, node: str = "n1") -> Part:
    """A node with producers of every way to send and subscriptions of every kind and mode."""
    topic = "work"
    senders = [
        _sender("one-by-one", topic, (node,), "post", keys=0.0, burst=1),
        _sender("by-post", topic, (node,), "post"),
        _sender("by-table", topic, (node,), "table", refill=True),
        _sender("plain-table", "plain", (node,), "table", keys=0.0),
    ]
    takers = []
    for kind, mode in itertools.product(KINDS, MODES):
        hold = 1 if mode == "resilient" else chance.choice([1, 5])
        plan = _subscription(f"{kind}.{mode}", topic, node, chance, kind=kind, mode=mode, hold=hold)
        count = 1 if kind == "unique" else chance.choice([1, 2])
        takers += [Taker(f"{plan.name}.{number}", plan, (node,)) for number in range(count)]
    dying = Policy(max_attempts=2, backoff=0.01)
    takers.append(
        Taker("audit", _subscription("audit", topic, node, chance, policy=dying, refuse=0.2), (node,))
    )
    return Part("nodes", (node,), _topics(TopicPlan(topic, 4), TopicPlan("plain", 1)), senders, takers)


def _producers(chance: random.Random) -> Part:
    """Two nodes that get copies from the same producers, a reader of both and a reader of either."""
    nodes, topic = ("n2", "n3"), "copied"
    senders = [
        _sender("to-both", topic, nodes, "post", refill=True),
        _sender("tables-to-both", topic, nodes, "table", refill=True),
    ]
    takers = [
        Taker(name, _subscription(name, topic, "n2", chance, kind="unique"), nodes, reads)
        for name, reads in (("of-both", "all"), ("of-either", "any"))
    ]
    return Part("producers", nodes, _topics(TopicPlan(topic, 1)), senders, takers)


def _links(chance: random.Random) -> Part:
    """Three nodes that follow each other over two ways each; a consumer moves from one to its follower."""
    nodes, topic = ("n4", "n5", "n6"), "linked"
    mesh, ring = list(itertools.permutations(nodes, 2)), list(zip(nodes, nodes[1:] + nodes[:1], strict=True))
    links = [
        Link(f"{reader}-from-{source}-{way}", reader, source, ("*",) if (source, reader) == nodes[:2] else ())
        for source, reader in chance.choice([mesh, ring])
        for way in (1, 2)
    ]
    senders = [
        _sender("till-1", topic, ("n4",), "post"),
        _sender("till-2", topic, ("n6",), "table"),
        _sender("till-3", topic, ("n4",), "table", refill=True),
    ]
    takers = [Taker("billing", _subscription("billing", topic, "n4", chance), ("n4", "n5"), "moves")]
    topics = _topics(TopicPlan(topic, 2))
    return Part("links", nodes, topics, senders, takers, links=links, restored="n6")


def _spark(chance: random.Random) -> Part:
    """A query that copies a topic through a shuffle."""
    senders = [_sender("to-spark", "in", ("n7",), "table", burst=20, pause_s=1.0)]
    topics = _topics(TopicPlan("in", 2), TopicPlan("out", 4))
    return Part("spark", ("n7",), topics, senders, spark=("in", "out"))


def _cluster(chance: random.Random) -> Part:
    """A group with the programs of a node, a single producer, staged batches, and a topic of every kind."""
    group = "g1"
    part = _nodes(chance, group)
    for name, kind, soft_ttl in (
        ("prices", "state", None),
        ("rows", "typed", None),
        ("expiring", "plain", EXPIRY_S),
        ("staged", "plain", None),
    ):
        part.topics[name] = TopicPlan(name, 2, kind, soft_ttl)
        sender = _sender(f"to-{name}", name, (group,), "post", pause_s=0.4)
        part.senders.append(replace(sender, typed=kind == "typed"))
        plan = _subscription(f"of-{name}", name, group, chance)
        part.takers.append(Taker(plan.name, plan, (group,)))
    single = _sender("single", "work", (group,), "post")
    part.senders.append(replace(single, plan=replace(single.plan, single=True)))
    batches = WriterPlan("batches", "staged", group, 3, 10, 1.0, speculation=0.3, lost_tasks=0.0, think_s=0.3)
    part.stagers.append(Stager(batches, (group,)))
    return replace(part, name="cluster", grouped=True)
