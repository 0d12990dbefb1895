"""The blocking consumer: it fetches batches from the loop's thread, and gathers settlements for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic

from headpond.client.arguments import check_argument
from headpond.client.codecs import Codec
from headpond.client.consume.batch import Batch
from headpond.client.consume.consumer import Consumer as AsyncConsumer
from headpond.client.consume.intake import NodeIntake
from headpond.client.consume.settler import Nack, Settler
from headpond.client.consume.shelf import Places, Shelf
from headpond.client.options import LostSpan, NodeState
from headpond.model.message import Message, ValueT
from headpond.model.policy import Policy
from headpond.sync.background import Background, Mirror, ScopeTwin, blocking, mirrored
from headpond.wire.control.consuming import Settle

BATCHES_AHEAD = 64
"""The most batches in one hop between the threads."""


class LockedSettler(Settler):
    """The calling thread records settlements, and the loop's thread takes them."""

    def __init__(self, consumer: int, shards: int) -> None:
        super().__init__(consumer, shards)
        self._lock = threading.Lock()

    def ack(self, shard: int, start: int, end: int) -> int:
        with self._lock:
            return super().ack(shard, start, end)

    def skip(self, shard: int, start: int, end: int) -> int:
        with self._lock:
            return super().skip(shard, start, end)

    def nack(self, shard: int, entry: int, nack: Nack) -> int:
        with self._lock:
            return super().nack(shard, entry, nack)

    def ack_upto(self, shard: int, end: int) -> int:
        with self._lock:
            return super().ack_upto(shard, end)

    def take(self) -> list[Settle]:
        with self._lock:
            return super().take()


class Consumer(ScopeTwin[AsyncConsumer[Any]], Generic[ValueT]):
    """Reads one subscription, from one thread at a time."""

    def __init__(self, consumer: AsyncConsumer[Any], background: Background) -> None:
        super().__init__(consumer, background)
        self._shelf = Shelf(self)
        self._sending = False
        """Whether the loop will send settlements some milliseconds from now."""
        consumer.keep_unread(self._unread, self._take_unread, self._shelf.withdraw)

    # --- reading ------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Message[ValueT]]:
        while True:
            yield from self._shelf.current
            if (batch := self._next_batch()) is None:
                return
            self._shelf.begin(batch)

    def batches(self) -> Iterator[Batch]:
        """One batch after the other: rows of one or more stored segments of a shard, as columns."""
        while (batch := self._shelf.rest() or self._next_batch()) is not None:
            yield batch

    def receive(self, timeout: float | None = None) -> Message[ValueT] | None:
        """The next message; None if none comes within ``timeout`` seconds, or the consumer was closed."""
        if timeout is not None:
            check_argument("timeout", timeout, float | None)
        while (message := next(self._shelf.current, None)) is None:
            if (batch := self._next_batch(timeout)) is None:
                return None
            self._shelf.begin(batch)
        return message

    def _next_batch(self, timeout: float | None = None) -> Batch | None:
        with suppress(IndexError):
            return self._shelf.batches.popleft()
        arrived = self._background.run(self._arrived(timeout))
        if not arrived:
            return None
        self._shelf.batches.extend(arrived[1:])
        return arrived[0]

    async def _arrived(self, timeout: float | None) -> list[Batch]:
        if self._shelf.batches:  # the loop withdrew something meanwhile, and put the rest back
            return [self._shelf.batches.popleft()]
        try:
            async with asyncio.timeout(timeout):
                return await self._twin.next_batches(BATCHES_AHEAD)
        except TimeoutError:
            return []

    def _unread(self) -> Places:
        """Where the client holds the order, what came over to this thread is in hand."""
        return [] if self._twin.strict else self._shelf.unread()

    def _take_unread(self) -> Places:
        return [] if self._twin.strict else self._shelf.take_unread()

    # --- state --------------------------------------------------------------------------------------

    policy: Mirror[Policy] = mirrored(AsyncConsumer.policy)
    active: Mirror[bool] = mirrored(AsyncConsumer.active)
    paused: Mirror[bool] = mirrored(AsyncConsumer.paused)
    lost: Mirror[list[LostSpan]] = mirrored(AsyncConsumer.lost)
    nodes: Mirror[list[NodeState]] = mirrored(AsyncConsumer.nodes)
    copies: Mirror[int] = mirrored(AsyncConsumer.copies)
    dropped: Mirror[int] = mirrored(AsyncConsumer.dropped)

    # --- settling -----------------------------------------------------------------------------------

    def ack(self, what: Message[Any] | Batch, *, rows: Any = None) -> None:
        """Acknowledges: the node does not redeliver it. ``rows`` of a batch: a boolean mask, or row numbers."""
        consumer, core = self._twin, self._twin.core
        if core.stopped is not None:
            raise core.stopped.again()
        if type(core) is not NodeIntake or core.gate.strict or core.gate.repeats:  # the order is the loop's
            self._background.run(consumer.ack(what, rows=rows))
            return
        if (
            isinstance(what, Message)
            and rows is None
            and what.origin.topic == consumer.topic
            and what.origin.life == core.life
        ):
            core.settler.ack(what.origin.shard, what.entry, what.entry + 1)
        else:
            consumer.record(core.settler.ack, what, rows)
        if not self._sending:
            self._sending = True
            loop = self._background.loop
            self._background.soon(lambda: loop.call_later(core.settle_after_s, self._send), hurry=False)

    def _send(self) -> None:
        self._sending = False  # before the settlements are taken: a later one begins the next round
        if self._twin.stopped is None:
            self._twin.send_settlements()

    ack_range = blocking(AsyncConsumer.ack_range)
    ack_upto = blocking(AsyncConsumer.ack_upto)
    skip = blocking(AsyncConsumer.skip)
    skip_range = blocking(AsyncConsumer.skip_range)
    nack = blocking(AsyncConsumer.nack)
    dead_letter = blocking(AsyncConsumer.dead_letter)
    extend = blocking(AsyncConsumer.extend)
    flush = blocking(AsyncConsumer.flush)

    def close(self) -> None:
        """Brings settlements to the node's disk; unsettled messages are released."""
        self.__exit__(None, None, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._shelf.take_unread()


class DecodingConsumer(Consumer[ValueT]):
    """A consumer of values of one type. After a ``BadValue`` a new loop continues with the next message."""

    def __init__(self, codec: Codec[Any], consumer: AsyncConsumer[Any], background: Background) -> None:
        super().__init__(consumer, background)
        self._codec = codec

    def __iter__(self) -> Iterator[Message[ValueT]]:
        for message in super().__iter__():
            self._codec.read(message)
            yield message

    def receive(self, timeout: float | None = None) -> Message[ValueT] | None:
        """The next message; None if none comes within ``timeout`` seconds, or the consumer was closed."""
        message = super().receive(timeout)
        if message is not None:
            self._codec.read(message)
        return message
