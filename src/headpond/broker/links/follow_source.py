"""A node whose subscriptions are followed: which there are, and what became of their entries, by identity.

For each connection that follows a shard of a subscription it remembers what was told and applied there; the
next answer is the difference, a piece at a time: the heads of the log tell whose segments the entries are. A
connection that comes anew begins at its floor. Nothing is told of entries that the sink does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.links.positions import read_dropped, read_heads
from headpond.broker.reading.fetch import Fetching
from headpond.broker.session import Session
from headpond.broker.steps import Steps
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.cursor import ShardCursor
from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.entry_set import EntrySet
from headpond.model.errors import (
    BadRequest,
    SubscriptionMoved,
    SubscriptionNotFound,
    TopicNotFound,
)
from headpond.model.grant import ALL
from headpond.model.names import Place, TopicPatterns
from headpond.wire.control.following import (
    SPANS_MAX,
    SUBSCRIPTIONS_MAX,
    FollowedSubscription,
    FollowSubscriptions,
    PartlySettled,
    ReadDropped,
    ReadSettled,
    Settlements,
    TellPromoted,
    WholeSegments,
)
from headpond.wire.control.links import RecordHead

TELLINGS_MAX = 16_384
"""Shards of subscriptions that one connection follows."""
ANY = "*"


@dataclass(slots=True)
class Standing:
    """What a cursor says of the entries of a span."""

    settled: EntrySet = field(default_factory=EntrySet)
    dead: EntrySet = field(default_factory=EntrySet)
    delivered: dict[int, EntrySet] = field(default_factory=dict)

    @classmethod
    def of(cls, cursor: ShardCursor, start: int, end: int) -> Standing:
        settled = cursor.settled.within(start, end)
        settled.add(start, min(cursor.cursor, end))
        delivered = {each: found.within(start, end) for each, found in cursor.deliveries_if_lost().items()}
        return cls(settled, cursor.dead.within(start, end), delivered)

    def changes_since(self, told: Standing) -> Standing:
        """What is to be told; ``delivered`` may have 0 for what nobody looked at after all."""
        settled, dead = _without(self.settled, told.settled), _without(self.dead, told.dead)
        delivered = {
            count: _without(found, told.delivered.get(count, EntrySet()))
            for count, found in self.delivered.items()
        }
        never = EntrySet()
        for found in told.delivered.values():
            never.include(found)
        for found in (*self.delivered.values(), self.settled):
            never.exclude(found)
        return Standing(settled, dead, {0: never, **delivered})

    @property
    def entries(self) -> EntrySet:
        every = self.settled.copy()
        for found in (self.dead, *self.delivered.values()):
            every.include(found)
        return every

    def replace(self, end: int, other: Standing) -> None:
        """Everything before ``end`` is as in the other one, or settled already."""
        self.settled.include(other.settled.within(0, end))
        self.dead.include(other.dead.within(0, end))
        for found in self.delivered.values():
            found.discard(0, end)
        for count, found in other.delivered.items():
            self.delivered.setdefault(count, EntrySet()).include(found.within(0, end))


@dataclass(slots=True)
class Telling:
    """A shard of a subscription, as one connection was told of it."""

    told: Standing
    number: int = 0
    pending: tuple[int, Standing] | None = None
    """What the last answer said: how far it went, and how things stood."""


class FollowSource:
    def __init__(self, context: Context, stores: Stores, fetching: Fetching) -> None:
        self._context = context
        self._catalog = stores.catalog
        self._subscriptions = stores.subscriptions
        self._fetching = fetching
        self._tellings: dict[int, dict[tuple[bytes, str, int], Telling]] = {}
        """By connection."""

    def on_disconnect(self, connection: int) -> None:
        self._tellings.pop(connection, None)

    # --- which there are ----------------------------------------------------------------------------

    def follow(self, session: Session, ask: FollowSubscriptions) -> list[FollowedSubscription]:
        grant = session.grant
        patterns = TopicPatterns.parse(ask.topics)
        check_names(ask.subscriptions)
        found: list[FollowedSubscription] = []
        for topic in self._catalog:
            if not patterns.match(topic.name) or not (grant is ALL or grant.reaches(Place.of(topic.name))):
                continue
            if topic.is_state:  # what a follower lacks may have been compacted away, and is not waited for
                continue
            for each in self._subscriptions.of_topic(topic.uuid):
                if not each.copy.passive and matches(ask.subscriptions, each.name):
                    found.append(_followed(topic, each))
                    if len(found) >= SUBSCRIPTIONS_MAX:
                        return found
        return found

    def promoted(self, session: Session, ask: TellPromoted) -> dict[str, bool]:
        """Another node has promoted its copy: a person who looks at the subscription here sees that."""
        subscription = self._subscriptions.get(ask.topic, ask.subscription)
        same = subscription is not None and subscription.created_at_us == ask.created_at_us
        if subscription is not None and same and ask.epoch > subscription.copy.epoch:
            subscription.copy.elsewhere = ask.node
        return {"known": same}

    # --- what became of their entries ---------------------------------------------------------------

    def read(self, session: Session, ask: ReadSettled) -> Steps[Settlements]:
        self._find(ask)
        yield self._fetching.turn(session)
        try:
            return (yield from self._settlements(session.connection, ask))
        finally:
            self._fetching.read(session)

    def _settlements(self, connection: int, ask: ReadSettled) -> Steps[Settlements]:
        topic, subscription = self._find(ask)
        log, cursor = topic.shards[ask.shard].log, subscription.cursors[ask.shard]
        telling = self._telling(connection, ask, cursor)
        upto = min(ask.upto, log.entry_durable)
        now = Standing.of(cursor, log.entry_first, upto)
        changes = now.changes_since(telling.told)
        touched = changes.entries
        place = cursor.cursor
        later = max(place - upto, 0) + cursor.settled.count(max(upto, place), 2**63)
        first = touched.first
        if first is None:
            return Settlements(telling.number, floor=min(place, upto), left=later)
        heads, heads_end = yield from read_heads(self._context, topic, ask.shard, first)
        teller = _Teller(now, changes, touched)
        end = teller.tell(heads, min(heads_end, upto))
        telling.number += 1
        telling.pending = (end, now)
        rest, untold = touched.count(end, upto), changes.settled.within(end, upto).first
        floor = min(place, upto, place if untold is None else untold)
        return Settlements(telling.number, teller.whole, teller.parts, floor, rest + later, rest > 0)

    def read_dropped(self, session: Session, ask: ReadDropped) -> Steps[list[WholeSegments]]:
        topic = self._catalog.by_uuid(ask.topic)
        if topic is None:
            raise TopicNotFound("the topic that was followed is not there any more")
        if ask.shard >= len(topic.shards):
            raise BadRequest(f"topic {topic.shown} has no shard {ask.shard}")
        if topic.shards[ask.shard].log.entry_first == 0:
            return []
        yield self._fetching.turn(session)
        try:
            return (yield from read_dropped(self._context, topic, ask.shard))
        finally:
            self._fetching.read(session)

    def _find(self, ask: ReadSettled) -> tuple[Topic, Subscription]:
        topic = self._catalog.by_uuid(ask.topic)
        if topic is None:
            raise TopicNotFound("the topic that was followed is not there any more")
        if ask.shard >= len(topic.shards):
            raise BadRequest(f"topic {topic.shown} has no shard {ask.shard}")
        subscription = self._subscriptions.get(topic.uuid, ask.subscription)
        if subscription is None or subscription.created_at_us != ask.created_at_us:
            raise SubscriptionNotFound("the subscription that was followed is not there any more")
        subscription.check_active(topic.shown)
        if subscription.copy.generation != ask.generation:
            raise SubscriptionMoved(f"the place of subscription {subscription.name!r} was set")
        return topic, subscription

    def _telling(self, connection: int, ask: ReadSettled, cursor: ShardCursor) -> Telling:
        tellings = self._tellings.setdefault(connection, {})
        key = (ask.topic, ask.subscription, ask.shard)
        telling = tellings.get(key)
        if telling is None or ask.number == 0 or ask.number != telling.number:
            if telling is None and len(tellings) >= TELLINGS_MAX:
                raise BadRequest(f"a connection follows at most {TELLINGS_MAX} shards of subscriptions")
            # A floor beyond the cursor is of another log than this one, which was restored: all is told anew.
            floor = ask.floor if ask.floor <= cursor.cursor else 0
            number = telling.number if telling is not None else 0
            telling = tellings[key] = Telling(Standing(EntrySet.of([(0, floor)])), number)
        elif telling.pending is not None:
            end, standing = telling.pending
            telling.told.replace(end, standing)
            telling.pending = None
        return telling


class _Teller:
    """Makes what is to be told of entries a matter of segments and rows."""

    def __init__(self, now: Standing, changes: Standing, touched: EntrySet) -> None:
        self._now, self._changes, self._touched = now, changes, touched
        self.whole: list[WholeSegments] = []
        self.parts: list[PartlySettled] = []
        self._runs: dict[bytes, int] = {}
        """By block: where in ``whole`` its last run stands."""

    def tell(self, heads: list[RecordHead], end: int) -> int:
        """Returns how far it came, at the most up to ``end``."""
        spans = 0
        for head in heads:
            if head.first_entry >= end:
                break
            if not head.count or not self._touched.count(head.first_entry, head.end_entry):
                continue
            if spans >= SPANS_MAX:
                return head.first_entry
            rows = (head.first_entry, head.end_entry)
            if self._now.settled.count(*rows) == head.count and not self._changes.dead.count(*rows):
                self._add_whole(head)
                continue
            part = self._part(head)
            spans += len(part.settled) + len(part.dead) + len(part.returned)
            self.parts.append(part)
        return end

    def _add_whole(self, head: RecordHead) -> None:
        at = self._runs.get(head.block)
        if at is not None and self.whole[at][2] == head.segment:
            self.whole[at] = (head.block, self.whole[at][1], head.segment + 1)
        else:
            self._runs[head.block] = len(self.whole)
            self.whole.append((head.block, head.segment, head.segment + 1))

    def _part(self, head: RecordHead) -> PartlySettled:
        def rows(entries: EntrySet) -> Iterator[tuple[int, int]]:
            for start, end in entries.spans(head.first_entry, head.end_entry):
                yield start - head.first_entry, end - head.first_entry

        returned = [(*span, count) for count, found in self._changes.delivered.items() for span in rows(found)]
        settled, dead = list(rows(self._changes.settled)), list(rows(self._changes.dead))
        return PartlySettled(head.block, head.segment, settled, dead, returned)


def matches(patterns: list[str], name: str) -> bool:
    """Whether a subscription is one that a link follows."""
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith(ANY) else name == pattern for pattern in patterns
    )


def check_names(patterns: list[str]) -> None:
    for pattern in patterns:
        bare = pattern.removesuffix(ANY)
        if not pattern or len(pattern) > 128 or ANY in bare or "/" in bare:
            raise BadRequest(
                f"{pattern[:80]!r} names no subscriptions",
                hint="Write a name, the beginning of names and a star ('billing-*'), or '*' for all.",
            )


def _without(entries: EntrySet, others: EntrySet) -> EntrySet:
    rest = entries.copy()
    rest.exclude(others)
    return rest


def _followed(topic: Topic, subscription: Subscription) -> FollowedSubscription:
    copy = subscription.copy
    return FollowedSubscription(
        topic.name,
        subscription.name,
        subscription.kind,
        subscription.mode,
        subscription.policy,
        subscription.created_at_us,
        copy.epoch,
        copy.generation,
        len(subscription.attachments),
        [_stamp(cursor) for cursor in subscription.cursors],
    )


def _stamp(cursor: ShardCursor) -> int:
    """Another number, for all that matters, whenever there is something new to tell of a shard."""
    tally = cursor.tally
    refused = cursor.unacked_log.entries
    sizes = tuple(map(len, (cursor.settled, cursor.dead, cursor.held, cursor.ready, refused)))
    return hash((cursor.cursor, sizes, tally.delivered, tally.unseen)) & 0xFFFF_FFFF
