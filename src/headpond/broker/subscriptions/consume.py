"""The shell of subscriptions: settlements in, deliveries out, consumers that come and go.

It turns what subscriptions decide into frames and journal records. Records go out as they are stored, behind a
DELIVER frame that names the rows that are meant. A consumer that has caught up gets new records from memory as
soon as they are durable; everything else is read by a worker thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from heapq import heappop, heappush

from headpond.broker.access.guard import Guard
from headpond.broker.access.quotas import Quotas
from headpond.broker.catalog.topic_requests import TopicListener, TopicRequests
from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.effects import Fetch, PackedFetch
from headpond.broker.session import Session, SessionConsumer
from headpond.broker.sessions import Sessions
from headpond.broker.steps import Steps, on_disk, run
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.attachment import CREDIT_BYTES_MAX, Attachment, Confirmation
from headpond.broker.subscriptions.cursor import ShardCursor
from headpond.broker.subscriptions.dead_letters import DeadLetters, Full
from headpond.broker.subscriptions.journal import records_of, unjournaled_copies
from headpond.broker.subscriptions.records import DAMAGED, EXPIRED, RETENTION, LastAttached, Missed, Reach
from headpond.broker.subscriptions.stopwatch import Stopwatch
from headpond.broker.subscriptions.subscribe import (
    SubscriptionOpener,
    attach,
    by_shard,
    check_known,
    check_settle,
    check_subscribe,
    subscribed,
)
from headpond.broker.subscriptions.subscription import Offer, ReadRequest, Subscription
from headpond.model.bounds import Span
from headpond.model.errors import HeadpondError, LeaseLost, NodeStopping, ProtocolError
from headpond.storage.journal import encode_change
from headpond.storage.log.read import ReadResult, StoredRecord
from headpond.wire.control.codec import Misfit, encode_control, encode_refusal
from headpond.wire.control.consuming import (
    Credit,
    Deliver,
    Extend,
    GiveBack,
    Lost,
    Renew,
    Settle,
    Settled,
    Subscribe,
    Unsubscribe,
    Unsubscribed,
)
from headpond.wire.expiry import expired_spans, expiries_us, may_expire
from headpond.wire.frame import HEADER_BYTES, TRAILER
from headpond.wire.record import RECORD_HEADER_BYTES

READ_BYTES = 512 * 1024
"""How much one read of a log brings at most, unless a single record is larger."""
AHEAD_BYTES = 256 * 1024 * 1024
"""How much may be read from many shards at once for the consumers of all connections together.

All of it may have to wait for connections that do not read. Beyond its share a consumer has one read at a time.
"""
READ_AGAIN_US = 1_000_000
SETTLED = "settled"
"""Why entries do not come: another consumer settled them."""
LOST_SPANS_MAX = 4096
"""In one record of a loss, and in one LOST frame."""
SETTLE_COST_BYTES = 512
"""What a settlement costs in memory until it is durable, beside its spans."""
_LEAD_BYTES = HEADER_BYTES + RECORD_HEADER_BYTES
_HEAD_BYTES = 16


class Schedule:
    """Subscriptions by the time at which something of them is due.

    The heap may have outdated times of a subscription; its ``scheduled_us`` is the one that counts.
    """

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Subscription]] = []
        self._numbers = 0

    def set(self, subscription: Subscription, due_us: int | None) -> None:
        """Its time comes no later than this; None where nothing of it waits for a time."""
        if due_us is None:
            subscription.scheduled_us = None
        elif subscription.scheduled_us is None or due_us < subscription.scheduled_us:
            subscription.scheduled_us = due_us
            self._numbers += 1
            heappush(self._due, (due_us, self._numbers, subscription))

    @property
    def due_us(self) -> int | None:
        while self._due and self._due[0][2].scheduled_us != self._due[0][0]:
            heappop(self._due)
        return self._due[0][0] if self._due else None

    def take(self, now_us: int) -> Subscription | None:
        """The next one whose time has come."""
        if (due_us := self.due_us) is None or due_us > now_us:
            return None
        subscription = heappop(self._due)[2]
        subscription.scheduled_us = None
        return subscription


class Dispatcher(TopicListener):
    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        stores: Stores,
        guard: Guard,
        quotas: Quotas,
        topics: TopicRequests,
        *,
        full: Full,
    ) -> None:
        self._context = context
        self._sessions = sessions
        self._send = sessions.send
        self._stores = stores
        self._catalog = stores.catalog
        self._journal = stores.settlements.journal
        self._lane = stores.settlements.lane
        self._guard = guard
        self._topics = topics
        self._counters = context.counters
        self._dead_letters = DeadLetters(context, stores, topics, done=self._buried, full=full)
        self.opener = SubscriptionOpener(context, stores, quotas)
        self._awake: dict[bytes, dict[Subscription, None]] = {}
        """By topic: those that can be sent something; all others cost a published message nothing."""
        self._stopwatch = Stopwatch(context.timings, context.now_us)
        self._schedule = Schedule()
        self._alarm = context.alarms.add(self._on_time)

    # --- attaching ----------------------------------------------------------------------------------

    def on_subscribe(self, session: Session, ask: Subscribe) -> None:
        """Attaches a consumer, once its topic and the start of its subscription are found."""
        if ask.consumer in session.subscribing:
            error = ProtocolError(f"consumer {ask.consumer} is being opened already on this connection")
            self._refuse(session, ask.consumer, error)
            return
        session.subscribing[ask.consumer] = ask
        run(
            self._subscribe(session, ask),
            lambda done: None,
            partial(self._refuse_subscribe, session, ask),
        )

    def _refuse_subscribe(self, session: Session, ask: Subscribe, error: HeadpondError) -> None:
        if session.subscribing.get(ask.consumer) is ask:
            del session.subscribing[ask.consumer]
            self._refuse(session, ask.consumer, error)

    def _refuse(self, session: Session, consumer: int, error: HeadpondError) -> None:
        self._counters[f"consumers_refused_{error.code}"] += 1
        self._send(session.connection, [encode_refusal(error, consumer=consumer)])

    def _subscribe(self, session: Session, ask: Subscribe) -> Steps[None]:
        if self._context.stopping:
            raise NodeStopping("the node is shutting down")
        self._guard.check(session, ask)
        topic = yield from self._topics.open(session, ask.topic, create=ask.create_topic)
        if session.subscribing.get(ask.consumer) is not ask:
            return
        check_subscribe(session, ask, topic)
        yield from check_known(self._context, topic, ask.known)
        start = yield from self.opener.find_start(topic, ask.subscription, ask.start)
        subscription = self.opener.find_or_create(session, topic, ask, start, self._context.now_us())
        if session.subscribing.get(ask.consumer) is not ask:
            self._lane.mark()  # the client left; when it comes back, its subscription is there
            return
        check_subscribe(session, ask, topic)
        attachment = attach(session, ask, subscription)
        try:
            seen, refused = by_shard(ask.seen, topic), by_shard(ask.refused, topic)
            subscription.admit(attachment, self._context.clock_us(), seen, refused)
        finally:
            self._lane.mark()  # the subscription itself may be new
        del session.subscribing[ask.consumer]
        session.consumers[ask.consumer] = SessionConsumer(topic, subscription, attachment)
        self.apply(subscription)
        self._extend_reach(subscription)
        yield on_disk(self._lane)
        if attachment not in subscription.attachments or not attachment.connected:
            return  # it left, or was detached, before the subscription was durable
        subscription.welcome(attachment)
        self._send_subscribed(subscription, attachment)
        self._wake(subscription)

    def _send_subscribed(
        self, subscription: Subscription, attachment: Attachment, *, recall: bool = False
    ) -> None:
        topic = self._catalog.by_uuid(subscription.topic_uuid)
        if topic is not None and attachment.welcome and attachment.connected:
            answer = subscribed(subscription, attachment, topic, recall=recall)
            self._send(attachment.connection, [encode_control(answer)])

    def announce(self, subscription: Subscription) -> None:
        """Sends its consumers what changed: paused, resumed, another schema."""
        for attachment in subscription.attachments:
            self._send_subscribed(subscription, attachment)

    def topic_deleted(self, topic: Topic, error: HeadpondError) -> None:
        dropped = self._stores.subscriptions.drop_topic(topic.uuid)
        for subscription in dropped:
            self.send_away(subscription, error)
        if dropped:
            self._stores.settlements.compact()  # without the records of the deleted topic

    def topic_altered(self, topic: Topic) -> None:
        for subscription in self._stores.subscriptions.of_topic(topic.uuid):
            self.announce(subscription)

    def on_renew(self, session: Session, ask: Renew) -> None:
        if (consumer := session.consumers.get(ask.consumer)) is not None:
            _, subscription, attachment = consumer
            subscription.renew(attachment, ask.number, self._context.clock_us())
            self._send_subscribed(subscription, attachment)

    # --- detaching ----------------------------------------------------------------------------------

    def on_unsubscribe(self, session: Session, ask: Unsubscribe) -> None:
        """Detaches a consumer; the answer says that everything it settled is durable."""
        self._detach(session, ask.consumer, ask.seen)
        answer = [encode_control(Unsubscribed(ask.consumer))]
        self._lane.wait(lambda error: self._send(session.connection, answer))

    def on_disconnect(self, session: Session) -> None:
        consumers = list(session.consumers.values())
        session.consumers.clear()
        session.subscribing.clear()
        for _, subscription, attachment in consumers:
            subscription.disconnect(attachment)
            self._continue(subscription)

    def on_misfit(self, session: Session, misfit: Misfit) -> None:
        """A message about a consumer has an invalid field."""
        if misfit.kind is Settle:
            self._expel(session, misfit.number, misfit.error)
        else:
            self._refuse(session, misfit.number, misfit.error)

    def _expel(self, session: Session, consumer: int, error: HeadpondError) -> None:
        """Detaches a consumer whose settlement is invalid: it must not continue as if that had taken effect."""
        self._detach(session, consumer, None)
        self._refuse(session, consumer, error)

    def _detach(self, session: Session, number: int, delivered: Sequence[tuple[int, int, int]] | None) -> None:
        session.subscribing.pop(number, None)
        if (consumer := session.consumers.pop(number, None)) is not None:
            topic, subscription, attachment = consumer
            subscription.leave(attachment, by_shard(delivered, topic))
            self._continue(subscription)

    def _continue(self, subscription: Subscription) -> None:
        """After a step that may have moved entries and their times."""
        self.apply(subscription)
        self._set_time(subscription)
        self.pump(subscription)

    def send_away(self, subscription: Subscription, error: HeadpondError) -> None:
        """Detaches all consumers, and sends them why."""
        for attachment in list(subscription.attachments):
            subscription.leave(attachment)
            self._dismiss(attachment, error)
            self._note_deserted(subscription)
        subscription.consequences = None  # the caller removes it, or sets its positions

    def _dismiss(self, attachment: Attachment, error: HeadpondError) -> None:
        session = self._sessions.get(attachment.connection)
        consumer = session.consumers.get(attachment.consumer) if session is not None else None
        if session is not None and consumer is not None and consumer.attachment is attachment:
            del session.consumers[attachment.consumer]
            self._send(attachment.connection, [encode_refusal(error, consumer=attachment.consumer)])

    def _note_deserted(self, subscription: Subscription) -> None:
        """If the last consumer is gone, the journal gets the time."""
        if not subscription.attachments:
            if self._stores.subscriptions.get(subscription.topic_uuid, subscription.name) is subscription:
                names = (subscription.topic_uuid, subscription.name)
                self._stores.settlements.note(LastAttached(*names, self._context.now_us()))
                self._stores.settlements.stage(*unjournaled_copies(subscription))
            awake = self._awake.get(subscription.topic_uuid, {})
            awake.pop(subscription, None)
            if not awake:
                self._awake.pop(subscription.topic_uuid, None)

    def apply(self, subscription: Subscription) -> None:
        """Writes the consequences of the machine's last steps to the journal, and sends them to consumers."""
        if (consequences := subscription.consequences) is None:
            return
        self._stores.settlements.stage(*records_of(subscription))
        subscription.consequences = None
        for attachment in consequences.detached:
            text = f"the lease on subscription {subscription.name!r} went to another consumer"
            self._dismiss(attachment, LeaseLost(text))
        for attachment in consequences.roles:
            self._send_subscribed(subscription, attachment)
        for attachment in consequences.recalled:
            self._send_subscribed(subscription, attachment, recall=True)
        for attachment, shard, start, end in consequences.overtaken:
            if attachment.welcome and attachment.connected:
                lost = Lost(attachment.consumer, shard, [(start, end)], SETTLED)
                self._send(attachment.connection, [encode_control(lost)])
        if consequences.deserted:
            self._note_deserted(subscription)

    # --- time ---------------------------------------------------------------------------------------

    def _set_time(self, subscription: Subscription) -> None:
        due_us = subscription.due_us
        self._schedule.set(subscription, due_us)
        self._alarm.by(due_us)

    def _on_time(self) -> None:
        now_us = self._context.clock_us()
        while (subscription := self._schedule.take(now_us)) is not None:
            self._wake(subscription)
        self._alarm.by(self._schedule.due_us)

    def _wake(self, subscription: Subscription) -> None:
        """Offers what has become due."""
        topic = self._catalog.by_uuid(subscription.topic_uuid)
        if topic is not None:
            ends = [shard.log.entry_durable for shard in topic.shards]
            subscription.on_time(self._context.clock_us(), ends)
        self._continue(subscription)

    # --- delivering ---------------------------------------------------------------------------------

    def on_credit(self, session: Session, credit: Credit) -> None:
        if (consumer := session.consumers.get(credit.consumer)) is not None:
            _, subscription, attachment = consumer
            attachment.credit_bytes = min(attachment.credit_bytes + credit.bytes, CREDIT_BYTES_MAX)
            attachment.resumed = True
            self._gained_room(subscription, attachment)

    def set_writable(self, session: Session, writable: bool) -> None:
        """The connection's buffer has room for more, or is full."""
        for _, subscription, attachment in list(session.consumers.values()):
            attachment.writable = writable
            if writable:
                self._gained_room(subscription, attachment)

    def _gained_room(self, subscription: Subscription, attachment: Attachment) -> None:
        if attachment.reachable:  # the entry that the order waits for needs no credit
            subscription.gained_room(attachment)
            self.pump(subscription)

    def pump(self, subscription: Subscription) -> None:
        """Sends what needs no read, and begins as many reads as the consumers can use now."""
        topic = self._catalog.by_uuid(subscription.topic_uuid)
        if topic is None:
            return
        ends = [shard.log.entry_durable for shard in topic.shards]
        reach = [min(end, cursor.reach) for end, cursor in zip(ends, subscription.cursors, strict=True)]
        if subscription.has_returned:
            if subscription.dying:
                self._dead_letters.bury(subscription, topic)
            subscription.release_refused(ends)
        if subscription.settling_frees:
            self._send_offers(subscription, topic, subscription.offer_cached(reach))
        receivers = subscription.receivers()
        if not receivers:
            self._awake.get(subscription.topic_uuid, {}).pop(subscription, None)
            return
        self._awake.setdefault(subscription.topic_uuid, {})[subscription] = None
        self._extend_reach(subscription)
        reading = subscription.fetching
        while not subscription.read_again_us:
            if reading:
                share = AHEAD_BYTES // max(1, len(self._sessions))
                if sum(reading.values()) >= share * len(receivers):
                    return
            if (request := subscription.next_read(receivers, reach, READ_BYTES)) is None:
                return
            reading[request.shard] = request.bytes_max
            then = partial(self._fetched, subscription, request)
            kind = PackedFetch if subscription.reads_packed else Fetch
            self._context.effects.append(kind(subscription.topic_uuid, *request, then))

    def _extend_reach(self, subscription: Subscription) -> None:
        """Before offers get there, the journal lets deliveries go further: after a crash it flags what may have
        been delivered."""
        asked: list[tuple[ShardCursor, int]] = []
        for shard, cursor in enumerate(subscription.cursors):
            if (end := cursor.extend_reach(self._context.clock_us())) is not None:
                self._stores.settlements.stage(Reach(subscription.topic_uuid, subscription.name, shard, end))
                asked.append((cursor, cursor.reach_number))
        if asked:
            self._lane.wait(partial(self._reached, subscription, asked))

    def _reached(
        self, subscription: Subscription, asked: list[tuple[ShardCursor, int]], error: HeadpondError | None
    ) -> None:
        for cursor, number in asked:
            if cursor.reach_number == number:  # there was no seek since
                cursor.reach = cursor.reach_staged
        self.pump(subscription)

    def on_durable(self, topic: Topic, shard: int, records: list[StoredRecord]) -> None:
        """Records became readable: consumers that have caught up get them at once, others by a read."""
        first, end = records[0].header.first_entry, records[-1].header.end_entry
        for subscription in list(self._awake.get(topic.uuid, ())):
            cursor = subscription.cursors[shard]
            if cursor.offered == first and not cursor.ready.bits and shard not in subscription.fetching:
                self._deliver(subscription, topic, shard, ReadResult(records, end, []), None)
            if cursor.offered < end or cursor.has_returned:
                self.pump(subscription)

    def _fetched(self, subscription: Subscription, request: ReadRequest, run: ReadResult | None) -> None:
        """A read ended (None: it failed, and is repeated after a while)."""
        subscription.fetching.pop(request.shard, None)
        if run is None:
            self._counters["reads_failed"] += 1
            subscription.read_again_us = self._context.clock_us() + READ_AGAIN_US
            self._set_time(subscription)
        elif subscription.attachments:  # the next consumer asks for it again
            topic = self._catalog.by_uuid(subscription.topic_uuid)
            if topic is not None:
                self._deliver(subscription, topic, request.shard, run, request.entry)
        self.pump(subscription)

    def _deliver(
        self, subscription: Subscription, topic: Topic, shard: int, run: ReadResult, entry: int | None
    ) -> None:
        """Sends what the subscription wants of records; what lacks credit is read again when there is room."""
        self._settle_missing(subscription, topic, shard, run)
        self._send_offers(subscription, topic, subscription.offer(shard, run, entry))

    def _send_offers(self, subscription: Subscription, topic: Topic, offers: list[Offer]) -> None:
        if not offers:
            return
        now_us = self._context.clock_us()
        for offer in offers:
            receiver, shard, attempt, spans, records = offer
            parts = [encode_control(Deliver(receiver.consumer, shard, len(records), attempt, spans))]
            for record in records:
                parts += record.parts
            self._counters["messages_delivered"] += subscription.sent(offer, now_us)
            self._send(receiver.connection, parts)
        self._stopwatch.sent(topic, offers)
        if subscription.policy.deadline is not None:
            self._set_time(subscription)

    def _notify_lost(self, subscription: Subscription, shard: int, spans: list[Span], reason: str) -> None:
        for attachment in subscription.attachments:
            if attachment.welcome and attachment.connected:
                lost = encode_control(Lost(attachment.consumer, shard, spans, reason))
                self._send(attachment.connection, [lost])

    def _buried(self, subscription: Subscription, shard: int, spans: list[Span]) -> None:
        """Entries are dead: no consumer waits for them."""
        self._notify_lost(subscription, shard, spans, "dead")
        self._set_time(subscription)
        self.pump(subscription)

    # --- losses -------------------------------------------------------------------------------------
    #
    # Each loss becomes a ``Missed`` record of the journal, so the node shows it after a restart too, and a LOST
    # frame for the consumers. Entries that a consumer holds are not lost: they were delivered.

    def _settle_missing(self, subscription: Subscription, topic: Topic, shard: int, run: ReadResult) -> None:
        """Settles what a read found lost or expired, before the rest of it is offered."""
        for start, end in run.lost:
            first = topic.shards[shard].log.entry_first
            self.lose(subscription, shard, start, min(end, first), RETENTION)
            self.lose(subscription, shard, max(start, first), end, DAMAGED)
        for record in run.records:
            for start, end in self._expired(topic, record):
                self.lose(subscription, shard, start, end, EXPIRED)
            if topic.settings.state:
                # Rows that compaction removed on another node, before they came here.
                gone = topic.shards[shard].log.taken_out_of(record)
                passed = self._stores.subscriptions.pass_compacted(subscription, shard, gone)
                self._stores.settlements.stage(*passed)

    def lose(self, subscription: Subscription, shard: int, start: int, end: int, reason: str) -> int:
        """Settles entries that will not be delivered; returns how many of them were unread."""
        if start >= end:
            return 0
        spans = subscription.cursors[shard].unread(start, end)
        if not spans:
            return 0
        count = sum(stop - begin for begin, stop in spans)
        self._counters["messages_expired" if reason == EXPIRED else f"messages_lost_{reason}"] += count
        topic, name, now_us = subscription.topic_uuid, subscription.name, self._context.now_us()
        for at in range(0, len(spans), LOST_SPANS_MAX):
            part = spans[at : at + LOST_SPANS_MAX]
            self._stores.settlements.note(Missed(topic, name, shard, part, reason, now_us))
            if reason != EXPIRED or subscription.strict:
                self._notify_lost(subscription, shard, part, reason)
        return count

    def _expired(self, topic: Topic, record: StoredRecord) -> list[Span]:
        schemas = topic.schemas
        whole = len(record.parts) == 1
        lead = _LEAD_BYTES if whole else 0
        body = record.parts[0 if whole else 1]
        # The first bytes say whether there are headers. Most records have none, and are not copied.
        if schemas is None and not body[lead + 1] & 8:
            return []
        if schemas is not None and not may_expire(body[lead : lead + _HEAD_BYTES], schemas):
            return []
        segment = body[lead : -TRAILER.size] if whole else body
        header = record.header
        expiries = expiries_us(segment, schemas, header.stored_at_us)
        return [] if expiries is None else expired_spans(expiries, header.first_entry, self._context.now_us())

    # --- settling -----------------------------------------------------------------------------------

    def on_settle(self, session: Session, ask: Settle) -> None:
        """Applies a settlement; the answer waits until it is on the disk."""
        consumer = session.consumers.get(ask.consumer)
        if consumer is None:
            return  # the node detached it, and its client does not know yet
        topic, subscription, attachment = consumer
        late, frees = 0, attachment.overdue and self._heard(subscription, attachment)
        if ask.acked or ask.skipped or ask.nacked or ask.upto is not None:
            try:
                end = check_settle(topic, subscription, ask)
            except HeadpondError as error:
                self._expel(session, ask.consumer, error)
                return
            times = (0, 0)
            frees = frees or subscription.settling_frees or subscription.cursors[ask.shard].has_returned
            if ask.nacked:
                frees, times = True, (self._context.clock_us(), self._context.now_us())
            settlement, late = subscription.settle(ask, attachment, end, *times)
            self._journal.append(encode_change(settlement))
            self._counters["settlements"] += 1
            if attachment.timed is not None:
                self._stopwatch.settled(attachment, attachment.timed, ask)
        cost = SETTLE_COST_BYTES + 64 * (len(ask.acked) + len(ask.skipped) + len(ask.nacked))
        if ask.reasons:
            cost += sum(len(reason) for _, reason in ask.reasons)
        self._confirm(session, attachment, ask.number, late, cost)
        if subscription.consequences is not None:
            self.apply(subscription)
        if ask.nacked:
            self._set_time(subscription)
        if frees:
            self.pump(subscription)

    def _heard(self, subscription: Subscription, attachment: Attachment) -> bool:
        """A consumer that let a deadline pass is alive."""
        attachment.overdue = False
        subscription.gained_room(attachment)
        return True

    def _confirm(
        self, session: Session, attachment: Attachment, number: int, late: int, cost_bytes: int
    ) -> None:
        """Confirms a settlement when it is durable; until then it counts as the session's memory.

        SETTLED confirms every number up to its own. While one write is under way a busy consumer settles many
        times; all of that is in the next write, and one frame confirms it.
        """
        session.unacked_bytes += cost_bytes
        lane, confirmation = self._lane, attachment.confirmation
        staged = lane.appender.staged.bytes > 0
        if staged and confirmation is not None and confirmation.writes_before == lane.writes:
            confirmation.number = max(confirmation.number, number)
            confirmation.late += late
            confirmation.cost_bytes += cost_bytes
            return
        confirmation = Confirmation(lane.writes, number, late, cost_bytes)
        attachment.confirmation = confirmation if staged else None  # else its write has begun or is done
        lane.wait(partial(self._send_settled, session, attachment.consumer, confirmation))

    def _send_settled(
        self, session: Session, consumer: int, confirmation: Confirmation, error: HeadpondError | None
    ) -> None:
        session.unacked_bytes -= confirmation.cost_bytes
        settled = Settled(consumer, confirmation.number, confirmation.late)
        self._send(session.connection, [encode_control(settled)])

    def on_extend(self, session: Session, ask: Extend) -> None:
        if (consumer := session.consumers.get(ask.consumer)) is not None:
            _, subscription, attachment = consumer
            if attachment.overdue:
                self._heard(subscription, attachment)
            subscription.extend(attachment, ask.shard, ask.spans, ask.seconds, self._context.clock_us())
            self._set_time(subscription)

    def on_give_back(self, session: Session, ask: GiveBack) -> None:
        if (consumer := session.consumers.get(ask.consumer)) is not None:
            _, subscription, attachment = consumer
            subscription.take_back(attachment, ask.shard, ask.spans, done=ask.done)
            self.pump(subscription)
