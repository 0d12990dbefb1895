"""Headpond, as ``headpond node`` starts it, with every setting at its default.

The node acknowledges a message after fdatasync; there is no other mode. Producers have no refill here, so that
every confirmed message is on the node's disk and not on the client's.

- per message: ``post``; the oldest promise is awaited when ``IN_FLIGHT`` are unconfirmed
- by batch: ``send_batch`` of an Arrow table, ``TABLES`` of them unconfirmed at a time
- consumer: ``ack`` per message, which the client collects, and ``flush`` at the end
"""

from __future__ import annotations

import asyncio
import sys
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import ClassVar

import pyarrow as pa

import headpond
import headpond.sync
from bench.peers.peer import Peer, PeerConsumer, PeerProducer
from bench.peers.server import Server
from headpond.client.consume.consumer import Consumer
from headpond.client.produce.producer import Producer
from headpond.client.produce.promise import Promise

IN_FLIGHT = 40_000
POSTS_BETWEEN_LOOKS = 2000
"""A program that posts lets its event loop run now and then; so does this one."""
TABLES = 4


class HeadpondProducer(PeerProducer):
    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    async def publish(self, values: Iterable[bytes]) -> None:
        post = self._producer.post
        marks: deque[Promise] = deque()
        for number, value in enumerate(values):
            promise = post(value)
            if number % POSTS_BETWEEN_LOOKS == 0:
                marks.append(promise)
                if len(marks) > IN_FLIGHT // POSTS_BETWEEN_LOOKS:
                    await marks.popleft()
                else:
                    await asyncio.sleep(0)
        await self._producer.flush()

    async def publish_batch(self, batches: Iterable[list[bytes]]) -> None:
        left = iter(batches)

        async def sender() -> None:
            for batch in left:
                receipt = await self._producer.send_batch(pa.table({"value": pa.array(batch, pa.binary())}))
                assert receipt.stored == len(batch)

        await asyncio.gather(*(sender() for _ in range(TABLES)))

    async def send(self, value: bytes) -> None:
        await self._producer.send(value)


class HeadpondConsumer(PeerConsumer):
    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer

    async def consume(self, count: int, each: Callable[[bytes], object]) -> None:
        ack = self._consumer.ack
        async for message in self._consumer:
            each(message.value)
            await ack(message)
            count -= 1
            if not count:
                break
        await self._consumer.flush()


class HeadpondNode(Peer):
    name: ClassVar[str] = "Headpond"
    install: ClassVar[str] = "make install"

    @classmethod
    def is_installed(cls) -> bool:
        return True

    def start(self) -> Server:
        address = f"127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "headpond", "node", "--data", "data", "--listen", address]
        return Server(command, self.folder, self.port)

    @property
    def url(self) -> str:
        return f"headpond://127.0.0.1:{self.port}"

    async def create(self, topic: str, subscriptions: Sequence[str]) -> None:
        async with headpond.connect(self.url) as client:
            await client.admin.create_topic(topic)
            for subscription in subscriptions:
                await client.admin.create_subscription(topic, subscription)

    async def delete(self, topic: str, subscriptions: Sequence[str]) -> None:
        async with headpond.connect(self.url) as client:
            await client.admin.delete_topic(topic)

    @asynccontextmanager
    async def producer(self, topic: str) -> AsyncIterator[HeadpondProducer]:
        async with headpond.connect(self.url) as client, client.producer(topic, refill=None) as producer:
            yield HeadpondProducer(producer)

    @asynccontextmanager
    async def consumer(self, topic: str, subscription: str) -> AsyncIterator[HeadpondConsumer]:
        async with headpond.connect(self.url) as client, client.consumer(topic, subscription) as consumer:
            yield HeadpondConsumer(consumer)

    @contextmanager
    def blocking_sender(self, topic: str) -> Iterator[Callable[[bytes], object]]:
        with headpond.sync.connect(self.url) as client, client.producer(topic, refill=None) as producer:
            yield producer.send
