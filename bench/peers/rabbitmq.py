"""RabbitMQ with quorum queues, which sync their write-ahead log before they confirm.

Server: the package's defaults, one node. A topic is a fanout exchange, a subscription a quorum queue that is
bound to it; every queue stores its own copy, which is how RabbitMQ gives one message to several readers.

Client: pika on asyncio, with publisher confirms and persistent messages.

- per message and by batch: ``basic_publish``, which returns before the confirm; ``PENDING`` may be unconfirmed.
  AMQP has no publish of several messages, so both are the same
- consumer: ``basic_consume`` with a prefetch of ``PREFETCH``, ``basic_ack`` per message; the server does not
  confirm acknowledgements
- blocking: ``BlockingConnection`` with ``confirm_delivery``
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from itertools import chain
from typing import Any, ClassVar

from bench.peers.peer import Peer, PeerConsumer, PeerProducer
from bench.peers.server import Server, free_port

try:
    import pika
    from pika.adapters.asyncio_connection import AsyncioConnection
except ImportError:  # is_installed says so
    pass

SCRIPTS = ("/usr/lib/rabbitmq/bin/rabbitmq-server", "rabbitmq-server")
"""The script of Debian's package that any user may run; the one on its PATH wants to be root."""
PENDING = 4000
PREFETCH = 1000
PERSISTENT = 2
QUORUM = {"x-queue-type": "quorum"}


class RabbitProducer(PeerProducer):
    """Waits for the confirms of its channel, which come in order but may cover several messages at once."""

    def __init__(self, channel: Any, exchange: str) -> None:
        self._channel = channel
        self._exchange = exchange
        self._properties = pika.BasicProperties(delivery_mode=PERSISTENT)
        self._sent = 0
        self._unconfirmed: dict[int, asyncio.Future[None] | None] = {}
        self._room = asyncio.Event()

    async def open(self) -> None:
        await _answer(partial(self._channel.confirm_delivery, self._confirmed))

    def _publish(self, value: bytes, waiter: asyncio.Future[None] | None = None) -> None:
        self._sent += 1
        self._unconfirmed[self._sent] = waiter
        self._channel.basic_publish(self._exchange, "", value, self._properties)

    def _confirmed(self, frame: Any) -> None:
        method = frame.method
        assert method.NAME == "Basic.Ack", f"RabbitMQ refused a message: {method}"
        tags = [method.delivery_tag]
        if method.multiple:
            tags = [tag for tag in self._unconfirmed if tag <= method.delivery_tag]
        for tag in tags:
            if (waiter := self._unconfirmed.pop(tag)) is not None:
                waiter.set_result(None)
        self._room.set()

    async def _fewer_than(self, count: int) -> None:
        while len(self._unconfirmed) >= count:
            self._room.clear()
            await self._room.wait()

    async def publish(self, values: Iterable[bytes]) -> None:
        for number, value in enumerate(values):
            self._publish(value)
            if number % 100 == 0:
                await asyncio.sleep(0)
            await self._fewer_than(PENDING)
        await self._fewer_than(1)

    async def publish_batch(self, batches: Iterable[list[bytes]]) -> None:
        await self.publish(chain.from_iterable(batches))

    async def send(self, value: bytes) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._publish(value, waiter)
        await waiter


class RabbitConsumer(PeerConsumer):
    def __init__(self, channel: Any, queue: str) -> None:
        self._channel = channel
        self._queue = queue

    async def consume(self, count: int, each: Callable[[bytes], object]) -> None:
        channel, left = self._channel, count
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def on_message(_: Any, delivery: Any, properties: Any, body: bytes) -> None:
            nonlocal left
            each(body)
            channel.basic_ack(delivery.delivery_tag)
            left -= 1
            if not left:
                done.set_result(None)

        channel.basic_qos(prefetch_count=PREFETCH)
        tag = channel.basic_consume(self._queue, on_message)
        await done
        # The server answers in order: it has read the acknowledgements when it answers this.
        await _answer(partial(channel.basic_cancel, tag))


class RabbitMq(Peer):
    name: ClassVar[str] = "RabbitMQ"
    install: ClassVar[str] = "apt-get install rabbitmq-server"

    @classmethod
    def is_installed(cls) -> bool:
        return any(map(shutil.which, SCRIPTS)) and "pika" in globals()

    def start(self) -> Server:
        home = self.folder
        home.mkdir(parents=True, exist_ok=True)
        (home / "enabled_plugins").write_text("[].\n")
        (home / "rabbitmq.conf").write_text(f"listeners.tcp.local = 127.0.0.1:{self.port}\n")
        environment = {
            "HOME": str(home),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_EPMD_PORT": str(free_port()),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_CONFIG_FILE": str(home / "rabbitmq.conf"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(home / "enabled_plugins"),
            "RABBITMQ_MNESIA_BASE": str(home / "mnesia"),
            "RABBITMQ_LOG_BASE": str(home / "log"),
            "RABBITMQ_PID_FILE": str(home / "pid"),
        }
        (script,) = [found for found in map(shutil.which, SCRIPTS) if found is not None][:1]
        # Erlang would start its port mapper as a daemon, which nobody ends: here it is a child like the server.
        command = ["sh", "-c", 'epmd & exec "$0"', script]
        return Server(command, home, self.port, environment)

    async def create(self, topic: str, subscriptions: Sequence[str]) -> None:
        async with self._channel() as channel:
            await _answer(partial(channel.exchange_declare, topic, "fanout", durable=True))
            for queue in _queues(topic, subscriptions):
                await _answer(partial(channel.queue_declare, queue, durable=True, arguments=QUORUM))
                await _answer(partial(channel.queue_bind, queue, topic))

    async def delete(self, topic: str, subscriptions: Sequence[str]) -> None:
        async with self._channel() as channel:
            for queue in _queues(topic, subscriptions):
                await _answer(partial(channel.queue_delete, queue))
            await _answer(partial(channel.exchange_delete, topic))

    @asynccontextmanager
    async def _channel(self) -> AsyncIterator[Any]:
        opened: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        closed: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def lost(_: Any, error: Exception) -> None:
            if not opened.done():
                opened.set_exception(error)
            closed.set_result(error)

        connection = AsyncioConnection(
            self._parameters(),
            on_open_callback=opened.set_result,
            on_open_error_callback=lambda _, error: opened.set_exception(error),
            on_close_callback=lost,
            custom_ioloop=asyncio.get_running_loop(),
        )
        await opened
        yield await _answer(lambda callback: connection.channel(on_open_callback=callback))
        connection.close()
        await closed

    def _parameters(self) -> Any:
        return pika.ConnectionParameters("127.0.0.1", self.port, heartbeat=0)

    @asynccontextmanager
    async def producer(self, topic: str) -> AsyncIterator[RabbitProducer]:
        async with self._channel() as channel:
            producer = RabbitProducer(channel, topic)
            await producer.open()
            yield producer

    @asynccontextmanager
    async def consumer(self, topic: str, subscription: str) -> AsyncIterator[RabbitConsumer]:
        async with self._channel() as channel:
            yield RabbitConsumer(channel, f"{topic}.{subscription}")

    @contextmanager
    def blocking_sender(self, topic: str) -> Iterator[Callable[[bytes], object]]:
        with pika.BlockingConnection(self._parameters()) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            properties = pika.BasicProperties(delivery_mode=PERSISTENT)
            yield lambda value: channel.basic_publish(topic, "", value, properties)


def _queues(topic: str, subscriptions: Sequence[str]) -> list[str]:
    return [f"{topic}.{subscription}" for subscription in subscriptions]


async def _answer(call: Callable[..., object]) -> Any:
    """What the server answers to a call of pika that takes a ``callback``."""
    answered: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    call(callback=answered.set_result)
    return await answered
