"""A stream's receiver with a topic as the storage and a subscription as the index storage.

The machine's questions are answered from the subscription: its place is where the node begins to offer, which
is the subscription's settled position; entries come as batches; a commit settles. Lost connections are made
good by the client's link.

Entries that the node will not deliver (damaged, expired, or settled by somebody else) reach the machine as
``LOST`` in their place, since it steps by one; they are counted, told in a notice, and not passed on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from headpond.calculus.route import Route
from headpond.client.batch import Batch
from headpond.client.connect import Client
from headpond.client.consumer import SETTLE_AFTER_S, SETTLE_MESSAGES, Consumer
from headpond.client.pipes.lane import Lane, LaneTotals
from headpond.client.pipes.receiver import Receiver
from headpond.client.pipes.runner import new_epoch
from headpond.client.pipes.topic_lane import LOST, TopicLane
from headpond.client.pipes.topic_store import close_envelope, one_shard
from headpond.model.errors import HeadpondError

BATCHES_MAX = 16
PIECE_MAX = 1024
OPEN_S_MAX = 10.0
"""How long to wait for a subscription whose earlier receiver has only just gone."""


class TopicSource:
    faults = malformed = 0
    address = None
    retired = LaneTotals()

    def __init__(
        self, client: Client, topic: str, subscription: str, route: Route, start: str | int | datetime
    ) -> None:
        self._client = client
        self._topic = topic
        self._subscription = subscription
        self._route = route
        self._start = start
        self._commits = bool(route.stages[0].settings["commit"])
        self._receiver: Receiver
        self._consumer: Consumer | None = None
        self._lane: TopicLane | None = None
        self._next: int | None = None if self._commits else 0
        """The entry that the machine expects; None until its place is known."""
        self._settled = 0
        self._room = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    # --- a receiver's source ------------------------------------------------------------------------

    async def open(self, receiver: Receiver) -> None:
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
        if self._timer is not None:
            self._timer.cancel()
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
    def lanes(self) -> Sequence[Lane]:
        return () if self._lane is None else (self._lane,)

    # --- entries in ---------------------------------------------------------------------------------

    async def _read(self, consumer: Consumer, lane: TopicLane) -> None:
        try:
            while batches := await consumer.next_batches(BATCHES_MAX):
                for batch in batches:
                    for first, payloads in self._pieces(batch):
                        await self._room.wait()
                        self._hand_on(lane, first, payloads)
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

    def _hand_on(self, lane: TopicLane, first: int, payloads: list[Any]) -> None:
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
        pending = consumer.settler.ack(0, self._settled, index)
        self._settled = index
        if pending >= SETTLE_MESSAGES:
            consumer.send_settlements()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(SETTLE_AFTER_S, self._send)

    def _send(self) -> None:
        self._timer = None
        if self._consumer is not None and self._consumer.stopped is None:
            self._consumer.send_settlements()
