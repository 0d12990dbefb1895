"""A subscription: a named reader of a topic, durable whether anyone is connected or not.

This file is the machine for ``unique`` and ``non_resilient``: one consumer, messages flow under its credit,
a negative acknowledgement brings the message again after its backoff. It decides and counts; ``consuming``
turns its decisions into frames.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.model.entry_set import Span
from penstock.model.ranges import RangeSet
from penstock.node.core.cursor import ShardCursor

BACKOFF_FIRST_S = 0.1
BACKOFF_MAX_S = 60.0
SPANS_MAX = 4096
"""At most this many spans in one delivery, so that its frame stays small however holed the entries are."""


def backoff_s(deliveries: int) -> float:
    """How long a message waits after it was negatively acknowledged without a delay of its own."""
    return min(BACKOFF_MAX_S, BACKOFF_FIRST_S * 2.0 ** min(deliveries - 1, 32))


@dataclass(slots=True)
class Attachment:
    """The consumer that is connected now."""

    connection: int
    consumer: int
    name: str
    credit_bytes: int
    writable: bool = True
    """Whether its connection has room for more."""
    welcome: bool = False
    """Whether it was told that it is subscribed; nothing is sent to it before."""

    @property
    def open(self) -> bool:
        """Whether something can be sent to it now."""
        return self.welcome and self.writable and self.credit_bytes > 0


@dataclass(slots=True)
class Counts:
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    skipped: int = 0
    nacked: int = 0
    lost: int = 0
    late: int = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to read next for the consumer."""

    shard: int
    entry: int


@dataclass(frozen=True, slots=True)
class Offer:
    """Entries to send now, with the number of the attempt that this is for them."""

    attempt: int
    spans: list[Span]


@dataclass(slots=True)
class Subscription:
    topic_uuid: bytes
    name: str
    kind: str
    mode: str
    cursors: list[ShardCursor]
    created_at_us: int = 0
    attachment: Attachment | None = None
    counts: Counts = field(default_factory=Counts)
    fetching: dict[int, int] = field(default_factory=dict)
    """Shards with a read under way, and how many bytes it may bring."""
    _turn: int = 0

    # --- who reads ----------------------------------------------------------------------------------

    def attach(self, attachment: Attachment) -> None:
        assert self.attachment is None, "a unique subscription has one consumer"
        self.attachment = attachment

    def detach(self, seen: dict[int, RangeSet] | None = None) -> None:
        """The consumer is gone: what it held goes to the next one. ``seen`` is by shard; None for all."""
        self.attachment = None
        for shard, cursor in enumerate(self.cursors):
            cursor.release(None if seen is None else list(seen.get(shard, ())))

    @property
    def room_bytes(self) -> int:
        """What its consumer can take beyond the reads under way."""
        if self.attachment is None or not self.attachment.open:
            return 0
        return self.attachment.credit_bytes - sum(self.fetching.values())

    # --- what is read -------------------------------------------------------------------------------

    def want(self, ends: list[int], now_us: int) -> Wanted | None:
        """The next thing to read, if the consumer can take anything: what comes again before what is new.

        Shards take turns. ``ends`` are the shards' durable ends.
        """
        for cursor in self.cursors:
            cursor.wake(now_us)
        if self.room_bytes <= 0:
            return None
        shards = len(self.cursors)
        for step in range(shards):
            shard = (self._turn + step) % shards
            if shard in self.fetching:
                continue
            cursor = self.cursors[shard]
            again = cursor.ready.first
            if again is None and cursor.offered >= ends[shard]:
                continue
            self._turn = (shard + 1) % shards
            return Wanted(shard, cursor.offered if again is None else again)
        return None

    def offer(self, shard: int, start: int, end: int) -> list[Offer]:
        """What to send of the entries in ``[start, end)``, which were read."""
        cursor = self.cursors[shard]
        found = cursor.offer_again(start, end, SPANS_MAX)
        if start <= cursor.offered < end:
            found += cursor.offer_new(end, SPANS_MAX)
        offers = [Offer(attempt, spans) for attempt, spans in found]
        self.counts.redelivered += _count([offer for offer in offers if offer.attempt > 1])
        self.counts.delivered += _count(offers)
        return offers

    def lose(self, shard: int, start: int, end: int) -> int:
        """Entries that cannot be delivered; they count as done with, so that nobody waits for them."""
        lost = self.cursors[shard].settle(start, end)
        self.counts.lost += lost
        return lost

    # --- what became of it --------------------------------------------------------------------------

    def ack(self, shard: int, start: int, end: int) -> int:
        """Returns how many of the entries had been settled before."""
        settled = self.cursors[shard].settle(start, end)
        self.counts.acked += settled
        self.counts.late += end - start - settled
        return end - start - settled

    def skip(self, shard: int, start: int, end: int) -> int:
        settled = self.cursors[shard].settle(start, end)
        self.counts.skipped += settled
        self.counts.late += end - start - settled
        return end - start - settled

    def nack(self, shard: int, entry: int, delay_s: float | None, now_us: int) -> int | None:
        """Returns how often the entry was delivered; None where it is not out (settled, or never sent)."""
        cursor = self.cursors[shard]
        wait_s = backoff_s(cursor.deliveries(entry) + 1) if delay_s is None else delay_s
        deliveries = cursor.nack(entry, now_us + round(wait_s * 1e6))
        if deliveries is None:
            self.counts.late += 1
            return None
        self.counts.nacked += 1
        return deliveries

    @property
    def due_us(self) -> int | None:
        """When something that waits is to be offered again."""
        times = [time for cursor in self.cursors if (time := cursor.due_us) is not None]
        return min(times, default=None)


def _count(offers: list[Offer]) -> int:
    return sum(end - start for offer in offers for start, end in offer.spans)
