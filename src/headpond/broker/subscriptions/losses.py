"""Entries that a subscription will not get: damaged, dropped by retention, or expired.

Each loss becomes a ``Missed`` record of the settlement journal, so the node shows it after a restart too, and a
LOST frame for the consumers. Entries that a consumer holds are not lost: they were delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from headpond.broker.catalog.topics import Topic
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.records import DAMAGED, EXPIRED, RETENTION, Missed
from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.entry_set import EntrySet, Span
from headpond.storage.log.read import ReadResult, StoredRecord
from headpond.wire.expiry import expired_spans, expiries_us, may_expire
from headpond.wire.frame import HEADER_BYTES, TRAILER
from headpond.wire.record import RECORD_HEADER_BYTES

SPANS_MAX = 4096
"""In one record, and in one LOST frame."""

_LEAD_BYTES = HEADER_BYTES + RECORD_HEADER_BYTES
_HEAD_BYTES = 16

Notify = Callable[[Subscription, int, list[Span], str], None]


class EntryLosses:
    def __init__(
        self, stores: Stores, counters: Counter[str], *, now_us: Callable[[], int], notify: Notify
    ) -> None:
        """``notify`` sends consumers which entries of a shard they will not get, and why."""
        self._stores = stores
        self._counters = counters
        self._now_us = now_us
        self._notify = notify

    def settle_missing(self, subscription: Subscription, topic: Topic, shard: int, run: ReadResult) -> None:
        """Settles what a read found lost or expired, before the rest of it is offered."""
        for start, end in run.lost:
            first = topic.shards[shard].log.entry_first
            self.lose(subscription, shard, start, min(end, first), RETENTION)
            self.lose(subscription, shard, max(start, first), end, DAMAGED)
        for record in run.records:
            for start, end in self._expired(topic, record):
                self.lose(subscription, shard, start, end, EXPIRED)
            if topic.settings.state:
                self._pass_over(subscription, shard, topic.shards[shard].log.taken_out_of(record))

    def _pass_over(self, subscription: Subscription, shard: int, gone: EntrySet) -> None:
        """Settles rows of a state topic that compaction removed on another node, before they came here."""
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
        topic, name, now_us = subscription.topic_uuid, subscription.name, self._now_us()
        for at in range(0, len(spans), SPANS_MAX):
            part = spans[at : at + SPANS_MAX]
            self._stores.settlements.note(Missed(topic, name, shard, part, reason, now_us))
            if reason != EXPIRED or subscription.strict:
                self._notify(subscription, shard, part, reason)
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
        return [] if expiries is None else expired_spans(expiries, header.first_entry, self._now_us())
