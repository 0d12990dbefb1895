"""Administration of subscriptions: created, shown, moved, paused, removed; dead entries offered again;
browsing.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING

from headpond.broker.catalog.topics import Topic
from headpond.broker.effects import Fetch
from headpond.broker.reading.fetch import Answer, Done, Refuse
from headpond.broker.session import Session
from headpond.broker.subscriptions.records import (
    Change,
    History,
    Moved,
    Paused,
    Redriven,
    Removed,
    encode_change,
)
from headpond.broker.subscriptions.subscribe import (
    ShardStart,
    check_positions,
    check_subscription,
    find_or_open,
    start_entry,
)
from headpond.broker.subscriptions.subscription import Subscription, check_active, copy_fields
from headpond.model.bounds import ENTRY_MAX, Span
from headpond.model.errors import (
    BadRequest,
    LimitReached,
    StorageFailed,
    SubscriptionBusy,
    SubscriptionMoved,
    SubscriptionNotFound,
)
from headpond.storage.log.read import Run
from headpond.wire.control.codec import Operation
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
from headpond.wire.control.following import PromoteSubscription
from headpond.wire.frame import RESPONSE_BYTES_MAX

if TYPE_CHECKING:
    from headpond.broker.core import NodeCore

DEAD_SPANS_MAX = 10_000
ANSWER_BYTES = 64 * 1024
"""What an answer takes beside its records."""
BROWSE_BYTES_MAX = 8 * 1024 * 1024
"""One record, at most as large as a segment with its header, may come on top."""


class SubscriptionRequests:
    """``topic_of`` finds a topic by its name, or raises."""

    def __init__(self, node: NodeCore, topic_of: Callable[[str], Topic]) -> None:
        self._node = node
        self._topic = topic_of

    def on_request(self, session: Session, operation: Operation, answer: Answer, refuse: Refuse) -> bool:
        """Carries out an operation if it is one about subscriptions."""
        if isinstance(operation, CreateSubscription):
            self._create(session, operation, answer, refuse)
        elif isinstance(operation, ListSubscriptions):
            answer(self._list(operation.topic))
        elif isinstance(operation, ShowSubscription):
            answer(self._info(*self.find(operation.topic, operation.subscription), whole=True))
        elif isinstance(operation, ListUnacked):
            answer(self._unacked(operation))
        elif isinstance(operation, ListSkipped):
            answer(self._skipped(operation))
        elif isinstance(operation, DeleteSubscription):
            self._delete(operation, answer)
        elif isinstance(operation, SeekSubscription):
            self._seek(operation, answer)
        elif isinstance(operation, PauseSubscription):
            self._pause(operation, answer)
        elif isinstance(operation, Redrive):
            self._redrive(operation, answer)
        elif isinstance(operation, PromoteSubscription):
            topic, subscription = self.find(operation.topic, operation.subscription)
            self._node.peering.following.sink.promote(topic, subscription)
            self._write([], lambda: answer(self._info(topic, subscription)))
        elif isinstance(operation, Browse):
            self._browse(session, operation, answer, refuse)
        else:
            return False
        return True

    def _info(self, topic: Topic, subscription: Subscription, *, whole: bool = False) -> SubscriptionInfo:
        return _info(topic, subscription, self._node.subscriptions.history(subscription), whole=whole)

    def find(self, topic_name: str, name: str) -> tuple[Topic, Subscription]:
        """A subscription and its topic, or why there is none."""
        topic = self._topic(topic_name)
        subscription = self._node.subscriptions.get(topic.uuid, name)
        if subscription is None:
            raise SubscriptionNotFound(f"topic {topic.shown} has no subscription {name[:80]!r}")
        return topic, subscription

    def _list(self, name: str) -> list[SubscriptionInfo]:
        topics = [self._topic(name)] if name else list(self._node.catalog)
        return [
            self._info(topic, subscription)
            for topic in topics
            for subscription in self._node.subscriptions.of_topic(topic.uuid)
        ]

    def _unacked(self, ask: ListUnacked) -> UnackedPage:
        _, subscription = self.find(ask.topic, ask.subscription)
        clock_to_day_us = self._node.now_us() - self._node.clock_us()
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
                times = (cursor.deliveries(entry), us and us + clock_to_day_us, bounds.get(entry, 0))
                found.append(UnackedEntry(shard, entry, *times))
        return UnackedPage(found)

    def _skipped(self, ask: ListSkipped) -> SkippedPage:
        _, subscription = self.find(ask.topic, ask.subscription)
        found: list[tuple[int, int, int]] = []
        for shard in range(ask.shard, len(subscription.cursors)):
            skipped = subscription.cursors[shard].skipped
            for start, end in skipped.spans(ask.entry if shard == ask.shard else 0, skipped.end):
                if len(found) == ask.limit:
                    return SkippedPage(found, (shard, start))
                found.append((shard, start, end))
        return SkippedPage(found)

    def _create(self, session: Session, ask: CreateSubscription, answer: Answer, refuse: Refuse) -> None:
        topic = self._topic(ask.topic)
        check_subscription(ask.subscription, ask.kind, ask.mode, ask.policy)
        if not ask.exist_ok and self._node.subscriptions.get(topic.uuid, ask.subscription) is not None:
            raise SubscriptionBusy(
                f"topic {topic.shown} has a subscription {ask.subscription!r} already",
                hint="Choose another name, delete the other one first, or ask with exist_ok.",
            )
        if ask.positions is not None:
            check_positions(topic, ask.positions, ask.incarnations)
        stores, name = self._node.stores, ask.subscription

        def make(state: list[ShardStart]) -> None:
            now_us = self._node.now_us()
            start = ask.start if ask.positions is None else ask.positions
            asked = (name, ask.kind, ask.mode, start, ask.policy, now_us, state)
            made = find_or_open(
                stores, topic, *asked, may_make=partial(self._node.check_subscriptions, session)
            )
            stores.settlement_lane.wait(lambda error: answer(self._info(topic, made)))

        self._node.consuming.state_starts.find(topic, name, ask.start, make, refuse)

    def _delete(self, ask: DeleteSubscription, answer: Answer) -> None:
        topic, subscription = self.find(ask.topic, ask.subscription)
        if any(attachment.connected for attachment in subscription.attachments):
            raise SubscriptionBusy(f"subscription {ask.subscription!r} of {topic.shown} has a consumer")
        self._node.consuming.send_away(subscription, SubscriptionNotFound("the subscription was deleted"))
        change = Removed(topic.uuid, ask.subscription)
        self._node.subscriptions.apply(change)
        self._write([change], lambda: answer({"subscription": ask.subscription, "deleted": True}))

    def _seek(self, ask: SeekSubscription, answer: Answer) -> None:
        topic, subscription = self.find(ask.topic, ask.subscription)
        if ask.shard is not None and ask.shard >= len(topic.shards):
            raise BadRequest(f"topic {topic.shown} has no shard {ask.shard}")
        shards = range(len(topic.shards)) if ask.shard is None else [ask.shard]
        check_active(subscription.name, subscription.copy, topic.shown)
        places = [(shard, start_entry(topic, shard, ask.to)) for shard in shards]
        subscription.copy.generation += 1
        text = f"the place of subscription {subscription.name!r} was set; its consumers begin anew"
        self._node.consuming.send_away(subscription, SubscriptionMoved(text))
        run = self._node.stores.runs.number
        changes: list[Change] = []
        for shard, entry in places:
            subscription.seek(shard, entry, run)
            generation = subscription.copy.generation
            changes.append(Moved(topic.uuid, subscription.name, shard, entry, run, generation))
            gone = topic.shards[shard].log.compacted
            changes += self._node.subscriptions.pass_compacted(subscription, shard, gone)
        self._write(changes, lambda: answer(self._info(topic, subscription)))

    def _pause(self, ask: PauseSubscription, answer: Answer) -> None:
        topic, subscription = self.find(ask.topic, ask.subscription)
        changed = subscription.paused != ask.paused
        subscription.paused = ask.paused
        self._write(
            [Paused(topic.uuid, subscription.name, ask.paused)], lambda: answer(self._info(topic, subscription))
        )
        if changed:
            self._node.consuming.announce(subscription)
            self._node.consuming.pump(subscription)

    def _redrive(self, ask: Redrive, answer: Answer) -> None:
        topic, subscription = self.find(ask.topic, ask.subscription)
        check_active(subscription.name, subscription.copy, topic.shown)
        wanted = ask.entries
        if wanted is None:
            wanted = [(shard, 0, ENTRY_MAX) for shard in range(len(topic.shards))]
        for shard, start, end in wanted:
            if not (shard < len(topic.shards) and start < end):
                raise BadRequest(f"entries {start} to {end} of shard {shard} cannot be")
        by_shard: dict[int, list[Span]] = {}
        for shard, start, end in wanted:
            by_shard.setdefault(shard, []).extend(subscription.redrive(shard, start, end))
        spans = {shard: found for shard, found in by_shard.items() if found}
        if spans:
            subscription.redrives += 1
            subscription.copy.generation += 1
        numbers = (subscription.redrives, subscription.copy.generation)
        changes = [Redriven(topic.uuid, subscription.name, *item, *numbers) for item in spans.items()]
        count = sum(end - start for found in spans.values() for start, end in found)
        self._write(list(changes), lambda: answer({"redriven": count}))
        self._node.consuming.pump(subscription)

    def _write(self, changes: list[Change], durable: Callable[[], None]) -> None:
        stores = self._node.stores
        for change in changes:
            stores.settlements.append(encode_change(change))
        stores.settlement_lane.wait(lambda error: durable())

    def _browse(self, session: Session, ask: Browse, answer: Answer, refuse: Refuse) -> None:
        topic = self._topic(ask.topic)
        if ask.shard >= len(topic.shards):
            raise BadRequest(f"topic {topic.shown} has no shard {ask.shard}")
        log = topic.shards[ask.shard].log
        entry = max(ask.entry, log.entry_first)
        if entry >= log.entry_durable:
            answer(Browsed([], log.entry_durable, log.entry_durable, []))
            return

        def came(run: Run | None) -> None:
            if run is None:
                refuse(StorageFailed(f"the node could not read entry {entry} of topic {topic.shown}"))
                return
            records = [b"".join(record.parts) for record in run.records]
            if sum(map(len, records)) > RESPONSE_BYTES_MAX - ANSWER_BYTES:
                refuse(LimitReached(f"the record at entry {entry} is too large to be browsed; consume it"))
                return
            compacted = log.compacted_in(run.records)
            answer(Browsed(records, run.next_entry, log.entry_durable, run.lost, compacted))

        def begin(done: Done) -> None:
            def read(run: Run | None) -> None:
                came(run)
                done()

            bytes_max = min(ask.bytes_max, BROWSE_BYTES_MAX)
            self._node.add_effect(Fetch(topic.uuid, ask.shard, entry, bytes_max, read))

        self._node.fetching.in_turn(session, begin)


def _info(
    topic: Topic, subscription: Subscription, history: History, *, whole: bool = False
) -> SubscriptionInfo:
    ends = [shard.log.entry_durable for shard in topic.shards]
    cursors, counts = subscription.cursors, subscription.counts
    behind = sum(max(0, end - cursor.cursor) for end, cursor in zip(ends, cursors, strict=True))
    dead = (
        (shard, *span) for shard, cursor in enumerate(cursors) for span in cursor.dead.spans(0, cursor.dead.end)
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
        expired=history.expired,
        lost_ranges=history.lost if whole else [],
        seen_at_us=history.seen_us,
        bury_fault=subscription.bury_fault,
        compacted=history.compacted,
        **copy_fields(subscription.copy),
    )
