"""The intake: keeps a consumer subscribed, and turns deliveries into batches.

Deliveries wait undecoded until they are asked for; credit goes back to the node as they are handed out. After
a reconnect the consumer subscribes again: what had been prefetched is dropped, since the node offers it again,
and what the application had been handed is not handed to it twice (it still holds it, and can settle it). All
that holds for one topic only: where another of its name answers, entries mean other messages, and it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable

import msgspec

from penstock.client.batch import Batch, meant_spans, read_record, without
from penstock.client.link import Link
from penstock.client.options import LostSpan
from penstock.model.errors import PenstockError, TimedOut, TopicMismatch
from penstock.model.ranges import RangeSet
from penstock.wire.control import (
    Credit,
    Deliver,
    Lost,
    Settle,
    Settled,
    Span,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
    check_fields,
)
from penstock.wire.frame import OVERHEAD_BYTES, Frame

log = logging.getLogger("penstock.client")

SUBSCRIBE_TIMEOUT_S = 30.0
SEEN_MAX = 4096
OTHER_TOPIC_HINT = "It was made anew, or another node answers. Open the consumer anew to read this one."


class Intake:
    """``unconfirmed`` is asked for settlements to send again; ``on_settled`` hears which are on disk.

    ``on_ended`` hears, once, what ended the subscription for this consumer, and returns what is to be raised.
    """

    def __init__(
        self,
        link: Link,
        ask: Subscribe,
        *,
        unconfirmed: Callable[[], list[Settle]],
        on_settled: Callable[[int], None],
        on_ended: Callable[[PenstockError], PenstockError],
        on_lost: Callable[[LostSpan], None] | None,
    ) -> None:
        self.lost: list[LostSpan] = []
        self.info: Subscribed | None = None
        self.error: PenstockError | None = None
        """What ended the subscription for this consumer."""
        self.attached = False
        """Whether this consumer subscribed on the present connection and was not refused."""
        self._known = False
        """Whether the node may know this consumer on the present connection: then it must hear of leaving."""
        self._topic_uuid: bytes | None = None
        self._link = link
        self._ask = ask
        self._unconfirmed = unconfirmed
        self._on_settled = on_settled
        self._on_ended = on_ended
        self._on_lost = on_lost
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[Subscribed] = self._loop.create_future()
        self._left: asyncio.Future[None] | None = None
        self._deliveries: deque[tuple[Deliver, Frame]] = deque()
        self._arrived = asyncio.Event()
        self._closed = False
        self._owed_bytes = 0
        self._handed: dict[int, RangeSet] = {}
        """Entries handed out on the present connection, by shard."""
        self._held: dict[int, RangeSet] = {}
        """Entries handed out on an earlier one: the application has them."""
        self._attempts = 0
        self._retry: asyncio.TimerHandle | None = None

    # --- life ---------------------------------------------------------------------------------------

    async def open(self) -> Subscribed:
        """Subscribes; a refusal is raised."""
        check_fields(self._ask)
        self._link.check_loop()
        self._link.add_consumer(self._ask.consumer, self)
        self.attached = self._known = self._link.send(self._ask)  # while the link is down, `on_up` does it
        try:
            async with asyncio.timeout(SUBSCRIBE_TIMEOUT_S):
                self.info = await self._opened
                return self.info
        except TimeoutError:
            raise TimedOut(f"subscribing was not answered within {SUBSCRIBE_TIMEOUT_S:.3g} s") from None
        finally:
            if self.info is None:
                self.end()

    async def leave(self) -> None:
        """Detaches in order: what was not settled goes to whoever reads next."""
        self._left = self._loop.create_future()
        if self._say_goodbye():
            await self._left

    def _say_goodbye(self) -> bool:
        """Detaches without waiting, once a connection; a subscription is never left locked by who is gone."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        known, self._known = self._known, False
        self.attached = False
        return known and self._link.send(Unsubscribe(self._ask.consumer, self._seen()))

    def _seen(self) -> list[tuple[int, int, int]] | None:
        """What the application was handed; None (all) where that takes too many words."""
        by_shards = (*self._handed.items(), *self._held.items())
        seen = [(shard, start, end) for shard, entries in by_shards for start, end in entries]
        return seen if len(seen) <= SEEN_MAX else None

    def end(self) -> None:
        """Listens no more; whoever waits for a batch gets None."""
        self._closed = True
        self._say_goodbye()
        self._deliveries.clear()
        self._link.remove_consumer(self._ask.consumer)
        self._arrived.set()

    # --- batches ------------------------------------------------------------------------------------

    async def next_batch(self) -> Batch | None:
        """The next batch, however long it takes; None once the consumer is closed."""
        while True:
            if self._closed:
                return None
            if self.error is not None:
                raise self.error.again()
            if (batch := self.take()) is not None:
                return batch
            self._arrived.clear()
            await self._arrived.wait()

    def take(self) -> Batch | None:
        """The next batch of what has arrived."""
        while self._deliveries:
            deliver, frame = self._deliveries.popleft()
            self._owe(OVERHEAD_BYTES + len(frame.body))
            assert self.info is not None, "nothing is delivered before"
            try:
                batch = read_record(frame, deliver, self.info.topic, self._node())
            except PenstockError as error:
                self._report(deliver.shard, meant_spans(frame, deliver), f"cannot be read: {error.message}")
                continue
            if batch is not None and (batch := self._unheld(batch)) is not None:
                handed = self._handed.setdefault(batch.shard, RangeSet())
                for start, end in batch.spans:
                    handed.add(start, end)
                return batch
        return None

    def _unheld(self, batch: Batch) -> Batch | None:
        """The batch less what the application was handed on an earlier connection and still holds."""
        held = self._held.get(batch.shard)
        if not held:
            return batch
        again = [span for start, end in batch.spans for span in held.overlap(start, end)]
        if not again:
            return batch
        handed = self._handed.setdefault(batch.shard, RangeSet())
        for start, end in again:
            held.discard(start, end)
            handed.add(start, end)
        return without(batch, again)

    def release(self, shard: int, spans: list[Span]) -> None:
        """The application gave entries back: they may be handed out again."""
        for by_shard in (self._handed, self._held):
            if (entries := by_shard.get(shard)) is not None:
                for start, end in spans:
                    entries.discard(start, end)

    def _owe(self, size: int) -> None:
        """Returns credit in quarters, so that the node is never out of it while this side has room."""
        self._owed_bytes += size
        if self._owed_bytes * 4 >= self._ask.credit_bytes:
            self._link.send(Credit(self._ask.consumer, self._owed_bytes))
            self._owed_bytes = 0

    def _node(self) -> str:
        return self._link.welcome.node if self._link.welcome else ""

    # --- what the link tells ------------------------------------------------------------------------

    def on_down(self) -> None:
        self.attached = self._known = False
        if self._left is not None and not self._left.done():
            self._left.set_result(None)  # the connection's end released everything

    def on_up(self) -> None:
        if self.error is None and not self._closed and self._left is None:
            self._resubscribe()

    def _resubscribe(self) -> None:
        """Settlements go before credit, so that what was settled is hardly offered again."""
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._deliveries.clear()
        self._owed_bytes = 0
        for shard, handed in self._handed.items():
            held = self._held.setdefault(shard, RangeSet())
            for start, end in handed:
                held.add(start, end)
        self._handed.clear()
        consumer, credit = self._ask.consumer, self._ask.credit_bytes
        ask = msgspec.structs.replace(self._ask, credit_bytes=1)
        if self._topic_uuid is not None:  # a topic made for the occasion would be another one
            ask = msgspec.structs.replace(ask, topic_uuid=self._topic_uuid, create_topic=False)
        sent = self._link.send(ask, *self._unconfirmed(), Credit(consumer, max(credit - 1, 1)))
        self.attached = self._known = sent

    def on_writable(self) -> None:
        """What a consumer writes is small and does not wait for this."""

    def on_deliver(self, deliver: Deliver, frames: list[Frame]) -> None:
        if self.error is None:
            self._deliveries.extend([(deliver, frame) for frame in frames])
            self._arrived.set()

    def on_control(self, message: Subscribed | Unsubscribed | Settled | Lost) -> None:
        if isinstance(message, Unsubscribed):
            if self._left is not None and not self._left.done():
                self._left.set_result(None)
        elif self.error is not None:
            return
        elif isinstance(message, Settled):
            self._on_settled(message.number)
        elif isinstance(message, Subscribed):
            self._on_subscribed(message)
        else:
            self._report(message.shard, message.spans, message.reason)

    def _on_subscribed(self, message: Subscribed) -> None:
        self._attempts = 0
        if self._topic_uuid is None:
            self._topic_uuid = message.topic_uuid
        elif self._topic_uuid != message.topic_uuid:
            self._finish(TopicMismatch(f"topic {message.topic} is not the one that this consumer read before"))
        if not self._opened.done():
            self._opened.set_result(message)

    def on_error(self, error: PenstockError) -> None:
        if self.error is not None:
            return
        self.attached = False
        if not self._opened.done():
            self._known = False
            self._opened.set_exception(error)
        elif error.retryable:
            log.warning("subscription %s: %s; trying again", self._ask.subscription, error.message)
            if self._retry is None:
                delay_s = self._link.backoff.delay_s(self._attempts)
                self._attempts += 1
                self._retry = self._loop.call_later(delay_s, self._resubscribe)
        else:
            self._finish(error)

    def _finish(self, error: PenstockError) -> None:
        """Ends the subscription for this consumer, and lets others have it."""
        if isinstance(error, TopicMismatch):  # the entries are those of other messages there
            self._handed.clear()
            self._held.clear()
            error = TopicMismatch(error.message, hint=OTHER_TOPIC_HINT)
        self.error = self._on_ended(error)
        self._deliveries.clear()
        self._arrived.set()
        self._say_goodbye()

    def _report(self, shard: int, spans: list[Span], reason: str) -> None:
        for start, end in spans:
            span = LostSpan(shard, start, end, reason)
            self.lost.append(span)
            log.warning(
                "%s: shard %d, entries %d to %d lost: %s", self._ask.topic, shard, start, end - 1, reason
            )
            if self._on_lost is not None:
                self._on_lost(span)
