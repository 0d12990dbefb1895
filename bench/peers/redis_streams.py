"""Redis Streams, with an append-only file that is synced before each answer.

Server: ``appendonly yes``, ``appendfsync always``, no snapshots. The file is not rewritten while it is measured
(``auto-aof-rewrite-percentage 0``), which spares Redis work that it does by default. Redis syncs once for all
commands that it read in one turn of its loop, so many connections and long pipelines share a sync.

Client: redis-py with the parser of hiredis.

- per message: ``SENDERS`` tasks, each on a connection of the pool, await ``XADD``; redis-py has no call that
  returns before the answer
- by batch: pipelines without a transaction, one per batch, on ``PIPELINES`` connections at a time
- consumer: ``XREADGROUP`` of up to ``READ_MAX`` messages, and one ``XACK`` per message, those of a read in one
  pipeline on a second connection, so that the next read does not wait for them
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar

from bench.peers.peer import Peer, PeerConsumer, PeerProducer
from bench.peers.server import Server

try:
    import redis
    import redis.asyncio
except ImportError:  # is_installed says so
    pass

SENDERS = 64
PIPELINES = 2
READ_MAX = 1000
BLOCK_MS = 1000
FIELD = b"v"


class RedisProducer(PeerProducer):
    def __init__(self, client: Any, topic: str) -> None:
        self._client = client
        self._topic = topic

    async def publish(self, values: Iterable[bytes]) -> None:
        left = iter(values)

        async def sender() -> None:
            for value in left:
                await self._client.xadd(self._topic, {FIELD: value})

        await asyncio.gather(*(sender() for _ in range(SENDERS)))

    async def publish_batch(self, batches: Iterable[list[bytes]]) -> None:
        left = iter(batches)

        async def sender() -> None:
            for batch in left:
                async with self._client.pipeline(transaction=False) as pipeline:
                    for value in batch:
                        pipeline.xadd(self._topic, {FIELD: value})
                    await pipeline.execute()

        await asyncio.gather(*(sender() for _ in range(PIPELINES)))

    async def send(self, value: bytes) -> None:
        await self._client.xadd(self._topic, {FIELD: value})


class RedisConsumer(PeerConsumer):
    def __init__(self, client: Any, topic: str, group: str) -> None:
        self._client = client
        self._topic = topic
        self._group = group

    async def consume(self, count: int, each: Callable[[bytes], object]) -> None:
        async with asyncio.TaskGroup() as acks:
            await self._read(count, each, acks)

    async def _read(self, count: int, each: Callable[[bytes], object], acks: asyncio.TaskGroup) -> None:
        while count:
            found = await self._client.xreadgroup(
                self._group, "reader", {self._topic: ">"}, count=min(count, READ_MAX), block=BLOCK_MS
            )
            if not found:
                continue
            entries = found[0][1]
            for _, fields in entries:
                each(fields[FIELD])
            count -= len(entries)
            acks.create_task(self._acknowledge([entry for entry, _ in entries]))

    async def _acknowledge(self, entries: list[bytes]) -> None:
        async with self._client.pipeline(transaction=False) as pipeline:
            for entry in entries:
                pipeline.xack(self._topic, self._group, entry)
            await pipeline.execute()


class RedisStreams(Peer):
    name: ClassVar[str] = "Redis Streams"
    install: ClassVar[str] = "apt-get install redis-server"

    @classmethod
    def is_installed(cls) -> bool:
        return shutil.which("redis-server") is not None and "redis" in globals()

    def start(self) -> Server:
        settings = {
            "bind": "127.0.0.1",
            "port": str(self.port),
            "dir": str(self.folder),
            "appendonly": "yes",
            "appendfsync": "always",
            "auto-aof-rewrite-percentage": "0",
            "save": "",
            "daemonize": "no",
        }
        options = [word for name, value in settings.items() for word in (f"--{name}", value)]
        return Server(["redis-server", *options], self.folder, self.port)

    def _client(self) -> Any:
        pool = redis.asyncio.BlockingConnectionPool(
            host="127.0.0.1", port=self.port, max_connections=SENDERS, timeout=None
        )
        return redis.asyncio.Redis.from_pool(pool)

    async def create(self, topic: str, subscriptions: Sequence[str]) -> None:
        async with self._client() as client:
            for group in subscriptions:
                await client.xgroup_create(topic, group, id="0", mkstream=True)

    async def delete(self, topic: str, subscriptions: Sequence[str]) -> None:
        async with self._client() as client:
            await client.unlink(topic)

    @asynccontextmanager
    async def producer(self, topic: str) -> AsyncIterator[RedisProducer]:
        async with self._client() as client:
            yield RedisProducer(client, topic)

    @asynccontextmanager
    async def consumer(self, topic: str, subscription: str) -> AsyncIterator[RedisConsumer]:
        async with self._client() as client:
            yield RedisConsumer(client, topic, subscription)

    @contextmanager
    def blocking_sender(self, topic: str) -> Iterator[Callable[[bytes], object]]:
        with redis.Redis(host="127.0.0.1", port=self.port) as client:
            yield lambda value: client.xadd(topic, {FIELD: value})
