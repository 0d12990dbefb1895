"""What the settlement journal holds: which subscriptions there are and what became of their entries.

One journal for the whole node, a record a change, msgpack by position, told apart by a tag. When it grows
long it is compacted to ``snapshot``: each subscription as it is now. Records are idempotent, so reading one
twice does no harm. A record about a topic that is gone is passed over.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from penstock.model.entry_set import EntrySet, Span
from penstock.model.errors import BadFrame
from penstock.model.policy import Policy
from penstock.node.core.cursor import ShardCursor
from penstock.node.core.history import History, LostRange
from penstock.node.core.subscription import Subscription


class Opened(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A subscription was created; ``starts`` holds each shard's first entry to read."""

    topic: bytes
    name: str
    kind: str
    mode: str
    starts: list[int]
    created_at_us: int
    policy: Policy | None = None
    """With every default filled in; None in what was written before there were policies."""
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
    returned: list[tuple[int, int, int]]
    """(start, end, deliveries so far) of entries that were refused and are to be offered again."""
    dead: list[Span] = []
    """Entries that were tried too often; the dead-letter topic has them."""
    upto: int | None = None
    """Everything before this entry was acknowledged."""


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
    returned: list[tuple[int, int, int]]
    dead: bytes = b""


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


class CameBack(msgspec.Struct, array_like=True, frozen=True, tag=6):
    """Entries of one shard were not settled by whoever had them: (start, end, deliveries so far)."""

    topic: bytes
    name: str
    shard: int
    returned: list[tuple[int, int, int]]


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


class Redriven(msgspec.Struct, array_like=True, frozen=True, tag=9):
    """Dead entries of one shard are offered again; ``redrives`` counts how often that was asked for."""

    topic: bytes
    name: str
    shard: int
    spans: list[Span]
    redrives: int


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
)

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Change] = msgspec.msgpack.Decoder(Change)

EXPIRED = "expired"
"""The reason of messages that were not delivered because their own time to live was over."""
RETURNED_MAX = 4096
"""Spans of entries that came back, per record of a snapshot."""

encode_change = _encoder.encode


def decode_change(body: bytes) -> Change:
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BadFrame(f"a settlement that cannot be read: {error}") from error


class Subscriptions:
    """All subscriptions of a node, as the journal tells them."""

    def __init__(self) -> None:
        self._by_topic: dict[bytes, dict[str, Subscription]] = {}
        self._histories: dict[tuple[bytes, str], History] = {}

    def history(self, subscription: Subscription) -> History:
        """What it missed, and when somebody was last there."""
        return self._histories.setdefault((subscription.topic_uuid, subscription.name), History())

    def get(self, topic: bytes, name: str) -> Subscription | None:
        return self._by_topic.get(topic, {}).get(name)

    def __len__(self) -> int:
        return sum(map(len, self._by_topic.values()))

    def of_topic(self, topic: bytes) -> list[Subscription]:
        return list(self._by_topic.get(topic, {}).values())

    def all(self) -> Iterator[Subscription]:
        for subscriptions in self._by_topic.values():
            yield from subscriptions.values()

    def drop_topic(self, topic: bytes) -> list[Subscription]:
        gone = list(self._by_topic.pop(topic, {}).values())
        for subscription in gone:
            self._histories.pop((topic, subscription.name), None)
        return gone

    def apply(self, change: Change) -> None:
        """Makes a change that is in the journal, or is about to be."""
        if isinstance(change, Opened):
            self._open(change)
            return
        subscription = self.get(change.topic, change.name)
        if subscription is None:
            return
        if isinstance(change, Removed):
            del self._by_topic[change.topic][change.name]
            self._histories.pop((change.topic, change.name), None)
        elif isinstance(change, Totals):
            counts = subscription.counts
            counts.acked, counts.skipped, counts.lost = change.acked, change.skipped, change.lost
            counts.nacked, counts.buried = change.nacked, change.buried
            counts.redriven, subscription.redrives = change.redriven, change.redrives
        elif isinstance(change, Paused):
            subscription.paused = change.paused
        elif isinstance(change, Seen | MissedBefore):
            self._recall(subscription, change)
        elif change.shard >= len(subscription.cursors):
            raise BadFrame(f"a settlement of shard {change.shard}, which the topic does not have")
        elif isinstance(change, ShardState):
            subscription.cursors[change.shard] = _restore(change, subscription.policy)
        elif isinstance(change, Moved):
            subscription.cursors[change.shard].move(change.entry)
        elif isinstance(change, Redriven):
            subscription.redrives = max(subscription.redrives, change.redrives)
            for start, end in change.spans:
                subscription.redrive(change.shard, start, end)
        elif isinstance(change, Missed):
            self.miss(subscription, change)
        elif isinstance(change, CameBack):
            _replay_returned(subscription, change.shard, change.returned)
        else:
            replay(subscription, change)

    def miss(self, subscription: Subscription, change: Missed) -> None:
        """Entries are not to be had any more: they count as done with, and what they were is remembered."""
        history = self.history(subscription)
        count = sum(subscription.give_up(change.shard, *span) for span in change.spans)
        if change.reason == EXPIRED:  # nobody wanted them any more: that is no loss
            subscription.counts.lost -= count
            history.expired += count
        else:
            history.add(change.shard, change.spans, change.reason, change.at_us)

    def _recall(self, subscription: Subscription, change: Seen | MissedBefore) -> None:
        history = self.history(subscription)
        if isinstance(change, Seen):
            history.seen_us = max(history.seen_us, change.at_us)
            return
        history.lost = list(change.lost)
        history.expired, history.seen_us = change.expired, max(history.seen_us, change.seen_us)
        history.compacted = change.compacted

    def _open(self, change: Opened) -> None:
        cursors = [ShardCursor(start) for start in change.starts]
        policy = change.policy or Policy()  # an older one: its defaults are filled in when all is read
        subscription = Subscription(
            change.topic, change.name, change.kind, change.mode, cursors, change.created_at_us, policy
        )
        self._by_topic.setdefault(change.topic, {})[change.name] = subscription
        self.history(subscription).compacted = 0
        for cursor, (end, current) in zip(cursors, change.state, strict=False):
            superseded = EntrySet()
            superseded.add(cursor.cursor, end)
            superseded.exclude(EntrySet.decode(current))
            self.history(subscription).compacted += cursor.pass_over(superseded)

    def pass_compacted(self, subscription: Subscription, shard: int, compacted: EntrySet) -> None:
        """What compaction took out is settled for a subscription that begins before it, and counted."""
        if compacted:
            history = self.history(subscription)
            history.compacted += subscription.cursors[shard].pass_over(compacted)

    def snapshot(self) -> Iterator[bytes]:
        """Every subscription as it is now, as journal records."""
        for subscription in self.all():
            yield from map(_encoder.encode, _snapshot(subscription))
            history = self.history(subscription)
            if history.lost or history.expired or history.seen_us or history.compacted:
                missed = (history.lost, history.expired, history.seen_us, history.compacted)
                yield _encoder.encode(MissedBefore(subscription.topic_uuid, subscription.name, *missed))


def replay(subscription: Subscription, change: Settlement) -> None:
    """Makes a settlement from the journal; counts follow."""
    shard = change.shard
    for start, end in change.acked:
        subscription.ack(shard, start, end)
    for start, end in change.skipped:
        subscription.skip(shard, start, end)
    if change.upto is not None:
        subscription.ack_upto(shard, change.upto)
    for start, end in change.lost:
        subscription.give_up(shard, start, end)
    for start, end in change.dead:
        subscription.bury(shard, start, end)
    _replay_returned(subscription, shard, change.returned)
    subscription.counts.nacked += sum(end - start for start, end, _ in change.returned)


def _replay_returned(subscription: Subscription, shard: int, returned: list[tuple[int, int, int]]) -> None:
    """What is settled by now stays so: only unsettled entries have a count of deliveries."""
    cursor = subscription.cursors[shard]
    for start, end, deliveries in returned:
        for span in list(cursor.settled.missing(max(start, cursor.cursor), end)):
            cursor.restore_deliveries(*span, deliveries)


def _snapshot(subscription: Subscription) -> Iterator[Change]:
    topic, name = subscription.topic_uuid, subscription.name
    starts = [cursor.cursor for cursor in subscription.cursors]
    kind, mode, created_at_us = subscription.kind, subscription.mode, subscription.created_at_us
    yield Opened(topic, name, kind, mode, starts, created_at_us, subscription.policy)
    if subscription.paused:
        yield Paused(topic, name, True)
    for shard, cursor in enumerate(subscription.cursors):
        returned = list(cursor.returned())
        for at in range(0, max(1, len(returned)), RETURNED_MAX):
            part = returned[at : at + RETURNED_MAX]
            if at == 0:
                settled, dead = cursor.settled.encode(), cursor.dead.encode()
                yield ShardState(topic, name, shard, cursor.cursor, settled, part, dead)
            else:
                yield CameBack(topic, name, shard, part)
    counts = subscription.counts
    totals = (counts.acked, counts.skipped, counts.lost, counts.nacked, counts.buried, counts.redriven)
    yield Totals(topic, name, *totals, subscription.redrives)


def _restore(state: ShardState, policy: Policy) -> ShardCursor:
    cursor = ShardCursor(state.cursor)
    cursor.attempts_max = policy.max_attempts or 0
    cursor.settled = EntrySet.decode(state.settled)
    if state.dead:
        cursor.dead = EntrySet.decode(state.dead)
    for start, end, deliveries in state.returned:
        cursor.restore_deliveries(start, end, deliveries)
    return cursor
