"""One run: a time with faults, a time without them, and the checks."""

from __future__ import annotations

import asyncio
import gc
import sys
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from headpond.client.produce.refill_send import send_slot
from headpond.producer.refill.refill import Refill
from headpond.sim.actors.actor import Actor
from headpond.sim.cast import Cast
from headpond.sim.checks import CHECKS
from headpond.sim.faults import FAULTS
from headpond.sim.loop import BEGIN_S, Deadlock, Livelock
from headpond.sim.member import SimGroup
from headpond.sim.node import SimNode
from headpond.sim.observer import LIVENESS_S, Observer, Stuck
from headpond.sim.plan import Plan
from headpond.sim.process import Machine, Trap
from headpond.sim.surroundings import simulated

TWINS = 0.2
"""The share of starts at which a copy of the disk is recovered twice."""

ROUNDS_AT_ONCE = 20
"""So often refills are tried without a pause; a seed that fails would take minutes."""


@dataclass
class Outcome:
    """What a run showed."""

    seed: int
    kill_at: tuple[str, ...] = ()
    violations: list[str] = field(default_factory=list)
    """Broken promises, each with the name of its check."""
    trace: list[str] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    """How often processes came to each kind of point at a time at which they may be killed."""
    kills: Counter[str] = field(default_factory=Counter)
    """Points at which a process was killed."""
    messages: int = 0
    deliveries: int = 0
    seconds: float = 0.0
    """Of simulated time."""


def run(plan: Plan) -> Outcome:
    """Runs a plan to its end."""
    gc.disable()  # what it collects, and when, would differ from run to run
    gc.freeze()  # the collection at the end need not look at what was there before
    hook, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        with warnings.catch_warnings(action="ignore", category=RuntimeWarning):
            outcome = _run_and_close(World(plan))
            gc.collect()  # the world, and programs that close their clients, which nothing awaits
        return outcome
    finally:
        sys.unraisablehook = hook
        gc.unfreeze()
        gc.enable()


def _run_and_close(world: World) -> Outcome:
    try:
        return _run(world)
    finally:
        world.cast.loop.close()


def _run(world: World) -> Outcome:
    plan, cast = world.plan, world.cast
    outcome = Outcome(plan.seed, plan.kill_at)
    try:
        with simulated(cast.loop, cast.seed):
            cast.loop.run_until_complete(world.live())
    except (Stuck, Deadlock, Livelock) as stuck:
        outcome.violations.append(f"liveness: {stuck}")
    outcome.violations += [f"unhandled: {fault}" for fault in cast.loop.faults]
    outcome.violations += [
        f"unhandled: {actor.name}: {actor.failure}" for actor in cast.actors if actor.failure
    ]
    ended = [task for task in world.background if task.done() and not task.cancelled()]
    outcome.violations += [f"unhandled: {task.exception()!r}" for task in ended if task.exception()]
    outcome.violations += [f"recovered: {each}" for node in cast.hosts for each in node.recoveries]
    outcome.violations += [f"unhandled: {each}" for group in cast.groups.values() for each in group.failures]
    outcome.violations += [f"replaced: {each}" for group in cast.groups.values() for each in group.answers[:1]]
    outcome.violations += [f"limits: {each}" for each in world.excesses]
    if not outcome.violations:
        outcome.violations = [
            f"{name}: {fault}" for name, check in CHECKS.items() for fault in check(cast.history, plan)
        ]
    outcome.trace = cast.history.lines
    outcome.messages = len(cast.history.sent)
    outcome.deliveries = cast.history.deliveries
    outcome.seconds = cast.loop.time() - BEGIN_S
    outcome.faults = sum((each.stream.counts for each in cast.groups.values()), world.faults)
    outcome.faults += cast.network.counts
    outcome.points = world.points
    for machine in cast.machines:
        outcome.kills.update(process.killed_at for process in machine.processes if process.killed_at)
    return outcome


class World:
    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.cast = Cast(plan)
        self.faults: Counter[str] = Counter()
        self.points: Counter[str] = Counter()
        """How often processes came to each kind of point at a time at which they may be killed."""
        self.excesses: list[str] = []
        """Limits that were exceeded."""
        self._credits = {each.name: each.credit_bytes for each in plan.subscriptions}
        self._observer = Observer(self.cast, plan)
        self.background: list[asyncio.Task[None]] = []
        """The faults, the supervisor and the watch of limits."""
        for machine in self.cast.machines:
            machine.kill_at = list(plan.kill_at)
        self._here = self.cast.machine("observer").start("observer")

    async def live(self) -> None:
        cast, plan = self.cast, self.plan
        for node in cast.hosts:
            await self._first_start(node)
        for group in cast.groups.values():
            # In the observer: this coroutine runs as the process that it waited for last, which may be killed.
            await self._here.spawn(self._wait_for("a member is active", partial(self._active, group)))
        self.points = self._count_points()
        kill_at = [self._disarm(machine) for machine in cast.machines]  # nobody would start a node again
        await self._here.spawn(self._observer.prepare())
        for machine, points in zip(cast.machines, kill_at, strict=True):
            machine.kill_at = points
        before = self._count_points()
        cast.network.weather = plan.weather
        for group in cast.groups.values():
            group.stream.weather = replace(plan.stream_weather)
        for actor in cast.actors:
            actor.start()
        trouble = [cast.loop.create_task(self._repeat(name, rate)) for name, rate in plan.faults.items()]
        supervisor = cast.loop.create_task(self._keep_up())
        watch = cast.loop.create_task(self._watch_limits())
        self.background = [*trouble, supervisor, watch]
        await asyncio.sleep(plan.seconds)
        for task in trouble:
            task.cancel()
        self.points += self._count_points() - before
        self._heal()
        await self._finish(supervisor)
        watch.cancel()

    async def _first_start(self, node: SimNode) -> None:
        """A node may be killed while it makes its folder."""
        if "kill node at a point" in self.plan.faults:
            node.machine.trap = Trap("", self.cast.random.randrange(80), None)
            node.start()
            await asyncio.sleep(1.0)
            node.machine.trap = None
        while node.machine.kill_at and not node.up:
            await asyncio.wait([node.start()], timeout=1.0)
        if not node.up:
            await node.start()

    def _active(self, group: SimGroup) -> bool:
        """Whether a member of the group is active; starts those again that were killed as they took over."""
        if group.active is None:
            for node in self.cast.hosts:
                if not node.up:
                    node.start()
        return group.active is not None

    def _count_points(self) -> Counter[str]:
        return sum((machine.points for machine in self.cast.machines), Counter[str]())

    @staticmethod
    def _disarm(machine: Machine) -> list[str]:
        points, machine.kill_at = machine.kill_at, []
        return points

    async def _finish(self, supervisor: asyncio.Task[None]) -> None:
        """Without faults: senders end, consumers get everything, and the observer reads the logs."""
        cast = self.cast
        senders = [*cast.producers, *cast.drivers, *cast.admins, *cast.readers]
        for sender in senders:
            sender.ending = True
        for consumer in cast.consumers:
            consumer.calm = True
        await self._wait_for("senders end", lambda: not any(sender.up for sender in senders))
        await self._empty_refills()
        await self._here.spawn(self._observer.wait_settled())
        for consumer in cast.consumers:
            consumer.ending = True
        await self._wait_for("consumers end", lambda: not any(consumer.up for consumer in cast.consumers))
        for group in cast.groups.values():
            await self._wait_for("every member has everything", partial(getattr, group, "settled"))
            group.failures += group.differences()
        supervisor.cancel()
        await self._here.spawn(self._observer.read_all())
        for node in cast.hosts:
            if node.server is not None and node.core.unacked_bytes:
                held = f"{node.core.unacked_bytes} unacked bytes"
                self.excesses.append(f"{node.machine.name} holds {held} at rest")
            await node.stop()

    async def _empty_refills(self) -> None:
        """Producers are started until each has sent, come to its end, and delivered its refill.

        Files of a process that another one took over stay; an operator sends them.
        """
        over_s, rounds = self.cast.loop.time() + LIVENESS_S, 0
        while left := [each for each in self.cast.producers if not each.done or self._owed(each)]:
            if self.cast.loop.time() > over_s:
                undone = {each.name: self._owed(each) for each in left}
                raise Stuck(f"after healing, not ended, or not delivered: {undone}")
            for producer in left:
                producer.start()
            await self._wait_for("producers end", lambda: not any(each.up for each in left))
            for producer in left:
                await producer.machine.start("operator").spawn(self._send_late(producer))
            rounds += 1
            if rounds > ROUNDS_AT_ONCE:
                await asyncio.sleep(10.0)
        await self._wait_for("producers end", lambda: not any(each.up for each in self.cast.producers))

    def _owed(self, producer: Actor) -> list[str]:
        """The files that are to be delivered.

        A producer that was put back to an old copy used numbers again: the node refuses such segments for good,
        and their file stays for a person.
        """
        spilled = _spilled(producer.machine)
        if producer.name in self.cast.history.set_back:
            return [path for path in spilled if _has_pending(producer.machine, path)]
        return spilled

    async def _send_late(self, producer: Actor) -> None:
        """What ``headpond refill send --late`` does."""
        _, token = producer.tokens.get(producer.name, ("", None))
        for slot in sorted({path.split("/")[1] for path in self._owed(producer)}):
            sent = await send_slot(Path("refill"), slot, token=token, timeout_s=30.0, late=True)
            self.cast.note(f"an operator sends {slot}: {sent.error or 'delivered'}")

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
            for node in cast.hosts:
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
            for node in self.cast.hosts:
                if node.up and node.server is not None:
                    self.excesses += [
                        f"{node.machine.name} {excess}" for excess in node.excesses(self._credits)
                    ]
            for actor in self.cast.actors:
                for each in actor.running:
                    if excess := each.program.excess():
                        self.excesses.append(f"{actor.name} {excess}")

    def _heal(self) -> None:
        cast = self.cast
        cast.note("the faults end")
        cast.network.heal()
        for group in cast.groups.values():
            group.stream.heal()
        for machine in cast.machines:
            machine.skew_us = 0
            machine.trap = None
            machine.kill_at = []
            machine.disk.fail_never()
            machine.disk.capacity_bytes = None
            for process in machine.processes:
                process.kill_after = None
                process.resume()

    async def _wait_for(self, what: str, done: Callable[[], object]) -> None:
        over_s = self.cast.loop.time() + LIVENESS_S
        while not done():
            if self.cast.loop.time() > over_s:
                raise Stuck(f"after healing, not: {what}")
            await asyncio.sleep(0.2)


def _spilled(machine: Machine) -> list[str]:
    """The files in its refill."""
    return [path for path in machine.disk.paths() if path.endswith(".refill")]


def _has_pending(machine: Machine, path: str) -> bool:
    refill = Refill.open(machine.disk, path)
    try:
        return any(refill.pending_runs(name) for name in refill.destinations)
    finally:
        refill.release()
