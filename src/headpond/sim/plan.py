"""The plan of a run: who takes part, and which faults happen how often. The seed decides.

Each seed gets few kinds of faults with high rates rather than all of them (swarm testing): some faults hide
others. Each part of a plan is drawn from its own source, so that a new option changes few seeds.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

from headpond.client.options import KindName, ModeName
from headpond.model.policy import Policy
from headpond.sim.jetstream import StreamWeather
from headpond.sim.network import Weather

TRANSIT_S = 40.0
KINDS: tuple[KindName, ...] = ("unique", "shared", "failover", "key_shared")
MODES: tuple[ModeName, ...] = ("resilient", "non_resilient")


@dataclass(frozen=True)
class TopicPlan:
    name: str
    shards: int
    kind: str = "plain"
    """``plain``, ``typed`` or ``state``"""
    soft_ttl: float | None = None


@dataclass(frozen=True)
class LinkPlan:
    """``node`` copies all topics from ``other``, and to it if ``both``."""

    node: str
    other: str
    both: bool
    subscriptions: bool
    """Whether subscriptions of the other node follow, as passive copies."""


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
    way: str = "post"
    """``post``, or ``table``: whole tables at a time."""
    options: dict[str, object] = field(default_factory=dict)
    spread_s: float = 0.0
    """How long a program waits at most between the messages of a burst."""


@dataclass(frozen=True)
class SubscriptionPlan:
    name: str
    topic: str
    node: str
    kind: KindName
    mode: ModeName
    consumers: int
    policy: Policy
    think_s: float
    refuse: float
    """The share of messages that a program refuses."""
    hold: int
    """How many messages a program has in hand before it settles one."""
    credit_bytes: int
    stay: int = 0
    """After so many messages a program closes its consumer, and another one takes its place; 0: it stays."""
    poison: bytes | None = None
    """A key whose messages programs refuse until the faults end."""


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
    other_rows: float = 0.0
    """The share of batches that a driver commits again with other rows, as if it had lost its checkpoint."""
    think_s: float = 0.0
    """How long the driver waits at most between the end of its tasks and the commit."""


@dataclass(frozen=True)
class ReaderPlan:
    """A program that reads a topic by position, as Spark's source does."""

    name: str
    topic: str
    node: str
    pause_s: float


@dataclass(frozen=True)
class AdminPlan:
    name: str
    node: str
    pause_s: float
    works: tuple[str, ...]
    """What it does (sim/actors/admin.py)."""


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
    readers: tuple[ReaderPlan, ...]
    admins: tuple[AdminPlan, ...]
    links: tuple[LinkPlan, ...]
    tokens: bool
    """Whether the nodes ask for tokens."""
    weather: Weather
    faults: dict[str, float]
    """Faults per minute, by name (sim/faults.py)."""
    disk_s: float = 0.002
    """How long the work of a disk takes at most."""
    cluster: bool = False
    """Whether each node is a group of three members."""
    standby_confirms: bool = False
    """Whether a change of a group counts only when a standby has it too."""
    stream_weather: StreamWeather = field(default_factory=StreamWeather)
    tempo: float = 1.0
    """By how much everything takes longer than in a dense run, so that some runs last for hours."""
    kill_at: tuple[str, ...] = ()
    """Kinds of points (sim/process.py): on each machine the first process that comes to the first kind is
    killed there, the next one at the second kind, and so on."""

    @property
    def is_calm(self) -> bool:
        """Whether nothing disturbs programs, except delays; in a group, members may replace each other."""
        weather = any(getattr(self.weather, name) for name in WEATHER)
        return not (self.faults or self.admins or self.kill_at or weather or self.cluster)

    @property
    def transit_s(self) -> float:
        """For so long a message may be in transit, or wait in a client that stands still."""
        return TRANSIT_S * min(self.tempo, 10.0)

    @property
    def producer_lease_s(self) -> float:
        """How long a process of a single producer holds its lease after the node last heard from it."""
        return 5.0 * min(self.tempo, 4.0)

    def topic(self, name: str) -> TopicPlan:
        """The plan of a topic, or of the topic of a dead-letter topic."""
        known = {topic.name: topic for topic in self.topics}
        return known.get(name.removesuffix(".dead"), TopicPlan(name, 1))


TEMPOS = (1.0, 1.0, 30.0, 300.0)
LINKED_TEMPOS = (1.0, 10.0)
"""A link asks for news many times a second."""
SLOW_MAX = 30.0
WEATHER = ("stall", "split", "flip", "cut", "reset")
WORKS = ("pause", "seek", "compact", "create and delete", "new token", "alter")
FAULTS = (
    "kill node",
    "kill node at a point",
    "restart node",
    "cut power",
    "cut power of client",
    "cut power at a point",
    "cut power of client at a point",
    "stop node",
    "kill client",
    "kill client at a point",
    "stop client",
    "twin",
    "zombie",
    "partition",
    "one-way partition",
    "reset connection",
    "silence connection",
    "clock jump",
    "sync fails",
    "write fails",
    "sync of client fails",
    "write of client fails",
    "read fails",
    "disk full",
    "damage",
    "old backup",
    "old backup of client",
)

STREAM_WEATHER = ("lost", "doubled", "answer_lost", "answer_late", "held", "stale_read")
CLUSTER_FAULTS = (
    *("kill server", "pause server", "lag server", "cut from stream", "cut active from stream", "stop active"),
    *("switch", "flip record", "cut power everywhere"),
    *("kill node", "kill node at a point", "restart node", "stop node"),
    *("cut power", "cut power at a point"),
    *("kill client", "stop client", "twin", "zombie", "cut power of client"),
    *("partition", "one-way partition", "reset connection", "clock jump", "disk full"),
)


def draw(seed: int, *, cluster: bool = False) -> Plan:
    """A plan of everything; with ``cluster`` the node is a group, and there are no links."""
    chance = random.Random(f"{seed} plan")
    linked = chance.random() < 0.2 and not cluster
    tempo = chance.choice(LINKED_TEMPOS if linked or cluster else TEMPOS)
    nodes = ("n1", "n2") if linked else ("n1",)
    both = linked and chance.random() < 0.4
    senders_at = nodes if both else nodes[:1]
    topics = _topics(random.Random(f"{seed} topics"), tempo, linked=linked)
    names = tuple(topic.name for topic in topics)
    return Plan(
        seed,
        chance.choice([5.0, 15.0, 30.0]) * tempo,
        nodes,
        topics,
        _with_ways(
            random.Random(f"{seed} ways"),
            _producers(random.Random(f"{seed} producers"), topics, senders_at, tempo),
            {topic.name for topic in topics if topic.kind == "plain"},
        ),
        _subscriptions(random.Random(f"{seed} subscriptions"), names, nodes, min(tempo, SLOW_MAX)),
        _writers(random.Random(f"{seed} writers"), topics, senders_at, tempo),
        _readers(random.Random(f"{seed} readers"), names, nodes, tempo),
        _admins(random.Random(f"{seed} admins"), nodes, tempo),
        (LinkPlan("n2", "n1", both, chance.random() < 0.5),) if linked else (),
        chance.random() < 0.2,
        _weather(random.Random(f"{seed} weather")),
        _faults(random.Random(f"{seed} kinds of faults"), tempo, CLUSTER_FAULTS if cluster else FAULTS),
        disk_s=random.Random(f"{seed} disks").choice([0.002, 0.02, 0.2, 0.2]),
        tempo=tempo,
        cluster=cluster,
        standby_confirms=cluster and random.Random(f"{seed} confirm").random() < 0.25,
        stream_weather=_stream_weather(random.Random(f"{seed} stream")) if cluster else StreamWeather(),
    )


def _topics(chance: random.Random, tempo: float, *, linked: bool) -> tuple[TopicPlan, ...]:
    def one(name: str) -> TopicPlan:
        plain = TopicPlan(name, chance.choice([1, 2, 4]))
        other = chance.choice(["plain", "plain", "plain", "typed", "state", "expiring"])
        if other == "expiring":
            return plain if linked else replace(plain, soft_ttl=3.0 * tempo)
        return replace(plain, kind="plain" if linked and other == "state" else other)

    return tuple(one(f"t{number}") for number in range(1, chance.choice([1, 1, 2]) + 1))


def _producers(
    chance: random.Random, topics: tuple[TopicPlan, ...], nodes: tuple[str, ...], tempo: float
) -> tuple[ProducerPlan, ...]:
    def one(name: str) -> ProducerPlan:
        topic = chance.choice(topics)
        registered = chance.random() < 0.5
        burst = chance.choice([1, 3, 10])
        options: dict[str, object] = {"spill_after": chance.choice([0.2, 2.0])}
        refill = chance.random() < 0.6
        if registered and refill and chance.random() < 0.3:
            options["resume"] = True
        if chance.random() < 0.3:
            options["memory_max"] = 3_000
        if chance.random() < 0.3:
            options["batch_rows"] = 3
        if chance.random() < 0.3:
            options["rotate_after"] = chance.choice([0.5, 5.0])
        return ProducerPlan(
            name,
            topic.name,
            chance.choice(nodes),
            refill=refill,
            registered=registered,
            single=registered and chance.random() < 0.5,
            keys=1.0 if topic.kind == "state" else chance.choice([0.0, 0.7, 0.7, 1.0]),
            pause_s=chance.choice([0.3, 1.0]) * burst * tempo,
            burst=burst,
            options=options,
            spread_s=chance.choice([0.0, 0.0, 0.05]),
        )

    return tuple(one(f"p{number}") for number in range(1, chance.randint(1, 3) + 1))


def _with_ways(
    chance: random.Random, producers: tuple[ProducerPlan, ...], plain: set[str]
) -> tuple[ProducerPlan, ...]:
    """Some producers of plain topics send tables."""
    return tuple(
        replace(each, way="table")
        if chance.random() < 0.3 and each.topic in plain and "memory_max" not in each.options
        else each
        for each in producers
    )


def _subscriptions(
    chance: random.Random, topics: tuple[str, ...], nodes: tuple[str, ...], slow: float
) -> tuple[SubscriptionPlan, ...]:
    def one(name: str) -> SubscriptionPlan:
        kind, mode = chance.choice(KINDS), chance.choice(MODES)
        resilient = mode == "resilient"
        return SubscriptionPlan(
            name,
            chance.choice(topics),
            chance.choice(nodes),
            kind,
            mode,
            consumers=chance.randint(1, 3),
            policy=Policy(
                lease=chance.choice([0.5, 2.0]) * slow,
                backoff=chance.choice([0.01, 0.3, 3.0]),
                backoff_max=3.0,
                deadline=chance.choice([None, None, 1.5 * slow]),
                max_attempts=0 if resilient else chance.choice([0, 2, 4]),
                failover_after=chance.choice([1, 3]),
            ),
            think_s=chance.choice([0.0, 0.01, 0.2]),
            refuse=chance.choice([0.0, 0.0, 0.1, 0.3]),
            hold=1 if resilient else chance.choice([1, 1, 5]),
            credit_bytes=chance.choice([400, 3000, 1 << 20]),
        )

    return tuple(one(f"s{number}") for number in range(1, chance.randint(1, 3) + 1))


def _writers(
    chance: random.Random, topics: tuple[TopicPlan, ...], nodes: tuple[str, ...], tempo: float
) -> tuple[WriterPlan, ...]:
    plain = [topic.name for topic in topics if topic.kind == "plain"]
    return tuple(
        WriterPlan(
            f"w{number}",
            chance.choice(plain),
            chance.choice(nodes),
            tasks=chance.randint(1, 3),
            rows=chance.choice([1, 10]),
            pause_s=chance.choice([2.0, 8.0]) * tempo,
            speculation=chance.choice([0.0, 0.3]),
            lost_tasks=chance.choice([0.0, 0.2]),
            think_s=chance.choice([0.0, 1.0]) * tempo,
        )
        for number in range(1, chance.choice([0, 0, 1, 2]) + 1)
        if plain
    )


def _readers(
    chance: random.Random, topics: tuple[str, ...], nodes: tuple[str, ...], tempo: float
) -> tuple[ReaderPlan, ...]:
    return tuple(
        ReaderPlan(f"r{number}", chance.choice(topics), chance.choice(nodes), chance.choice([0.5, 3.0]) * tempo)
        for number in range(1, chance.choice([0, 0, 1]) + 1)
    )


def _admins(chance: random.Random, nodes: tuple[str, ...], tempo: float) -> tuple[AdminPlan, ...]:
    return tuple(
        AdminPlan(
            f"a{number}",
            chance.choice(nodes),
            chance.choice([2.0, 6.0]) * tempo,
            tuple(chance.sample(WORKS, chance.randint(1, 3))),
        )
        for number in range(1, chance.choice([0, 0, 1]) + 1)
    )


def _weather(chance: random.Random) -> Weather:
    weather = Weather(delay_s=chance.choice([0.0005, 0.005, 0.05]))
    for name in chance.sample(WEATHER, chance.choice([0, 1, 1, 2])):
        setattr(weather, name, chance.choice([0.001, 0.01, 0.05]) if name not in ("stall", "split") else 0.1)
    weather.stall_s = chance.choice([0.2, 2.0])
    return weather


def _stream_weather(chance: random.Random) -> StreamWeather:
    weather = StreamWeather(delay_s=chance.choice([(0.0005, 0.003), (0.001, 0.05)]))
    for name in chance.sample(STREAM_WEATHER, chance.choice([0, 1, 1, 2, 6])):
        setattr(weather, name, chance.choice([0.003, 0.02, 0.1]))
    return weather


def _faults(chance: random.Random, tempo: float, kinds_of: tuple[str, ...]) -> dict[str, float]:
    kinds = chance.sample(kinds_of, chance.randint(0, 5))
    return {name: chance.choice([4.0, 12.0, 40.0]) / tempo for name in kinds}
