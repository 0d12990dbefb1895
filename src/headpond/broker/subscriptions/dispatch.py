"""Who gets what: the part of a subscription that its kind decides. This file: everything goes to one consumer.

``want`` says what to read next, ``deal`` what of it goes to whom. The kinds are::

    unique, failover   dispatch.py     the one active consumer; in resilient mode its client holds the order
    shared             shared.py       round robin; in resilient mode one message is out at a time
    key_shared         key_shared.py   as shared, with one consumer a key at a time
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headpond.broker.subscriptions.attachment import Attachment
from headpond.model.entry_set import EntrySet, Span
from headpond.storage.log.read import ReadResult, StoredRecord

if TYPE_CHECKING:
    from headpond.broker.subscriptions.subscription import Subscription

SPANS_MAX = 4096
"""At most this many spans in one delivery, so that its frame stays small however holed the entries are."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to read next."""

    shard: int
    entry: int
    bytes_max: int
    """At least one record comes, whatever its size."""


@dataclass(frozen=True, slots=True)
class Offer:
    """Entries to send now, with the number of the attempt that this is for them."""

    attachment: Attachment
    shard: int
    attempt: int
    spans: list[Span]
    records: list[StoredRecord]
    """The records that hold them; none where the consumer has the record already."""


class Dispatch:
    def __init__(self, subscription: Subscription) -> None:
        self.subscription = subscription
        self._turn = 0

    # --- who ----------------------------------------------------------------------------------------

    def takers(self) -> list[Attachment]:
        """The consumers that something can be sent to now."""
        first = self.subscription.attachments[:1]
        return [
            each for each in first if each.open or (each.reachable and each.resumed and self._urgent_shards())
        ]

    def _urgent_shards(self) -> list[int]:
        """Where the message that comes next in a resilient subscription was refused, and is to come again.

        Its consumer hands out nothing before it, and gives back no room: it is sent also where there is none.
        A consumer that has not resumed may have settled it: the settlements that it repeats are on the way.
        """
        if not self.in_order:
            return []
        cursors = enumerate(self.subscription.cursors)
        return [shard for shard, cursor in cursors if cursor.ready.first == cursor.cursor]

    @property
    def room_bytes(self) -> int:
        """What they can take beyond the reads under way."""
        reading = sum(self.subscription.fetching.values())
        return sum(attachment.credit_bytes for attachment in self.takers()) - reading

    @property
    def in_order(self) -> bool:
        """Whether nothing is offered behind an entry of the shard that waits."""
        return self.subscription.strict

    def opened(self, attachment: Attachment) -> None:
        """A consumer has room again."""

    # --- what ---------------------------------------------------------------------------------------

    def release(self, ends: list[int]) -> None:
        """Refused entries that may come again now are ready. ``ends`` are the shards' durable ends."""
        for end, cursor in zip(ends, self.subscription.cursors, strict=True):
            cursor.release(end)

    def want(self, ends: list[int], bytes_max: int) -> Wanted | None:
        """The next thing to read, if anyone can take anything: what comes again before what is new.

        Shards take turns. ``ends`` are the shards' durable ends.
        """
        subscription = self.subscription
        room = self.room_bytes
        if room <= 0:
            return self._want_urgent()
        shards = len(subscription.cursors)
        for step in range(shards):
            shard = (self._turn + step) % shards
            if shard in subscription.fetching:
                continue
            entry = subscription.cursors[shard].next_wanted(ends[shard], strict=self.in_order)
            if entry is not None:
                self._turn = (shard + 1) % shards
                return Wanted(shard, entry, min(bytes_max, room))
        return None

    def _want_urgent(self) -> Wanted | None:
        subscription = self.subscription
        for shard in self._urgent_shards() if self.takers() else []:
            if shard not in subscription.fetching:
                return Wanted(shard, subscription.cursors[shard].cursor, 1)
        return None

    def direct(self, ends: list[int]) -> list[Offer]:
        """What can be offered without reading anything."""
        return []

    def deal(self, shard: int, run: ReadResult, entry: int | None) -> list[Offer]:
        """What to send of records that were read from ``entry`` on (None: that were just stored)."""
        takers = self.takers()
        if not takers:
            return []
        taker = takers[0]
        if not taker.open:
            return self._deal_urgent(taker, shard, run)
        records = within(run.records, taker.credit_bytes)
        start = first_of(run, entry)
        end = run.next_entry if len(records) == len(run.records) else records[-1].header.end_entry
        cursor = self.subscription.cursors[shard]
        if (first := cursor.ready.first) is not None and first < start:
            return []  # it came back while this was read, and is read first
        spans = cursor.available(start, end, SPANS_MAX, strict=self.in_order)
        if len(spans) == SPANS_MAX:
            end = spans[-1][1]
        elif self.in_order and (barrier := cursor.barrier) is not None:
            end = min(end, barrier)
        offers = self._give(taker, shard, spans, records)
        cursor.advance(start, end)
        return offers

    def _deal_urgent(self, taker: Attachment, shard: int, run: ReadResult) -> list[Offer]:
        entry = self.subscription.cursors[shard].cursor
        records = holding(run.records, [(entry, entry + 1)])
        if not records or shard not in self._urgent_shards():
            return []
        return self._give(taker, shard, [(entry, entry + 1)], records)

    def _give(
        self, taker: Attachment, shard: int, spans: list[Span], records: list[StoredRecord]
    ) -> list[Offer]:
        """Spans of the records that were read go to a consumer; it pays for the records with its credit."""
        offers: list[Offer] = []
        for attempt, some in self.subscription.cursors[shard].take(spans):
            wanted = holding(records, some)
            taker.credit_bytes -= sum(map(size_of, wanted))
            taker.hold(shard, some)
            offers.append(Offer(taker, shard, attempt, some, wanted))
        return offers

    # --- what became of it --------------------------------------------------------------------------

    def settle(self, shard: int, start: int, end: int, *, dead: bool = False) -> int:
        """Entries are done with; returns how many were not before."""
        cursor = self.subscription.cursors[shard]
        return cursor.bury(start, end) if dead else cursor.settle(start, end)

    def came_back(self, shard: int, entries: EntrySet) -> None:
        """Entries that were out are to be offered again, now or later, or are dying."""

    def expired(self, attachment: Attachment, shard: int, entries: EntrySet) -> None:
        """Entries came back because a consumer did not settle them in time."""
        self.came_back(shard, entries)

    def reset(self) -> None:
        """All places were set anew."""


def first_of(run: ReadResult, entry: int | None) -> int:
    """The first entry that a run speaks of."""
    start = run.records[0].header.first_entry if run.records else run.next_entry
    return start if entry is None else min(start, entry)


def size_of(record: StoredRecord) -> int:
    return sum(map(len, record.parts))


def within(records: list[StoredRecord], budget: int) -> list[StoredRecord]:
    """The records that are sent for so many bytes of credit; the last one may go beyond them."""
    chosen: list[StoredRecord] = []
    for record in records:
        if budget <= 0:
            break
        chosen.append(record)
        budget -= size_of(record)
    return chosen


def holding(records: list[StoredRecord], spans: list[Span]) -> list[StoredRecord]:
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
