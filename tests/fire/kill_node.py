"""A node is killed again and again under load, and the books are balanced: ``python -m tests.fire.kill_node``.

Four producers continue through every restart, because the client reconnects: by message and by table, with keys
into four shards and without. A consumer settles. In the end the program reads everything again and compares it
with the acknowledgements.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa

import headpond
from headpond.client.connect import Client
from headpond.client.consume.consumer import Consumer
from headpond.client.link.dialling import Backoff
from headpond.client.produce.producer import Producer
from headpond.model.message import Message
from headpond.model.receipt import Outcome, Receipt
from tests.fire.real_node import RealNode

KEYED, UNKEYED = "keyed", "unkeyed"
KEYS = 61
ROWS = 40
"""Rows of a table, or of a series of posts."""
UNCONFIRMED_MAX = 50
"""Most tables, or series of posts, in flight: bounds the memory while the node is unreachable."""

Place = tuple[int, int]
"""Shard and entry."""


@dataclass
class Books:
    """The receipts of one producer, by message number."""

    name: str
    topic: str
    acknowledged: dict[int, Place] = field(default_factory=dict)
    sent: int = 0
    duplicates: int = 0
    reconnects: int = 0

    def next(self) -> int:
        self.sent += 1
        return self.sent - 1

    def key(self, number: int) -> bytes | None:
        return b"key %d" % (number % KEYS) if self.topic == KEYED else None

    def value(self, number: int) -> bytes:
        """Bytes that depend only on the name and the number."""
        return random.Random(f"{self.name}/{number}").randbytes(20 + number % 100)

    def id(self, number: int) -> str:
        return f"{self.name}/{number}"

    def acknowledge(self, number: int, receipt: Receipt) -> None:
        assert receipt.entry is not None
        self.acknowledged[number] = (receipt.shard, receipt.entry)
        self.duplicates += receipt.outcome is Outcome.DUPLICATE


@dataclass
class Ledger:
    cycles: int = 0
    sent: int = 0
    acknowledged: int = 0
    duplicates: int = 0
    """Messages that the node answered with ``duplicate``."""
    reconnects: int = 0
    found: int = 0
    lost: int = 0
    repeated: int = 0
    altered: int = 0
    out_of_order: int = 0
    settled: int = 0
    came_again: int = 0
    """Messages that were delivered after the node had confirmed their settlement."""

    @property
    def balanced(self) -> bool:
        faults = self.lost + self.repeated + self.altered + self.out_of_order + self.came_again
        return not faults and self.sent == self.acknowledged == self.found

    def __str__(self) -> str:
        return "\n".join(f"{name.replace('_', ' '):>14}  {count:>12,}" for name, count in vars(self).items())


# --- the load ---------------------------------------------------------------------------------------


async def by_send(producer: Producer, books: Books, stop: asyncio.Event) -> None:
    while not stop.is_set():
        number = books.next()
        books.acknowledge(number, await producer.send(books.value(number), id=books.id(number)))


async def by_post(producer: Producer, books: Books, stop: asyncio.Event) -> None:
    async def run_of_posts() -> None:
        numbers = [books.next() for _ in range(ROWS)]
        promises = [
            producer.post(books.value(number), key=books.key(number), id=books.id(number)) for number in numbers
        ]
        for number, promise in zip(numbers, promises, strict=True):
            books.acknowledge(number, await promise)

    free = asyncio.Semaphore(UNCONFIRMED_MAX)
    async with asyncio.TaskGroup() as runs:
        while not stop.is_set():
            await free.acquire()
            runs.create_task(run_of_posts()).add_done_callback(lambda _: free.release())
            await asyncio.sleep(0.01)


async def by_table(producer: Producer, books: Books, stop: asyncio.Event) -> None:
    async def send(numbers: list[int], table: pa.Table) -> None:
        receipt = await producer.send_batch(table)
        for number, one in zip(numbers, receipt.receipts, strict=True):
            books.acknowledge(number, one)

    free = asyncio.Semaphore(UNCONFIRMED_MAX)
    async with asyncio.TaskGroup() as tables:
        while not stop.is_set():
            numbers = [books.next() for _ in range(ROWS)]
            table = pa.table(
                {
                    "value": pa.array([books.value(number) for number in numbers], pa.binary()),
                    "id": pa.array([books.id(number) for number in numbers], pa.string()),
                    "key": pa.array([books.key(number) for number in numbers], pa.binary()),
                }
            )
            await free.acquire()
            tables.create_task(send(numbers, table)).add_done_callback(lambda _: free.release())
            await asyncio.sleep(0.01)


Load = Callable[[Producer, Books, asyncio.Event], Coroutine[Any, Any, None]]
LOADS: list[tuple[str, str, Load]] = [
    ("send", UNKEYED, by_send),
    ("post", KEYED, by_post),
    ("table", KEYED, by_table),
    ("plain-table", UNKEYED, by_table),
]


async def produce(client: Client, books: Books, load: Load, stop: asyncio.Event) -> None:
    # A busy machine may take long to start a node: these books are about the node's answers.
    async with client.producer(books.topic, name=books.name, batch_rows=64, spill_after=120.0) as producer:
        await load(producer, books, stop)
        books.reconnects = producer.stats.reconnects


async def settle_as_it_goes(consumer: Consumer, ledger: Ledger, stop: asyncio.Event) -> None:
    """Acknowledges most messages at once, refuses some, and remembers confirmed settlements."""
    confirmed: set[Place] = set()
    count = 0
    while not stop.is_set():
        fresh: list[Place] = []
        for _ in range(50):
            message = await consumer.receive(timeout=0.05)
            if message is None:
                break
            count += 1
            ledger.came_again += (message.shard, message.entry) in confirmed
            if count % 29 == 0:
                await consumer.nack(message, delay=0.05)
            else:
                await consumer.ack(message)
                fresh.append((message.shard, message.entry))
        await consumer.flush()
        confirmed.update(fresh)
    ledger.settled = len(confirmed)


# --- the run ----------------------------------------------------------------------------------------


async def run(folder: Path, *, cycles: int, seed: int) -> Ledger:
    """Starts a node, kills it ``cycles`` times under load, and balances the books."""
    ledger = Ledger(cycles=cycles)
    chance = random.Random(seed)
    with RealNode(folder, config="[log]\nrotate_bytes = 262144\npreallocate_bytes = 65536\n") as node:
        backoff = Backoff(0.02, 0.2)
        async with (
            headpond.connect(node.url, backoff=backoff) as client,
            headpond.connect(node.url, backoff=backoff) as reader,
        ):
            await client.admin.create_topic(KEYED, shards=4)
            await client.admin.create_topic(UNKEYED)
            books = [Books(name, topic) for name, topic, _ in LOADS]
            stop = asyncio.Event()
            async with (
                reader.consumer(KEYED, subscription="as-it-goes") as consumer,
                asyncio.TaskGroup() as tasks,
            ):
                for one, (_, _, load) in zip(books, LOADS, strict=True):
                    tasks.create_task(produce(client, one, load, stop))
                tasks.create_task(settle_as_it_goes(consumer, ledger, stop))
                for _ in range(cycles):
                    await asyncio.sleep(chance.uniform(0.02, 0.5))
                    node.kill()
                    await asyncio.to_thread(node.start)
                    await client.admin.list_topics()  # it has found the node again: the next kill meets a load
                await asyncio.sleep(0.3)
                stop.set()
            stored = {topic: await read_all(client, topic) for topic in (KEYED, UNKEYED)}
    for one in books:
        compare(ledger, one, stored[one.topic])
    return ledger


async def read_all(client: Client, topic: str) -> list[Message]:
    """All messages of the topic, read by a new subscription."""
    info = await client.admin.show_topic(topic)
    left = sum(shard.entry_next - shard.entry_first for shard in info.shard_list)
    found: list[Message] = []
    async with client.consumer(topic, subscription="audit") as consumer:
        while len(found) < left and (message := await consumer.receive(timeout=10.0)) is not None:
            found.append(message)
    return found


def compare(ledger: Ledger, books: Books, stored: list[Message]) -> None:
    """Compares the acknowledged messages with those in the topic."""
    places: dict[int, list[Place]] = {}
    for message in sorted(stored, key=lambda message: (message.shard, message.entry)):
        name, _, text = (message.id or "").partition("/")
        if name == books.name:
            number = int(text)
            places.setdefault(number, []).append((message.shard, message.entry))
            ledger.altered += (message.value, message.key) != (books.value(number), books.key(number))
    ledger.sent += books.sent
    ledger.acknowledged += len(books.acknowledged)
    ledger.duplicates += books.duplicates
    ledger.reconnects += books.reconnects
    ledger.found += sum(number in places for number in books.acknowledged)
    ledger.lost += sum(place not in places.get(number, []) for number, place in books.acknowledged.items())
    ledger.repeated += sum(len(found) - 1 for found in places.values())
    last: dict[int, int] = {}
    for number in sorted(places):
        for shard, entry in places[number]:
            ledger.out_of_order += entry < last.get(shard, -1)
            last[shard] = entry


def main() -> None:
    parser = argparse.ArgumentParser(description="Kills a node under load and balances the books.")
    parser.add_argument("--cycles", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args()
    logging.disable(logging.WARNING)  # the client logs every lost connection, and this test loses many
    with tempfile.TemporaryDirectory() as folder:
        ledger = asyncio.run(run(Path(folder), cycles=asked.cycles, seed=asked.seed))
    print(ledger)
    raise SystemExit(0 if ledger.balanced else 1)


if __name__ == "__main__":
    main()
