"""The plan of a run: who takes part, and which faults happen how often. The seed decides.

Each seed gets few kinds of faults with high rates rather than all of them (swarm testing): some faults hide
others.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from headpond.model.policy import Policy
from headpond.sim.network import Weather

KINDS = ("unique", "shared", "failover", "key_shared")
MODES = ("resilient", "non_resilient")


@dataclass(frozen=True)
class TopicPlan:
    name: str
    shards: int


@dataclass(frozen=True)
class ProducerPlan:
    name: str
    topic: str
    node: str
    refill: bool
    registered: bool
    """Whether it has a name at the node; with ``single``, a lease."""
    single: bool
    keys: float
    """The share of messages with a key."""
    pause_s: float
    burst: int
    options: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True)
class SubscriptionPlan:
    name: str
    topic: str
    node: str
    kind: str
    mode: str
    consumers: int
    policy: Policy
    think_s: float
    refuse: float
    """The share of messages that a program refuses."""
    hold: int
    """How many messages a program has in hand before it settles one."""
    credit_bytes: int


@dataclass(frozen=True)
class WriterPlan:
    name: str
    topic: str
    node: str
    tasks: int
    rows: int
    """At most, per task."""
    pause_s: float
    speculation: float
    """The share of tasks that run twice at a time."""
    lost_tasks: float
    """The share of tasks that are killed."""


@dataclass(frozen=True)
class Plan:
    seed: int
    seconds: float
    """How long faults happen."""
    nodes: tuple[str, ...]
    topics: tuple[TopicPlan, ...]
    producers: tuple[ProducerPlan, ...]
    subscriptions: tuple[SubscriptionPlan, ...]
    writers: tuple[WriterPlan, ...]
    weather: Weather
    faults: dict[str, float]
    """Faults per minute, by name (sim/faults.py)."""
    disk_s: float = 0.002
    """How long the work of a disk takes at most."""
    tempo: float = 1.0
    """By how much everything takes longer than in a dense run, so that some runs last for hours."""

    @property
    def is_calm(self) -> bool:
        """Whether no fault happens: nothing but delays."""
        return not self.faults and not any(getattr(self.weather, name) for name in WEATHER)


TEMPOS = (1.0, 1.0, 30.0, 300.0)

WEATHER = ("stall", "split", "flip", "cut", "reset")
FAULTS = (
    "kill node",
    "kill node at a point",
    "restart node",
    "cut power",
    "cut power at a point",
    "cut power of client",
    "cut power of client at a point",
    "stop node",
    "kill client",
    "kill client at a point",
    "stop client",
    "partition",
    "one-way partition",
    "reset connection",
    "clock jump",
    "sync fails",
    "write fails",
    "sync of client fails",
    "write of client fails",
)


def draw(seed: int) -> Plan:
    chance = random.Random(f"{seed} plan")
    tempo = chance.choice(TEMPOS)
    nodes = ("n1",)
    topics = tuple(
        TopicPlan(f"t{number}", chance.choice([1, 2, 4])) for number in range(1, chance.choice([1, 1, 2]) + 1)
    )
    producers = tuple(
        _producer(chance, f"p{number}", topics, nodes, tempo) for number in range(1, chance.randint(1, 3) + 1)
    )
    subscriptions = tuple(
        _subscription(chance, f"s{number}", topics, nodes) for number in range(1, chance.randint(1, 3) + 1)
    )
    writers = tuple(
        WriterPlan(
            f"w{number}",
            chance.choice(topics).name,
            chance.choice(nodes),
            tasks=chance.randint(1, 3),
            rows=chance.choice([1, 10]),
            pause_s=chance.choice([2.0, 8.0]) * tempo,
            speculation=chance.choice([0.0, 0.3]),
            lost_tasks=chance.choice([0.0, 0.2]),
        )
        for number in range(1, chance.choice([0, 0, 1, 2]) + 1)
    )
    weather = Weather(delay_s=chance.choice([0.0005, 0.005, 0.05]))
    for name in chance.sample(WEATHER, chance.choice([0, 1, 1, 2])):
        setattr(weather, name, chance.choice([0.001, 0.01, 0.05]) if name not in ("stall", "split") else 0.1)
    weather.stall_s = chance.choice([0.2, 2.0])
    kinds = chance.sample(FAULTS, chance.randint(0, 5))
    faults = {name: chance.choice([4.0, 12.0, 40.0]) / tempo for name in kinds}
    return Plan(
        seed,
        chance.choice([5.0, 15.0, 30.0]) * tempo,
        nodes,
        topics,
        producers,
        subscriptions,
        writers,
        weather,
        faults,
        disk_s=chance.choice([0.002, 0.02, 0.2, 0.2]),
        tempo=tempo,
    )


def _producer(
    chance: random.Random, name: str, topics: tuple[TopicPlan, ...], nodes: tuple[str, ...], tempo: float
) -> ProducerPlan:
    registered = chance.random() < 0.5
    burst = chance.choice([1, 3, 10])
    options: dict[str, object] = {"spill_after": chance.choice([0.2, 2.0])}
    if chance.random() < 0.3:
        options["memory_max"] = 20_000
    if chance.random() < 0.3:
        options["batch_rows"] = 3
    if chance.random() < 0.3:
        options["rotate_after"] = 5.0
    refill = chance.random() < 0.6
    if registered and refill and chance.random() < 0.3:
        options["resume"] = True
    return ProducerPlan(
        name,
        chance.choice(topics).name,
        chance.choice(nodes),
        refill=refill,
        registered=registered,
        single=registered and chance.random() < 0.5,
        keys=chance.choice([0.0, 0.7, 0.7, 1.0]),
        pause_s=chance.choice([0.3, 1.0]) * burst * tempo,
        burst=burst,
        options=options,
    )


def _subscription(
    chance: random.Random, name: str, topics: tuple[TopicPlan, ...], nodes: tuple[str, ...]
) -> SubscriptionPlan:
    kind, mode = chance.choice(KINDS), chance.choice(MODES)
    resilient = mode == "resilient"
    return SubscriptionPlan(
        name,
        chance.choice(topics).name,
        chance.choice(nodes),
        kind,
        mode,
        consumers=chance.randint(1, 3),
        policy=Policy(
            lease=chance.choice([0.5, 2.0]),
            backoff=chance.choice([0.01, 0.3]),
            backoff_max=1.0,
            deadline=chance.choice([None, None, 1.5]),
            max_attempts=0 if resilient else chance.choice([0, 0, 4]),
            failover_after=chance.choice([1, 3]),
        ),
        think_s=chance.choice([0.0, 0.01, 0.2]),
        refuse=chance.choice([0.0, 0.0, 0.1, 0.3]),
        hold=1 if resilient else chance.choice([1, 1, 5]),
        credit_bytes=chance.choice([400, 3000, 1 << 20]),
    )
