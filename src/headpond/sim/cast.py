"""Who takes part in a run: nodes, programs, and what lies between them."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from headpond.sim.actors.actor import Actor, Program
from headpond.sim.actors.consumer import ConsumerProgram
from headpond.sim.actors.producer import ProducerProgram
from headpond.sim.actors.writer import DriverProgram
from headpond.sim.history import History
from headpond.sim.loop import SimLoop
from headpond.sim.network import Network
from headpond.sim.node import SimNode
from headpond.sim.plan import Plan
from headpond.sim.process import Machine, Process


class Cast:
    def __init__(self, plan: Plan) -> None:
        self.seed = str(plan.seed)
        self.disk_s = plan.disk_s
        self.loop = SimLoop()  # type: ignore[abstract]  # it has what the product uses
        self.network = Network(self.loop, self.seed)
        self.history = History()
        self.random = random.Random(f"{plan.seed} faults")
        self.nodes = {name: SimNode(self.machine(name)) for name in plan.nodes}
        self.tempo = plan.tempo
        self.producers = [
            self._actor(each.name, ProducerProgram, each, self.nodes[each.node].url) for each in plan.producers
        ]
        self.consumers = [
            self._actor(f"{each.name}c{number}", ConsumerProgram, each, self.nodes[each.node])
            for each in plan.subscriptions
            for number in range(1, each.consumers + 1)
        ]
        self.drivers = [
            self._actor(
                each.name,
                DriverProgram,
                each,
                self.nodes[each.node].url,
                self.machine(f"{each.name} tasks"),
            )
            for each in plan.writers
        ]

    def _actor(self, name: str, program: Callable[..., Program], *options: Any) -> Actor:
        def new(actor: Actor, process: Process, life: int) -> Program:
            return program(actor, process, life, *options)

        return Actor(self.machine(name), name, self.history, self.seed, new, self.tempo)

    def pause_s(self) -> float:
        """How long a partition or a standstill lasts."""
        return self.random.choice([0.5, 4.0, 20.0]) * min(self.tempo, 10.0)

    def machine(self, name: str) -> Machine:
        return Machine(self.loop, self.network, name, self.seed, self.disk_s)

    @property
    def actors(self) -> list[Actor]:
        return [*self.producers, *self.consumers, *self.drivers]

    @property
    def machines(self) -> list[Machine]:
        nodes = [node.machine for node in self.nodes.values()]
        return nodes + [actor.machine for actor in self.actors]

    @property
    def processes(self) -> list[Process]:
        """All that ever ran, except observers."""
        return [process for machine in self.machines for process in machine.processes]

    def note(self, text: str) -> None:
        self.history.note(self.loop.time(), text)
