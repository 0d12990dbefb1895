"""How long messages take to a consumer, and to its acknowledgement, for the histograms of the node.

The delivery of a segment is timed with its frame. The way of a whole message is timed for a sample: at most one
message of a consumer at a time, and one in 50 ms of the node. To look up ``sent_at`` for all of them would cost
more than to deliver them.
"""

from __future__ import annotations

from collections.abc import Callable

from headpond.broker.catalog.topics import Topic
from headpond.broker.subscriptions.attachment import Attachment, Timed
from headpond.broker.subscriptions.subscription import Offer
from headpond.broker.timings import Timings
from headpond.storage.log.read import segment_of
from headpond.wire.control.consuming import Settle
from headpond.wire.sent_at import sent_at_us

SAMPLE_US = 50_000


class Stopwatch:
    def __init__(self, timings: Timings, now_us: Callable[[], int]) -> None:
        """``now_us`` is the time of day: only that can be compared with times of producers."""
        self._delivery = timings.delivery
        self._end_to_end = timings.end_to_end
        self._now_us = now_us
        self._sample_us = 0
        """When the next message is timed."""

    def sent(self, topic: Topic, offers: list[Offer]) -> None:
        now_us = self._now_us()
        for offer in offers:
            if offer.attempt == 1 and offer.records:
                self._delivery.observe(now_us - offer.records[0].header.stored_at_us)
        if not 0 < self._sample_us - now_us <= SAMPLE_US:  # a clock that was set back does not stop it
            self._begin(topic, offers[0], now_us)

    def _begin(self, topic: Topic, offer: Offer, now_us: int) -> None:
        by, shard, entry = offer.attachment, offer.shard, offer.spans[0][0]
        if not offer.records or (by.timed is not None and by.holds(by.timed.shard, by.timed.entry)):
            return
        self._sample_us = now_us + SAMPLE_US
        record = offer.records[0]
        header = record.header
        row = entry - header.first_entry
        sent_us = sent_at_us(segment_of(record), row, topic.schemas, header.stored_at_us)
        by.timed = None if sent_us is None else Timed(shard, entry, sent_us)

    def settled(self, by: Attachment, timed: Timed, ask: Settle) -> None:
        """The consumer settled entries while one of its messages was timed."""
        shard, entry, sent_us = timed
        if shard != ask.shard or by.holds(shard, entry):
            return
        by.timed = None
        if entry < (ask.upto or 0) or any(start <= entry < end for start, end in ask.acked):
            self._end_to_end.observe(self._now_us() - sent_us)
