"""The blocking consumer: batches are fetched from the loop's thread, settlements gathered for it."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from operator import length_hint
from types import TracebackType
from typing import Any

from headpond.client.arguments import check_argument
from headpond.client.consume.batch import Batch, last_of, without
from headpond.client.consume.consumer import Consumer as AsyncConsumer
from headpond.client.consume.settler import Settler
from headpond.client.options import LostSpan, NodeState
from headpond.model.bounds import Span
from headpond.model.message import Message
from headpond.model.policy import Policy
from headpond.sync.background import Background, ScopeTwin, blocking
from headpond.wire.control.consuming import Settle

BATCHES_AHEAD = 64
"""Batches that one hop between the threads brings at most."""


class LockedSettler(Settler):
    """Settlements come from the calling thread and are taken by the loop's."""

    def __init__(self, consumer: int, shards: int) -> None:
        super().__init__(consumer, shards)
        self._lock = threading.Lock()

    def ack(self, shard: int, start: int, end: int) -> int:
        with self._lock:
            return super().ack(shard, start, end)

    def skip(self, shard: int, start: int, end: int) -> int:
        with self._lock:
            return super().skip(shard, start, end)

    def nack(self, shard: int, entry: int, delay_s: float | None) -> int:
        with self._lock:
            return super().nack(shard, entry, delay_s)

    def ack_upto(self, shard: int, end: int) -> int:
        with self._lock:
            return super().ack_upto(shard, end)

    def take(self) -> list[Settle]:
        with self._lock:
            return super().take()


class Consumer(ScopeTwin[AsyncConsumer]):
    """Reads one subscription, from one thread at a time."""

    def __init__(self, consumer: AsyncConsumer, background: Background) -> None:
        super().__init__(consumer, background)
        self._ready: deque[Batch] = deque()
        self._batch: Batch | None = None
        self._messages: list[Message] = []
        self._current: Iterator[Message] = iter(())
        """What is left of ``_messages``."""
        self._kicked = False
        consumer.keep_unread(self._unread, self._take_unread, self._withdraw)

    def __iter__(self) -> Iterator[Message]:
        while True:
            yield from self._current
            if (batch := self._next_batch()) is None:
                return
            self._begin(batch)

    def _begin(self, batch: Batch) -> None:
        self._batch = batch
        self._messages = batch.messages()
        self._current = iter(self._messages)

    def batches(self) -> Iterator[Batch]:
        """One batch after the other: the rows of a stored segment, as columns."""
        while (batch := self._take_rest() or self._next_batch()) is not None:
            yield batch

    def _take_rest(self) -> Batch | None:
        """What is left of the batch that messages were taken from one by one."""
        left = len([*self._current])
        return last_of(self._batch, left) if left and self._batch is not None else None

    def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none comes within ``timeout`` seconds, or the consumer was closed."""
        if timeout is not None:
            check_argument("timeout", timeout, float | None)
        while (message := next(self._current, None)) is None:
            if (batch := self._next_batch(timeout)) is None:
                return None
            self._begin(batch)
        return message

    def _next_batch(self, timeout: float | None = None) -> Batch | None:
        with suppress(IndexError):
            return self._ready.popleft()
        arrived = self._background.run(self._arrived(timeout))
        if not arrived:
            return None
        self._ready.extend(arrived[1:])
        return arrived[0]

    async def _arrived(self, timeout: float | None) -> list[Batch]:
        if self._ready:  # `_withdraw` was at it
            return [self._ready.popleft()]
        try:
            async with asyncio.timeout(timeout):
                return await self._twin.next_batches(BATCHES_AHEAD)
        except TimeoutError:
            return []

    @property
    def policy(self) -> Policy:
        """The subscription's redelivery policy, with every default filled in."""
        return self._twin.policy

    @property
    def active(self) -> bool:
        """Of a failover subscription: whether this consumer is the one that reads now."""
        return self._twin.active

    @property
    def paused(self) -> bool:
        """Whether somebody paused the subscription."""
        return self._twin.paused

    @property
    def lost(self) -> list[LostSpan]:
        """Entries that were reported as not to come; those that could not be read here are not settled."""
        return self._twin.lost

    @property
    def nodes(self) -> list[NodeState]:
        """The services that are read, as they stand now; see ``Several.nodes``."""
        return self._twin.nodes

    @property
    def copies(self) -> int:
        """Messages that came and were not handed out, since another node had brought them."""
        return self._twin.copies

    def ack(self, what: Message | Batch, *, rows: Any = None) -> None:
        """Done: the message does not come again. ``rows`` of a batch: a boolean mask, or row numbers."""
        consumer = self._twin
        if consumer.stopped is not None:
            raise consumer.stopped.again()
        if consumer.strict or consumer.repeats:  # the gate and what waits are the loop's
            self._background.run(consumer.ack(what, rows=rows))
            return
        shard, spans = consumer._entries(what, rows)
        for start, end in spans:
            consumer.settler.ack(shard, start, end)
        self._kick_once()

    ack_range = blocking(AsyncConsumer.ack_range)
    ack_upto = blocking(AsyncConsumer.ack_upto)
    skip = blocking(AsyncConsumer.skip)
    skip_range = blocking(AsyncConsumer.skip_range)
    nack = blocking(AsyncConsumer.nack)
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
            self._ready.clear()
            self._current = iter(())

    def _unread(self) -> list[tuple[int, Span]]:
        """What came over to this thread and was not handed out. In strict order what came is in hand."""
        if self._twin.strict:
            return []
        left = length_hint(self._current)
        rest = self._messages[len(self._messages) - left :] if left else []
        unread = [(message.origin.shard, (message.entry, message.entry + 1)) for message in rest]
        return unread + [(batch.shard, span) for batch in self._ready.copy() for span in batch.spans]

    def _take_unread(self) -> list[tuple[int, Span]]:
        """Takes it away, on the loop's thread.

        A list's iterator is emptied in one step, so each message is either taken here or handed out there.
        """
        if self._twin.strict:
            return []
        taken = [(message.origin.shard, (message.entry, message.entry + 1)) for message in list(self._current)]
        with suppress(IndexError):
            while True:
                batch = self._ready.popleft()
                taken += [(batch.shard, span) for span in batch.spans]
        return taken

    def _withdraw(self, shard: int, spans: list[Span]) -> None:
        """Drops entries of what came over, on the loop's thread.

        What waits is taken away in its order from the back, so that the other thread finds nothing that comes
        later in the place of what is taken; there it waits for the loop, and so for what is left.
        """
        unread = [span for number, span in self._unread() if number == shard]
        if not any(start < last and first < end for start, end in unread for first, last in spans):
            return
        waiting: deque[Batch] = deque()
        with suppress(IndexError):
            while True:
                waiting.appendleft(self._ready.pop())
        if (rest := self._take_rest()) is not None:
            waiting.appendleft(rest)
        left = (without(batch, spans) if batch.shard == shard else batch for batch in waiting)
        self._ready.extend(batch for batch in left if batch is not None)

    def _kick_once(self) -> None:
        """Settlements leave some milliseconds from now, with whatever else was settled by then."""
        if not self._kicked:
            self._kicked = True
            self._background.soon(self._start_timer)

    def _start_timer(self) -> None:
        self._background.loop.call_later(self._twin.settle_after_s, self._send)

    def _send(self) -> None:
        self._kicked = False  # before they are taken: one that comes now kicks again
        if self._twin.stopped is None:
            self._twin.send_settlements()
