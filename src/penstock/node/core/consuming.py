"""Offers out, settlements in.

Records go out as they are stored, behind a DELIVER frame that says which of their rows are meant. What was
just synced is pushed from memory to a consumer that has caught up; anything else is read by a worker thread.
Nobody polls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from penstock.model.errors import (
    LimitReached,
    PenstockError,
    ProtocolError,
    SubscriptionBusy,
    SubscriptionMismatch,
    TopicMismatch,
)
from penstock.model.ranges import RangeSet
from penstock.node.core.effects import Effect, Fetch
from penstock.node.core.log import Run, StoredRecord
from penstock.node.core.session import Session
from penstock.node.core.settlement import Opened, Settlement, encode_change
from penstock.node.core.settling import check_settle, settle
from penstock.node.core.stores import Stores
from penstock.node.core.subscribing import check_subscribe, seen_by_shard, start_entry
from penstock.node.core.subscription import Attachment, Offer, Subscription
from penstock.node.core.topics import Topic
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
    encode_control,
)

READ_BYTES = 1024 * 1024
"""How much one read of a log brings at the most, unless a single record is larger."""
READ_AGAIN_US = 1_000_000
SETTLE_COST_BYTES = 512
"""What a settlement costs in memory until it is durable, beside its spans."""
CREDIT_BYTES_MAX = 1024 * 1024 * 1024


class Consuming:
    def __init__(
        self,
        stores: Stores,
        counters: Counter[str],
        *,
        now_us: Callable[[], int],
        clock_us: Callable[[], int],
        effect: Callable[[Effect], None],
        send: Callable[[int, list[bytes]], None],
    ) -> None:
        self._catalog = stores.catalog
        self._subscriptions = stores.subscriptions
        self._journal = stores.settlements
        self._lane = stores.settlement_lane
        self._subscriptions_max = stores.settings.limits.subscriptions
        self._counters = counters
        self._now_us = now_us
        self._clock_us = clock_us
        self._effect = effect
        self._send = send
        self._attached: dict[bytes, dict[str, Subscription]] = {}
        """By topic: the subscriptions with a consumer, so that idle ones cost a published message nothing."""
        self._unread: dict[int, tuple[int, Subscription]] = {}
        """Subscriptions whose read failed, and when to try again."""
        self._due_us: int | None = None

    # --- attaching ----------------------------------------------------------------------------------

    def on_subscribe(self, session: Session, ask: Subscribe, topic: Topic) -> None:
        """Attaches a consumer; the answer comes once the subscription itself is durable."""
        check_subscribe(session, ask)
        if ask.topic_uuid is not None and ask.topic_uuid != topic.uuid:
            raise TopicMismatch(f"topic {topic.shown} is not the one that this consumer read before")
        subscription = self._subscriptions.get(topic.uuid, ask.subscription)
        if subscription is None:
            if len(self._subscriptions) >= self._subscriptions_max:
                raise LimitReached(
                    f"this node holds at most {self._subscriptions_max} subscriptions (limits.subscriptions)"
                )
            starts = [start_entry(topic, shard, ask.start) for shard in range(len(topic.shards))]
            opened = Opened(topic.uuid, ask.subscription, ask.kind, ask.mode, starts, self._now_us())
            self._subscriptions.apply(opened)
            self._journal.append(encode_change(opened))
            subscription = self._subscriptions.get(topic.uuid, ask.subscription)
            assert subscription is not None
        elif (subscription.kind, subscription.mode) != (ask.kind, ask.mode):
            raise SubscriptionMismatch(
                f"subscription {ask.subscription!r} of {topic.shown} is {subscription.kind}, "
                f"{subscription.mode}; it was asked for as {ask.kind}, {ask.mode}"
            )
        if subscription.attachment is not None:
            holder = subscription.attachment.name or f"connection {subscription.attachment.connection}"
            raise SubscriptionBusy(
                f"the unique subscription {ask.subscription!r} of {topic.shown} has a consumer: {holder}"
            )
        credit = min(ask.credit_bytes, CREDIT_BYTES_MAX)
        attachment = Attachment(session.connection, ask.consumer, ask.name, credit, session.writable)
        subscription.attach(attachment)
        self._attached.setdefault(topic.uuid, {})[subscription.name] = subscription
        session.consumers[ask.consumer] = subscription
        self._lane.wait(lambda error: self._welcome(subscription, attachment, topic))

    def _welcome(self, subscription: Subscription, attachment: Attachment, topic: Topic) -> None:
        if subscription.attachment is not attachment:
            return  # it left, or was sent away, before the subscription was durable
        positions = [cursor.cursor for cursor in subscription.cursors]
        answer = Subscribed(
            attachment.consumer,
            topic.name,
            topic.uuid,
            len(topic.shards),
            subscription.kind,
            subscription.mode,
            positions,
        )
        self._send(attachment.connection, [encode_control(answer)])
        attachment.welcome = True
        self._due_by(subscription.due_us)
        self.pump(subscription)

    def on_unsubscribe(self, session: Session, ask: Unsubscribe) -> None:
        """Lets a consumer go; the answer says that everything it settled is durable."""
        seen = None if ask.seen is None else seen_by_shard(ask.seen)
        subscription = session.consumers.pop(ask.consumer, None)
        if subscription is not None:
            self._detach(subscription, seen)
        answer = [encode_control(Unsubscribed(ask.consumer))]
        self._lane.wait(lambda error: self._send(session.connection, answer))

    def on_disconnect(self, session: Session) -> None:
        for subscription in session.consumers.values():
            self._detach(subscription)
        session.consumers.clear()

    def _detach(self, subscription: Subscription, seen: dict[int, RangeSet] | None = None) -> None:
        subscription.detach(seen)
        attached = self._attached.get(subscription.topic_uuid, {})
        attached.pop(subscription.name, None)
        if not attached:
            self._attached.pop(subscription.topic_uuid, None)

    def send_away(self, subscription: Subscription) -> Attachment | None:
        """Detaches the consumer of a subscription that is about to be removed; returns who it was."""
        attachment = subscription.attachment
        if attachment is not None:
            self._detach(subscription)
        return attachment

    def expel(self, session: Session, consumer: int) -> None:
        """Detaches a consumer that said something that cannot be."""
        subscription = session.consumers.pop(consumer, None)
        if subscription is not None:
            self._detach(subscription)

    # --- time ---------------------------------------------------------------------------------------

    @property
    def due_us(self) -> int | None:
        """When something that waits is next to be offered or read again."""
        return self._due_us

    def on_time(self) -> None:
        """Offers what has become due."""
        now_us = self._clock_us()
        due = [subscription for time, subscription in self._unread.values() if time <= now_us]
        self._unread = {key: item for key, item in self._unread.items() if item[0] > now_us}
        for subscriptions in self._attached.values():
            due += [
                item for item in subscriptions.values() if (time := item.due_us) is not None and time <= now_us
            ]
        for subscription in due:
            self.pump(subscription)
        times = [time for time, _ in self._unread.values()]
        for subscriptions in self._attached.values():
            times += [time for item in subscriptions.values() if (time := item.due_us) is not None]
        self._due_us = min(times, default=None)

    def _due_by(self, time_us: int | None) -> None:
        if time_us is not None and (self._due_us is None or time_us < self._due_us):
            self._due_us = time_us

    # --- offering -----------------------------------------------------------------------------------

    def on_credit(self, session: Session, credit: Credit) -> None:
        subscription = _consumer(session, credit.consumer)
        if subscription is None or subscription.attachment is None:
            return
        if credit.bytes < 0:
            raise ProtocolError("credit cannot be taken back")
        attachment = subscription.attachment
        attachment.credit_bytes = min(attachment.credit_bytes + credit.bytes, CREDIT_BYTES_MAX)
        self.pump(subscription)

    def pump(self, subscription: Subscription) -> None:
        """Asks for as many reads as the consumer can use now: one a shard at a time."""
        topic = self._catalog.by_uuid(subscription.topic_uuid)
        if topic is None:
            return
        ends = [shard.log.entry_durable for shard in topic.shards]
        while (wanted := subscription.want(ends, self._clock_us())) is not None:
            bytes_max = min(READ_BYTES, subscription.room_bytes)
            subscription.fetching[wanted.shard] = bytes_max
            self._effect(Fetch(subscription, wanted.shard, wanted.entry, bytes_max))

    def on_durable(self, topic: Topic, shard: int, records: list[StoredRecord]) -> None:
        """Records became readable: pushed at once to consumers that have caught up, fetched for the others."""
        if not records:
            return
        run = Run(records, records[-1].header.end_entry, [])
        for subscription in self._attached.get(topic.uuid, {}).values():
            assert subscription.attachment is not None
            cursor = subscription.cursors[shard]
            caught_up = cursor.offered == records[0].header.first_entry and not cursor.ready
            if caught_up and shard not in subscription.fetching and subscription.attachment.open:
                self._deliver(subscription, shard, run)
            self.pump(subscription)

    def fetched(self, fetch: Fetch, run: Run | None) -> None:
        """A read came back (None: it failed, and is tried again after a while)."""
        subscription = fetch.subscription
        if run is None:
            self._counters["reads_failed"] += 1
            again_us = self._clock_us() + READ_AGAIN_US
            self._unread[id(subscription)] = (again_us, subscription)
            self._due_by(again_us)
        subscription.fetching.pop(fetch.shard, None)
        attachment = subscription.attachment
        if run is None or attachment is None or not attachment.open:
            return  # whoever can take it asks for it again
        self._deliver(subscription, fetch.shard, run, fetch.entry)
        self.pump(subscription)

    def _deliver(self, subscription: Subscription, shard: int, run: Run, entry: int | None = None) -> None:
        """Sends what the subscription wants of a run of records, as far as credit goes."""
        attachment = subscription.attachment
        assert attachment is not None
        if run.lost:
            self._lose(subscription, attachment, shard, run.lost)
        records, budget = [], attachment.credit_bytes
        if budget <= 0 and run.records:
            return  # another shard's records used the credit up; these are read again when there is more
        for record in run.records:
            if budget <= 0:
                break
            records.append(record)
            budget -= _size(record)
        start = run.records[0].header.first_entry if run.records else run.next_entry
        if entry is not None:
            start = min(start, entry)
        end = run.next_entry if len(records) == len(run.records) else records[-1].header.end_entry
        for offer in subscription.offer(shard, start, end):
            self._send_offer(attachment, shard, offer, records)

    def _send_offer(
        self, attachment: Attachment, shard: int, offer: Offer, records: list[StoredRecord]
    ) -> None:
        wanted = _holding(records, offer.spans)
        parts = [b""]
        for record in wanted:
            parts.extend(record.parts)
        deliver = Deliver(attachment.consumer, shard, len(wanted), offer.attempt, offer.spans)
        parts[0] = encode_control(deliver)
        attachment.credit_bytes -= sum(map(_size, wanted))
        self._counters["messages_delivered"] += sum(end - start for start, end in offer.spans)
        self._send(attachment.connection, parts)

    def _lose(self, subscription: Subscription, attachment: Attachment, shard: int, lost: list[Span]) -> None:
        """Says which entries will not come, and settles them so that the subscription goes on behind them."""
        spans = [span for span in lost if subscription.lose(shard, *span) > 0]
        if not spans:
            return
        change = Settlement(subscription.topic_uuid, subscription.name, shard, [], [], spans, [])
        self._journal.append(encode_change(change))
        self._lane.mark()
        self._send(attachment.connection, [encode_control(Lost(attachment.consumer, shard, spans, "damaged"))])

    # --- settling -----------------------------------------------------------------------------------

    def on_settle(self, session: Session, ask: Settle) -> None:
        """Applies what became of entries; the answer waits until it is on the disk."""
        subscription = _consumer(session, ask.consumer)
        if subscription is None:
            return
        late = 0
        if ask.acked or ask.skipped or ask.nacked:
            check_settle(self._catalog.by_uuid(subscription.topic_uuid), ask)
            change, late = settle(subscription, ask, self._clock_us())
            self._journal.append(encode_change(change))
            self._counters["settlements"] += 1
            if change.returned:
                self._due_by(subscription.due_us)
        answer = [encode_control(Settled(ask.consumer, ask.number, late))]
        cost = SETTLE_COST_BYTES + 64 * (len(ask.acked) + len(ask.skipped) + len(ask.nacked))
        session.unacked_bytes += cost

        def durable(error: PenstockError | None) -> None:
            session.unacked_bytes -= cost
            self._send(session.connection, answer)

        self._lane.wait(durable)
        self.pump(subscription)


def _consumer(session: Session, number: int) -> Subscription | None:
    """The consumer's subscription; None where it was just sent away and its client does not know yet."""
    return session.consumers.get(number)


def _size(record: StoredRecord) -> int:
    return sum(map(len, record.parts))


def _holding(records: list[StoredRecord], spans: list[Span]) -> list[StoredRecord]:
    """The records that hold at least one entry of the spans; both are in order."""
    found: list[StoredRecord] = []
    at = 0
    for record in records:
        header = record.header
        while at < len(spans) and spans[at][1] <= header.first_entry:
            at += 1
        if at < len(spans) and spans[at][0] < header.end_entry:
            found.append(record)
    return found
