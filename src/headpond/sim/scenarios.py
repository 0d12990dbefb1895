"""Scenarios: small systems under the conditions in which a known bug showed itself.

Each is a bug that another messaging system had, or this one. ``plan`` changes a small calm plan; the seed still
decides when and where the faults happen. tests/sim/planted_scenarios.py removes the guard against each bug, and
shows that the scenario finds it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from headpond.model.errors import BadRequest
from headpond.model.policy import Policy
from headpond.sim.network import Weather
from headpond.sim.plan import (
    AdminPlan,
    LinkPlan,
    Plan,
    ProducerPlan,
    ReaderPlan,
    SubscriptionPlan,
    TopicPlan,
    WriterPlan,
    draw,
)

PRODUCER = ProducerPlan(
    "p1",
    "t1",
    "n1",
    refill=False,
    registered=False,
    single=False,
    keys=0.7,
    pause_s=1.0,
    burst=3,
    options={"spill_after": 0.5},
)
SUBSCRIPTION = SubscriptionPlan(
    "s1",
    "t1",
    "n1",
    "shared",
    "non_resilient",
    consumers=2,
    policy=Policy(lease=1.0, backoff=0.3, backoff_max=1.0, max_attempts=0, failover_after=1),
    think_s=0.01,
    refuse=0.0,
    hold=1,
    credit_bytes=3000,
)


@dataclass(frozen=True)
class Scenario:
    name: str
    about: str
    """What went wrong, and where."""
    change: Callable[[Plan, random.Random], Plan]
    """Makes the scenario of a small calm plan."""

    def plan(self, seed: int) -> Plan:
        calm = Plan(
            seed,
            seconds=15.0,
            nodes=("n1",),
            topics=(TopicPlan("t1", 2),),
            producers=(PRODUCER,),
            subscriptions=(SUBSCRIPTION,),
            writers=(),
            readers=(),
            admins=(),
            links=(),
            tokens=False,
            weather=Weather(),
            faults={},
        )
        return self.change(calm, random.Random(f"{seed} {self.name}"))


def plan_of(seed: int, scenario: str | None = None) -> Plan:
    """The plan of a seed: of a scenario, or one that is drawn from everything."""
    return draw(seed) if scenario is None else find_scenario(scenario).plan(seed)


def find_scenario(name: str) -> Scenario:
    try:
        return SCENARIOS[name]
    except KeyError:
        known = ", ".join(SCENARIOS)
        raise BadRequest(f"there is no scenario {name!r}", hint=f"The scenarios are {known}.") from None


def _with(
    plan: Plan,
    faults: Mapping[str, float] | None = None,
    weather: Weather | None = None,
    *,
    producer: dict[str, Any] | None = None,
    producers: int = 1,
    subscription: dict[str, Any] | None = None,
    policy: dict[str, Any] | None = None,
    **parts: Any,
) -> Plan:
    """The plan with faults, and with other values of its producers, its subscription and its policy."""
    own = {"policy": msgspec.structs.replace(SUBSCRIPTION.policy, **policy or {}), **(subscription or {})}
    return replace(
        plan,
        faults={name: rate for name, rate in (faults or {}).items() if rate},
        weather=weather or Weather(),
        producers=tuple(
            replace(PRODUCER, name=f"p{number}", **producer or {}) for number in range(1, producers + 1)
        ),
        subscriptions=(replace(SUBSCRIPTION, **own),),
        **parts,
    )


def _resume(plan: Plan, chance: random.Random) -> Plan:
    options = {"resume": True, "spill_after": chance.choice([0.2, 2.0])}
    producer = {"refill": True, "registered": True, "options": options}
    faults = {"kill client": 40, "cut power of client": 20, "cut power of client at a point": 10}
    return _with(plan, faults, producer=producer, subscription={"consumers": 1})


def _refusals(plan: Plan, chance: random.Random) -> Plan:
    subscription = {"refuse": 0.3, "think_s": 0.2, "hold": 3}
    if chance.random() < 0.5:
        return _with(plan, subscription=subscription)
    policy = {"backoff": 4.0, "backoff_max": 8.0}
    return _with(plan, {"restart node": 20}, subscription=subscription, policy=policy, seconds=30.0)


def _bad_connection(plan: Plan, chance: random.Random) -> Plan:
    delay_s = chance.choice([0.005, 0.5])
    weather = Weather(delay_s=delay_s, reset=0.05, cut=0.05, flip=0.02, split=0.1, stall=0.1)
    options = {"spill_after": 0.5, "batch_rows": 3}
    return _with(plan, {"one-way partition": 4}, weather, producer={"burst": 10, "options": options})


def _long_idle(plan: Plan, chance: random.Random) -> Plan:
    weather = Weather(reset=0.05)
    producer = {"registered": True, "refill": True, "burst": 10, "pause_s": 200.0}
    faults = {"restart node": 0.3, "kill node": 0.3, "one-way partition": 0.5, "kill client": 0.02}
    return _with(
        plan,
        faults,
        weather,
        producer=producer,
        subscription={"consumers": 1, "think_s": 10.0},
        tempo=300.0,
        seconds=3000.0,
    )


def _full_memory(plan: Plan, chance: random.Random) -> Plan:
    options = {"spill_after": 0.5, "memory_max": 3000}
    producer = {"refill": True, "burst": 50, "options": options}
    subscription = {"think_s": 0.2, "credit_bytes": 400, "consumers": 1}
    return _with(plan, {"stop node": 10, "stop client": 10}, producer=producer, subscription=subscription)


def _leases(plan: Plan, chance: random.Random) -> Plan:
    """In a slow world a lease ends before the connection of its holder does."""
    tempo = chance.choice([1.0, 20.0])
    producer = {"registered": True, "single": True, "refill": True, "pause_s": tempo}
    subscription = {"kind": chance.choice(["unique", "failover"]), "mode": "resilient"}
    faults = {"zombie": 20, "stop client": 12, "kill client": 6, "reset connection": 12}
    return _with(
        plan,
        {name: rate / tempo for name, rate in faults.items()},
        producer=producer,
        subscription=subscription,
        policy={"lease": tempo},
        tempo=tempo,
        seconds=15.0 * tempo,
    )


def _clocks(plan: Plan, chance: random.Random) -> Plan:
    if chance.random() < 0.5:
        leased = {"kind": "failover", "mode": "resilient", "consumers": 3, "think_s": 0.1}
        return _with(plan, {"clock jump": 120}, producer={"burst": 20}, subscription=leased)
    return _with(
        plan,
        {"clock jump": 120, "restart node": 20},
        subscription={"refuse": 0.3, "hold": 3},
        policy={"backoff": 4.0, "backoff_max": 8.0},
    )


def _batches(plan: Plan, chance: random.Random) -> Plan:
    writer = WriterPlan(
        "w1", "t1", "n1", tasks=2, rows=10, pause_s=1.0, speculation=0.3, lost_tasks=0.2, other_rows=0.3
    )
    faults = {"kill node at a point": 40, "kill client": 12, "twin": 6, "sync fails": 6}
    return _with(plan, faults, writers=(writer,))


def _links(plan: Plan, chance: random.Random) -> Plan:
    faults = {"sync fails": 20, "write fails": 20, "kill node": 10, "partition": 6}
    linked = _with(plan, faults, Weather(reset=0.01), producer={"refill": True})
    return replace(
        linked,
        nodes=("n1", "n2"),
        links=(LinkPlan("n2", "n1", both=True, subscriptions=False),),
        producers=(*linked.producers, replace(linked.producers[0], name="p2", node="n2")),
    )


def _compacted(plan: Plan, chance: random.Random) -> Plan:
    return _with(
        plan,
        {"kill client": 20},
        topics=(TopicPlan("t1", 2, "state"),),
        producer={"keys": 1.0, "burst": 10},
        subscription={"think_s": 0.3, "consumers": 1},
        readers=(ReaderPlan("r1", "t1", "n1", 0.5),),
        admins=(AdminPlan("a1", "n1", 1.0, ("compact", "seek")),),
    )


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(
            "power-cut",
            "A node acknowledges before it syncs. A power cut removes acknowledged messages, the node reuses "
            "entries, and consumers are ahead of the log (nats-server#7564, #5412, #6600, Jepsen on NATS, "
            "Andy X).",
            lambda plan, chance: _with(
                plan,
                {"cut power": 20, "cut power at a point": 20},
                producers=2,
                readers=(ReaderPlan("r1", "t1", "n1", 0.5),),
            ),
        ),
        Scenario(
            "torn-write",
            "A power cut tears a write: its end is there without its beginning, or the node continues after "
            "it, and later messages cannot be read (apache/artemis#2748).",
            lambda plan, chance: _with(
                plan,
                {"tear write": 60},
                topics=(TopicPlan("t1", 1),),
                producers=4,
                producer={"burst": 20, "options": {"spill_after": 0.5, "batch_rows": 1}},
                disk_s=0.2,
                seconds=30.0,
            ),
        ),
        Scenario(
            "bit-rot",
            "A flipped bit costs other messages, or goes unnoticed at the end of a file; a revoked token is "
            "valid again (Jepsen on NATS 2.12.1, early tests of Headpond).",
            lambda plan, chance: _with(
                plan,
                {"damage": 30, "damage after a stop": 60, "restart node": 6},
                tokens=True,
                admins=(AdminPlan("a1", "n1", 2.0, ("new token",)),),
                seconds=10.0,
            ),
        ),
        Scenario(
            "failed-write",
            "A node marks a message as stored, its write fails, and the retry counts as a duplicate; a node "
            "does not continue after its disk was full (pulsar#5218, early tests of Headpond).",
            lambda plan, chance: _with(
                plan,
                {"sync fails": 30, "write fails": 30, "disk full": 10, "restart node": 6},
                producers=2,
                producer={"refill": chance.random() < 0.5},
            ),
        ),
        Scenario(
            "failed-sync",
            "After a failed sync a system shows bytes that are on no disk; after a restart a node takes them "
            "for stored, and a power cut removes them (beanstalkd#477, camunda#14866).",
            lambda plan, chance: _with(
                plan,
                {"sync fails": 60, "kill node": 30, "cut power": 10},
                topics=(TopicPlan("t1", 1),),
                producers=2,
                seconds=30.0,
            ),
        ),
        Scenario(
            "snapshots",
            "A crash while a node replaces a file loses the content of both files, such as the state of a "
            "consumer (nats-server#6333, #7691).",
            lambda plan, chance: _with(
                plan,
                {"kill node at a point": 40, "cut power at a point": 20},
                producer={"burst": 20},
                subscription={"hold": 5, "consumers": 3},
                seconds=30.0,
            ),
        ),
        Scenario(
            "long-idle",
            "Deduplication forgets after a time, a restart or an idle hour; the node stores repeats, or drops "
            "new messages (nats-server#7302, #5142, librdkafka#4953, aiokafka#1017, redpanda#22670).",
            _long_idle,
        ),
        Scenario(
            "restarted-sender",
            "A restarted sender reuses its numbers, and the receiver silently drops new messages (Ockam, "
            "fuurin, librdkafka#3584).",
            _resume,
        ),
        Scenario(
            "refill",
            "A client queue on disk loses messages: it accepts them without a sync, or removes them before the "
            "node has confirmed them (Prom++; asked for in librdkafka#31).",
            lambda plan, chance: _with(
                plan,
                {
                    "partition": 10,
                    "stop node": 20,
                    "cut power of client": 60,
                    "cut power of client at a point": 40,
                    "sync of client fails": 60,
                },
                producers=4,
                producer={"refill": True, "burst": 10, "options": {"spill_after": 0.2, "rotate_after": 2.0}},
                subscription={"consumers": 1},
                seconds=30.0,
            ),
        ),
        Scenario(
            "bad-connection",
            "A confirmation that is lost, slow or repeated blocks the sender permanently, or makes the node "
            "store a message twice (Prom++, Ockam, pulsar#6273, rstream#227).",
            _bad_connection,
        ),
        Scenario(
            "full-memory",
            "Nothing bounds the bytes in flight or in a queue (Prom++, Ockam).",
            _full_memory,
        ),
        Scenario(
            "refusals",
            "A refused message is redelivered at once and uses up its attempts; its delay replaces the "
            "deadline; a restart forgets the delay (newchat#346, kannon#427, early tests of Headpond).",
            _refusals,
        ),
        Scenario(
            "ack-timeout",
            "One message that is not settled in time costs the consumer its connection, or the others that it "
            "holds (rabbitmq-server#9046).",
            lambda plan, chance: _with(
                plan,
                subscription={
                    "think_s": 0.3,
                    "hold": 5,
                    "kind": chance.choice(["unique", "shared", "key_shared"]),
                },
                policy={"deadline": 0.5},
            ),
        ),
        Scenario(
            "dead-letters",
            "A message with its last attempt is dropped, or kept twice (nats-io/jetstream#425).",
            lambda plan, chance: _with(
                plan,
                {"kill node at a point": 40, "cut power at a point": 40},
                producers=2,
                subscription={"refuse": 0.6},
                policy={"max_attempts": 2, "backoff": 0.01},
                disk_s=0.2,
            ),
        ),
        Scenario(
            "attempts",
            "A restarted node has forgotten deliveries, and marks a redelivery as the first delivery (nats-"
            "server#1748, #4049).",
            lambda plan, chance: _with(
                plan,
                {"kill node": 40, "kill client": 30},
                producer={"burst": 20, "pause_s": 4.0, "spread_s": 0.05},
                subscription={"consumers": 3, "think_s": 0.0, "credit_bytes": 1 << 20},
                disk_s=0.2,
                seconds=30.0,
            ),
        ),
        Scenario(
            "poison-key",
            "One message that is always refused stalls the messages of all keys (pulsar#21656, #23999).",
            lambda plan, chance: _with(
                plan,
                producer={"keys": 1.0},
                subscription={
                    "kind": "key_shared",
                    "mode": chance.choice(["resilient", "non_resilient"]),
                    "poison": b"a",
                },
                policy={"backoff": 10.0, "backoff_max": 10.0},
                seconds=30.0,
            ),
        ),
        Scenario(
            "acks-out-of-order",
            "The last acknowledgement moves the position past unsettled messages, and they are redelivered "
            "only after every consumer has ended (Andy X).",
            lambda plan, chance: _with(
                plan, {"kill client": 20, "restart node": 6}, subscription={"hold": 5, "consumers": 3}
            ),
        ),
        Scenario(
            "compacted-gap",
            "Entries that were removed from the log block a subscription or a reader (Andy X).",
            _compacted,
        ),
        Scenario(
            "joining",
            "Messages of a key change their order or have two consumers while consumers join and leave (early "
            "tests of Headpond).",
            lambda plan, chance: _with(
                plan,
                weather=Weather(delay_s=0.2),
                producer={"keys": 1.0, "burst": 40},
                subscription={
                    "kind": "key_shared",
                    "consumers": 3,
                    "stay": 20,
                    "hold": chance.choice([1, 5]),
                    "think_s": 0.1,
                    "credit_bytes": 1 << 20,
                },
            ),
        ),
        Scenario(
            "stepping-back",
            "A consumer that stepped back after refusals becomes active again and waits for a message that "
            "another one settled (early tests of Headpond).",
            lambda plan, chance: _with(
                plan,
                subscription={"kind": "failover", "mode": "resilient", "refuse": 0.3, "stay": 10},
                policy={"failover_after": chance.choice([1, 3])},
            ),
        ),
        Scenario(
            "reconnect",
            "After a lost connection a consumer delivers messages that another one has settled (early tests of "
            "Headpond).",
            lambda plan, chance: _with(
                plan,
                {"reset connection": 60},
                Weather(delay_s=chance.choice([0.005, 0.2])),
                producer={"burst": 10},
                subscription={
                    "kind": chance.choice(["unique", "shared", "failover", "key_shared"]),
                    "consumers": 3,
                    "credit_bytes": 1 << 20,
                    "think_s": 0.2,
                    "hold": 5,
                },
            ),
        ),
        Scenario(
            "old-backup",
            "An old copy of a node's folder is restored under live clients, and their settlements affect other "
            "messages (early tests of Headpond).",
            lambda plan, chance: _with(
                plan,
                {"old backup of the only node": 40},
                producers=2,
                subscription={
                    "kind": chance.choice(["unique", "shared", "key_shared"]),
                    "hold": 5,
                    "think_s": 0.5,
                },
                seconds=30.0,
            ),
        ),
        Scenario(
            "leases",
            "A process that was stopped continues beside its successor, or keeps its lease forever (early "
            "tests of Headpond).",
            _leases,
        ),
        Scenario(
            "clocks",
            "Timeouts follow the time of day, and the clock is set: a lease ends early, or a delay lasts for "
            "hours (apache/rocketmq#6448, ruby-mqtt#132).",
            _clocks,
        ),
        Scenario(
            "links",
            "A message that should arrive over a second path is dropped: a link continues after one whose "
            "write failed (fuurin, the simulation of Headpond).",
            _links,
        ),
        Scenario(
            "counts",
            "After restarts the counts are wrong, and a monitor reports loss where there is none "
            "(kafka-monitor#129, #303).",
            lambda plan, chance: _with(
                plan,
                {"restart node": 10, "kill node": 10, "kill client": 10},
                producer={"burst": 20},
                subscription={"refuse": 0.1, "hold": 5, "consumers": 3},
                seconds=30.0,
            ),
        ),
        Scenario(
            "batches",
            "A sink writes a batch twice or in part, or treats other rows as a repeat (apache/spark#25618, "
            "early tests of Headpond).",
            _batches,
        ),
        Scenario(
            "cluster",
            "A group of three members over a stream: a replaced member answers or writes, a takeover loses or "
            "repeats messages, members differ (Jepsen on NATS 2.12.1, the prototype of Headpond's cluster).",
            lambda plan, chance: draw(plan.seed, cluster=True),
        ),
    )
}
