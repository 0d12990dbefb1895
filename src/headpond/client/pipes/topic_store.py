"""A stream's sender with a topic as the storage: the node's receipt is the storage's confirmation.

The producer beneath holds what it was given, sends it again over lost connections for as long as it takes, and
the node knows a repeat of it. So the machine's clock stands still: it would only make second copies. What the
producer gives back was refused for good, and ends the sender.

A message's value is the payload as it was sent, so any consumer of the topic can read it. Pipes over the stream
put their envelopes into the message's id: ``epoch.number``, from the outermost in, with commas between.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from typing import Any

from headpond.calculus.route import Route
from headpond.client.connect import Client
from headpond.client.pipes.sender import Sender
from headpond.client.pipes.topic_lane import STORAGE_EPOCH
from headpond.client.producer import Producer
from headpond.client.promise import Promise
from headpond.model.errors import BadRequest, HeadpondError, NotSupported
from headpond.pipes.packet import NUMBER_MAX, Kind, Packet

_DATA = int(Kind.DATA)
DIGITS_MAX = len(str(NUMBER_MAX))
CLOSE_S_MAX = 1.0
"""A sender that is closed has flushed before; one that is aborted does not wait for a node that is away."""


class TopicStore:
    faults = malformed = 0

    def __init__(self, client: Client, topic: str, name: str) -> None:
        self._client = client
        self._topic = topic
        self._name = name
        self._sender: Sender
        self._producer: Producer | None = None
        self._runs: deque[Packet] = deque()
        self._there_is_more = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def reconnects(self) -> int:
        return 0 if self._producer is None else self._producer.stats.reconnects

    async def open(self, sender: Sender) -> None:
        self._sender = sender
        # Without a refill: a receipt for what is on this machine's disk is no confirmation of the storage's.
        producer = self._client.producer(
            self._topic, self._name or None, close_timeout=CLOSE_S_MAX, refill=None
        )
        await producer.open()
        if producer.shards != 1:
            await producer.close()
            raise one_shard(producer.topic, producer.shards)
        self._producer = producer
        self._start(self._write())
        sender.on_route(True, clock=False)

    def carry(self, packets: list[Packet]) -> None:
        for packet in packets:
            if packet.kind == _DATA and not packet.layer:
                self._runs.append(packet)
                self._there_is_more.set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._producer is not None:
            with suppress(HeadpondError):  # what was not confirmed, the sender says itself
                await self._producer.close()

    def _start(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _write(self) -> None:
        """Hands runs to the producer, in order, as it has room."""
        try:
            while True:
                while not self._runs:
                    self._there_is_more.clear()
                    await self._there_is_more.wait()
                await self._write_run(self._runs.popleft())
        except HeadpondError as error:
            self._sender.fail(error)

    async def _write_run(self, packet: Packet) -> None:
        assert self._producer is not None and packet.payloads is not None
        promises: list[Promise] = []
        for payload in packet.payloads:
            value, names = open_envelope(payload)
            await self._producer.wait_room()
            promises.append(self._producer.post(value, id=names))
        self._start(self._confirm(packet, promises))

    async def _confirm(self, packet: Packet, promises: list[Promise]) -> None:
        try:
            for promise in promises:
                await promise
        except HeadpondError as error:
            self._sender.fail(error)
            return
        confirm = Packet(int(Kind.CONFIRM), packet.epoch, STORAGE_EPOCH, packet.numbers)
        self._sender.on_packets([confirm])


def open_envelope(payload: Any) -> tuple[bytes, str | None]:
    """The bytes that a program sent, and the names that pipes gave them, as text."""
    names = []
    while not isinstance(payload, bytes):
        epoch, number, payload = payload
        names.append(f"{epoch}.{number}")
    return payload, ",".join(names) or None


def close_envelope(value: bytes, id: str | None, depth: int) -> Any:
    """The payload that ``open_envelope`` was given; what is no such message comes back as it is."""
    names = (id or "").split(",") if depth else []
    if len(names) != depth:
        return value
    payload: Any = value
    for name in reversed(names):
        epoch, _, number = name.partition(".")
        if not (_is_number(epoch) and _is_number(number)):
            return value
        payload = (int(epoch), int(number), payload)
    return payload


def _is_number(text: str) -> bool:
    """Anybody may write an id: one of thousands of digits is no number, and reading it would raise."""
    return text.isdecimal() and len(text) <= DIGITS_MAX


def check_stream(route: Route) -> None:
    """``BadRequest`` unless it can go over a topic, which leads one way only."""
    if route.stages[0].pipe != "stream":
        raise BadRequest(
            f"{route} does not begin with stream",
            hint="A topic is a stream's storage: stream, stream | dedup, …",
        )
    for stage in route.stages[1:]:
        if stage.pipe in ("resend", "resend_many", "sequential") or stage.settings.get("gaps"):
            raise BadRequest(
                f"{stage.pipe} over a stream needs a way back to the sender, and a topic has none",
                hint="Over a topic: stream, with dedup, index or continuous(gaps=false) over it.",
            )


def one_shard(topic: str, shards: int) -> NotSupported:
    return NotSupported(
        f"topic {topic} has {shards} shards, and a stream has one index",
        hint="Use a topic with one shard, or client.producer and client.consumer.",
    )
