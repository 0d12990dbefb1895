"""Entries that a subscription will not get: damaged, dropped by retention, or expired. It is told which.

Everything here ends in one ``Missed`` record of the settlement journal, so that what was lost is shown after a
restart too. What is with a consumer at the moment is not lost: it was delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from headpond.broker.catalog.topics import Topic
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.entry_tally import DAMAGED, EXPIRED, RETENTION
from headpond.broker.subscriptions.records import Missed, encode_change, unread
from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.entry_set import EntrySet, Span
from headpond.storage.log.read import ReadResult, StoredRecord
from headpond.wire.frame import HEADER_BYTES, TRAILER
from headpond.wire.plain.expiry import expired_spans, expiries_us, may_expire
from headpond.wire.record import RECORD_HEADER_BYTES

SPANS_MAX = 4096
"""In one record, and in one LOST frame."""

_LEAD_BYTES = HEADER_BYTES + RECORD_HEADER_BYTES
_HEAD_BYTES = 16

Tell = Callable[[Subscription, int, list[Span], str], None]


class Losing:
    def __init__(
        self, stores: Stores, counters: Counter[str], *, now_us: Callable[[], int], tell: Tell
    ) -> None:
        """``tell`` says to the consumers of a subscription what they will not get of a shard, and why."""
        self._stores = stores
        self._counters = counters
        self._now_us = now_us
        self._tell = tell

    def met(self, subscription: Subscription, topic: Topic, shard: int, run: ReadResult) -> None:
        """Settles what a read found gone or expired, before the rest of it is offered."""
        kept = topic.shards[shard].log.entry_first
        for start, end in run.lost:
            self.lose(subscription, shard, start, min(end, kept), RETENTION)
            self.lose(subscription, shard, max(start, kept), end, DAMAGED)
        for record in run.records:
            for start, end in self._expired(topic, record):
                self.lose(subscription, shard, start, end, EXPIRED)
            if topic.is_state:
                self._pass_over(subscription, shard, topic.shards[shard].log.taken_out_of(record))

    def _pass_over(self, subscription: Subscription, shard: int, gone: EntrySet) -> None:
        """Rows of a state topic that compaction took out on another node, before they came here."""
        for passed in self._stores.subscriptions.pass_compacted(subscription, shard, gone):
            self._stores.settlements.append(encode_change(passed))
            self._stores.settlement_lane.mark()

    def lose(self, subscription: Subscription, shard: int, start: int, end: int, reason: str) -> int:
        """Entries will not be delivered; returns how many of them nobody had read."""
        if start >= end:
            return 0
        spans = unread(subscription.cursors[shard], start, end)
        if not spans:
            return 0
        count = sum(stop - begin for begin, stop in spans)
        self._counters["messages_expired" if reason == EXPIRED else f"messages_lost_{reason}"] += count
        topic, name, now_us = subscription.topic_uuid, subscription.name, self._now_us()
        for at in range(0, len(spans), SPANS_MAX):
            part = spans[at : at + SPANS_MAX]
            missed = Missed(topic, name, shard, part, reason, now_us)
            self._stores.subscriptions.miss(subscription, missed)
            self._stores.settlements.append(encode_change(missed))
            if reason != EXPIRED or subscription.strict:
                self._tell(subscription, shard, part, reason)
        self._stores.settlement_lane.mark()
        return count

    def _expired(self, topic: Topic, record: StoredRecord) -> list[Span]:
        schemas = topic.schemas
        whole = len(record.parts) == 1
        lead = _LEAD_BYTES if whole else 0
        body = record.parts[0 if whole else 1]
        # Most records have no headers, which their first bytes tell: those are not copied.
        if schemas is None and not body[lead + 1] & 8:
            return []
        if schemas is not None and not may_expire(body[lead : lead + _HEAD_BYTES], schemas):
            return []
        segment = body[lead : -TRAILER.size] if whole else body
        header = record.header
        expiries = expiries_us(segment, schemas, header.stored_at_us)
        return [] if expiries is None else expired_spans(expiries, header.first_entry, self._now_us())
