"""Shared subscriptions: several consumers, each message to one of them.

Records go round. Where there are more consumers than records, the rows of one record are dealt out in runs, one
a consumer; the record then travels once to each of them, which is bounded (``COPIES_MIN``, ``COPIES_BYTES``).

In resilient mode one message is out at a time, whoever has it. The record it stands in is sent once to a
consumer, which keeps the last one it was sent; what follows in it costs a short frame and no reading.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headpond.broker.subscriptions.attachment import Attachment
from headpond.broker.subscriptions.dispatch import (
    SPANS_MAX,
    Dispatch,
    Offer,
    Wanted,
    first_of,
    holding,
    size_of,
)
from headpond.model.entry_set import Span
from headpond.storage.log.read import ReadResult, StoredRecord, segment_of
from headpond.wire.plain.expiry import expiries_us

if TYPE_CHECKING:
    from headpond.broker.subscriptions.subscription import Subscription

COPIES_MIN = 4
"""A record, however large, is dealt out to so many consumers."""
COPIES_BYTES = 256 * 1024
"""A small one to as many as make this many bytes in all."""


class Rotation:
    """Whose turn it is; a consumer that cannot take anything is passed over."""

    def __init__(self) -> None:
        self.last: Attachment | None = None

    def after_last(self, attachments: list[Attachment], takers: list[Attachment]) -> list[Attachment]:
        """The takers in the order of their turns."""
        if self.last not in attachments or not takers:
            return takers
        place = {attachment: index for index, attachment in enumerate(attachments)}
        behind = place[self.last]
        return sorted(takers, key=lambda each: (place[each] <= behind, place[each]))


class SharedDispatch(Dispatch):
    def __init__(self, subscription: Subscription) -> None:
        super().__init__(subscription)
        self._rotation = Rotation()

    @property
    def in_order(self) -> bool:
        return False

    def takers(self) -> list[Attachment]:
        """Those with room. One that stalls is passed over while another is there: it costs one deadline."""
        attachments = self.subscription.attachments
        heard = any(each.connected and not each.overdue for each in attachments)
        return [each for each in attachments if each.open and not (heard and each.overdue)]

    def _keep(self, takers: list[Attachment], shard: int, record: StoredRecord) -> None:
        """What follows in the record comes without it, unless rows of it expire: a read finds those."""
        if not takers:
            return
        header, schemas = record.header, self.subscription.schemas()
        lasts = expiries_us(segment_of(record), schemas, header.stored_at_us) is None
        for taker in takers:
            if lasts:
                taker.cached[shard] = (header.first_entry, header.end_entry)
            else:
                taker.cached.pop(shard, None)

    def _in_turn(self) -> list[Attachment]:
        return self._rotation.after_last(self.subscription.attachments, self.takers())

    def deal(self, shard: int, run: ReadResult, entry: int | None) -> list[Offer]:
        takers = self._in_turn()
        cursor = self.subscription.cursors[shard]
        start = first_of(run, entry)
        spans = cursor.available(start, run.next_entry, SPANS_MAX)
        end = spans[-1][1] if len(spans) == SPANS_MAX else run.next_entry
        runs = len(takers) / max(1, len(run.records))
        offers: list[Offer] = []
        for record in run.records:
            mine = _clip(spans, record.header.first_entry, record.header.end_entry)
            for piece in _cut(mine, _pieces(record, mine, runs)):
                taker = self._next(takers)
                if taker is None:
                    cursor.advance(start, piece[0][0])
                    return offers
                offers += self._give(taker, shard, piece, [record])
        cursor.advance(start, end)
        return offers

    def _next(self, takers: list[Attachment]) -> Attachment | None:
        """The one whose turn it is, of those with room; its turn is over then."""
        for index, taker in enumerate(takers):
            if taker.open:
                takers.append(takers.pop(index))
                self._rotation.last = taker
                return taker
        return None


class OneAtATime(SharedDispatch):
    """Shared and resilient."""

    def _blocked(self) -> bool:
        """Whether a message is out, or is to come again before any other."""
        cursors = self.subscription.cursors
        return any(cursor.held or cursor.unacked_log or cursor.dying for cursor in cursors)

    def want(self, ends: list[int], bytes_max: int) -> Wanted | None:
        if self._blocked() or self.subscription.fetching:
            return None
        return super().want(ends, 1)

    def direct(self, ends: list[int]) -> list[Offer]:
        """The next message, where the consumer whose turn it is has its record already."""
        takers = self._in_turn()
        if not takers or self._blocked() or self.subscription.fetching:
            return []
        taker = takers[0]
        shards = len(self.subscription.cursors)
        for step in range(shards):
            shard = (self._turn + step) % shards
            cursor = self.subscription.cursors[shard]
            entry = cursor.next_wanted(ends[shard])
            if entry is None:
                continue
            first, last = taker.cached.get(shard, (0, 0))
            spans = cursor.available(entry, last, 1) if first <= entry < last else []
            if not spans:
                return []
            self._turn = (shard + 1) % shards
            return self._give_one(taker, shard, entry, spans[0][0], [])
        return []

    def deal(self, shard: int, run: ReadResult, entry: int | None) -> list[Offer]:
        takers = self._in_turn()
        if not takers or self._blocked():
            return []
        cursor = self.subscription.cursors[shard]
        start = first_of(run, entry)
        spans = cursor.available(start, run.next_entry, 1)
        if not spans:
            cursor.advance(start, run.next_entry)
            return []
        records = holding(run.records, [(spans[0][0], spans[0][0] + 1)])
        self._keep(takers[:1], shard, records[0])
        return self._give_one(takers[0], shard, start, spans[0][0], records)

    def _give_one(
        self, taker: Attachment, shard: int, start: int, entry: int, records: list[StoredRecord]
    ) -> list[Offer]:
        cursor = self.subscription.cursors[shard]
        self._rotation.last = taker
        offers = self._give(taker, shard, [(entry, entry + 1)], records)
        cursor.advance(start, entry + 1)
        return offers


def _clip(spans: list[Span], first: int, end: int) -> list[Span]:
    return [(max(a, first), min(b, end)) for a, b in spans if a < end and b > first]


def _pieces(record: StoredRecord, spans: list[Span], runs: float) -> int:
    """Among how many consumers a record's rows are dealt out."""
    rows = sum(end - start for start, end in spans)
    copies = max(COPIES_MIN, COPIES_BYTES // max(1, size_of(record)))
    return max(1, min(rows, copies, -int(-runs // 1)))


def _cut(spans: list[Span], pieces: int) -> list[list[Span]]:
    """The spans in so many parts of about the same number of rows, in order."""
    rows = sum(end - start for start, end in spans)
    if not rows:
        return []
    parts: list[list[Span]] = []
    left, room = rows, 0
    for start, end in spans:
        while start < end:
            if room == 0:
                room = -(-left // (pieces - len(parts)))
                parts.append([])
            stop = min(end, start + room)
            parts[-1].append((start, stop))
            left -= stop - start
            room -= stop - start
            start = stop
    return parts
