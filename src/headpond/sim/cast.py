"""Who takes part in a run: nodes, programs, and what lies between them."""

from __future__ import annotations

import random

from headpond.sim.actors.actor import Actor
from headpond.sim.actors.consumer import ConsumerActor
from headpond.sim.actors.producer import ProducerActor
from headpond.sim.actors.writer import DriverActor
from headpond.sim.history import History
from headpond.sim.loop import SimLoop
from headpond.sim.network import Network
from headpond.sim.node import SimNode
from headpond.sim.plan import Plan
from headpond.sim.process import Machine, Process


class Cast:
    def __init__(self, plan: Plan) -> None:
        self.seed = str(plan.seed)
        self.loop = SimLoop()  # type: ignore[abstract]  # it has what the product uses
        self.network = Network(self.loop, self.seed)
        self.history = History()
        self.random = random.Random(f"{plan.seed} faults")
        self.nodes = {name: SimNode(self.machine(name)) for name in plan.nodes}
        self.producers = [
            ProducerActor(self.machine(each.name), each, self.nodes[each.node].url, self.history, self.seed)
            for each in plan.producers
        ]
        self.consumers = [
            ConsumerActor(self.machine(name), name, each, self.nodes[each.node], self.history, self.seed)
            for each in plan.subscriptions
            for name in (f"{each.name}c{number}" for number in range(1, each.consumers + 1))
        ]
        self.drivers = [
            DriverActor(
                self.machine(each.name),
                self.machine(f"{each.name} tasks"),
                each,
                self.nodes[each.node].url,
                self.history,
                self.seed,
            )
            for each in plan.writers
        ]

        self.tempo = plan.tempo
        for actor in self.actors:
            actor.tempo = plan.tempo

    def pause_s(self) -> float:
        """How long a partition or a standstill lasts."""
        return self.random.choice([0.5, 4.0, 20.0]) * min(self.tempo, 10.0)

    def machine(self, name: str) -> Machine:
        return Machine(self.loop, self.network, name, self.seed)

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
