"""Who takes part in a run: nodes, programs, and what lies between them."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

from headpond.sim.actors.actor import Actor
from headpond.sim.actors.admin import AdminProgram
from headpond.sim.actors.consumer import ConsumerProgram
from headpond.sim.actors.producer import ProducerProgram
from headpond.sim.actors.program import Program, Role, Tokens
from headpond.sim.actors.reader import ReaderProgram
from headpond.sim.actors.writer import DriverProgram
from headpond.sim.history import History
from headpond.sim.jetstream import Stream
from headpond.sim.loop import SimLoop
from headpond.sim.member import MEMBERS, SimGroup
from headpond.sim.network import Network
from headpond.sim.node import SimNode
from headpond.sim.plan import Plan
from headpond.sim.process import Machine
from headpond.storage.memory_disk import MemoryDisk


class Cast:
    def __init__(self, plan: Plan) -> None:
        self.seed = str(plan.seed)
        self.disk_s = plan.disk_s
        self.loop = SimLoop()  # type: ignore[abstract]  # it has what the product uses
        self.network = Network(self.loop, self.seed)
        self.history = History()
        self.random = random.Random(f"{plan.seed} faults")
        self.groups = {name: self._group(name, plan) for name in plan.nodes if plan.cluster}
        nodes = {name: SimNode(self.machine(name)) for name in plan.nodes if not plan.cluster}
        self.nodes: dict[str, SimNode | SimGroup] = {**nodes, **self.groups}
        """What programs connect to: nodes that are alone, or groups."""
        members = [member for group in self.groups.values() for member in group.members]
        self.hosts: list[SimNode] = [*nodes.values(), *members]
        """What faults happen to: the nodes themselves."""
        self.tempo = plan.tempo
        self.tokens: dict[str, Tokens] = {name: {} for name in plan.nodes}
        """By node."""
        self.backups: dict[str, MemoryDisk] = {}
        """Copies of the disks of nodes and producers that can be put back to them."""
        self.follower = plan.links[0].node if plan.links and not plan.links[0].both else None
        """A node that gets everything from another one."""
        self.producers = [
            self._actor(each.name, each.node, ProducerProgram, each, [self.nodes[each.node].url], typed)
            for each in plan.producers
            for typed in [plan.topic(each.topic).kind == "typed"]
        ]
        self.resuming = [
            actor
            for actor, each in zip(self.producers, plan.producers, strict=True)
            if each.options.get("resume") and not each.single
        ]
        """Producers that continue the numbers of the process before."""
        self.consumers = [
            self._actor(
                f"{each.name}c{number}",
                each.node,
                ConsumerProgram,
                each,
                [node.url],
                partial(getattr, node, "starts"),
            )
            for each in plan.subscriptions
            for node in [self.nodes[each.node]]
            for number in range(1, each.consumers + 1)
        ]
        self.tasks = [self.machine(f"{each.name} tasks") for each in plan.writers]
        self.drivers = [
            self._actor(each.name, each.node, DriverProgram, each, self.nodes[each.node].url, tasks)
            for each, tasks in zip(plan.writers, self.tasks, strict=True)
        ]
        self.readers = [
            self._actor(each.name, each.node, ReaderProgram, each, self.nodes[each.node].url)
            for each in plan.readers
        ]
        self.admins = [
            self._actor(each.name, each.node, AdminProgram, each, plan, self.nodes[each.node].url)
            for each in plan.admins
        ]

    def _actor(self, name: str, node: str, program: Callable[..., Program], *options: Any) -> Actor:
        def new(role: Role, life: int) -> Program:
            return program(role, life, *options)

        tokens = self.tokens[node]
        return Actor(self.machine(name), name, self.history, self.seed, new, tokens, self.tempo)

    def _group(self, name: str, plan: Plan) -> SimGroup:
        stream = Stream(self.loop, random.Random(f"{plan.seed} {name} stream"))
        machines = [self.machine(f"{name}{member}") for member in MEMBERS]
        return SimGroup(machines, stream, standby_confirms=plan.standby_confirms)

    def pause_s(self) -> float:
        """How long a partition or a standstill lasts."""
        return self.random.choice([0.5, 4.0, 20.0]) * min(self.tempo, 10.0)

    def machine(self, name: str) -> Machine:
        return Machine(self.loop, self.network, name, self.seed, self.disk_s)

    @property
    def actors(self) -> list[Actor]:
        return [*self.producers, *self.consumers, *self.drivers, *self.readers, *self.admins]

    @property
    def machines(self) -> list[Machine]:
        nodes = [host.machine for host in self.hosts]
        return [*nodes, *(actor.machine for actor in self.actors), *self.tasks]

    def note(self, text: str) -> None:
        self.history.note(self.loop.time(), text)
