"""Administration of subscriptions: create, show, seek, pause, delete, redrive dead entries; browsing."""

from __future__ import annotations

from itertools import islice
from typing import Any

from headpond.broker.catalog.pages import page_of
from headpond.broker.catalog.topic_requests import TopicRequests
from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.effects import Fetch
from headpond.broker.reading.fetch import Fetcher
from headpond.broker.session import Session, shown
from headpond.broker.steps import Steps, journaled, on_disk
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.consume import Dispatcher
from headpond.broker.subscriptions.records import (
    Change,
    EntriesRedriven,
    Moved,
    Paused,
    Removed,
    Settlement,
)
from headpond.broker.subscriptions.subscribe import check_positions, check_subscription
from headpond.broker.subscriptions.subscription import Subscription, copy_fields
from headpond.model.bounds import ENTRY_MAX, Span
from headpond.model.errors import (
    BadRequest,
    LimitReached,
    SubscriptionBusy,
    SubscriptionMoved,
    SubscriptionNotFound,
    TopicMismatch,
)
from headpond.wire.control.consuming import (
    Browse,
    Browsed,
    CreateSubscription,
    DeleteSubscription,
    ListSkipped,
    ListSubscriptions,
    ListUnacked,
    PauseSubscription,
    Redrive,
    SeekSubscription,
    ShowSubscription,
    SkippedPage,
    SubscriptionInfo,
    UnackedEntry,
    UnackedPage,
)
from headpond.wire.control.reading import AdvanceSubscription
from headpond.wire.frame import RESPONSE_BYTES_MAX

DEAD_SPANS_MAX = 10_000
ANSWER_BYTES = 64 * 1024
"""The size of an answer without its records."""
BROWSE_BYTES_MAX = 8 * 1024 * 1024
"""One record, at most as large as a segment with its header, may come on top."""


class SubscriptionRequests:
    def __init__(
        self,
        context: Context,
        stores: Stores,
        topics: TopicRequests,
        consuming: Dispatcher,
        fetching: Fetcher,
    ) -> None:
        self._context = context
        self._stores = stores
        self._subscriptions = stores.subscriptions
        self._settlements = stores.settlements
        self._topics = topics
        self._consuming = consuming
        self._fetching = fetching

    def info(self, topic: Topic, subscription: Subscription, *, whole: bool = False) -> SubscriptionInfo:
        ends = [shard.log.entry_durable for shard in topic.shards]
        cursors, counts = subscription.cursors, subscription.counts
        behind = sum(max(0, end - cursor.cursor) for end, cursor in zip(ends, cursors, strict=True))
        dead = (
            (shard, *span)
            for shard, cursor in enumerate(cursors)
            for span in cursor.dead.spans(0, cursor.dead.end)
        )
        return SubscriptionInfo(
            subscription=subscription.name,
            topic=topic.name,
            kind=subscription.kind,
            mode=subscription.mode,
            consumers=[attachment.shown for attachment in subscription.attachments if attachment.connected],
            settled=counts.acked + counts.skipped,
            unsettled=behind - sum(len(cursor.settled) for cursor in cursors),
            in_flight=sum(len(cursor.held) for cursor in cursors),
            unacked=sum(len(cursor.unacked) for cursor in cursors),
            lost=counts.lost,
            positions=[cursor.cursor for cursor in cursors],
            policy=subscription.policy,
            paused=subscription.paused,
            created_at_us=subscription.created_at_us,
            acked=counts.acked,
            skipped=counts.skipped,
            dead=subscription.dead,
            nacked=counts.nacked,
            late=counts.late,
            delivered=counts.delivered,
            redelivered=counts.redelivered,
            redriven=counts.redriven,
            dead_entries=list(islice(dead, DEAD_SPANS_MAX)) if whole else [],
            expired=subscription.history.expired,
            lost_ranges=subscription.history.lost if whole else [],
            seen_at_us=subscription.history.seen_us,
            bury_fault=subscription.bury_fault,
            compacted=subscription.history.compacted,
            reasons_dropped=sum(len(cursor.reasons.dropped) for cursor in cursors),
            advanced_by=subscription.advanced_by,
            advanced_at_us=subscription.advanced_at_us,
            **copy_fields(subscription.copy),
        )

    def find(self, topic_name: str, name: str) -> tuple[Topic, Subscription]:
        """A topic and its subscription; raises if there is none."""
        topic = self._topics.find(topic_name)
        subscription = self._subscriptions.get(topic.uuid, name)
        if subscription is None:
            raise SubscriptionNotFound(f"topic {topic.shown} has no subscription {name[:80]!r}")
        return topic, subscription

    def list_subscriptions(self, session: Session, ask: ListSubscriptions) -> list[SubscriptionInfo]:
        topics = [self._topics.find(ask.topic)] if ask.topic else list(self._stores.catalog)
        found = (
            (f"{topic.name}/{subscription.name}", topic, subscription)
            for topic in topics
            for subscription in self._subscriptions.of_topic(topic.uuid)
            if (not ask.dead or subscription.dead) and (not ask.advanced or subscription.advanced_by)
        )
        if ask.page is not None:
            return page_of(session, ask, ask.page, found, self.info)
        return [self.info(topic, subscription) for _, topic, subscription in found]

    def show_subscription(self, session: Session, ask: ShowSubscription) -> SubscriptionInfo:
        return self.info(*self.find(ask.topic, ask.subscription), whole=True)

    def list_unacked(self, session: Session, ask: ListUnacked) -> UnackedPage:
        _, subscription = self.find(ask.topic, ask.subscription)
        clock_to_day_us = self._context.now_us() - self._context.clock_us()
        found: list[UnackedEntry] = []
        for shard in range(ask.shard, len(subscription.cursors)):
            cursor = subscription.cursors[shard]
            start = ask.entry if shard == ask.shard else 0
            some = cursor.unacked.next_ones(start, ask.limit - len(found) + 1)
            due_us = {entry: us for us, each in cursor.unacked_log.by_due_us(some) for entry in each.numbers()}
            bounds = {entry: at for at, each in cursor.unacked_log.by_bound(some) for entry in each.numbers()}
            for entry in some.numbers():
                if len(found) == ask.limit:
                    return UnackedPage(found, (shard, entry))
                us = due_us.get(entry, 0)
                times = (cursor.delivered.of(entry), us and us + clock_to_day_us, bounds.get(entry, 0))
                found.append(UnackedEntry(shard, entry, *times, cursor.reasons.of(entry)))
        return UnackedPage(found)

    def list_skipped(self, session: Session, ask: ListSkipped) -> SkippedPage:
        _, subscription = self.find(ask.topic, ask.subscription)
        found: list[tuple[int, int, int]] = []
        for shard in range(ask.shard, len(subscription.cursors)):
            skipped = subscription.cursors[shard].skipped
            for start, end in skipped.spans(ask.entry if shard == ask.shard else 0, skipped.end):
                if len(found) == ask.limit:
                    return SkippedPage(found, (shard, start))
                found.append((shard, start, end))
        return SkippedPage(found)

    def create_subscription(self, session: Session, ask: CreateSubscription) -> Steps[SubscriptionInfo]:
        topic = self._topics.find(ask.topic)
        check_subscription(ask)
        if not ask.exist_ok and self._subscriptions.get(topic.uuid, ask.subscription) is not None:
            raise SubscriptionBusy(
                f"topic {topic.shown} has a subscription {ask.subscription!r} already",
                hint="Choose another name, delete the other one first, or ask with exist_ok.",
            )
        if ask.positions is not None:
            check_positions(topic, ask.positions, ask.incarnations)
        start = ask.start if ask.positions is None else list(ask.positions)
        opener = self._consuming.opener
        found = yield from opener.find_start(topic, ask.subscription, start)
        made = opener.find_or_create(session, topic, ask, found, self._context.now_us())
        yield on_disk(self._settlements.lane)
        return self.info(topic, made)

    def delete_subscription(self, session: Session, ask: DeleteSubscription) -> Steps[dict[str, Any]]:
        topic, subscription = self.find(ask.topic, ask.subscription)
        if any(attachment.connected for attachment in subscription.attachments):
            raise SubscriptionBusy(f"subscription {ask.subscription!r} of {topic.shown} has a consumer")
        self._consuming.send_away(subscription, SubscriptionNotFound("the subscription was deleted"))
        self._settlements.note(Removed(topic.uuid, ask.subscription))
        yield on_disk(self._settlements.lane)
        return {"subscription": ask.subscription, "deleted": True}

    def seek_subscription(self, session: Session, ask: SeekSubscription) -> Steps[SubscriptionInfo]:
        topic, subscription = self.find(ask.topic, ask.subscription)
        if ask.shard is not None:
            topic.shard(ask.shard)
        shards = range(len(topic.shards)) if ask.shard is None else [ask.shard]
        places: dict[int, int] = {}
        for shard in shards:
            places[shard] = yield from self._consuming.opener.entry(topic, shard, ask.to)
        if self._subscriptions.get(topic.uuid, ask.subscription) is not subscription:
            raise SubscriptionNotFound(f"subscription {ask.subscription!r} was deleted meanwhile")
        subscription.check_active(topic.shown)
        subscription.copy.generation += 1
        text = f"the position of subscription {subscription.name!r} was set; its consumers start again there"
        self._consuming.send_away(subscription, SubscriptionMoved(text))
        run = self._stores.runs.number
        changes: list[Change] = []
        for shard, entry in places.items():
            subscription.seek(shard, entry, run)
            generation = subscription.copy.generation
            changes.append(Moved(topic.uuid, subscription.name, shard, entry, run, generation))
            gone = topic.shards[shard].log.compacted
            changes += self._subscriptions.pass_compacted(subscription, shard, gone)
        yield journaled(self._settlements, *changes)
        return self.info(topic, subscription)

    def pause_subscription(self, session: Session, ask: PauseSubscription) -> Steps[SubscriptionInfo]:
        topic, subscription = self.find(ask.topic, ask.subscription)
        changed = subscription.paused != ask.paused
        subscription.paused = ask.paused
        wait = journaled(self._settlements, Paused(topic.uuid, subscription.name, ask.paused))
        if changed:
            self._consuming.announce(subscription)
            self._consuming.pump(subscription)
        yield wait
        return self.info(topic, subscription)

    def redrive(self, session: Session, ask: Redrive) -> Steps[dict[str, Any]]:
        topic, subscription = self.find(ask.topic, ask.subscription)
        subscription.check_active(topic.shown)
        wanted = ask.entries
        if wanted is None:
            wanted = [(shard, 0, ENTRY_MAX) for shard in range(len(topic.shards))]
        for shard, start, end in wanted:
            if not (shard < len(topic.shards) and start < end):
                raise BadRequest(f"topic {topic.shown} has no entries {start} to {end} of shard {shard}")
        by_shard: dict[int, list[Span]] = {}
        for shard, start, end in wanted:
            by_shard.setdefault(shard, []).extend(subscription.redrive(shard, start, end))
        spans = {shard: found for shard, found in by_shard.items() if found}
        if spans:
            subscription.redrives += 1
            subscription.copy.generation += 1
        numbers = (subscription.redrives, subscription.copy.generation)
        names = (topic.uuid, subscription.name)
        wait = journaled(
            self._settlements, *(EntriesRedriven(*names, *item, *numbers) for item in spans.items())
        )
        self._consuming.pump(subscription)
        yield wait
        return {"redriven": sum(end - start for found in spans.values() for start, end in found)}

    def advance_subscription(self, session: Session, ask: AdvanceSubscription) -> Steps[dict[str, Any]]:
        """Settles everything before a position in each shard, for a reader that stores its positions itself."""
        topic, subscription = self.find(ask.topic, ask.subscription)
        subscription.check_active(topic.shown)
        if ask.topic_uuid not in (None, topic.uuid):
            raise TopicMismatch(f"topic {topic.shown} is not the one that was read before")
        check_positions(topic, ask.positions, ask.incarnations)
        ends = [shard.log.entry_durable for shard in topic.shards]
        for shard, (position, end) in enumerate(zip(ask.positions, ends, strict=True)):
            if position > end:
                raise BadRequest(f"position {position} of shard {shard}: its entries end at {end}")
        changes: list[Change] = []
        for shard, (position, cursor) in enumerate(zip(ask.positions, subscription.cursors, strict=True)):
            if position > cursor.cursor:
                subscription.ack_upto(shard, position)
                cursor.journaled_copies = copies = cursor.tally.copies
                names = (topic.uuid, subscription.name, shard)
                changes.append(Settlement(*names, [], [], [], [], upto=position, copies=copies))
        subscription.advanced_by, subscription.advanced_at_us = shown(session.client), self._context.now_us()
        wait = journaled(self._settlements, *changes)
        self._consuming.apply(subscription)
        self._consuming.pump(subscription)  # messages behind a settled entry may go out now
        yield wait
        return {"positions": [cursor.cursor for cursor in subscription.cursors]}

    def browse(self, session: Session, ask: Browse) -> Steps[Browsed]:
        topic = self._topics.find(ask.topic)
        log = topic.shard(ask.shard).log
        entry = max(ask.entry, log.entry_first)
        if entry >= log.entry_durable:
            return Browsed([], log.entry_durable, log.entry_durable, [])
        bytes_max = min(ask.bytes_max, BROWSE_BYTES_MAX)
        read = topic.read(self._context, Fetch, ask.shard, entry, bytes_max)
        _, run = yield from self._fetching.in_turn(session, read)
        records = [b"".join(record.parts) for record in run.records]
        if sum(map(len, records)) > RESPONSE_BYTES_MAX - ANSWER_BYTES:
            raise LimitReached(f"the record at entry {entry} is too large to be browsed; consume it")
        compacted = log.compacted_in(run.records)
        return Browsed(records, run.next_entry, log.entry_durable, run.lost, compacted)
