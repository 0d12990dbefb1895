"""The kinds of subscription that do not look at keys: unique, failover and shared.

In a resilient unique or failover subscription the client keeps the order: the node sends messages ahead, and
the client hands them out one at a time. In a resilient shared subscription the node sends one message at a
time; a consumer keeps the last record that it was sent, so the next message of that record costs a short frame
and no read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from headpond.broker.subscriptions.attachment import Attachment
from headpond.broker.subscriptions.cursor import ShardCursor
from headpond.broker.subscriptions.subscription import (
    Offer,
    ReadRequest,
    Subscription,
    first_of,
    holding,
)
from headpond.model.entry_set import Span
from headpond.model.errors import SubscriptionBusy
from headpond.model.ranges import overlap
from headpond.storage.log.read import ReadResult, StoredRecord, segment_of
from headpond.wire.expiry import expiries_us

SPANS_MAX = 4096
"""At most this many spans in one delivery, so that its frame stays small."""
FAILURES_MAX = 10_000
COPIES_MIN = 4
"""A large record is divided among at most this many consumers."""
COPIES_BYTES = 256 * 1024
"""A small record is divided among as many as make this many bytes in all."""


class Single(Subscription):
    """One consumer gets everything."""

    single: ClassVar[bool] = True

    def receivers(self) -> list[Attachment]:
        if self.paused or not self.attachments:
            return []
        first = self.attachments[0]
        if first.open or (self.strict and first.resumed and first.reachable and self._urgent_shards()):
            return [first]
        return []

    def _urgent_shards(self) -> list[int]:
        """The shards whose next message was refused and is ready, where the subscription is resilient.

        The consumer hands out nothing before it and so grants no credit: it is sent without credit. A consumer
        that has not resumed may have settled it: the settlements that it repeats are on the way.
        """
        if not self.strict:
            return []
        return [shard for shard, cursor in enumerate(self.cursors) if cursor.ready.first == cursor.cursor]

    def next_read(self, receivers: list[Attachment], ends: list[int], bytes_max: int) -> ReadRequest | None:
        room = self.room_bytes(receivers)
        if room > 0:
            return self._next_read(ends, bytes_max, room, in_order=self.strict)
        for shard in self._urgent_shards():
            if shard not in self.fetching:
                return ReadRequest(shard, self.cursors[shard].cursor, 1)
        return None

    def offer(self, shard: int, run: ReadResult, entry: int | None) -> list[Offer]:
        receivers = self.receivers()
        if not receivers:
            return []
        receiver, cursor = receivers[0], self.cursors[shard]
        if receiver.credit_bytes <= 0:
            return self._offer_urgent(receiver, shard, run)
        records = _within(run.records, receiver.credit_bytes)
        start = first_of(run, entry)
        end = run.next_entry if len(records) == len(run.records) else records[-1].header.end_entry
        if cursor.ready.bits and cursor.ready.bits.min() < start:
            return []  # it came back while this was read, and is read first
        if self.strict and (barrier := cursor.barrier) is not None:
            end = min(end, barrier)
        spans = cursor.available(start, end, SPANS_MAX)
        if len(spans) == SPANS_MAX:
            end = spans[-1][1]
        offers = self._give(receiver, shard, spans, records)
        cursor.advance(start, end)
        return offers

    def _offer_urgent(self, receiver: Attachment, shard: int, run: ReadResult) -> list[Offer]:
        entry = self.cursors[shard].cursor
        records = holding(run.records, [(entry, entry + 1)])
        if not records or shard not in self._urgent_shards():
            return []
        return self._give(receiver, shard, [(entry, entry + 1)], records)


class Unique(Single):
    """One consumer attaches; another can only when the first one's lease is over."""

    def _make_room(self, now_us: int) -> None:
        if not self.attachments:
            return
        holder = self.attachments[0]
        if not self.lease_s or holder.lease_until_us > now_us:
            wait_s = (holder.lease_until_us - now_us) / 1e6
            more = f", which is away; its lease lasts {wait_s:.1f} s more" if not holder.connected else ""
            raise SubscriptionBusy(
                f"the unique subscription {self.name!r} has a consumer: {holder.shown}{more}"
            )
        self._drop(holder, None)
        self._result().detached.append(holder)


class Failover(Single):
    """One consumer is active, the others stand by; one that fails a message too often steps back."""

    def failed(self, attachment: Attachment, shard: int, spans: Iterable[Span]) -> None:
        tries_max, tries = self.policy.failover_after or 1, 0
        for start, end in spans:
            for entry in range(start, end):
                tries += 1
                if tries > FAILURES_MAX or self.attachments[:1] != [attachment] or len(self.attachments) < 2:
                    return
                if len(attachment.failures) > FAILURES_MAX:
                    attachment.failures.clear()
                failures = attachment.failures[shard, entry] = attachment.failures.get((shard, entry), 0) + 1
                # The lease of a consumer that is away continues.
                if failures >= tries_max and all(each.connected for each in self.attachments[:2]):
                    self._step_back(attachment)
                    return

    def _step_back(self, attachment: Attachment) -> None:
        """The active consumer goes to the end of the line."""
        attachment.failures.clear()
        # In strict order its program had nothing but the message that it failed, unless it failed to settle it
        # in time: then it may have settled it since, and continued.
        self._take_all(attachment, {}, {}, sure=self.strict and not attachment.overdue)
        self.attachments.append(self.attachments.pop(0))
        self._result().roles += [attachment, self.attachments[0]]


class Shared(Subscription):
    """Each message goes to one of several consumers.

    Records are dealt round robin. Where there are more consumers than records, the rows of one record are
    divided into runs, one per consumer; the record then goes to each of them, which is bounded (``COPIES_MIN``,
    ``COPIES_BYTES``).
    """

    _last: Attachment | None = None
    """The consumer that was served last."""

    def receivers(self) -> list[Attachment]:
        """One that stalls is passed over while another one is there: it costs one deadline."""
        found: list[Attachment] = []
        stalled = others = False
        for each in self.attachments if not self.paused else ():
            stalled = stalled or each.overdue
            others = others or (each.connected and not each.overdue)
            if each.open:
                found.append(each)
        return [each for each in found if not each.overdue] if stalled and others else found

    def _in_turn(self) -> list[Attachment]:
        """The receivers in the order of their turns."""
        receivers, last = self.receivers(), self._last
        if last is None or len(receivers) < 2 or last not in self.attachments:
            return receivers
        later = set(self.attachments[self.attachments.index(last) + 1 :])
        split = next((index for index, each in enumerate(receivers) if each in later), 0)
        return receivers[split:] + receivers[:split]

    def offer(self, shard: int, run: ReadResult, entry: int | None) -> list[Offer]:
        receivers = self._in_turn()
        if not receivers:
            return []
        cursor = self.cursors[shard]
        start = first_of(run, entry)
        spans = cursor.available(start, run.next_entry, SPANS_MAX)
        end = spans[-1][1] if len(spans) == SPANS_MAX else run.next_entry
        runs = len(receivers) / max(1, len(run.records))
        offers: list[Offer] = []
        for record in run.records:
            mine = overlap(spans, record.header.first_entry, record.header.end_entry)
            for piece in _cut(mine, _pieces(record, mine, runs)):
                receiver = self._next(receivers)
                if receiver is None:
                    cursor.advance(start, piece[0][0])
                    return offers
                offers += self._give(receiver, shard, piece, [record])
        cursor.advance(start, end)
        return offers

    def _next(self, receivers: list[Attachment]) -> Attachment | None:
        """The consumer whose turn it is; then its turn is over."""
        for index, receiver in enumerate(receivers):
            if receiver.open:
                receivers.append(receivers.pop(index))
                self._last = receiver
                return receiver
        return None

    def _cache(self, receivers: list[Attachment], shard: int, record: StoredRecord) -> None:
        """Consumers keep this record, unless rows of it can expire: only a read finds those."""
        if not receivers:
            return
        header = record.header
        lasts = expiries_us(segment_of(record), self.schemas(), header.stored_at_us) is None
        for receiver in receivers:
            if lasts:
                receiver.cached[shard] = (header.first_entry, header.end_entry)
            else:
                receiver.cached.pop(shard, None)


class SharedInOrder(Shared):
    """Shared and resilient: one message is delivered at a time, to any of the consumers."""

    settling_frees: ClassVar[bool] = True
    reads_packed: ClassVar[bool] = False

    def _blocked(self) -> bool:
        """Whether a message is delivered, or is to be redelivered before any other."""
        return any(map(_is_blocked, self.cursors))

    def next_read(self, receivers: list[Attachment], ends: list[int], bytes_max: int) -> ReadRequest | None:
        if self.fetching or self._blocked():
            return None
        return super().next_read(receivers, ends, 1)

    def offer_cached(self, ends: list[int]) -> list[Offer]:
        receivers = self._in_turn()
        if not receivers or self.fetching or self._blocked():
            return []
        receiver, shards = receivers[0], len(self.cursors)
        for step in range(shards):
            shard = (self._turn + step) % shards
            cursor = self.cursors[shard]
            entry = cursor.next_wanted(ends[shard])
            if entry is None:
                continue
            first, last = receiver.cached.get(shard, (0, 0))
            spans = cursor.available(entry, last, 1) if first <= entry < last else []
            if not spans:
                return []
            self._turn = (shard + 1) % shards
            return self._give_one(receiver, shard, entry, spans[0][0], [])
        return []

    def offer(self, shard: int, run: ReadResult, entry: int | None) -> list[Offer]:
        receivers = self._in_turn()
        if not receivers or self._blocked():
            return []
        cursor = self.cursors[shard]
        start = first_of(run, entry)
        spans = cursor.available(start, run.next_entry, 1)
        if not spans:
            cursor.advance(start, run.next_entry)
            return []
        records = holding(run.records, [(spans[0][0], spans[0][0] + 1)])
        self._cache(receivers[:1], shard, records[0])
        return self._give_one(receivers[0], shard, start, spans[0][0], records)

    def _give_one(
        self, receiver: Attachment, shard: int, start: int, entry: int, records: list[StoredRecord]
    ) -> list[Offer]:
        self._last = receiver
        offers = self._give(receiver, shard, [(entry, entry + 1)], records)
        self.cursors[shard].advance(start, entry + 1)
        return offers


def _is_blocked(cursor: ShardCursor) -> bool:
    return bool(cursor.held.bits or cursor.unacked_log.entries.bits or cursor.dying.bits)


def _within(records: list[StoredRecord], budget: int) -> list[StoredRecord]:
    """The records that a credit of ``budget`` bytes allows; the last one may exceed it."""
    for index, record in enumerate(records):
        if budget <= 0:
            return records[:index]
        budget -= sum(map(len, record.parts))
    return records


def _pieces(record: StoredRecord, spans: list[Span], runs: float) -> int:
    """Among how many consumers a record's rows are divided."""
    rows = sum(end - start for start, end in spans)
    copies = max(COPIES_MIN, COPIES_BYTES // max(1, sum(map(len, record.parts))))
    return max(1, min(rows, copies, -int(-runs // 1)))


def _cut(spans: list[Span], pieces: int) -> list[list[Span]]:
    """The spans in parts of about the same number of rows, in order."""
    if pieces == 1:
        return [spans] if spans else []
    rows = sum(end - start for start, end in spans)
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
