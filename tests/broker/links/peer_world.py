"""Nodes in memory and links between them: the real flow, over cores whose disks work at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol

from headpond.broker.catalog.topics import Topic
from headpond.broker.links.link_table import LinkMade
from headpond.broker.links.status import LinkStatus
from headpond.node.links.ends import Direction, ThisNode
from headpond.node.links.flow import PeerFlow
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.catalog import CreateTopic, OpenTopic
from headpond.wire.control.producing import Ack, AckItem
from headpond.wire.record import RECORD_HEADER_BYTES
from tests.fire.core_shell import CoreClient, CoreShell
from tests.fire.raw_client import segment_frame, title_frame

TOPIC = "default/default/default/orders"
STEPS_MAX = 5000
Stored = tuple[int, bytes, int, int, int]
"""Shard, block, segment, origin_crc and rows of a record."""


class MemoryNode:
    def __init__(self, name: str, disk: MemoryDisk | None = None) -> None:
        self.name = name
        self.disk = disk or MemoryDisk()
        self.open()

    def open(self) -> None:
        """Opens the disk as it is, as after kill -9."""
        self.shell = CoreShell(self.disk, seed=sum(self.name.encode()), now_us=1_000_000, node=self.name)
        self.shell.work_all()
        self.admin: CoreClient = self.shell.connect()

    def crash(self, disk: MemoryDisk | None = None) -> None:
        """Cuts the power; the node opens its disk again, or a copy of it."""
        self.disk = disk or self.disk
        self.disk.crash()
        self.open()

    def drain(self) -> None:
        self.shell.drain()
        self.shell.work_all()

    def create(self, topic: str = TOPIC, shards: int = 1, **more: object) -> None:
        self.admin.request(CreateTopic(topic, shards, **more))  # type: ignore[arg-type]

    def topic(self, name: str = TOPIC) -> Topic:
        found = self.shell.core.stores.catalog.by_name(name)
        assert found is not None, f"{self.name} has no topic {name}"
        return found

    def has(self, name: str) -> bool:
        return self.shell.core.stores.catalog.by_name(name) is not None

    def produce(
        self, block: bytes, segments: range, *, topic: str = TOPIC, shard: int = 0, text: str = ""
    ) -> list[AckItem]:
        """Sends segments of three rows each, by number; returns the answers."""
        info = self.admin.request(OpenTopic(topic))
        power = info["shards"].bit_length() - 1
        self.admin.send(title_frame(block, info["uuid"], power=power, topic=topic, producer="till"))
        for segment in segments:
            rows = [b"%s%s %d %d" % (text.encode(), block[:2], segment, row) for row in range(3)]
            self.admin.send(segment_frame(rows, shard=shard, segment=segment))
        self.shell.work_all()
        return [item for ack in self.admin.take(Ack) for item in ack.items]

    def stored(self, name: str = TOPIC) -> list[Stored]:
        """Every record that can be read, in order."""
        found: list[Stored] = []
        for number, shard in enumerate(self.topic(name).shards):
            entry = 0
            while entry < shard.log.entry_durable:
                run = shard.log.read(entry, 2**20)
                found += [
                    (number, each.header.block, each.segment, each.header.origin_crc, each.header.count)
                    for each in run.records
                ]
                entry = run.next_entry
        return found

    def values(self, name: str = TOPIC) -> set[bytes]:
        """The bytes of each record, as its producer encoded them."""
        return {
            bytes(b"".join(each.parts)[11 + RECORD_HEADER_BYTES : -4])
            for shard in self.topic(name).shards
            for each in shard.log.read(0, 2**24).records
        }


class Linkable(Protocol):
    """A node in memory."""

    name: str
    shell: CoreShell

    def drain(self) -> None: ...


class Way:
    """One direction of a link, which runs inside of ``linked``."""

    def __init__(self, source: Linkable, sink: Linkable, topics: list[str], direction: str) -> None:
        self.source, self.sink = source, sink
        here = sink if direction == "pull" else source
        self.status = LinkStatus(lambda: here.shell.now_us)
        self.made = LinkMade("link", "headpond://other", topics, direction, None, 0, "")
        self.direction = direction

    async def run(self) -> None:
        number = -1000 - id(self) % 100_000
        ends = [ThisNode(each.shell.core, number, each.drain) for each in (self.source, self.sink)]
        self.status.connected(self.source.name)
        try:
            await PeerFlow(Direction(self.made, self.direction, ends[0], ends[1], self.status)).run()
        finally:
            for end in ends:
                end.close()

    @property
    def counts(self) -> Counter[str]:
        return self.status.counts


@asynccontextmanager
async def linked(*ways: Way) -> AsyncIterator[None]:
    """The links are connected inside of the block."""
    tasks = [asyncio.ensure_future(way.run()) for way in ways]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        faults = [each for each in results if not isinstance(each, asyncio.CancelledError)]
        assert not faults, faults


async def until(true: Callable[[], bool]) -> None:
    for _ in range(STEPS_MAX):
        if true():
            return
        await asyncio.sleep(0)
    raise AssertionError("it did not come to that")


async def rest() -> None:
    """Waits for everything under way."""
    for _ in range(300):
        await asyncio.sleep(0)


def pull(source: Linkable, sink: Linkable, topics: str = "*") -> Way:
    return Way(source, sink, [topics], "pull")


def push(source: MemoryNode, sink: MemoryNode, topics: str = "*") -> Way:
    return Way(source, sink, [topics], "push")
