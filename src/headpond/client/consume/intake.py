"""The intake: keeps a consumer subscribed, and turns deliveries into batches.

Deliveries wait undecoded until they are asked for; credit goes back to the node as they are handed out.

When the connection is lost, the node gives to others what it had sent ahead. So the consumer drops everything
that the application was not handed. It subscribes again over the next connection in three steps:

1. SUBSCRIBE, without credit, names what the application has in hand: only that was an attempt.
2. Behind SUBSCRIBED go the settlements that were not confirmed, and then the credit.
3. The node offers again what is still owed. What the application has in hand is not handed to it twice: it can
   settle it as before. A unique or failover subscription holds it for this consumer; of others it may be among
   what is offered again, and is passed over here.

All that holds for one topic only: where another of its name answers, entries mean other messages, and it ends.

Whether something may be handed out is the gate's to say; what the node says of that goes there.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic

import msgspec

from headpond.client.consume.batch import Batch, KeptRecords, meant_spans, read_record, rows_may_follow
from headpond.client.consume.gate import Gate, Handed, covers
from headpond.client.link.link import Link
from headpond.client.options import LostSpan
from headpond.model.bounds import Span, check_fields
from headpond.model.errors import (
    HeadpondError,
    IncarnationChanged,
    SchemaMismatch,
    SubscriptionMoved,
    TimedOut,
    TopicMismatch,
)
from headpond.model.message import Origin
from headpond.model.ranges import RangeSet
from headpond.wire.control.consuming import (
    Credit,
    Deliver,
    Extend,
    GiveBack,
    KnownRecord,
    Lost,
    Renew,
    Settle,
    Settled,
    Subscribe,
    Subscribed,
    Unsubscribe,
    Unsubscribed,
)
from headpond.wire.frame import OVERHEAD_BYTES, Frame
from headpond.wire.typed.versions import SchemaVersions

Delivery = tuple[Deliver, Frame, int]
"""What is meant, of which record, and what that took of the credit."""


class Deliveries:
    """In the order in which they came."""

    def __init__(self) -> None:
        self.bytes = 0
        self._waiting: deque[Delivery] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Delivery]:
        return iter(self._waiting)

    def extend(self, arrived: list[Delivery]) -> None:
        self._waiting.extend(arrived)
        self.bytes += sum(size for _, _, size in arrived)

    def popleft(self) -> Delivery:
        first = self._waiting.popleft()
        self.bytes -= first[2]
        return first

    def clear(self) -> None:
        self._waiting.clear()
        self.bytes = 0


class Losses:
    def __init__(self, topic: str, on_lost: Callable[[LostSpan], None] | None) -> None:
        self.spans: list[LostSpan] = []
        self._topic = topic
        self._on_lost = on_lost

    def report(self, shard: int, spans: list[Span], reason: str) -> None:
        for start, end in spans:
            span = LostSpan(shard, start, end, reason)
            self.spans.append(span)
            log.warning("%s: shard %d, entries %d to %d lost: %s", self._topic, shard, start, end - 1, reason)
            if self._on_lost is not None:
                self._on_lost(span)


# What a consumer says again and again while it lives: that it does, and what it has not handed out yet.
#
# RENEW goes out three times a lease. Where messages have a deadline, EXTEND goes out ten times in it for
# those that were only sent ahead: so the deadline counts from the moment a message is handed out, less a
# tenth at most.

RENEWALS = 3
EXTENSIONS = 10
SPANS_MAX = 4096


class Heartbeat:
    """``unread`` names what was delivered and not handed out, by shard."""

    def __init__(self, link: Link, consumer: int, unread: Callable[[], list[tuple[int, Span]]]) -> None:
        self._link = link
        self._consumer = consumer
        self._unread = unread
        self._loop = asyncio.get_running_loop()
        self._renew_s = self._extend_s = 0.0
        self._renewing: asyncio.TimerHandle | None = None
        self._extending: asyncio.TimerHandle | None = None
        self._sent: dict[int, float] = {}
        self._number = 0

    def begin(self) -> None:
        """A SUBSCRIBE is sent: a lease that it brings begins now."""
        self.stop()
        self._number = 0
        self._sent = {0: monotonic()}

    def stop(self) -> None:
        for timer in (self._renewing, self._extending):
            if timer is not None:
                timer.cancel()
        self._renewing = self._extending = None

    def on_subscribed(self, message: Subscribed) -> float:
        """Returns when the lease that the message speaks of began."""
        deadline = message.policy.deadline if message.policy is not None else None
        self._renew_s = message.lease_s / RENEWALS
        self._extend_s = (deadline or 0.0) / EXTENSIONS
        if self._renewing is None and self._renew_s:
            self._renewing = self._loop.call_later(self._renew_s, self._renew)
        if self._extending is None and self._extend_s:
            self._extending = self._loop.call_later(self._extend_s, self._extend)
        since = self._sent.get(message.renewal, 0.0)
        self._sent = {number: at for number, at in self._sent.items() if number >= message.renewal}
        return since

    def _renew(self) -> None:
        self._number += 1
        self._sent[self._number] = monotonic()
        self._link.send(Renew(self._consumer, self._number))
        self._renewing = self._loop.call_later(self._renew_s, self._renew)

    def _extend(self) -> None:
        for shard, spans in in_frames(self._unread()):
            self._link.send(Extend(self._consumer, shard, spans))
        self._extending = self._loop.call_later(self._extend_s, self._extend)


def in_frames(places: list[tuple[int, Span]]) -> Iterator[tuple[int, list[Span]]]:
    """Spans by shard, joined where they touch, and not too many for one frame."""
    by_shard: dict[int, RangeSet] = {}
    for shard, span in places:
        by_shard.setdefault(shard, RangeSet()).add(*span)
    for shard, entries in by_shard.items():
        spans = list(entries)
        for at in range(0, len(spans), SPANS_MAX):
            yield shard, spans[at : at + SPANS_MAX]


log = logging.getLogger("headpond.client")

SUBSCRIBE_TIMEOUT_S = 30.0
SINGLE = ("unique", "failover")
"""Kinds in which one consumer gets everything: the node holds what its application has in hand for it."""
STATE_TIMEOUT_S = 600.0
"""A subscription that begins with a topic's state is made when the node has read the topic through."""
OTHER_TOPIC_HINT = "It was made anew, or another node answers. Open the consumer anew to read this one."


class Intake:
    """``unconfirmed`` is asked for settlements to send again; ``on_settled`` hears which are on disk.

    ``on_ended`` hears, once, what ended the subscription for this consumer, and returns what is to be raised;
    ``on_moved`` that somebody set the subscription elsewhere, ``on_withdrawn`` which entries are not to be
    handed out, ``on_another_life`` how many messages were in hand when an old copy of the topic was restored.
    ``unread`` names what was taken and not handed to the application; ``take_unread`` takes it away, too.
    """

    def __init__(
        self,
        link: Link,
        ask: Subscribe,
        *,
        unconfirmed: Callable[[], list[Settle]],
        on_settled: Callable[[int], None],
        on_ended: Callable[[HeadpondError], HeadpondError],
        on_lost: Callable[[LostSpan], None] | None,
        on_moved: Callable[[HeadpondError], None],
        on_withdrawn: Callable[[int, list[Span]], None],
        on_another_life: Callable[[HeadpondError, int], None],
        unread: Callable[[], list[tuple[int, Span]]],
        take_unread: Callable[[], list[tuple[int, Span]]],
        gate: Gate,
    ) -> None:
        self.losses = Losses(ask.topic, on_lost)
        self.info: Subscribed | None = None
        self.number = ask.consumer
        self.error: HeadpondError | None = None
        """What ended the subscription for this consumer."""
        self.attached = False
        """Whether the node said on the present connection that this consumer is subscribed."""
        self._known = False
        """Whether the node may know this consumer on the present connection: then it must hear of leaving."""
        self._topic_uuid: bytes | None = None
        self._schemas: SchemaVersions | None = None
        """Of a typed topic; it comes anew when the topic is altered, before the first record that needs it."""
        self._link = link
        self._ask = ask
        self._unconfirmed = unconfirmed
        self._on_settled = on_settled
        self._on_ended = on_ended
        self._loop = asyncio.get_running_loop()
        self._opened: asyncio.Future[Subscribed] = self._loop.create_future()
        self._left: asyncio.Future[None] | None = None
        self.shares_unread = True
        """Whether what ``unread`` names can be given back."""
        self._gate = gate
        self._on_moved = on_moved
        self._on_withdrawn = on_withdrawn
        self._on_another_life = on_another_life
        self._unread = unread
        self._take_unread = take_unread
        self._heartbeat = Heartbeat(link, ask.consumer, self._sent_ahead)
        self._deliveries = Deliveries()
        self._again = Deliveries()
        """Of a resilient subscription: the message that was refused, come again."""
        self._kept = KeptRecords(self._read)
        self._arrived = asyncio.Event()
        self._closed = False
        self._owed_bytes = 0
        self._handed = Handed()
        self._repeated: dict[int, RangeSet] = {}
        """By shard: entries that came as a further attempt, and may wait to be handed out."""
        self._last: dict[int, Origin] = {}
        """By shard: the last record that something was taken of."""
        self.life = 0
        """How often the topic was found to be another incarnation."""
        self.begins_again = True
        """Whether it goes on with another incarnation of the topic."""
        self._seen: list[tuple[int, int, int]] | None = None
        """What SUBSCRIBE named last as in the application's hands."""
        self._attempts = 0
        self._retry: asyncio.TimerHandle | None = None

    # --- life ---------------------------------------------------------------------------------------

    async def open(self) -> Subscribed:
        """Subscribes; a refusal is raised."""
        check_fields(self._ask)
        self._link.check_loop()
        self._link.add_consumer(self._ask.consumer, self)
        self._heartbeat.begin()
        self._known = self._link.send(self._ask)  # while the link is down, `on_up` does it
        timeout_s = STATE_TIMEOUT_S if self._ask.start == "state" else SUBSCRIBE_TIMEOUT_S
        try:
            async with asyncio.timeout(timeout_s):
                return await self._opened
        except TimeoutError:
            raise TimedOut(f"subscribing was not answered within {timeout_s:.3g} s") from None
        finally:
            if not self._opened.done() or self._opened.cancelled() or self._opened.exception() is not None:
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
        self._heartbeat.stop()
        return known and self._link.send(Unsubscribe(self._ask.consumer, self._handed.seen()))

    def end(self) -> None:
        """Listens no more; whoever waits for a batch gets None."""
        self._closed = True
        self._say_goodbye()
        self._deliveries.clear()
        self._link.remove_consumer(self._ask.consumer)
        self._arrived.set()
        self._gate.knock()

    @property
    def over(self) -> bool:
        """Whether nothing comes any more."""
        return self._closed or self.error is not None

    @property
    def ahead_bytes(self) -> int:
        """Of what the node sent ahead and nobody took yet."""
        return self._deliveries.bytes + self._again.bytes + self._kept.bytes

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
        return self._take(self._deliveries)

    def take_again(self) -> Batch | None:
        """The message that was refused, if it has come again."""
        return self._take(self._again)

    def _take(self, deliveries: Deliveries) -> Batch | None:
        while deliveries:
            deliver, frame, size = deliveries.popleft()
            self._owe(size)
            try:
                batch = self._kept.rows(frame, deliver)
            except HeadpondError as error:
                self.losses.report(
                    deliver.shard, meant_spans(frame, deliver), f"cannot be read: {error.message}"
                )
                continue
            if batch is not None:
                last = self._last.get(batch.shard)
                if last is None or last.first_entry <= batch.origin.first_entry:
                    self._last[batch.shard] = batch.origin
                if (batch := self._handed.hand(batch)) is not None:
                    return batch
        return None

    def _read(self, frame: Frame, deliver: Deliver) -> Batch | None:
        assert self.info is not None, "nothing is delivered before"
        return read_record(frame, deliver, self.info.topic, self._node(), self._schemas, self.life)

    def _queued(self) -> list[tuple[int, Span]]:
        return [
            (deliver.shard, span)
            for deliver, frame, _ in self._deliveries
            for span in meant_spans(frame, deliver)
        ]

    def _sent_ahead(self) -> list[tuple[int, Span]]:
        """What was delivered and not handed out, by shard."""
        return self._queued() + self._unread()

    def withdraw(self, shard: int, spans: list[Span]) -> None:
        """Entries were settled or refused, here or by another consumer: waiting copies are not handed out."""
        for queue in (self._deliveries, self._again):
            kept = []
            for deliver, frame, size in queue:
                left = RangeSet(deliver.spans)
                for start, end in spans if deliver.shard == shard else ():
                    left.discard(start, end)
                kept.append((msgspec.structs.replace(deliver, spans=list(left)), frame, size))
            queue.clear()
            queue.extend(kept)
        self._on_withdrawn(shard, spans)
        queued = [
            (deliver.shard, span)
            for deliver, _, _ in (*self._deliveries, *self._again)
            for span in deliver.spans
        ]
        before, self._repeated = self._repeated, {}
        for number, span in (*queued, *self._unread()):
            for again in before.get(number, RangeSet()).overlap(*span):
                self._repeated.setdefault(number, RangeSet()).add(*again)
        self._gate.repeats = bool(self._repeated)

    def _give_back_ahead(self) -> None:
        """The node recalls what was sent ahead: another consumer came, or a key is to move on."""
        dropped = self._drop_queued()
        if self.shares_unread:
            dropped += self.drop_unread()
        for shard, spans in in_frames(dropped):
            self._link.send(GiveBack(self._ask.consumer, shard, spans))
        self._link.send(GiveBack(self._ask.consumer, 0, [], done=True))

    def _drop_ahead(self) -> None:
        """What was sent ahead is not this consumer's any more."""
        self._drop_queued()
        self.drop_unread()

    def _drop_queued(self) -> list[tuple[int, Span]]:
        """Drops what nobody took yet; the room that it had is free."""
        dropped = self._queued()
        for _, _, size in (*self._deliveries, *self._again):
            self._owe(size)
        self._deliveries.clear()
        self._again.clear()
        return dropped

    def drop_unread(self) -> list[tuple[int, Span]]:
        """Drops what was taken and not handed to the application: it is as if it had not been taken."""
        dropped = self._take_unread()
        for shard, span in dropped:
            self._handed.discard(shard, [span])
        return dropped

    def release(self, shard: int, spans: list[Span]) -> None:
        """The application gave entries back: they may be handed out again."""
        self._handed.discard(shard, spans)

    def confirmed(self, settle: Settle) -> None:
        """A settlement is on the node's disk: what it settles does not come again."""
        upto = [] if settle.upto is None else [(0, settle.upto)]
        self._handed.discard(settle.shard, [*settle.acked, *settle.skipped, *upto])

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
        self._heartbeat.stop()
        self._drop_ahead()
        if self._left is not None and not self._left.done():
            self._left.set_result(None)  # the connection's end released everything

    def on_up(self) -> None:
        if self.error is None and not self._closed and self._left is None:
            self._resubscribe()

    def _resubscribe(self) -> None:
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        self._kept.clear()
        self._owed_bytes = self._ask.credit_bytes
        if self._gate.strict:  # the node offers it all again, in its order
            self._gate.awaited = None
        self._handed.reconnect()
        self._seen = self._handed.seen(self._unconfirmed())
        known = [
            KnownRecord(shard, each.first_entry, each.block, each.segment, each.stored_at_us)
            for shard, each in self._last.items()
        ]
        ask = msgspec.structs.replace(self._ask, credit_bytes=0, seen=self._seen, known=known)
        if self._topic_uuid is not None:  # a topic made for the occasion would be another one
            ask = msgspec.structs.replace(ask, topic_uuid=self._topic_uuid, create_topic=False)
        self._heartbeat.begin()
        self._known = self._link.send(ask)

    def _resume(self) -> None:
        """Settlements go before credit, so that the node does not offer again what was settled."""
        self.attached = True
        if self.info is not None and self.info.kind in SINGLE and self._seen is not None:
            self._handed.keep()
        self._link.send(*self._unconfirmed())
        self._owe(0)

    def on_writable(self) -> None:
        """What a consumer writes is small and does not wait for this."""

    def on_deliver(self, deliver: Deliver, frames: list[Frame]) -> None:
        if self.error is not None:
            return
        if deliver.attempt > 1:
            self._gate.repeats = True
            for span in deliver.spans:
                self._repeated.setdefault(deliver.shard, RangeSet()).add(*span)
        if frames:
            arrived = [(deliver, frame, OVERHEAD_BYTES + len(frame.body)) for frame in frames]
            if len(frames) == 1 and rows_may_follow(self.info):
                self._kept.keep(deliver.shard, frames[0])
        else:
            kept = self._kept.frame(deliver.shard)
            arrived = [(deliver, kept, 0)] if kept is not None else []
        if self._gate.strict and (place := self._comes_again(deliver)) is not None:
            span, rest = (place[1], place[1] + 1), RangeSet(deliver.spans)
            rest.discard(*span)
            again = msgspec.structs.replace(deliver, spans=[span])
            self._again.extend([(again, frame, 0) for _, frame, _ in arrived])
            self._gate.knock()
            others = msgspec.structs.replace(deliver, spans=list(rest))
            arrived = [(others, frame, size) for _, frame, size in arrived]
        self._deliveries.extend(arrived)
        self._arrived.set()

    def _comes_again(self, deliver: Deliver) -> tuple[int, int] | None:
        """The message that the gate waits for, or that is in hand and missed its deadline, if it comes now."""
        place = self._gate.awaited or (self._gate.place if deliver.attempt > 1 else None)
        if place is None or not covers(deliver.shard, deliver.spans, place):
            return None
        self._gate.refuse(deliver.shard, deliver.spans)
        return place

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
            self._gate.lost(message.shard, message.spans, message.reason)
            if message.reason == "settled":
                self.withdraw(message.shard, message.spans)
            elif message.reason not in ("dead", "expired"):
                self.losses.report(message.shard, message.spans, message.reason)

    def _on_subscribed(self, message: Subscribed) -> None:
        self._attempts = 0
        try:
            if message.schemas and (self._schemas is None or list(self._schemas.encoded) != message.schemas):
                self._schemas = SchemaVersions(message.schemas)
                self._kept.decode_anew()
        except SchemaMismatch as error:  # a newer node may carry types that are not known here
            self.on_error(error)
            return
        if self._topic_uuid is None:
            self._topic_uuid = message.topic_uuid
        elif self._topic_uuid != message.topic_uuid:
            self._finish(TopicMismatch(f"topic {message.topic} is not the one that this consumer read before"))
        self._stand(message)
        if not self.attached and self.error is None:
            self._resume()
        if not self._opened.done():
            self._opened.set_result(message)

    def _stand(self, message: Subscribed) -> None:
        since = self._heartbeat.on_subscribed(message)
        before, self.info = self.info, message
        if before is not None and not message.active:
            self._drop_ahead()
        if message.recall:
            self._give_back_ahead()
        self._gate.stand(
            strict=message.lease_s > 0,  # other resilient kinds get from the node only what may be handed out
            active=message.active,
            paused=message.paused,
            lease_s=message.lease_s,
            since=since,
        )

    def on_error(self, error: HeadpondError) -> None:
        if self.error is not None:
            return
        self.attached = False
        if not self._opened.done():
            self._known = False
            self._opened.set_exception(error)
        elif isinstance(error, IncarnationChanged) and self.begins_again:
            self._begin_again(error)
        elif error.retryable:
            self._let_go(error)
            log.warning("subscription %s: %s; trying again", self._ask.subscription, error.message)
            if self._retry is None:
                delay_s = self._link.backoff.delay_s(self._attempts)
                self._attempts += 1
                self._retry = self._loop.call_later(delay_s, self._resubscribe)
        else:
            self._finish(error)

    def _begin_again(self, error: IncarnationChanged) -> None:
        """An old copy of the topic was restored: entries mean other messages, so nothing known holds."""
        self._heartbeat.stop()
        self._drop_ahead()
        self._kept.clear()
        in_hand = self._handed.count
        self._handed.clear()
        self._gate.forget()
        self._last.clear()
        self.life += 1
        self._on_another_life(error, in_hand)
        self._resubscribe()

    def _let_go(self, error: HeadpondError) -> None:
        """What was delivered is not this consumer's any more; after a move, not even what was settled."""
        self._heartbeat.stop()
        self._gate.end_lease()
        self._drop_ahead()
        if isinstance(error, SubscriptionMoved):
            self._handed.clear()
            self._gate.forget()
            self._on_moved(error)

    def _finish(self, error: HeadpondError) -> None:
        """Ends the subscription for this consumer, and lets others have it."""
        if isinstance(error, TopicMismatch):  # the entries are those of other messages there
            self._handed.clear()
            error = TopicMismatch(error.message, hint=OTHER_TOPIC_HINT)
        self.error = self._on_ended(error)
        self._deliveries.clear()
        self._arrived.set()
        self._gate.knock()
        self._say_goodbye()
