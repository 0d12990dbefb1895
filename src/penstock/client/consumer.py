"""The consumer: messages or batches out, settlements in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import datetime
from typing import Any, Self

from penstock.client.batch import Batch
from penstock.client.intake import Intake
from penstock.client.link import Link
from penstock.client.options import ConsumerOptions, LostSpan
from penstock.client.scope import Scope
from penstock.client.settler import DELAY_MAX_S, Settler
from penstock.model.errors import BadRequest, Closed, PenstockError, TimedOut
from penstock.model.message import Message
from penstock.model.topic import TopicName
from penstock.wire.control import Settle, Span, Subscribe

SETTLE_AFTER_S = 0.005
SETTLE_MESSAGES = 1024
"""Settlements are sent after this long or this many, whichever is first."""


class Consumer(Scope):
    """Reads one subscription. Open it with ``async with client.consumer(topic, subscription) as consumer``."""

    def __init__(
        self,
        link: Link,
        topic: str,
        subscription: str,
        name: str | None,
        options: ConsumerOptions,
        make_settler: Callable[[int, int], Settler] = Settler,
    ) -> None:
        self.topic = str(TopicName.parse(topic))
        self.subscription = subscription
        self.name = name or ""
        self._link = link
        self._options = options
        self._make_settler = make_settler
        self.settler: Settler
        """Where settlements gather; the blocking twin adds to it from its own thread."""
        self._intake: Intake
        self.stopped: PenstockError | None = Closed("the consumer is not open")
        """Why nothing can be read or settled any more, or yet."""
        self.unread: Callable[[], list[tuple[int, Span]]] = self._unread
        """What was taken and not handed to the application, by shard; the blocking twin holds its own."""
        self._open = False
        self._current: Iterator[Message] = iter(())
        self._timer: asyncio.TimerHandle | None = None
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        self._dropped = 0
        """Settlements that the end of the subscription left unconfirmed."""

    # --- life ---------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Subscribes; ``async with`` does this."""
        options = self._options
        number = self._link.next_number()
        ask = Subscribe(
            number,
            self.topic,
            self.subscription,
            options.kind,
            options.mode,
            options.start.isoformat() if isinstance(options.start, datetime) else options.start,
            options.credit_bytes,
            self.name,
            options.create,
        )
        self._loop = asyncio.get_running_loop()
        self._intake = Intake(
            self._link,
            ask,
            unconfirmed=self._unconfirmed,
            on_settled=self._on_settled,
            on_ended=self._on_ended,
            on_lost=options.on_lost,
        )
        info = await self._intake.open()
        self.topic = info.topic
        self.settler = self._make_settler(number, info.shards)
        self.stopped = self._intake.error
        self._open = True
        return self

    @property
    def shown(self) -> str:
        return f"the consumer of {self.topic}"

    async def close(self) -> None:
        """Brings settlements to the node's disk, within ``close_timeout``; unsettled messages are released.

        Settlements that did not get there are raised: as ``TimedOut``, or as what ended the subscription.
        """
        if not self._open:
            return
        self._open = False
        self.stopped = Closed("the consumer was closed")
        if self._timer is not None:
            self._timer.cancel()
        for shard, span in self.unread():
            self._intake.release(shard, [span])
        try:
            async with asyncio.timeout(self._options.close_timeout):
                if self._intake.error is None:
                    await self._flush()
                    await self._intake.leave()
                elif self._dropped:
                    raise self._intake.error.again()
        except TimeoutError:
            raise TimedOut(
                f"settlements were not confirmed within {self._options.close_timeout:.3g} s",
                hint="The messages settled last may come again to whoever reads this subscription next.",
            ) from None
        finally:
            self._intake.end()

    def _unread(self) -> list[tuple[int, Span]]:
        return [(message.origin.shard, (message.entry, message.entry + 1)) for message in self._current]

    # --- reading ------------------------------------------------------------------------------------

    def __aiter__(self) -> Self:
        """One message after the other; a loop that was left, or a wait that was given up, can go on."""
        return self

    async def __anext__(self) -> Message:
        while (message := next(self._current, None)) is None:
            batch = await self._next_batch()
            if batch is None:
                raise StopAsyncIteration
            self._current = iter(batch.messages())
        return message

    def batches(self) -> AsyncIterator[Batch]:
        """One batch after the other: the rows of a stored segment, as columns."""
        return _Batches(self._next_batch)

    async def receive(self, timeout: float | None = None) -> Message | None:
        """The next message; None if none comes within ``timeout`` seconds, or the consumer was closed."""
        if (message := next(self._current, None)) is not None:
            return message
        try:
            async with asyncio.timeout(timeout):
                while (batch := await self._next_batch()) is not None:
                    self._current = iter(batch.messages())
                    if (message := next(self._current, None)) is not None:
                        return message
        except TimeoutError:
            pass
        return None

    async def next_batches(self, count_max: int) -> list[Batch]:
        """Waits for a batch, and takes what else has arrived; nothing once the consumer is closed."""
        batch = await self._next_batch()
        batches: list[Batch] = []
        while batch is not None:
            batches.append(batch)
            batch = self._intake.take() if len(batches) < count_max else None
        return batches

    async def _next_batch(self) -> Batch | None:
        if not hasattr(self, "settler"):
            raise Closed("the consumer is not open")
        self._link.check_loop()
        return await self._intake.next_batch()

    @property
    def lost(self) -> list[LostSpan]:
        """Entries that were reported as not to come: damaged at the node, or not readable here.

        Damaged ones are settled by the node. What could not be read here (so says the reason) is not settled:
        it is in flight until this consumer is closed, then comes to the next, which may be able to read it.
        """
        return self._intake.lost if hasattr(self, "_intake") else []

    def put_back(self, what: Message | Batch, *, rows: Any = None) -> None:
        """Says that these were taken and not looked at: closing does not count them as an attempt."""
        shard, spans = self._entries(what, rows)
        self._intake.release(shard, spans)

    # --- settling -----------------------------------------------------------------------------------

    async def ack(self, what: Message | Batch, *, rows: Any = None) -> None:
        """Done: the message does not come again. ``rows`` of a batch: a boolean mask, or row numbers.

        Returns when it is recorded here; ``flush()`` when it is on the node's disk.
        """
        if self.stopped is not None:
            raise self.stopped.again()
        if type(what) is Message and rows is None and what.origin.topic == self.topic:
            entry = what.entry
            pending = self.settler.ack(what.origin.shard, entry, entry + 1)
        else:
            pending = self.record(self.settler.ack, what, rows)
        if pending >= SETTLE_MESSAGES:
            self.send_settlements()
        elif self._timer is None:
            self._start_timer()

    async def skip(self, what: Message | Batch, *, rows: Any = None) -> None:
        """Not wanted: settled like an acknowledgement, and counted apart."""
        if self.stopped is not None:
            raise self.stopped.again()
        self.record(self.settler.skip, what, rows)
        self._start_timer()

    async def nack(self, what: Message | Batch, delay: float | None = None, *, rows: Any = None) -> None:
        """Failed: it comes again after ``delay`` seconds, or after the subscription's backoff."""
        if self.stopped is not None:
            raise self.stopped.again()
        self.record_nack(what, delay, rows)
        self._start_timer()

    async def flush(self) -> None:
        """Returns when everything settled before is on the node's disk."""
        if self.stopped is not None:
            raise self.stopped.again()
        await self._flush()

    def record(self, settle: Callable[[int, int, int], int], what: Message | Batch, rows: Any) -> int:
        """Puts entries down as settled, without sending; returns how many wait."""
        shard, spans = self._entries(what, rows)
        pending = 0
        for start, end in spans:
            pending = settle(shard, start, end)
        return pending

    def record_nack(self, what: Message | Batch, delay: float | None, rows: Any) -> None:
        if delay is not None and not 0 <= delay <= DELAY_MAX_S:
            raise BadRequest(f"a delay of {delay} s; it must be between 0 and {DELAY_MAX_S:.0f}")
        shard, spans = self._entries(what, rows)
        self._intake.release(shard, spans)
        for start, end in spans:
            for entry in range(start, end):
                self.settler.nack(shard, entry, delay)

    def _entries(self, what: Message | Batch, rows: Any) -> tuple[int, list[Span]]:
        """The shard and the entries that are meant."""
        if not isinstance(what, Message | Batch):
            raise BadRequest(f"a message or a batch can be settled, not {type(what).__name__}")
        if what.origin.topic != self.topic:
            raise BadRequest(f"this message is of {what.origin.topic}, and this consumer of {self.topic}")
        if isinstance(what, Batch):
            return what.shard, what.spans if rows is None else what.select(rows)
        if rows is not None:
            raise BadRequest("rows chooses from a batch; this is one message")
        return what.origin.shard, [(what.entry, what.entry + 1)]

    def _start_timer(self) -> None:
        if self._timer is None:
            self._timer = self._loop.call_later(SETTLE_AFTER_S, self.send_settlements)

    def send_settlements(self) -> None:
        """Sends what was settled so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._intake.attached:  # if not, they go with the next subscribing
            self._link.send(*self.settler.take())

    async def _flush(self) -> None:
        self.send_settlements()
        if not self.settler.unconfirmed and not self.settler.pending:
            return
        self.settler.take()  # numbered now, sent with the next subscribing
        done = self._loop.create_future()
        self._flushes.append((self.settler.number, done))
        await done

    def _unconfirmed(self) -> list[Settle]:
        if not hasattr(self, "settler"):
            return []
        self.settler.take()
        return list(self.settler.unconfirmed)

    def _on_settled(self, number: int) -> None:
        self.settler.confirm(number)
        waiting, self._flushes = self._flushes, []
        for wanted, done in waiting:
            if wanted > number:
                self._flushes.append((wanted, done))
            elif not done.done():
                done.set_result(None)

    def _on_ended(self, error: PenstockError) -> PenstockError:
        """Nothing can be settled any more, so no flush may wait for it."""
        if hasattr(self, "settler"):
            self._dropped = self.settler.drop()
        if self._dropped:
            what = "1 settlement was" if self._dropped == 1 else f"{self._dropped:,} settlements were"
            error = type(error)(f"{error.message}; {what} not confirmed and dropped", hint=error.hint)
        if self._open:
            self.stopped = error
        waiting, self._flushes = self._flushes, []
        for _, done in waiting:
            if not done.done():
                done.set_exception(error.again())
        return error


class _Batches:
    """Not an async generator: a wait for the next batch may be given up and the one after it still comes."""

    def __init__(self, next_batch: Callable[[], Awaitable[Batch | None]]) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        if (batch := await self._next_batch()) is None:
            raise StopAsyncIteration
        return batch
