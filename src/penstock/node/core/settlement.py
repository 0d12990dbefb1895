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
from penstock.node.core.cursor import ShardCursor
from penstock.node.core.subscription import Subscription


class Opened(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A subscription was created; ``starts`` holds each shard's first entry to read."""

    topic: bytes
    name: str
    kind: str
    mode: str
    starts: list[int]
    created_at_us: int


class Settlement(msgspec.Struct, array_like=True, frozen=True, tag=2):
    """Entries of one shard were acknowledged, skipped, lost, or are to come again."""

    topic: bytes
    name: str
    shard: int
    acked: list[Span]
    skipped: list[Span]
    lost: list[Span]
    returned: list[tuple[int, int, int]]
    """(start, end, deliveries so far) of entries that came back and are to be offered again."""


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


class Totals(msgspec.Struct, array_like=True, frozen=True, tag=5):
    """Of a snapshot: the counts that survive a restart."""

    topic: bytes
    name: str
    acked: int
    skipped: int
    lost: int
    nacked: int


Change = Opened | Settlement | Removed | ShardState | Totals

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Change] = msgspec.msgpack.Decoder(Change)

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
        return list(self._by_topic.pop(topic, {}).values())

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
        elif isinstance(change, Totals):
            counts = subscription.counts
            counts.acked, counts.skipped, counts.lost = change.acked, change.skipped, change.lost
            counts.nacked = change.nacked
        elif change.shard >= len(subscription.cursors):
            raise BadFrame(f"a settlement of shard {change.shard}, which the topic does not have")
        elif isinstance(change, ShardState):
            subscription.cursors[change.shard] = _restore(change)
        else:
            replay(subscription, change)

    def _open(self, change: Opened) -> None:
        cursors = [ShardCursor(start) for start in change.starts]
        subscription = Subscription(
            change.topic, change.name, change.kind, change.mode, cursors, change.created_at_us
        )
        self._by_topic.setdefault(change.topic, {})[change.name] = subscription

    def snapshot(self) -> Iterator[bytes]:
        """Every subscription as it is now, as journal records."""
        for subscription in self.all():
            yield from map(_encoder.encode, _snapshot(subscription))


def replay(subscription: Subscription, change: Settlement) -> None:
    """Makes a settlement from the journal; counts follow."""
    shard = change.shard
    for start, end in change.acked:
        subscription.ack(shard, start, end)
    for start, end in change.skipped:
        subscription.skip(shard, start, end)
    for start, end in change.lost:
        subscription.lose(shard, start, end)
    for start, end, deliveries in change.returned:
        subscription.cursors[shard].restore_deliveries(start, end, deliveries)
        subscription.counts.nacked += end - start


def _snapshot(subscription: Subscription) -> Iterator[Change]:
    topic, name = subscription.topic_uuid, subscription.name
    starts = [cursor.cursor for cursor in subscription.cursors]
    yield Opened(topic, name, subscription.kind, subscription.mode, starts, subscription.created_at_us)
    for shard, cursor in enumerate(subscription.cursors):
        returned = list(cursor.returned())
        for at in range(0, max(1, len(returned)), RETURNED_MAX):
            part = returned[at : at + RETURNED_MAX]
            if at == 0:
                yield ShardState(topic, name, shard, cursor.cursor, cursor.settled.encode(), part)
            else:
                yield Settlement(topic, name, shard, [], [], [], part)
    counts = subscription.counts
    yield Totals(topic, name, counts.acked, counts.skipped, counts.lost, counts.nacked)


def _restore(state: ShardState) -> ShardCursor:
    cursor = ShardCursor(state.cursor)
    cursor.settled = EntrySet.decode(state.settled)
    for start, end, deliveries in state.returned:
        cursor.restore_deliveries(start, end, deliveries)
    return cursor
