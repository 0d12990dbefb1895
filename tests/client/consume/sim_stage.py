"""A simulated node and its consumers, for scenarios that cut, stall and wait in virtual time."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import pyarrow as pa

import headpond
from headpond.client.options import KindName, ModeName
from headpond.model.policy import Policy
from headpond.sim.loop import SimLoop
from headpond.sim.network import Network
from headpond.sim.node import SimNode
from headpond.sim.process import Machine, Process
from headpond.sim.surroundings import simulated

SEED = "stage"
TOPIC = "orders"
NODE = "node"
KEYS = 3


class SimStage:
    def __init__(self, kind: KindName, mode: ModeName) -> None:
        self.kind, self.mode = kind, mode
        self.policy = Policy()
        self.loop = SimLoop()  # type: ignore[abstract]  # it has what the product uses
        self.network = Network(self.loop, SEED)
        self.node = SimNode(self._machine(NODE))
        self._readers = 0
        self._producer: headpond.Producer

    def _machine(self, name: str) -> Machine:
        return Machine(self.loop, self.network, name, SEED)

    async def begin(self) -> None:
        await self.node.start()
        process = self._machine("writer").start("writer")
        client = await process.spawn(headpond.connect(self.node.url).open())
        self.admin = client.admin
        self._producer = await process.spawn(client.producer(TOPIC, refill=None).open())

    async def write(self, rows: int) -> None:
        """Stores one segment; neighbours have different keys."""
        table = pa.table({"value": [b"v"] * rows, "key": [b"%d" % (row % KEYS) for row in range(rows)]})
        await self._producer.send_batch(table)

    async def open(self) -> Reader:
        self._readers += 1
        process = self._machine(f"reader-{self._readers}").start("reader")
        client = await process.spawn(headpond.connect(self.node.url).open())
        consumer = client.consumer(TOPIC, "s", kind=self.kind, mode=self.mode, policy=self.policy)
        await process.spawn(consumer.open())
        return Reader(self, process, consumer)


@dataclass
class Reader:
    stage: SimStage
    process: Process
    consumer: headpond.Consumer

    def stall(self, seconds: float) -> None:
        """Nothing arrives at the consumer or from it for a while."""
        network, here = self.stage.network, self.process.place
        for source, target in ((here, NODE), (NODE, here)):
            network.cut(source, target)
            self.stage.loop.call_in(None, seconds, network.heal_between, source, target)

    def cut(self) -> None:
        """Its connection ends."""
        self.stage.network.reset_some(self.process)


def on_stage(scenario: Callable[[SimStage], Awaitable[None]], kind: KindName, mode: ModeName) -> None:
    async def run() -> None:
        await stage.begin()
        await scenario(stage)

    stage = SimStage(kind, mode)
    try:
        with simulated(stage.loop, SEED):
            stage.loop.run_until_complete(run())
    finally:
        stage.loop.close()
