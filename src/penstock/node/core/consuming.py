"""Offers out, settlements in.

Records go out as they are stored, behind a DELIVER frame that says which of their rows are meant. What was
just synced is pushed from memory to a consumer that has caught up; anything else is read by a worker thread.
Nobody polls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

from penstock.model.errors import (
    BadRequest,
    LimitReached,
    NotSupported,
    PenstockError,
    ProtocolError,
    SubscriptionBusy,
    SubscriptionMismatch,
)
from penstock.model.topic import TopicName
from penstock.node.core.effects import Effect, Fetch
from penstock.node.core.log import Run, StoredRecord
from penstock.node.core.session import Session
from penstock.node.core.settlement import Opened, Settlement, encode_change
from penstock.node.core.settling import check_settle, settle
from penstock.node.core.stores import Stores
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
ENTRY_MAX = 2**63
CONSUMERS_MAX = 1024
CREDIT_BYTES_MAX = 1024 * 1024 * 1024

KINDS = ("unique", "shared", "failover", "key_shared")
MODES = ("resilient", "non_resilient")
OFFERED = ("unique", "non_resilient")


class Consuming:
    def __init__(
        self,
        stores: Stores,
        counters: Counter[str],
        *,
        now_us: Callable[[], int],
        effect: Callable[[Effect], None],
        send: Callable[[int, list[bytes]], None],
    ) -> None:
        self._catalog = stores.catalog
        self._subscriptions = stores.subscriptions
        self._journal = stores.settlements
        self._lane = stores.settlement_lane
        self._counters = counters
        self._now_us = now_us
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
        _check(session, ask)
        subscription = self._subscriptions.get(topic.uuid, ask.subscription)
        if subscription is None:
            starts = [self._start(topic, shard, ask.start) for shard in range(len(topic.shards))]
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

    def _start(self, topic: Topic, shard: int, start: str | int) -> int:
        log = topic.shards[shard].log
        if start == "earliest":
            return log.entry_first
        if start == "latest":
            return log.entry_durable
        if isinstance(start, str) and start.isdigit():
            start = int(start)
        if isinstance(start, int):
            if start < 0:
                raise BadRequest(f"start {start} is not an entry: entries count from 0")
            return min(max(start, log.entry_first), log.entry_durable)
        try:
            time = datetime.fromisoformat(start)
        except ValueError:
            raise BadRequest(
                f"start {start!r} is none of earliest, latest, an entry number or a time",
                hint="Write a time as 2026-01-31T12:00:00+00:00.",
            ) from None
        time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
        return log.find_time(round(time.timestamp() * 1e6))

    def on_unsubscribe(self, session: Session, ask: Unsubscribe) -> None:
        """Lets a consumer go; the answer says that everything it settled is durable."""
        if any(not 0 <= start < end <= ENTRY_MAX for _, start, end in ask.seen or []):
            raise ProtocolError("a consumer that leaves names entries that cannot be")
        subscription = session.consumers.pop(ask.consumer, None)
        if subscription is not None:
            self._detach(subscription, ask.seen)
        answer = [encode_control(Unsubscribed(ask.consumer))]
        self._lane.wait(lambda error: self._send(session.connection, answer))

    def on_disconnect(self, session: Session) -> None:
        for subscription in session.consumers.values():
            self._detach(subscription)
        session.consumers.clear()

    def _detach(self, subscription: Subscription, seen: list[tuple[int, int, int]] | None = None) -> None:
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

    # --- time ---------------------------------------------------------------------------------------

    @property
    def due_us(self) -> int | None:
        """When something that waits is next to be offered or read again."""
        return self._due_us

    def on_time(self) -> None:
        """Offers what has become due."""
        now_us = self._now_us()
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
        while (wanted := subscription.want(ends, self._now_us())) is not None:
            assert subscription.attachment is not None
            subscription.fetching.add(wanted.shard)
            bytes_max = min(READ_BYTES, subscription.attachment.credit_bytes)
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
            again_us = self._now_us() + READ_AGAIN_US
            self._unread[id(subscription)] = (again_us, subscription)
            self._due_by(again_us)
        subscription.fetching.discard(fetch.shard)
        if run is None or subscription.attachment is None:
            return
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
            change, late = settle(subscription, ask, self._now_us())
            self._journal.append(encode_change(change))
            self._counters["settlements"] += 1
            if change.returned:
                self._due_by(subscription.due_us)
        answer = [encode_control(Settled(ask.consumer, ask.number, late))]
        self._lane.wait(lambda error: self._send(session.connection, answer))
        self.pump(subscription)


def _check(session: Session, ask: Subscribe) -> None:
    """Refuses what cannot be a consumer before anything is made for it."""
    if ask.kind not in KINDS:
        raise BadRequest(f"kind {ask.kind!r} is none of {', '.join(KINDS)}")
    if ask.mode not in MODES:
        raise BadRequest(f"mode {ask.mode!r} is none of {', '.join(MODES)}")
    if (ask.kind, ask.mode) != OFFERED:
        raise NotSupported(
            f"a {ask.kind}, {ask.mode} subscription is not offered by this version",
            hint="Use kind='unique' and mode='non_resilient'.",
        )
    check_name(ask.subscription, "subscription")
    if len(ask.name) > 256:
        raise BadRequest("a consumer's name is at most 256 characters long")
    if ask.consumer in session.consumers:
        raise ProtocolError(f"consumer {ask.consumer} is open already on this connection")
    if len(session.consumers) >= CONSUMERS_MAX:
        raise LimitReached(f"a connection holds at most {CONSUMERS_MAX} consumers")
    if ask.credit_bytes <= 0:
        raise BadRequest("a consumer needs credit for at least one byte")


def check_name(name: str, what: str) -> None:
    """Subscription names follow the rule of a topic name's part."""
    try:
        if "/" in name:
            raise ValueError
        TopicName.parse(name)
    except (PenstockError, ValueError):
        raise BadRequest(
            f"{what} name {name[:80]!r} is not allowed",
            hint="Use 1-128 of letters, digits, '.', '_' or '-', starting with a letter or digit.",
        ) from None


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
