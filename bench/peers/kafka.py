"""Kafka, one broker that is its own controller, with a flush of the log for every append.

Server: the Kafka 3.3 or newer in ``$KAFKA_HOME``, with ``log.flush.interval.messages=1``. Kafka itself advises
to leave the sync to the operating system and to replicate; without replicas, only this makes a
confirmed message durable.

Client: confluent-kafka, which is librdkafka. ``acks=all``; ``linger.ms`` and the batch sizes are the defaults
where many messages are sent, and nothing lingers where one is.

- per message: ``produce``, which returns before the answer; librdkafka makes the batches
- by batch: the same call, because the client has no other
- consumer: one of the group named like the subscription, from the first message on. Kafka has no
  acknowledgement of one message: ``store_offsets`` per message, which the client commits in the
  background, and a commit at the end
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from itertools import chain
from pathlib import Path
from subprocess import run
from typing import Any, ClassVar

from bench.peers.peer import Peer, PeerConsumer, PeerProducer
from bench.peers.server import Server, free_port

try:
    import confluent_kafka
    import confluent_kafka.admin
except ImportError:  # is_installed says so
    pass

READ_MAX = 1000
POLL_S = 0.05
SETTINGS = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
log.dirs={logs}
log.flush.interval.messages=1
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
"""


class KafkaProducer(PeerProducer):
    """``prompt`` is a client that does not linger."""

    def __init__(self, client: Any, prompt: Any, topic: str) -> None:
        self._client = client
        self._prompt = prompt
        self._topic = topic
        self._failures: list[Any] = []

    async def publish(self, values: Iterable[bytes]) -> None:
        for value in values:
            while True:
                try:
                    self._client.produce(self._topic, value, on_delivery=self._answered)
                    break
                except BufferError:  # its queue is full
                    self._client.poll(POLL_S)
        self._client.flush()
        assert not self._failures, f"Kafka refused messages: {self._failures[0]}"

    def _answered(self, error: Any, _: Any) -> None:
        if error is not None:
            self._failures.append(error)

    async def publish_batch(self, batches: Iterable[list[bytes]]) -> None:
        await self.publish(chain.from_iterable(batches))

    async def send(self, value: bytes) -> None:
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def answered(error: Any, _: Any) -> None:
            loop.call_soon_threadsafe(answer.set_result, error)

        self._prompt.produce(self._topic, value, on_delivery=answered)
        error = await answer
        assert error is None, f"Kafka refused a message: {error}"


class KafkaConsumer(PeerConsumer):
    def __init__(self, client: Any) -> None:
        self._client = client

    async def consume(self, count: int, each: Callable[[bytes], object]) -> None:
        client = self._client
        while count:
            await asyncio.sleep(0)
            if (first := client.poll(POLL_S)) is None:
                continue
            messages = [first, *client.consume(min(count, READ_MAX) - 1, 0)] if count > 1 else [first]
            for message in messages:
                assert message.error() is None, f"Kafka answers {message.error()}"
                each(message.value())
                client.store_offsets(message)
            count -= len(messages)
        client.commit(asynchronous=False)


class Kafka(Peer):
    name: ClassVar[str] = "Kafka"
    install: ClassVar[str] = "unpack a Kafka from kafka.apache.org, and set KAFKA_HOME to its folder"

    @classmethod
    def is_installed(cls) -> bool:
        home = os.environ.get("KAFKA_HOME", "")
        return bool(home) and _script("kafka-server-start.sh").exists() and "confluent_kafka" in globals()

    def start(self) -> Server:
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "server.properties"
        logs = self.folder / "logs"
        config.write_text(SETTINGS.format(port=self.port, controller_port=free_port(), logs=logs))
        storage = str(_script("kafka-storage.sh"))
        uuid = run([storage, "random-uuid"], check=True, capture_output=True, text=True).stdout.strip()
        run([storage, "format", "-t", uuid, "-c", str(config)], check=True, capture_output=True)
        command = [str(_script("kafka-server-start.sh")), str(config)]
        return Server(command, self.folder, self.port, {"LOG_DIR": str(self.folder / "server-logs")})

    @property
    def _address(self) -> dict[str, str]:
        return {"bootstrap.servers": f"127.0.0.1:{self.port}"}

    async def create(self, topic: str, subscriptions: Sequence[str]) -> None:
        admin = confluent_kafka.admin.AdminClient(self._address)
        new = confluent_kafka.admin.NewTopic(topic, num_partitions=1, replication_factor=1)
        for created in admin.create_topics([new]).values():
            created.result()

    async def delete(self, topic: str, subscriptions: Sequence[str]) -> None:
        admin = confluent_kafka.admin.AdminClient(self._address)
        for deleted in admin.delete_topics([topic]).values():
            deleted.result()

    @asynccontextmanager
    async def producer(self, topic: str) -> AsyncIterator[KafkaProducer]:
        """A thread polls for the answers to ``send``, as the client's documentation does it for asyncio."""
        client = confluent_kafka.Producer({**self._address, "acks": "all"})
        prompt = confluent_kafka.Producer({**self._address, "acks": "all", "linger.ms": 0})
        closing = threading.Event()

        def poll() -> None:
            while not closing.is_set():
                prompt.poll(POLL_S)

        poller = threading.Thread(target=poll, daemon=True)
        poller.start()
        try:
            yield KafkaProducer(client, prompt, topic)
        finally:
            closing.set()
            poller.join()

    @asynccontextmanager
    async def consumer(self, topic: str, subscription: str) -> AsyncIterator[KafkaConsumer]:
        settings = {
            "group.id": f"{topic}.{subscription}",
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
        }
        client = confluent_kafka.Consumer({**self._address, **settings})
        client.subscribe([topic])
        try:
            yield KafkaConsumer(client)
        finally:
            client.close()

    @contextmanager
    def blocking_sender(self, topic: str) -> Iterator[Callable[[bytes], object]]:
        client = confluent_kafka.Producer({**self._address, "acks": "all", "linger.ms": 0})

        def send(value: bytes) -> None:
            client.produce(topic, value)
            client.flush()

        yield send


def _script(name: str) -> Path:
    return Path(os.environ.get("KAFKA_HOME", "")) / "bin" / name
