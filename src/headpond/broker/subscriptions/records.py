"""The records of the settlement journal: msgpack by position, distinguished by a tag, each of them idempotent.

A damaged or unknown record raises ``BadFrame`` when the node opens the journal. ``ShardTally`` and ``History``
are what a subscription counts and remembers beside the state of its entries; both survive a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from headpond.model.entry_set import EntrySet, Span
from headpond.model.policy import Policy

ACKED = "acked"
SKIPPED = "skipped"
DEAD = "dead"
RETENTION = "retention"
DAMAGED = "damaged"
EXPIRED = "expired"
COMPACTED = "compacted"
"""Settled in a state topic: a later entry of the key replaced it."""
COUNTED = (ACKED, SKIPPED, RETENTION, DAMAGED, EXPIRED, COMPACTED)
"""Dead entries are a set and not a count, since they can be offered again."""
LOST = (RETENTION, DAMAGED, EXPIRED)
"""Settled by the node and not by a consumer."""

Returned = tuple[int, int, int]
"""(start, end, deliveries) of entries that came back."""
ReturnedSet = tuple[int, EntrySet]
"""A number of deliveries, and the entries that came back and were delivered that often."""
CopyTotals = tuple[int, int, int, int, int]
"""Totals: delivered, redelivered, unseen, elsewhere, late."""
NO_COPIES: CopyTotals = (0, 0, 0, 0, 0)


@dataclass(slots=True)
class SubscriptionCounts:
    """Totals of a whole subscription; a seek does not reset them."""

    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    skipped: int = 0
    nacked: int = 0
    lost: int = 0
    late: int = 0
    buried: int = 0
    redriven: int = 0


class ShardTally(msgspec.Struct, array_like=True):
    """The subscription's side of the ledger, for one shard: how entries were settled, how many copies went out.

    It counts from ``start`` on, the subscription's first entry; a seek begins a new tally there. An entry is
    counted when it becomes settled, so the sum must equal what the cursor and its bitmap say.
    """

    start: int = 0
    run: int = 0
    """The node's run in which it began."""
    acked: int = 0
    skipped: int = 0
    retention: int = 0
    damaged: int = 0
    expired: int = 0
    compacted: int = 0
    passed: int = 0
    unknown: int = 0
    delivered: int = 0
    """Copies delivered since ``copies_run``; so are the next four counts."""
    redelivered: int = 0
    """Copies that were a further attempt."""
    unseen: int = 0
    """Copies that a consumer returned without having handed them to its program."""
    elsewhere: int = 0
    """Entries settled or held by a consumer that they were not delivered to."""
    late: int = 0
    """Entries settled once more."""
    copies_run: int = 0
    reached_before: int = 0
    """Entries that had reached a consumer when that run began."""
    delivered_before: int = 0
    """Copies delivered before that run, at least."""
    reached_lost: int = 0
    """Entries that reached a consumer, came back, and cannot be delivered again."""

    def settled(self, kind: str, count: int) -> None:
        """Counts entries that were not settled before."""
        if kind != DEAD:
            kind = kind if kind in COUNTED else DAMAGED
            setattr(self, kind, getattr(self, kind) + count)

    @property
    def copies(self) -> CopyTotals:
        return self.delivered, self.redelivered, self.unseen, self.elsewhere, self.late

    @copies.setter
    def copies(self, totals: CopyTotals) -> None:
        self.delivered, self.redelivered, self.unseen, self.elsewhere, self.late = totals

    def restore_copies(self, before: CopyTotals, totals: CopyTotals) -> None:
        """Totals from the journal, where they were ``before``; a record that is read twice changes nothing."""
        delivered, redelivered, unseen, elsewhere, late = map(max, before, totals)
        self.copies = (delivered, redelivered, unseen, elsewhere, late)

    def begin_copies(self, run: int, reached: int) -> None:
        """A run was cut short and its last deliveries are unknown: the count of copies restarts."""
        self.delivered_before += self.delivered
        self.copies = NO_COPIES
        self.copies_run, self.reached_before = run, reached

    def reopened(self, first: int, count: int, dead: int) -> None:
        """``count`` entries from ``first`` on, before the start, are offered again; ``dead`` others are not."""
        self.passed += self.start - first - count - dead
        self.reached_before += count + dead  # an entry dies only after deliveries
        self.start = first


RANGES_MAX = 1000

LostRange = tuple[int, int, int, str, int]
"""(shard, start, end, reason, when)"""


class History:
    """What a subscription missed, and when a consumer was last attached.

    Adjacent ranges with the same reason are one. Past ``RANGES_MAX`` the oldest ranges are dropped; their
    entries stay counted.
    """

    __slots__ = ("compacted", "expired", "lost", "seen_us")

    def __init__(self) -> None:
        self.lost: list[LostRange] = []
        self.expired = 0
        """Messages whose time to live ended before they were delivered."""
        self.compacted = 0
        """Messages of a state topic that a later one of their key replaced before they were delivered."""
        self.seen_us = 0
        """When a consumer was last attached; 0 where that is not known."""

    def add(self, shard: int, spans: list[Span], reason: str, at_us: int) -> None:
        for start, end in spans:
            self._add(shard, start, end, reason, at_us)
        del self.lost[:-RANGES_MAX]

    def _add(self, shard: int, start: int, end: int, reason: str, at_us: int) -> None:
        for number in range(len(self.lost) - 1, -1, -1):
            its_shard, first, last, its_reason, _ = self.lost[number]
            if (its_shard, its_reason) == (shard, reason) and start <= last and first <= end:
                # A record that is read twice gives the same range.
                self.lost[number] = (shard, min(first, start), max(last, end), reason, at_us)
                return
        self.lost.append((shard, start, end, reason, at_us))


class SubscriptionRecord(msgspec.Struct, array_like=True, frozen=True):
    """The fields that every record begins with."""

    topic: bytes
    name: str


class ShardRecord(SubscriptionRecord, frozen=True):
    shard: int


class Opened(SubscriptionRecord, frozen=True, tag=1):
    """A subscription was created; ``starts`` holds each shard's first entry to read."""

    kind: str
    mode: str
    starts: list[int]
    created_at_us: int
    policy: Policy
    """With every default filled in."""
    run: int = 0
    """Of the node, in which it was created."""
    state: list[tuple[int, bytes]] = []
    """Of one that begins with a state topic's state: each shard's end, and the bitmap of the entries before it
    that are to be delivered. All others before the end count as settled."""


class Settlement(ShardRecord, frozen=True, tag=2):
    """Entries of one shard were acknowledged, skipped, refused, or are dead."""

    acked: list[Span]
    skipped: list[Span]
    unused: list[Span]
    """Empty; losses are ``Missed`` records."""
    refused: list[tuple[int, int, int, int, int]]
    """(start, end, deliveries so far, time of day in µs, bound) of refused entries; they wait for that time and
    that bound before they are redelivered (unacked_log.py)."""
    dead: list[Span] = []
    """Entries that reached ``max_attempts``; the dead-letter topic has them."""
    upto: int | None = None
    """Everything before this entry was acknowledged."""
    copies: CopyTotals | None = None
    """The shard's totals at this time, for the ledger."""
    at_us: int = 0
    """Where entries were refused: the time of day then."""
    dying: list[Span] = []
    """Those of the refused entries that are not to be delivered again."""
    reasons: list[tuple[int, str]] = []
    """Refused entries, and why."""


class Removed(SubscriptionRecord, frozen=True, tag=3):
    """The subscription was deleted."""


class ShardState(ShardRecord, frozen=True, tag=4):
    """Of a snapshot: the settled entries of one shard."""

    cursor: int
    settled: bytes
    dead: bytes
    skipped: bytes
    dying: bytes = b""
    reasons: list[tuple[int, str]] = []
    """Refused entries, and why."""
    reasons_dropped: bytes = b""
    """The bitmap of refused entries whose reason the node did not keep."""


class Totals(SubscriptionRecord, frozen=True, tag=5):
    """Of a snapshot: the counts that survive a restart."""

    acked: int
    skipped: int
    lost: int
    nacked: int
    buried: int = 0
    redriven: int = 0
    redrives: int = 0
    generation: int = 0


class CameBack(ShardRecord, frozen=True, tag=6):
    """Entries of one shard came back unsettled: (start, end, deliveries so far)."""

    returned: list[tuple[int, int, int]]
    sets: list[tuple[int, bytes]] = []
    """Deliveries so far, and the bitmap of the entries that came back."""


class Paused(SubscriptionRecord, frozen=True, tag=7):
    paused: bool


class Moved(ShardRecord, frozen=True, tag=8):
    """A seek in one shard: everything before ``entry`` counts as settled, and nothing else does."""

    entry: int
    run: int = 0
    generation: int = 0
    """Of the subscription from then on (subscription.py)."""


class EntriesRedriven(ShardRecord, frozen=True, tag=9):
    """Dead entries of one shard are offered again; ``redrives`` counts the requests for that."""

    spans: list[Span]
    redrives: int
    generation: int = 0


class Missed(ShardRecord, frozen=True, tag=10):
    """Entries of one shard that will not be delivered: damaged, dropped by retention, or expired."""

    spans: list[Span]
    reason: str
    at_us: int


class MissedBefore(SubscriptionRecord, frozen=True, tag=11):
    """Of a snapshot: the subscription's ``History``."""

    lost: list[LostRange]
    expired: int
    seen_us: int
    compacted: int = 0


class LastAttached(SubscriptionRecord, frozen=True, tag=12):
    """The last consumer left."""

    at_us: int


class Unacked(ShardRecord, frozen=True, tag=13):
    """Entries of one shard are in the unacked log, each named once with its time and once with its bound."""

    by_due_us: list[tuple[int, bytes]]
    """A time of day in µs (0: it has come), and the bitmap of the entries that wait for it."""
    by_bound: list[tuple[int, bytes]]
    """A bound (0: none), and the bitmap of the entries that wait for everything before it."""
    at_us: int = 0
    """The time of day when this was written."""


class Tallied(ShardRecord, frozen=True, tag=40):
    """Of a snapshot: how the entries of one shard were settled."""

    tally: ShardTally


class CopiesDelivered(ShardRecord, frozen=True, tag=41):
    """Copies went out, and nothing was settled."""

    copies: CopyTotals
    unsure: bytes = b""
    """Entries that lost consumers may have handed to their programs."""


class PassedOver(ShardRecord, frozen=True, tag=42):
    """Entries of one shard that compaction removed before they were delivered: they are settled.

    The journal has them because later records count unsettled entries, and the log forgets what it removed.
    """

    entries: bytes


class Copied(SubscriptionRecord, frozen=True, tag=43):
    """The subscription is a copy of another node's, or was one and became ``active`` by promotion."""

    node: str
    """The source's id."""
    link: str
    url: str
    epoch: int
    generation: int
    at_us: int
    active: bool = False


class CopyPlace(ShardRecord, frozen=True, tag=44):
    """Everything before ``floor`` in the source's log is settled here; it follows those settlements."""

    floor: int


class Reach(ShardRecord, frozen=True, tag=45):
    """Entries before ``end`` may be delivered from now on: a crash loses the knowledge of which ones were."""

    end: int
    flagged: bytes = b""
    """Entries that programs may have had, of a snapshot or a clean stop."""


Change = (
    Opened
    | Settlement
    | Removed
    | ShardState
    | Totals
    | CameBack
    | Paused
    | Moved
    | EntriesRedriven
    | Missed
    | MissedBefore
    | LastAttached
    | Unacked
    | Tallied
    | CopiesDelivered
    | PassedOver
    | Copied
    | CopyPlace
    | Reach
)

RETURNED_MAX = 4096
"""Spans of entries that came back, per record of a snapshot."""
UNACKED_MAX = 1 << 20
"""How many entries one record of the unacked log spans: some MiB at most."""
PASSED_MAX = 1 << 26
"""How many entries one bitmap in a record spans: 8 MiB at most."""


def came_back(topic: bytes, name: str, shard: int, returned: Iterable[ReturnedSet]) -> Iterator[CameBack]:
    """The journal records of entries that came back."""
    for deliveries, entries in returned:
        for part in entries.parts(PASSED_MAX):
            yield CameBack(topic, name, shard, [], [(deliveries, part.encode())])
