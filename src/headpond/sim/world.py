"""One run: a time with faults, a time without them, and the checks."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import headpond
from headpond.model.errors import HeadpondError
from headpond.sim.cast import Cast
from headpond.sim.checks import CHECKS
from headpond.sim.faults import FAULTS
from headpond.sim.history import Accounts, Gone, Read
from headpond.sim.loop import BEGIN_S, Deadlock
from headpond.sim.plan import Plan
from headpond.sim.process import Machine
from headpond.sim.surroundings import simulated

LIVENESS_S = 600.0
"""After healing everything is delivered within so long."""
TWINS = 0.2
"""The share of starts at which a copy of the disk is recovered twice."""
LOOK_S = 2.0
"""How often the observer looks whether it is."""


@dataclass
class Outcome:
    """What a run showed."""

    seed: int
    violations: list[str] = field(default_factory=list)
    """Broken promises, each with the name of its check."""
    trace: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    """How often processes were at each point where they could be killed."""
    kills: Counter[str] = field(default_factory=Counter)
    """Points at which a process was killed."""
    messages: int = 0
    deliveries: int = 0
    seconds: float = 0.0
    """Of simulated time."""


class Stuck(Exception):
    """What should have happened after healing did not."""


def run(plan: Plan) -> Outcome:
    """Runs a plan to its end."""
    gc.disable()  # what it collects, and when, would differ from run to run
    world = World(plan)
    try:
        return _run(world)
    finally:
        world.cast.loop.close()
        gc.enable()


def _run(world: World) -> Outcome:
    plan, cast = world.plan, world.cast
    outcome = Outcome(plan.seed)
    try:
        with simulated(cast.loop, cast.seed):
            cast.loop.run_until_complete(world.live())
    except (Stuck, Deadlock) as stuck:
        outcome.violations.append(f"liveness: {stuck}")
    outcome.violations += [f"unhandled: {fault}" for fault in cast.loop.faults]
    outcome.violations += [
        f"unhandled: {actor.name}: {actor.failure}" for actor in cast.actors if actor.failure
    ]
    outcome.violations += [f"recovered: {each}" for node in cast.nodes.values() for each in node.recoveries]
    outcome.violations += [f"limits: {each}" for each in world.excesses]
    if not outcome.violations:
        outcome.violations = [
            f"{name}: {fault}" for name, check in CHECKS.items() for fault in check(cast.history, plan)
        ]
    outcome.trace = cast.history.lines
    outcome.messages = len(cast.history.sent)
    outcome.deliveries = cast.history.deliveries
    outcome.seconds = cast.loop.time() - BEGIN_S
    outcome.faults = world.faults + cast.network.counts
    for process in cast.processes:
        outcome.points.update(process.points)
        if process.killed_at:
            outcome.kills[process.killed_at] += 1
    return outcome


class World:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.cast = Cast(plan)
        self.faults: Counter[str] = Counter()
        self.excesses: list[str] = []
        """Limits that were exceeded."""
        self._credits = {each.name: each.credit_bytes for each in plan.subscriptions}
        self._observer = self.cast.machine("observer").start("observer")

    async def live(self) -> None:
        cast, plan = self.cast, self.plan
        for node in cast.nodes.values():
            await node.start()
        await self._observer.spawn(self._create_topics())
        cast.network.weather = plan.weather
        for actor in cast.actors:
            actor.start()
        trouble = [cast.loop.create_task(self._repeat(name, rate)) for name, rate in plan.faults.items()]
        supervisor = cast.loop.create_task(self._keep_up())
        watch = cast.loop.create_task(self._watch_limits())
        await asyncio.sleep(plan.seconds)
        for task in trouble:
            task.cancel()
        self._heal()
        await self._finish(supervisor)
        watch.cancel()

    async def _finish(self, supervisor: asyncio.Task[None]) -> None:
        """Without faults: senders end, consumers get everything, and the observer reads the logs."""
        cast = self.cast
        senders = [*cast.producers, *cast.drivers]
        for sender in senders:
            sender.ending = True
        for consumer in cast.consumers:
            consumer.calm = True
        await self._wait_for("senders end", lambda: not any(sender.up for sender in senders))
        await self._empty_refills()
        await self._observer.spawn(self._wait_settled())
        for consumer in cast.consumers:
            consumer.ending = True
        await self._wait_for("consumers end", lambda: not any(consumer.up for consumer in cast.consumers))
        supervisor.cancel()
        await self._observer.spawn(self._read_all())
        for name, node in cast.nodes.items():
            if node.core.unacked_bytes:
                self.excesses.append(f"{name} holds {node.core.unacked_bytes} unacked bytes at rest")
            await node.stop()

    async def _empty_refills(self) -> None:
        """Producers are started until the refill of each is delivered."""
        over_s = self.cast.loop.time() + LIVENESS_S
        while left := [producer for producer in self.cast.producers if _spilled(producer.machine)]:
            if self.cast.loop.time() > over_s:
                raise Stuck(
                    f"after healing, not delivered: {[(each.name, _spilled(each.machine)) for each in left]}"
                )
            for producer in left:
                producer.start()
            await asyncio.sleep(1.0)
        await self._wait_for("producers end", lambda: not any(each.up for each in self.cast.producers))

    # --- trouble ------------------------------------------------------------------------------------

    async def _repeat(self, name: str, per_minute: float) -> None:
        while True:
            await asyncio.sleep(self.cast.random.expovariate(per_minute / 60.0))
            if FAULTS[name](self.cast):
                self.faults[name] += 1

    async def _keep_up(self) -> None:
        """A supervisor: starts again what has ended."""
        cast = self.cast
        while True:
            await asyncio.sleep(cast.random.random() * min(cast.tempo, 10.0))
            for node in cast.nodes.values():
                if not node.up and cast.random.random() < 0.5:
                    cast.note(f"{node.machine.name} starts")
                    if cast.random.random() < TWINS:
                        node.compare_recoveries()
                    node.start()
            for actor in cast.actors:
                if not actor.up and not actor.ending and cast.random.random() < 0.5:
                    actor.start()

    async def _watch_limits(self) -> None:
        """Memory and queues stay within their limits."""
        while not self.excesses:
            await asyncio.sleep(self.cast.tempo)
            for node in self.cast.nodes.values():
                if node.up and node.server is not None:
                    self.excesses += [
                        f"{node.machine.name} {excess}" for excess in node.excesses(self._credits)
                    ]
            for actor in self.cast.actors:
                for program in actor.running:
                    if excess := program.excess():
                        self.excesses.append(f"{actor.name} {excess}")

    def _heal(self) -> None:
        cast = self.cast
        cast.note("the faults end")
        cast.network.heal()
        for machine in cast.machines:
            machine.skew_us = 0
            machine.disk.fail_never()
            machine.trap = None
            for process in machine.processes:
                process.kill_after = None
                process.resume()

    # --- the observer -------------------------------------------------------------------------------

    async def _create_topics(self) -> None:
        for node in self.cast.nodes.values():
            async with headpond.connect(node.url) as client:
                for topic in self.plan.topics:
                    await client.admin.create_topic(topic.name, shards=topic.shards)

    async def _wait_for(self, what: str, done: Callable[[], bool]) -> None:
        over_s = self.cast.loop.time() + LIVENESS_S
        while not done():
            if self.cast.loop.time() > over_s:
                raise Stuck(f"after healing, not: {what}")
            await asyncio.sleep(0.2)

    async def _wait_settled(self) -> None:
        """Returns when every subscription has settled everything."""
        over_s = self.cast.loop.time() + LIVENESS_S
        while left := await self._unsettled():
            if self.cast.loop.time() > over_s:
                raise Stuck(f"after healing, not settled: {left}")
            await asyncio.sleep(LOOK_S)

    async def _unsettled(self) -> list[str]:
        left = []
        for plan in self.plan.subscriptions:
            try:
                async with headpond.connect(self.cast.nodes[plan.node].url) as client:
                    info = await client.admin.show_subscription(plan.topic, plan.name)
            except HeadpondError as error:
                left.append(f"{plan.name}: {error.message}")
            else:
                if info.unsettled:
                    left.append(f"{plan.kind} {plan.mode} {plan.name}: {info}")
        return left

    async def _read_all(self) -> None:
        for name, node in self.cast.nodes.items():
            async with headpond.connect(node.url) as client:
                for info in await client.admin.list_topics():
                    topic = info.topic.rpartition("/")[2]
                    await self._read(client, name, topic)
                    self.cast.history.add(Accounts(topic, name, await client.admin.ledger(topic)))

    async def _read(self, client: headpond.Client, node: str, topic: str) -> None:
        add = self.cast.history.add
        async with client.reader(topic) as reader:
            for shard, ends in enumerate(await reader.ends()):
                async for part in reader.read(shard, 0, ends.entry_next):
                    for batch in part.batches:
                        for message in batch.messages():
                            value = bytes(message.value or b"")
                            add(Read(topic, node, shard, message.entry, value, message.key))
                    for lost in part.lost:
                        add(Gone(topic, node, *lost))


def _spilled(machine: Machine) -> list[str]:
    """The files in its refill."""
    return [path for path in machine.disk.paths() if path.endswith(".refill")]
