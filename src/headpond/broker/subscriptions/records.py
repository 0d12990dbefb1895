"""The records of the settlement journal: msgpack by position, told apart by a tag, each of them idempotent."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from headpond.broker.subscriptions.cursor import ReturnedSet, ShardCursor
from headpond.broker.subscriptions.entry_tally import EntryTally, Handed
from headpond.model.entry_set import Span
from headpond.model.errors import BadFrame
from headpond.model.policy import Policy

# What a subscription missed, and when somebody last read from it; both survive a restart.
#
# Ranges that touch and have the same reason are one. Past ``RANGES_MAX`` the oldest ones are let go of; their
# entries stay counted.

RANGES_MAX = 1000

LostRange = tuple[int, int, int, str, int]
"""(shard, start, end, reason, when)"""


class History:
    __slots__ = ("compacted", "expired", "lost", "seen_us")

    def __init__(self) -> None:
        self.lost: list[LostRange] = []
        self.expired = 0
        """Messages whose own time to live was over before they were delivered."""
        self.compacted = 0
        """Messages of a state topic that were superseded before it came to them."""
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
                # Told once more, as when a record is read twice, it is the same range.
                self.lost[number] = (shard, min(first, start), max(last, end), reason, at_us)
                return
        self.lost.append((shard, start, end, reason, at_us))


def unread(cursor: ShardCursor, start: int, end: int) -> list[Span]:
    """Entries that were neither settled nor are with a consumer."""
    return [
        span
        for missing in cursor.settled.missing(max(start, cursor.cursor), end)
        for span in cursor.held.missing(*missing)
        if span[0] < span[1]
    ]


class Opened(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A subscription was created; ``starts`` holds each shard's first entry to read."""

    topic: bytes
    name: str
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


class Settlement(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Entries of one shard were acknowledged, skipped, lost, or are to come again."""

    topic: bytes
    name: str
    shard: int
    acked: list[Span]
    skipped: list[Span]
    lost: list[Span]
    refused: list[tuple[int, int, int, int, int]]
    """(start, end, deliveries so far, when they may come again in µs, bound) of refused entries: what they wait
    for (unacked_log.py)."""
    dead: list[Span] = []
    """Entries that were tried too often; the dead-letter topic has them."""
    upto: int | None = None
    """Everything before this entry was acknowledged."""
    handed: Handed | None = None
    """The shard's totals at this time, for the ledger."""


class Removed(msgspec.Struct, array_like=True, frozen=True, tag=3):
    topic: bytes
    name: str


class ShardState(msgspec.Struct, array_like=True, frozen=True, tag=4):
    """Of a snapshot: one shard of a subscription as it stood."""

    topic: bytes
    name: str
    shard: int
    cursor: int
    settled: bytes
    dead: bytes
    skipped: bytes


class Totals(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """Of a snapshot: the counts that survive a restart."""

    topic: bytes
    name: str
    acked: int
    skipped: int
    lost: int
    nacked: int
    buried: int = 0
    redriven: int = 0
    redrives: int = 0
    generation: int = 0


class CameBack(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """Entries of one shard were not settled by whoever had them: (start, end, deliveries so far)."""

    topic: bytes
    name: str
    shard: int
    returned: list[tuple[int, int, int]]
    sets: list[tuple[int, bytes]] = []
    """Deliveries so far, and the bitmap of the entries: however many came back, in whatever pattern."""


class Paused(msgspec.Struct, array_like=True, frozen=True, tag=7):
    topic: bytes
    name: str
    paused: bool


class Moved(msgspec.Struct, array_like=True, frozen=True, tag=8):
    """The place in one shard was set: what lies before ``entry`` counts as settled, nothing else does."""

    topic: bytes
    name: str
    shard: int
    entry: int
    run: int = 0
    generation: int = 0
    """The subscription's from then on (subscription.py)."""


class Redriven(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """Dead entries of one shard are offered again; ``redrives`` counts how often that was asked for."""

    topic: bytes
    name: str
    shard: int
    spans: list[Span]
    redrives: int
    generation: int = 0


class Missed(msgspec.Struct, array_like=True, frozen=True, tag=10):
    """Entries of one shard that will not be delivered: damaged, dropped by retention, or expired."""

    topic: bytes
    name: str
    shard: int
    spans: list[Span]
    reason: str
    at_us: int


class MissedBefore(msgspec.Struct, array_like=True, frozen=True, tag=11):
    """Of a snapshot: what was missed, as it is shown."""

    topic: bytes
    name: str
    lost: list[LostRange]
    expired: int
    seen_us: int
    compacted: int = 0


class Seen(msgspec.Struct, array_like=True, frozen=True, tag=12):
    """The last consumer left."""

    topic: bytes
    name: str
    at_us: int


class Unacked(msgspec.Struct, array_like=True, frozen=True, tag=13):
    """Entries of one shard are in the unacked log, each named once with its time and once with its bound."""

    topic: bytes
    name: str
    shard: int
    by_due_us: list[tuple[int, bytes]]
    """A time of day in µs (0: it has come), and the bitmap of the entries that wait for it."""
    by_bound: list[tuple[int, bytes]]
    """A bound (0: none), and the bitmap of the entries that wait for everything before it."""


class Tallied(msgspec.Struct, array_like=True, frozen=True, tag=40):
    """Of a snapshot: how the entries of one shard were settled."""

    topic: bytes
    name: str
    shard: int
    tally: EntryTally


class HandedOut(msgspec.Struct, array_like=True, frozen=True, tag=41):
    """Copies went out, and nothing was settled."""

    topic: bytes
    name: str
    shard: int
    handed: Handed
    unsure: bytes = b""
    """Entries that may have been looked at by consumers that were lost."""


class PassedOver(msgspec.Struct, array_like=True, frozen=True, tag=42):
    """Entries of one shard that compaction took out before the subscription came to them: they are settled.

    Written down, since what follows counts what is not settled yet, and a log that drops them forgets them.
    """

    topic: bytes
    name: str
    shard: int
    entries: bytes


class Copied(msgspec.Struct, array_like=True, frozen=True, tag=43):
    """The subscription is a copy of another node's, or was one and is ``active`` since it was promoted."""

    topic: bytes
    name: str
    node: str
    """The source's id."""
    link: str
    url: str
    epoch: int
    generation: int
    at_us: int
    active: bool = False


class CopyPlace(msgspec.Struct, array_like=True, frozen=True, tag=44):
    """Everything before ``floor`` in the source's log is settled here; behind the settlements it stands for."""

    topic: bytes
    name: str
    shard: int
    floor: int


Change = (
    Opened
    | Settlement
    | Removed
    | ShardState
    | Totals
    | CameBack
    | Paused
    | Moved
    | Redriven
    | Missed
    | MissedBefore
    | Seen
    | Unacked
    | Tallied
    | HandedOut
    | PassedOver
    | Copied
    | CopyPlace
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Change] = msgspec.msgpack.Decoder(Change)

RETURNED_MAX = 4096
"""Spans of entries that came back, per record of a snapshot."""
UNACKED_MAX = 1 << 20
"""How many entries one record of the unacked log spans: some MiB, whatever they wait for."""
PASSED_MAX = 1 << 26
"""How many entries one record of a set of them spans: 8 MiB, whatever their pattern."""

encode_change = _encoder.encode


def came_back(topic: bytes, name: str, shard: int, returned: list[ReturnedSet]) -> Iterator[CameBack]:
    """What the journal is to hold of entries that came back."""
    for deliveries, entries in returned:
        for part in entries.parts(PASSED_MAX):
            yield CameBack(topic, name, shard, [], [(deliveries, part.encode())])


def decode_change(body: bytes) -> Change:
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BadFrame(f"a settlement that cannot be read: {error}") from error
