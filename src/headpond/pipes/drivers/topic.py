"""A ``stream`` over a node's topic: the topic is the storage, a subscription keeps the receiver's position.

The two ends need not run at the same time. A confirmed message is on the node's disk; a message that the
receiver confirmed does not come again, to this receiver or to the next one of the subscription. So either
end, and the node, may die and come back; only unconfirmed messages of a dead sender are lost.

The topic has one shard, because a stream has one index. A plain ``stream`` carries payloads as plain
messages, for and from any producer and consumer.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any

from headpond.client.connect import Client
from headpond.client.consume.batch import Batch
from headpond.client.consume.consumer import Consumer
from headpond.client.consume.intake import NodeIntake
from headpond.client.produce.producer import Producer
from headpond.client.produce.promise import Promise
from headpond.model.errors import BadRequest, HeadpondError, NotSupported
from headpond.pipes.calculus.route import Route
from headpond.pipes.drivers.end import new_epoch
from headpond.pipes.drivers.lane import SenderLane, StreamLane
from headpond.pipes.drivers.receiver import LaneSource, PipeReceiver
from headpond.pipes.drivers.sender import PipeSender, Way
from headpond.pipes.machines.compose import ReceiverStack, parse_drivable, receiver_of
from headpond.pipes.machines.machine import WAKE, Arrive, Effects, Notice
from headpond.pipes.machines.packet import NUMBER_MAX, Kind, Packet

STORAGE_EPOCH = 1
"""The storage's own session: a topic is one storage for all its life."""
LOST: Any = object()
"""Stands for an entry that will not come."""
DIGITS_MAX = len(str(NUMBER_MAX))
CLOSE_S_MAX = 1.0
"""A sender that is closed has flushed before; one that is aborted does not wait for a node that is away."""
BATCHES_MAX = 16
PIECE_MAX = 1024
OPEN_S_MAX = 10.0
"""How long to wait for a subscription whose earlier receiver has only just gone."""


class TopicLane(StreamLane):
    """A stream's receiver whose storage is a topic.

    **The lane never passes over a message that a pipe over the stream refuses.** It halts: nothing of that
    step or of a later one is delivered or committed, so the message stays in the topic for the next receiver.
    """

    halted = False
    """Whether a message was refused: the lane ignores everything behind it."""

    def _new_machine(self) -> ReceiverStack:
        return receiver_of(self._route, epoch=self._epoch, jitter=random.random)

    def begin(self) -> None:
        """The machine has something to ask from the start."""
        self._runner.step(WAKE)
        # Its questions need no answer, but silent sessions that it remembers have to grow old.
        self._runner.resume()

    def start_at(self, index: int) -> None:
        """The position that was asked for."""
        position = Packet(Kind.POSITION, STORAGE_EPOCH, self._epoch, (index,))
        self._runner.step(Arrive([position]))

    def fetched(self, first: int, payloads: Sequence[Any]) -> None:
        """Entries, as they stand in the topic from ``first`` on."""
        numbers = range(first, first + len(payloads))
        if payloads[0] is LOST:
            self._inbox.notice([Notice("lost", STORAGE_EPOCH, numbers)])
        else:
            self.arrived += len(numbers)
        packet = Packet(Kind.FETCHED, STORAGE_EPOCH, self._epoch, numbers, payloads)
        self._runner.step(Arrive([packet]))

    def on_route(self, there: bool) -> None:
        """The client's link keeps the route up, and nothing is sent again from here: the clock runs on."""

    def _on_effects(self, effects: Effects) -> None:
        self.halted = self.halted or bool(effects.refused)
        if self.halted:
            effects.delivered, effects.packets = [], []
        effects.delivered = [run for run in effects.delivered if run.payloads[0] is not LOST]
        # READ and FETCH are lost (``carry``): the node offers entries from the settled position on.
        super()._on_effects(effects)


class TopicStore(Way):
    """A stream's sender with a topic as the storage: the node's receipt is the storage's confirm.

    The producer beneath holds the messages and sends them again over lost connections for as long as it
    takes, and the node recognises a repeat. So the machine's clock stands still: it would only make second
    copies. A message that the producer gives back was refused for good, and ends the sender.

    A message's value is the payload as the program sent it, so any consumer of the topic can read it. Pipes
    over the stream put their envelopes into the message's id: ``epoch.number``, from the outermost in,
    separated by commas.
    """

    def __init__(self, client: Client, topic: str, name: str) -> None:
        self._client = client
        self._topic = topic
        self._name = name
        self._sender: PipeSender
        self._producer: Producer | None = None
        self._runs: deque[Packet] = deque()
        self._there_is_more = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def reconnects(self) -> int:
        return 0 if self._producer is None else self._producer.stats.reconnects

    async def open(self, sender: PipeSender) -> None:
        self._sender = sender
        # Without a refill: a receipt for a message on this machine's disk is no confirm of the storage.
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
            if packet.kind == Kind.DATA and not packet.layer:
                self._runs.append(packet)
                self._there_is_more.set()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._producer is not None:
            with suppress(HeadpondError):  # the sender itself reports unconfirmed messages
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
        confirm = Packet(Kind.CONFIRM, packet.epoch, STORAGE_EPOCH, packet.numbers)
        self._sender.on_packets([confirm])


def open_envelope(payload: Any) -> tuple[bytes, str | None]:
    """The bytes that a program sent, and the names that pipes gave them, as text."""
    names = []
    while not isinstance(payload, bytes):
        epoch, number, payload = payload
        names.append(f"{epoch}.{number}")
    return payload, ",".join(names) or None


def close_envelope(value: bytes, id: str | None, depth: int) -> Any:
    """The payload that ``open_envelope`` was given; any other message is returned as it is."""
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
        if stage.declaration.confirms:
            raise BadRequest(
                f"{stage.pipe} over a stream needs a way back to the sender, and a topic has none",
                hint="Over a topic: stream, with dedup, index or continuous(gaps=false) over it.",
            )


def one_shard(topic: str, shards: int) -> NotSupported:
    return NotSupported(
        f"topic {topic} has {shards} shards, and a stream has one index",
        hint="Use a topic with one shard, or client.producer and client.consumer.",
    )


class TopicSource(LaneSource):
    """A stream's receiver with a topic as the storage and a subscription as the index storage.

    The subscription answers the machine's questions: its position is where the node begins to offer, which is
    the settled position; entries come as batches; a commit settles. The client's link replaces lost
    connections.

    Entries that the node will not deliver (damaged, expired, or settled by another consumer) reach the
    machine as ``LOST``, because it steps by one. They are counted, reported in a notice, and not passed on.
    """

    def __init__(
        self, client: Client, topic: str, subscription: str, route: Route, start: str | int | datetime
    ) -> None:
        self._client = client
        self._topic = topic
        self._subscription = subscription
        self._route = route
        self._start = start
        self._commits = bool(route.stages[0].settings["commit"])
        self._receiver: PipeReceiver
        self._consumer: Consumer | None = None
        self._lane: TopicLane | None = None
        self._next: int | None = None if self._commits else 0
        """The entry that the machine expects; None until its position is known."""
        self._settled = 0
        self._room = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    # --- a receiver's source ------------------------------------------------------------------------

    async def open(self, receiver: PipeReceiver) -> None:
        self._receiver = receiver
        consumer = await self._subscribe()
        self._consumer = consumer
        shards = (await self._client.admin.show_topic(consumer.topic)).shards
        if shards != 1:
            await consumer.close()
            raise one_shard(consumer.topic, shards)
        self._lane = TopicLane(consumer.topic, self._route, new_epoch(), receiver, self._settle)
        self._lane.begin()
        self._room.set()
        self._reading = asyncio.get_running_loop().create_task(self._read(consumer, self._lane))

    async def _subscribe(self) -> Consumer:
        loop = asyncio.get_running_loop()
        deadline, attempt = loop.time() + OPEN_S_MAX, 0
        while True:
            consumer = self._client.consumer(self._topic, self._subscription, start=self._start)
            try:
                return await consumer.open()
            except HeadpondError as error:
                if not error.retryable or loop.time() > deadline:
                    raise
            await asyncio.sleep(self._client.link.backoff.delay_s(attempt))
            attempt += 1

    async def close(self) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._lane is not None:
            self._lane.close()
        if self._consumer is not None:
            await self._consumer.close()

    async def flush(self) -> None:
        if self._consumer is not None:
            await self._consumer.flush()

    def set_reading(self, reading: bool) -> None:
        if reading:
            self._room.set()
        else:
            self._room.clear()

    @property
    def lanes(self) -> Sequence[SenderLane]:
        return () if self._lane is None else (self._lane,)

    # --- entries in ---------------------------------------------------------------------------------

    async def _read(self, consumer: Consumer, lane: TopicLane) -> None:
        try:
            while batches := await consumer.next_batches(BATCHES_MAX):
                for batch in batches:
                    for first, payloads in self._pieces(batch):
                        await self._room.wait()
                        self._pass_on(lane, first, payloads)
                        if lane.halted:
                            return
        except HeadpondError as error:
            self._receiver.stop(error)

    def _pieces(self, batch: Batch) -> Iterator[tuple[int, list[Any]]]:
        """The batch's rows as runs of entries that follow each other."""
        columns = batch.arrow
        payloads = columns.column("value").to_pylist()
        depth = len(self._route.stages) - 1
        if depth:
            ids = columns.column("id").to_pylist()
            payloads = [close_envelope(value, text, depth) for value, text in zip(payloads, ids, strict=True)]
        row = 0
        for start, end in batch.spans:
            for first in range(start, end, PIECE_MAX):
                count = min(PIECE_MAX, end - first)
                yield first, payloads[row : row + count]
                row += count

    def _pass_on(self, lane: TopicLane, first: int, payloads: list[Any]) -> None:
        if self._next is None:
            self._next = self._settled = first
            lane.start_at(first)
        while self._next < first:
            missing = min(first - self._next, PIECE_MAX)
            lane.fetched(self._next, [LOST] * missing)
            self._next += missing
        lane.fetched(first, payloads)
        self._next = max(self._next, first + len(payloads))

    # --- settlements out ----------------------------------------------------------------------------

    def _settle(self, index: int) -> None:
        """Entries below ``index`` are done with."""
        consumer = self._consumer
        if consumer is None or consumer.stopped is not None or index <= self._settled:
            return
        assert isinstance(consumer.core, NodeIntake), "entries are those of one node"
        consumer.core.recorded(consumer.core.settler.ack(0, self._settled, index))
        self._settled = index


def sender(client: Client, topic: str, *, name: str = "", route: str = "stream") -> PipeSender:
    """The sending end, to be opened with ``async with``. Pipes over the stream may follow in ``route``."""
    check_stream(parse_drivable(route))
    return PipeSender(route, TopicStore(client, topic, name), name=name)


def receiver(
    client: Client,
    topic: str,
    *,
    subscription: str,
    route: str = "stream",
    start: str | int | datetime = "earliest",
) -> PipeReceiver:
    """The receiving end, to be opened with ``async with``; ``start`` is where a new subscription begins.

    A message is settled when the program is done with it: with the plain loop when the loop asks for the next,
    else with ``receiver.confirm``.
    """
    parsed = parse_drivable(route)
    check_stream(parsed)
    return PipeReceiver(route, TopicSource(client, topic, subscription, parsed, start))
