"""Offers out, settlements in: what subscriptions decide becomes frames and journal records.

Records go out as they are stored, behind a DELIVER frame that says which of their rows are meant. What was
just synced is pushed from memory to a consumer that has caught up; anything else is read by a worker thread.
Nobody polls.
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
from headpond.broker.effects import Fetch
from headpond.broker.session import Session
from headpond.broker.sessions import Sessions
from headpond.broker.steps import Steps, Wait, on_disk, run
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.attachment import CREDIT_BYTES_MAX, Attachment
from headpond.broker.subscriptions.dead_letters import Burying, Full
from headpond.broker.subscriptions.dispatch import Offer, Wanted
from headpond.broker.subscriptions.journal import records_of
from headpond.broker.subscriptions.losses import Losing
from headpond.broker.subscriptions.records import encode_change
from headpond.broker.subscriptions.settle import Confirming, check_settle, settle
from headpond.broker.subscriptions.subscribe import (
    StateStarts,
    another_incarnation,
    attach,
    check_subscribe,
    find_or_open,
    is_gone,
    is_known,
    is_there,
    seen_by_shard,
    subscribed,
)
from headpond.broker.subscriptions.subscription import Change, Subscription
from headpond.model.bounds import Span
from headpond.model.errors import HeadpondError, LeaseLost, NodeStopping, ProtocolError, StorageFailed
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
    Subscribe,
    Unsubscribe,
    Unsubscribed,
)


class Schedule:
    """A subscription knows the time that counts (``scheduled_us``); what the heap has of it besides is void."""

    def __init__(self) -> None:
        self._due: list[tuple[int, int, Subscription]] = []
        self._numbers = 0

    def set(self, subscription: Subscription, due_us: int | None) -> None:
        """It is looked at no later than this; None where nothing of it waits for a time."""
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
        """The next whose time has come."""
        if (due_us := self.due_us) is None or due_us > now_us:
            return None
        subscription = heappop(self._due)[2]
        subscription.scheduled_us = None
        return subscription


READ_BYTES = 512 * 1024
"""How much one read of a log brings at the most, unless a single record is larger."""
AHEAD_BYTES = 256 * 1024 * 1024
"""What may be read from many shards at once for consumers of all connections together.

All of it may have to wait for connections that do not read. Past its part each consumer has one read at a time.
"""
READ_AGAIN_US = 1_000_000
SETTLED = "settled"
"""Why entries do not come that another consumer settled."""
SETTLE_COST_BYTES = 512
"""What a settlement costs in memory until it is durable, beside its spans."""


class Consuming(TopicListener):
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
        self._journal = stores.settlements
        self._lane = stores.settlement_lane
        self._guard = guard
        self._quotas = quotas
        self._topics = topics
        self._confirming = Confirming(self._lane, sessions.send)
        self._counters = context.counters
        self._now_us = context.now_us
        self._clock_us = context.clock_us
        self._effect = context.add_effect
        self._burying = Burying(context, stores, topics, done=self._buried, full=full)
        self.state_starts = StateStarts(stores)
        self.losing = Losing(stores, context.counters, now_us=context.now_us, tell=self._tell_lost)
        self._attached: dict[bytes, dict[str, Subscription]] = {}
        """By topic: the subscriptions with a consumer."""
        self._awake: dict[bytes, dict[Subscription, None]] = {}
        """By topic: those that can take something, so that all others cost a published message nothing."""
        self._unread: dict[Subscription, int] = {}
        """Subscriptions whose read failed, and when to try again."""
        self._calendar = Schedule()
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
        if (crowded := self._quotas.enter(session, topic)) is not None:
            raise crowded
        check_subscribe(session, ask, topic)
        yield from self._check_known(topic, ask)
        state = yield from self.state_starts.find(topic, ask.subscription, ask.start)
        asked = (ask.subscription, ask.kind, ask.mode, ask.start, ask.policy)
        may_make = partial(self.check_quota, session)
        subscription = find_or_open(self._stores, topic, *asked, self._now_us(), state, may_make=may_make)
        if session.subscribing.get(ask.consumer) is not ask:
            self._lane.mark()  # the client left; when it comes back, its subscription is there
            return
        check_subscribe(session, ask, topic)
        attachment = self._attach(session, ask, topic, subscription)
        yield on_disk(self._lane)
        self._welcome(subscription, attachment)

    def check_quota(self, session: Session | None, topic: Topic) -> None:
        """Raises why the topic's tenant cannot have another subscription."""
        topics = self._catalog.of_tenant(topic.tenant)
        have = sum(self._stores.subscriptions.count_of(each.uuid) for each in topics)
        self._quotas.create(session, topic.tenant, "subscriptions", have)

    def _check_known(self, topic: Topic, ask: Subscribe) -> Steps[None]:
        """Raises unless the logs still have what the consumer knows of them, one shard after the other.

        A log only grows, so everything before a record that stands where it did is the same as before. The
        record's time is compared too: an old copy may get the same record at the same place once more.
        """
        for known in ask.known:
            if is_gone(topic, known):
                continue
            if not is_there(topic, known):
                raise another_incarnation(topic, known)
            wait: Wait[ReadResult | None] = Wait()
            self._effect(Fetch(topic.uuid, known.shard, known.first_entry, 1, wait.done))
            found = yield wait
            if found is None:
                raise StorageFailed(f"the node could not read entry {known.first_entry} of {topic.shown}")
            if not all(is_known(record, known) for record in found.records[:1]):
                raise another_incarnation(topic, known)

    def _attach(self, session: Session, ask: Subscribe, topic: Topic, subscription: Subscription) -> Attachment:
        subscription.schemas = lambda: topic.schemas
        attachment = attach(session, ask, subscription)
        try:
            change = subscription.admit(attachment, self._clock_us(), seen_by_shard(ask.seen, topic))
        finally:
            self._lane.mark()  # the subscription itself may be new, whoever is let in
        self._attached.setdefault(topic.uuid, {})[subscription.name] = subscription
        del session.subscribing[ask.consumer]
        session.consumers[ask.consumer] = attachment
        self.apply(subscription, change)
        return attachment

    def _welcome(self, subscription: Subscription, attachment: Attachment) -> None:
        if attachment not in subscription.attachments or not attachment.connected:
            return  # it left, or was sent away, before the subscription was durable
        change = subscription.welcome(attachment)
        self._tell_standing(subscription, attachment)
        self.apply(subscription, change)
        self._wake(subscription)
        self.pump(subscription)

    def _tell_standing(
        self, subscription: Subscription, attachment: Attachment, *, recall: bool = False
    ) -> None:
        topic = self._catalog.by_uuid(subscription.topic_uuid)
        if topic is not None and attachment.welcome and attachment.connected:
            answer = subscribed(subscription, attachment, topic, recall=recall)
            self._send(attachment.connection, [encode_control(answer)])

    def announce(self, subscription: Subscription) -> None:
        """Something of it changed that its consumers are to know: paused, resumed, another schema."""
        for attachment in subscription.attachments:
            self._tell_standing(subscription, attachment)

    def topic_deleted(self, topic: Topic, error: HeadpondError) -> None:
        dropped = self._stores.subscriptions.drop_topic(topic.uuid)
        for subscription in dropped:
            self.send_away(subscription, error)
        if dropped:
            self._stores.forget_settlements()

    def topic_altered(self, topic: Topic) -> None:
        for subscription in self._attached.get(topic.uuid, {}).values():
            self.announce(subscription)

    def on_renew(self, session: Session, ask: Renew) -> None:
        attachment = session.consumers.get(ask.consumer)
        if attachment is not None and (subscription := attachment.subscription) is not None:
            subscription.renew(attachment, ask.number, self._clock_us())
            self._tell_standing(subscription, attachment)

    def on_unsubscribe(self, session: Session, ask: Unsubscribe) -> None:
        """Lets a consumer go; the answer says that everything it settled is durable."""
        self._detach(session, ask.consumer, ask.seen)
        answer = [encode_control(Unsubscribed(ask.consumer))]
        self._lane.wait(lambda error: self._send(session.connection, answer))

    def on_disconnect(self, session: Session) -> None:
        attachments = list(session.consumers.values())
        session.consumers.clear()
        session.subscribing.clear()
        for attachment in attachments:
            if (subscription := attachment.subscription) is not None:
                self.apply(subscription, subscription.lose(attachment))
                self._after_detaching(subscription)

    def on_misfit(self, session: Session, misfit: Misfit) -> None:
        """A message about a consumer has an invalid field."""
        if misfit.kind is Settle:
            self._expel(session, misfit.number, misfit.error)
        else:
            self._refuse(session, misfit.number, misfit.error)

    def _expel(self, session: Session, consumer: int, error: HeadpondError) -> None:
        """Detaches a consumer whose settlement is invalid: it must not go on as if that had taken effect."""
        self._detach(session, consumer, None)
        self._refuse(session, consumer, error)

    def _detach(self, session: Session, consumer: int, seen: Sequence[tuple[int, int, int]] | None) -> None:
        session.subscribing.pop(consumer, None)
        attachment = session.consumers.pop(consumer, None)
        if attachment is not None and (subscription := attachment.subscription) is not None:
            topic = self._catalog.by_uuid(subscription.topic_uuid)
            handed = None if topic is None else seen_by_shard(seen, topic)
            self.apply(subscription, subscription.leave(attachment, handed))
            self._after_detaching(subscription)

    def _after_detaching(self, subscription: Subscription) -> None:
        self._forget_if_alone(subscription)
        self._schedule(subscription)
        self.pump(subscription)

    def _forget_if_alone(self, subscription: Subscription) -> None:
        if not subscription.attachments:
            attached = self._attached.get(subscription.topic_uuid, {})
            if attached.pop(subscription.name, None) is not None:
                self._stores.note_seen(subscription)
            self._awake.get(subscription.topic_uuid, {}).pop(subscription, None)
            if not attached:
                self._attached.pop(subscription.topic_uuid, None)
                self._awake.pop(subscription.topic_uuid, None)

    def send_away(self, subscription: Subscription, error: HeadpondError) -> None:
        """Detaches everyone, and says why."""
        for attachment in list(subscription.attachments):
            subscription.leave(attachment)
            self._dismiss(attachment, error)
        self._forget_if_alone(subscription)

    def _dismiss(self, attachment: Attachment, error: HeadpondError) -> None:
        session = self._sessions.get(attachment.connection)
        if session is not None and session.consumers.get(attachment.consumer) is attachment:
            del session.consumers[attachment.consumer]
            self._send(attachment.connection, [encode_refusal(error, consumer=attachment.consumer)])

    def apply(self, subscription: Subscription, change: Change) -> None:
        """Writes down what came back, and tells those whom a step of the machine concerns."""
        for record in records_of(subscription, change):
            self._journal.append(encode_change(record))
            self._lane.mark()
        for attachment in change.gone:
            text = f"the lease on subscription {subscription.name!r} went to another consumer"
            self._dismiss(attachment, LeaseLost(text))
        for attachment in change.standing:
            self._tell_standing(subscription, attachment)
        for attachment in change.recalled:
            self._tell_standing(subscription, attachment, recall=True)
        for attachment, shard, start, end in change.overtaken:
            if attachment.welcome and attachment.connected:
                lost = Lost(attachment.consumer, shard, [(start, end)], SETTLED)
                self._send(attachment.connection, [encode_control(lost)])
        self._forget_if_alone(subscription)

    # --- time ---------------------------------------------------------------------------------------

    def _schedule(self, subscription: Subscription) -> None:
        times = (subscription.due_us, self._unread.get(subscription))
        due_us = min((time for time in times if time is not None), default=None)
        self._calendar.set(subscription, due_us)
        self._alarm.by(due_us)

    def _on_time(self) -> None:
        """Offers what has become due."""
        now_us = self._clock_us()
        while (subscription := self._calendar.take(now_us)) is not None:
            if self._unread.get(subscription, now_us + 1) <= now_us:
                del self._unread[subscription]
            self._wake(subscription)
            self.pump(subscription)
        self._alarm.by(self._calendar.due_us)

    def _wake(self, subscription: Subscription) -> None:
        topic = self._catalog.by_uuid(subscription.topic_uuid)
        if topic is not None:
            self.apply(subscription, subscription.on_time(self._clock_us(), _ends(topic)))
        self._schedule(subscription)

    # --- offering -----------------------------------------------------------------------------------

    def on_credit(self, session: Session, credit: Credit) -> None:
        attachment = session.consumers.get(credit.consumer)
        if attachment is None:
            return
        attachment.credit_bytes = min(attachment.credit_bytes + credit.bytes, CREDIT_BYTES_MAX)
        attachment.resumed = True
        self.opened(attachment)

    def opened(self, attachment: Attachment) -> None:
        """A consumer has room for more, or can be reached again: what the order waits for needs no room."""
        subscription = attachment.subscription
        if subscription is not None and attachment.reachable:
            subscription.opened(attachment)
            self.pump(subscription)

    def pump(self, subscription: Subscription) -> None:
        """Sends what needs no reading, and asks for as many reads as the consumers can use now."""
        topic = self._catalog.by_uuid(subscription.topic_uuid)
        if topic is None:
            return
        if subscription.dying:
            self._burying.bury(subscription, topic)
        if not subscription.attachments:
            return
        self._awake.setdefault(topic.uuid, {})[subscription] = None
        ends = _ends(topic)
        subscription.release(ends)
        self._send_offers(subscription, subscription.direct(ends, self._clock_us()))
        ahead = AHEAD_BYTES // max(1, len(self._sessions)) * len(subscription.dispatch.takers())
        reading = subscription.fetching
        while subscription not in self._unread and (not reading or sum(reading.values()) < ahead):
            if (wanted := subscription.want(ends, READ_BYTES)) is None:
                break
            reading[wanted.shard] = wanted.bytes_max
            self._effect(self._fetch(subscription, wanted))

    def _fetch(self, subscription: Subscription, wanted: Wanted) -> Fetch:
        return Fetch(
            subscription.topic_uuid,
            wanted.shard,
            wanted.entry,
            wanted.bytes_max,
            lambda run: self._fetched(subscription, wanted, run),
        )

    def on_durable(self, topic: Topic, shard: int, records: list[StoredRecord]) -> None:
        """Records became readable: pushed at once to consumers that have caught up, fetched for the others."""
        if not records:
            return
        synced = ReadResult(records, records[-1].header.end_entry, [])
        awake = self._awake.get(topic.uuid, {})
        for subscription in list(awake):
            if subscription.paused or not subscription.dispatch.takers():
                awake.pop(subscription, None)  # whatever changes that pumps it
                continue
            cursor = subscription.cursors[shard]
            caught_up = cursor.offered == records[0].header.first_entry and not cursor.ready
            if caught_up and shard not in subscription.fetching:
                self._deliver(subscription, shard, synced, None)
            self.pump(subscription)

    def _fetched(self, subscription: Subscription, wanted: Wanted, run: ReadResult | None) -> None:
        """A read came back (None: it failed, and is tried again after a while)."""
        subscription.fetching.pop(wanted.shard, None)
        if run is None:
            self._counters["reads_failed"] += 1
            self._unread[subscription] = self._clock_us() + READ_AGAIN_US
            self._schedule(subscription)
        elif subscription.attachments:  # if nobody is left, whoever can take it asks for it again
            self._deliver(subscription, wanted.shard, run, wanted.entry)
        self.pump(subscription)

    def _deliver(self, subscription: Subscription, shard: int, run: ReadResult, entry: int | None) -> None:
        """Sends what the subscription wants of a run of records, as far as credit goes."""
        topic = self._catalog.by_uuid(subscription.topic_uuid)
        if topic is not None:
            self.losing.met(subscription, topic, shard, run)
        if subscription.dispatch.takers():  # if not, these are read again when there is room
            self._send_offers(subscription, subscription.deal(shard, run, entry, self._clock_us()))

    def _send_offers(self, subscription: Subscription, offers: list[Offer]) -> None:
        for offer in offers:
            parts = [b""]
            for record in offer.records:
                parts.extend(record.parts)
            taker = offer.attachment
            deliver = Deliver(taker.consumer, offer.shard, len(offer.records), offer.attempt, offer.spans)
            parts[0] = encode_control(deliver)
            self._counters["messages_delivered"] += sum(end - start for start, end in offer.spans)
            self._send(taker.connection, parts)
        if offers and subscription.policy.deadline is not None:
            self._schedule(subscription)

    def _tell_lost(self, subscription: Subscription, shard: int, spans: list[Span], reason: str) -> None:
        for attachment in subscription.attachments:
            if attachment.welcome and attachment.connected:
                lost = encode_control(Lost(attachment.consumer, shard, spans, reason))
                self._send(attachment.connection, [lost])

    def _buried(self, subscription: Subscription, shard: int, spans: list[Span]) -> None:
        """Entries were put aside: who waits for them waits no longer."""
        self._tell_lost(subscription, shard, spans, "dead")
        self._schedule(subscription)
        self.pump(subscription)

    # --- settling -----------------------------------------------------------------------------------

    def on_settle(self, session: Session, ask: Settle) -> None:
        """Applies what became of entries; the answer waits until it is on the disk."""
        attachment = session.consumers.get(ask.consumer)
        if attachment is None or (subscription := attachment.subscription) is None:
            return  # it was just sent away and its client does not know yet
        subscription.heard(attachment)
        late, change = 0, Change()
        if ask.acked or ask.skipped or ask.nacked or ask.upto is not None:
            try:
                end = check_settle(self._catalog.by_uuid(subscription.topic_uuid), subscription, ask)
            except HeadpondError as error:
                self._expel(session, ask.consumer, error)
                return
            times = (self._clock_us(), self._now_us())
            settlement, late = settle(subscription, ask, attachment, end, *times, change)
            self._journal.append(encode_change(settlement))
            self._counters["settlements"] += 1
        cost = SETTLE_COST_BYTES + 64 * (len(ask.acked) + len(ask.skipped) + len(ask.nacked))
        self._confirming.settled(session, attachment, ask.number, late, cost)
        self.apply(subscription, change)
        if ask.nacked:
            self._schedule(subscription)
        self.pump(subscription)

    def on_extend(self, session: Session, ask: Extend) -> None:
        attachment = session.consumers.get(ask.consumer)
        if attachment is not None and (subscription := attachment.subscription) is not None:
            subscription.heard(attachment)
            subscription.extend(attachment, ask.shard, ask.spans, ask.seconds, self._clock_us())
            self._schedule(subscription)

    def on_give_back(self, session: Session, ask: GiveBack) -> None:
        attachment = session.consumers.get(ask.consumer)
        if attachment is not None and (subscription := attachment.subscription) is not None:
            subscription.take_back(attachment, ask.shard, ask.spans, done=ask.done)
            self.pump(subscription)


def _ends(topic: Topic) -> list[int]:
    """The shards' durable ends."""
    return [shard.log.entry_durable for shard in topic.shards]
