"""Retention: drops files, settles their entries as lost, removes abandoned subscriptions, forgets old blocks.

Each tick looks at some shards, in turn, and drops a bounded number of files, so that no tick is long.
storage/log/retention.py decides which files go. A drop is staged in the log like a record; when it is durable,
the log removes the files and subscriptions learn what they lost.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.consume import Dispatcher
from headpond.broker.subscriptions.records import EXPIRED, RETENTION, Removed
from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.errors import HeadpondError, SubscriptionNotFound
from headpond.storage.log.retention import Drop, Rules, decide

logger = logging.getLogger("headpond.node")

TICK_US = 1_000_000
SHARDS_A_TICK = 1000
FILES_A_TICK = 200
FORGET_EVERY_US = 3_600_000_000
GRACE_US = 600_000_000
"""How long a node that just started waits for consumers before it removes an abandoned subscription."""


class Retaining:
    def __init__(
        self,
        context: Context,
        stores: Stores,
        consuming: Dispatcher,
    ) -> None:
        self._stores = stores
        self._consuming = consuming
        self._counters = context.counters
        self._now_us = context.now_us
        self._clock_us = context.clock_us
        self._began_us = context.clock_us()
        self._alarm = context.alarms.add(self._on_time, while_stopping=False)
        self._alarm.by(self._began_us + TICK_US)
        self._forget_us = self._began_us + FORGET_EVERY_US
        self._left: Iterator[tuple[Topic, int]] = iter(())
        self._forgetting = False

    def _on_time(self) -> None:
        now_us = self._clock_us()
        self._alarm.by(now_us + TICK_US)
        files_left = FILES_A_TICK
        for _ in range(SHARDS_A_TICK):
            place = next(self._left, None)
            if place is None:
                self._begin_round(now_us)
                return
            topic, shard = place
            if self._forgetting:
                forgotten = topic.shards[shard].log.forget_blocks(self._now_us())
                self._counters["blocks_forgotten"] += forgotten
            files_left -= self._look(topic, shard, files_left)
            if files_left <= 0:
                self._alarm.by(now_us)  # there is more to do
                return

    def _begin_round(self, now_us: int) -> None:
        """The next tick begins with the first shard again."""
        self._left = iter(
            [(topic, shard) for topic in self._stores.catalog for shard in range(len(topic.shards))]
        )
        self._forgetting = now_us >= self._forget_us
        if self._forgetting:
            self._forget_us = now_us + FORGET_EVERY_US
        for topic in self._stores.catalog:
            if (after_s := topic.settings.expires_after) is not None:
                self._expire_abandoned(topic, round(after_s * 1e6), now_us)

    # --- files --------------------------------------------------------------------------------------

    def _look(self, topic: Topic, number: int, files_max: int) -> int:
        """Drops files of a shard that may go; returns how many."""
        if self._stores.catalog.by_uuid(topic.uuid) is not topic:
            return 0  # deleted since
        rules = Rules.of(topic.settings)
        shard = topic.shards[number]
        if rules == Rules() and not shard.log.may_expire:
            return 0
        subscriptions = self._stores.subscriptions.of_topic(topic.uuid)
        settled = min((one.cursors[number].cursor for one in subscriptions), default=None)
        drops = decide(shard.log.stored_files(), rules, self._now_us(), settled, files_max)
        if not drops:
            return 0
        kept = shard.log.drop_before(drops[-1].end)
        gone = [drop for drop in drops if drop.end <= kept]  # the file that is being written to stays
        if gone:
            shard.lane.wait(lambda error: self._dropped(topic, number, gone, error))
        return len(gone)

    def _dropped(self, topic: Topic, shard: int, drops: list[Drop], error: HeadpondError | None) -> None:
        """The drop is durable; after an error the files are still there."""
        if error is not None:
            return
        for drop in drops:
            self._counters[f"files_dropped_{drop.reason}"] += 1
            self._counters[f"bytes_dropped_{drop.reason}"] += drop.bytes
            self._counters[f"messages_dropped_{drop.reason}"] += drop.end - drop.first
        for subscription in self._stores.subscriptions.of_topic(topic.uuid):
            lost = 0
            subscription.cursors[shard].skipped.discard(0, drops[-1].end)
            for drop in drops:
                reason = EXPIRED if drop.reason == "ttl" else RETENTION
                lost += self._consuming.lose(subscription, shard, drop.first, drop.end, reason)
            if lost:
                self._consuming.pump(subscription)

    # --- subscriptions ------------------------------------------------------------------------------

    def _expire_abandoned(self, topic: Topic, after_us: int, now_us: int) -> None:
        if now_us - self._began_us < min(after_us, GRACE_US):
            return
        for subscription in self._stores.subscriptions.of_topic(topic.uuid):
            if subscription.copy.passive or any(each.connected for each in subscription.attachments):
                continue  # a copy lives as long as its source
            seen_us = max(subscription.history.seen_us, subscription.created_at_us)
            if self._now_us() - seen_us >= after_us:
                self._remove(topic, subscription)

    def _remove(self, topic: Topic, subscription: Subscription) -> None:
        name = subscription.name
        unsettled = sum(
            end - start
            for cursor, shard in zip(subscription.cursors, topic.shards, strict=True)
            for start, end in cursor.unread(cursor.cursor, shard.log.entry_durable)
        )
        logger.warning(
            "subscription %r of %s was removed: it had no consumer for %g s; %d messages were unread",
            name,
            topic.shown,
            topic.settings.expires_after,
            unsettled,
        )
        self._counters["subscriptions_expired"] += 1
        gone = SubscriptionNotFound(f"subscription {name!r} was removed: it had no consumer for too long")
        self._consuming.send_away(subscription, gone)
        self._stores.settlements.note(Removed(topic.uuid, name))
