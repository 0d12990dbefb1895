"""Nodes and links under everything at once: producers, crashes, failing writes, old copies, links up and down.

In the end, with all links up, all nodes have the same records, each once, including every acknowledged record
that some disk still had.
"""

from __future__ import annotations

import asyncio
import random

import pytest

from headpond.storage.memory_disk import MemoryDisk
from tests.broker.links.peer_world import TOPIC, MemoryNode, Stored, Way, linked, pull, push, rest

NAMES = "abc"
TURNS = 25
TURN_US = 10_000_000


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.nodes = [MemoryNode(name) for name in NAMES]
        self.clock_us = 1_000_000
        self.owed: set[Stored] = set()
        """Acknowledged records that some disk still has."""
        self.copies: dict[str, MemoryDisk] = {}
        self.blocks = [bytes([number]) * 16 for number in range(1, 5)]
        self.next = {(block, shard): 0 for block in self.blocks for shard in range(2)}
        self.home = {block: self.random.choice(self.nodes) for block in self.blocks}
        self.nodes[0].create(shards=2)
        ring = [(0, 1), (1, 2), (2, 0)]
        more = [(x, y) for x in range(3) for y in range(3) if x != y and self.random.random() < 0.3]
        self.routes = [(x, y, self.random.choice((pull, push))) for x, y in ring + more]

    def ways(self) -> list[Way]:
        return [make(self.nodes[x], self.nodes[y]) for x, y, make in self.routes]

    async def turn(self) -> None:
        """Runs a random step with some of the links up."""
        self.clock_us += TURN_US
        for each in self.nodes:
            each.shell.now_us = self.clock_us
        up = [way for way in self.ways() if self.random.random() < 0.7]
        async with linked(*up):
            for _ in range(self.random.randrange(1, 6)):
                self.produce()
                if self.random.random() < 0.15:
                    self.random.choice(self.nodes).disk.fail_next("sync", 5, count=1)
                for _ in range(self.random.choice((0, 1, 5, 60))):
                    await asyncio.sleep(0)
        node = self.random.choice(self.nodes)
        chance = self.random.random()
        for each in self.nodes:
            each.disk.fail_never()
            each.shell.wait(self.random.choice((1000, 3_000_000)))
            each.shell.work_all()
        if chance < 0.35:
            node.disk.crash(keep=self.random.choice(("none", "all", "some")))
            self.reopen(node)
        elif chance < 0.5:
            self.copies[node.name] = node.disk.copy()
        elif chance < 0.7 and node.name in self.copies:
            others = {each for other in self.nodes if other is not node for each in self.stored(other)}
            node.disk = self.copies[node.name].copy()
            node.disk.crash()
            self.reopen(node)
            self.owed &= others | set(self.stored(node))

    def reopen(self, node: MemoryNode) -> None:
        node.open()
        node.shell.now_us = self.clock_us

    def stored(self, node: MemoryNode) -> list[Stored]:
        return node.stored() if node.has(TOPIC) else []

    def produce(self) -> None:
        """Sends the next segments of a block; after a refusal from the expected number, as a producer does."""
        block, shard = self.random.choice(self.blocks), self.random.randrange(2)
        if self.random.random() < 0.1:
            self.home[block] = self.random.choice(self.nodes)
        node = self.home[block]
        if not node.has(TOPIC):
            return
        first = self.next[block, shard]
        segments = range(first, first + self.random.randrange(1, 5))
        node.shell.core.stores.catalog.by_name(TOPIC)
        admission = node.topic().shards[shard].admission
        if admission.next(block) < first:  # what came before went by another path, or is gone
            admission.declare(block, first)
        for item in node.produce(block, segments, shard=shard):
            if item.outcome in ("stored", "duplicate"):
                self.next[block, shard] = max(self.next[block, shard], item.segment + 1)
        self.owed |= {
            each for each in self.stored(node) if each[0] == shard and each[1] == block and each[2] in segments
        }


@pytest.mark.parametrize("seed", range(8))
def test_after_everything_all_nodes_have_the_same_and_each_once(seed: int) -> None:
    world = World(seed)

    async def scenario() -> None:
        for _ in range(TURNS):
            await world.turn()
        for _ in range(40):
            async with linked(*world.ways()):
                await rest()
            for node in world.nodes:
                node.shell.wait(3_000_000)
                node.shell.work_all()
            stored = [set(world.stored(node)) for node in world.nodes]
            if stored.count(stored[0]) == len(stored):
                return

    asyncio.run(scenario())
    stored = [world.stored(node) for node in world.nodes]
    for node, records in zip(world.nodes, stored, strict=True):
        assert len(records) == len(set(records)), f"{node.name} has a record twice"
        assert world.owed <= set(records), f"{node.name} lacks {len(world.owed - set(records))} records"
    assert set(stored[0]) == set(stored[1]) == set(stored[2])
    assert len(stored[0]) > 20
