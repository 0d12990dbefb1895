"""Three nodes that follow each other under faults, and the messages that each has in the end.

``python -m tests.fire.ring``, or ``make ring``. Producers send to two of the nodes. The links go through
proxies that delay, cut, and are down for a while; every link exists twice. Meanwhile nodes are killed, and an
old copy of one node's data is restored: its peers send back what it lost. In the end all links work, and every
node must have the same set of identities, each once, and every acknowledged message.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

import headpond
from headpond.client.link.dialling import Backoff
from headpond.model.identity import Identity
from headpond.node.lossy_link import LossyLink
from tests.fire.real_node import RealNode

TOPIC = "ring/one/two/numbers"
PATTERN = "ring/*"
SHARDS = 2
ROWS = 250
QUICK = Backoff(0.02, 0.2)
NAMES = "ABC"
EDGES = {
    "ring": [("A", "C"), ("B", "A"), ("C", "B")],
    "mesh": [("A", "B"), ("A", "C"), ("B", "A"), ("B", "C"), ("C", "A"), ("C", "B")],
}
"""Which node reads from which."""
ALIKE_S_MAX = 240.0
COLUMNS = {
    "stored": 10,
    "lost": 7,
    "repeated": 10,
    "refused as duplicate": 22,
    "conflicts": 11,
    "R": 10,
    "UR": 10,
}


@dataclass
class Had:
    """The messages of a node in the end."""

    name: str
    stored: int = 0
    unique: int = 0
    lost: int = 0
    """Acknowledged by some node, and missing here."""
    refused: int = 0
    """Segments that came again and were refused as duplicates, from producers and from peers."""
    conflicts: int = 0

    @property
    def repeated(self) -> int:
        return self.stored - self.unique


@dataclass
class Table:
    shape: str
    sent: int
    acknowledged: int
    harms: Counter[str]
    nodes: list[Had]
    alike: bool
    seconds: float

    @property
    def balanced(self) -> bool:
        return self.alike and not any(node.lost or node.repeated or node.conflicts for node in self.nodes)

    def __str__(self) -> str:
        harms = ", ".join(f"{name} {count}" for name, count in sorted(self.harms.items()))
        lines = [
            f"{self.shape}: sent {self.sent:,}, acknowledged {self.acknowledged:,}; {self.seconds:.0f} s",
            f"harms: {harms}",
            f"{'':8}" + "".join(f"{name:>{width}}" for name, width in COLUMNS.items()),
        ]
        for node in self.nodes:
            reliability = 1 - node.lost / max(self.acknowledged, 1)
            uniqueness = node.unique / max(node.stored, 1)
            lines.append(
                f"node {node.name:3}{node.stored:>10,}{node.lost:>7,}{node.repeated:>10,}{node.refused:>22,}"
                f"{node.conflicts:>11,}{reliability:>10.6f}{uniqueness:>10.6f}"
            )
        same = "the same" if self.alike else "NOT the same"
        return "\n".join([*lines, f"all nodes have {same} set of identities"])


@dataclass
class World:
    folder: Path
    shape: str
    total: int
    chance: random.Random
    pause_s: float = 0.2
    """The longest pause between two sends: leaves time for faults."""
    nodes: dict[str, RealNode] = field(default_factory=dict)
    links: list[LossyLink] = field(default_factory=list)
    harms: Counter[str] = field(default_factory=Counter)
    acknowledged: set[Identity] = field(default_factory=set)
    sent: int = 0
    running: bool = True
    sending: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while producers may send."""
    half_way: asyncio.Event = field(default_factory=asyncio.Event)
    under_way: int = 0
    """Sends that are not answered yet."""
    refused: Counter[str] = field(default_factory=Counter)
    conflicts: Counter[str] = field(default_factory=Counter)

    # --- producers ----------------------------------------------------------------------------------

    async def produce(self, name: str) -> None:
        """Sends this many numbers to a node, through its restarts."""
        number, total = 0, self.total // 2
        async with (
            headpond.connect(self.nodes[name].url, wait=False, backoff=QUICK) as client,
            client.producer(TOPIC, f"till-{name}", refill=None) as producer,
        ):
            while number < total:
                await self.sending.wait()
                rows = min(ROWS, total - number)
                values = [b"%s-%d" % (name.encode(), each) for each in range(number, number + rows)]
                keys = [b"%d" % (each % 97) for each in range(number, number + rows)]
                table = pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.binary())})
                self.sent += rows
                if 2 * self.sent >= self.total:
                    self.half_way.set()
                self.under_way += 1
                receipt = await producer.send_batch(table)
                self.under_way -= 1
                assert not receipt.rejected, receipt.errors
                for parcel, _, _ in receipt.parcels:
                    for row in range(parcel.rows):
                        self.acknowledged.add(parcel.receipt(row).identity)
                number += rows
                await asyncio.sleep(self.chance.uniform(0.0, self.pause_s))

    # --- harms --------------------------------------------------------------------------------------

    async def harm(self) -> None:
        """Injects one fault after another until the producers are done."""
        turn = 0
        while self.running:
            await asyncio.sleep(self.chance.uniform(0.2, 0.8))
            turn += 1
            self.tell(
                f"sent {self.sent:,}; {', '.join(f'{name} {count}' for name, count in self.harms.items())}"
            )
            if turn % 3 == 0:
                await self._kill(self.chance.choice(NAMES))
            else:
                await self._sever(self.chance.choice(self.links))

    async def _kill(self, name: str) -> None:
        node = self.nodes[name]
        await self.count(name)
        await asyncio.to_thread(node.kill)
        await asyncio.sleep(self.chance.choice((0.0, 0.5, 1.5)))
        await asyncio.to_thread(node.start)
        self.harms["nodes killed"] += 1

    async def count(self, name: str) -> None:
        """Sums a node's counters over its runs, except for the last moment before a kill."""
        async with headpond.connect(self.nodes[name].url) as client:
            node = Counter((await client.admin.show_node())["counters"])
            self.refused[name] += node["segments_duplicate"]
            self.conflicts[name] += node["segments_rejected_conflict"] + node["peer_conflicts"]
            for link in await client.admin.list_peers():
                self.refused[name] += link.counts.get("duplicates", 0)

    async def _sever(self, link: LossyLink) -> None:
        link.sever()
        self.harms["links down"] += 1
        await asyncio.sleep(self.chance.uniform(0.2, 1.5))
        link.mend()

    async def copy(self, name: str) -> Path:
        """Copies the node's data."""
        node = self.nodes[name]
        await asyncio.to_thread(node.stop)
        kept = self.folder / f"copy-{name}"
        await asyncio.to_thread(shutil.copytree, node.data, kept)
        await asyncio.to_thread(node.start)
        return kept

    async def restore(self, name: str, kept: Path) -> None:
        """Replaces the node's data by the old copy. Its peers have all of its messages, so none is lost."""
        self.sending.clear()
        await self.until_alike()
        node = self.nodes[name]
        await self.count(name)
        await asyncio.to_thread(node.kill)
        shutil.rmtree(node.data)
        shutil.move(kept, node.data)
        await asyncio.to_thread(node.start)
        self.harms["nodes put back to an old copy"] += 1
        self.sending.set()

    # --- the end ------------------------------------------------------------------------------------

    async def until_alike(self) -> bool:
        """Waits until every node has every acknowledged message."""
        deadline = time.monotonic() + ALIKE_S_MAX
        while time.monotonic() < deadline:
            with contextlib.suppress(headpond.HeadpondError, OSError):
                ends = [await self._end(name) for name in NAMES]
                self.tell(f"{self.under_way} under way, ends {ends}, acknowledged {len(self.acknowledged):,}")
                if not self.under_way and min(ends) == max(ends) >= len(self.acknowledged):
                    return True
            await asyncio.sleep(0.5)
        return False

    def tell(self, what: str) -> None:
        print(f"  {what}", file=sys.stderr, flush=True)

    async def _end(self, name: str) -> int:
        """How many entries the node's topic has."""
        async with headpond.connect(self.nodes[name].url, wait=False) as client:
            info = await client.admin.show_topic(TOPIC)
            return sum(shard.entry_next for shard in info.shard_list)

    async def read(self, name: str) -> tuple[Had, set[Identity]]:
        had, found = Had(name), set()
        async with (
            headpond.connect(self.nodes[name].url) as client,
            client.consumer(TOPIC, "all", start="earliest") as consumer,
        ):
            while (message := await consumer.receive(timeout=2.0)) is not None:
                had.stored += 1
                found.add(message.identity)
                await consumer.ack(message)
        had.unique = len(found)
        had.lost = len(self.acknowledged - found)
        return had, found


# --- the run ------------------------------------------------------------------------------------------


async def run(folder: Path, *, shape: str, messages: int, seed: int, doubled: bool = True) -> Table:
    """Producers at A and B send half of the messages each."""
    began = time.monotonic()
    async with contextlib.AsyncExitStack() as stack:
        world = World(folder, shape, messages, random.Random(seed))
        for name in NAMES:
            world.nodes[name] = stack.enter_context(RealNode(folder / name))
        await _link(world, stack, 2 if doubled else 1)
        async with headpond.connect(world.nodes["A"].url) as client:
            await client.admin.create_topic(TOPIC, shards=SHARDS)
        await world.until_alike()  # a producer that comes before the links would create it with one shard
        kept = await world.copy("A")  # its topic and its links, and nothing else yet
        await _live(world, kept)
        for link in world.links:
            link.mend()
            link.cut_s = 3600.0
        alike = await world.until_alike()
        read = [await world.read(name) for name in NAMES]
        for had, _ in read:
            await world.count(had.name)
            had.refused, had.conflicts = world.refused[had.name], world.conflicts[had.name]
        world.harms["links cut"] = sum(link.harm.cuts for link in world.links)
        same = alike and all(found == read[0][1] for _, found in read)
        acknowledged = len(world.acknowledged)
    nodes = [had for had, _ in read]
    return Table(shape, world.sent, acknowledged, world.harms, nodes, same, time.monotonic() - began)


async def _link(world: World, stack: contextlib.AsyncExitStack, paths: int) -> None:
    for reader, source in EDGES[world.shape]:
        for path in range(paths):
            host, port = world.nodes[source].address
            link = LossyLink(host, port, delay_s=0.01, cut_s=2.0, seed=world.chance.randrange(1 << 30))
            world.links.append(await stack.enter_async_context(link))
            async with headpond.connect(world.nodes[reader].url) as client:
                await client.admin.add_peer(link.url, topics=[PATTERN], name=f"from-{source}-{path}")


async def _live(world: World, kept: Path) -> None:
    """Runs the faults while producers send; in the middle A's old copy is restored."""
    world.sending.set()
    producers = [asyncio.create_task(world.produce(name)) for name in "AB"]
    harming = asyncio.create_task(world.harm())
    await world.half_way.wait()
    world.running = False
    await harming
    await world.restore("A", kept)
    world.running = True
    harming = asyncio.create_task(world.harm())
    await asyncio.gather(*producers)
    world.running = False
    await harming


def main() -> None:
    logging.basicConfig(level=logging.ERROR)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--shape", choices=[*EDGES, "all"], default="all")
    given = parser.parse_args()
    balanced = True
    for shape in EDGES if given.shape == "all" else [given.shape]:
        with tempfile.TemporaryDirectory() as folder:
            table = asyncio.run(run(Path(folder), shape=shape, messages=given.messages, seed=given.seed))
        print(table, flush=True)
        balanced &= table.balanced
    sys.exit(not balanced)


if __name__ == "__main__":
    main()
