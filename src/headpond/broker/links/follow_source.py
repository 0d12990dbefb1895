"""The source of copied subscriptions: which there are, and what became of their entries, by block and segment.

For each connection and shard of a subscription, the node remembers what it reported and the sink applied. The
next answer is the difference, one piece at a time; the heads of the log give the segments of the entries. A
new connection begins at its floor. The node reports nothing about entries that the sink does not have.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.links.positions import read_dropped, walk_heads
from headpond.broker.reading.fetch import Fetcher
from headpond.broker.session import Session
from headpond.broker.steps import Steps
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.cursor import ShardCursor
from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.bounds import SPANS_MAX
from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadRequest, SubscriptionMoved, SubscriptionNotFound
from headpond.model.grant import ALL
from headpond.model.names import Place, TopicPatterns
from headpond.wire.control.links import (
    SUBSCRIPTIONS_MAX,
    FollowedSubscription,
    FollowSubscriptions,
    PartlySettled,
    ReadDropped,
    ReadSettled,
    RecordHead,
    Settlements,
    TellPromoted,
    WholeSegments,
)

REPORTS_MAX = 16_384
"""Shards of subscriptions that one connection follows."""
ANY = "*"


@dataclass(slots=True)
class EntryStates:
    """The states of the entries of a span."""

    settled: EntrySet = field(default_factory=EntrySet)
    dead: EntrySet = field(default_factory=EntrySet)
    delivered: dict[int, EntrySet] = field(default_factory=dict)
    """By number of deliveries."""

    @classmethod
    def of(cls, cursor: ShardCursor, start: int, end: int) -> EntryStates:
        settled = cursor.settled.within(start, end)
        settled.add(start, min(cursor.cursor, end))
        delivered = {each: found.within(start, end) for each, found in cursor.deliveries_if_lost().items()}
        return cls(settled, cursor.dead.within(start, end), delivered)

    def changes_since(self, before: EntryStates) -> EntryStates:
        """What differs; ``delivered`` has 0 for entries that were reported and not delivered after all."""
        settled, dead = _without(self.settled, before.settled), _without(self.dead, before.dead)
        delivered = {
            count: _without(found, before.delivered.get(count, EntrySet()))
            for count, found in self.delivered.items()
        }
        never = EntrySet()
        for found in before.delivered.values():
            never.include(found)
        for found in (*self.delivered.values(), self.settled):
            never.exclude(found)
        return EntryStates(settled, dead, {0: never, **delivered})

    @property
    def entries(self) -> EntrySet:
        every = self.settled.copy()
        for found in (self.dead, *self.delivered.values()):
            every.include(found)
        return every

    def replace(self, end: int, other: EntryStates) -> None:
        """Every entry before ``end`` has its state of ``other``, or is settled already."""
        self.settled.include(other.settled.within(0, end))
        self.dead.include(other.dead.within(0, end))
        for found in self.delivered.values():
            found.discard(0, end)
        for count, found in other.delivered.items():
            self.delivered.setdefault(count, EntrySet()).include(found.within(0, end))


@dataclass(slots=True)
class ShardReport:
    """What one connection knows of one shard of a subscription."""

    applied: EntryStates
    number: int = 0
    pending: tuple[int, EntryStates] | None = None
    """The last answer: the entry up to which it went, and the states."""


class FollowSource:
    def __init__(self, context: Context, stores: Stores, fetching: Fetcher) -> None:
        self._context = context
        self._catalog = stores.catalog
        self._subscriptions = stores.subscriptions
        self._fetching = fetching
        self._reports: dict[int, dict[tuple[bytes, str, int], ShardReport]] = {}
        """By connection."""

    def on_disconnect(self, connection: int) -> None:
        self._reports.pop(connection, None)

    # --- subscriptions ------------------------------------------------------------------------------

    def follow_subscriptions(self, session: Session, ask: FollowSubscriptions) -> list[FollowedSubscription]:
        grant = session.grant
        patterns = TopicPatterns.parse(ask.topics)
        check_names(ask.subscriptions)
        found: list[FollowedSubscription] = []
        for topic in self._catalog:
            if not patterns.match(topic.name) or not (grant is ALL or grant.reaches(Place.of(topic.name))):
                continue
            if topic.is_state:  # compaction may have removed what a follower lacks
                continue
            for each in self._subscriptions.of_topic(topic.uuid):
                if not each.copy.passive and _matches(ask.subscriptions, each.name):
                    found.append(_followed(topic, each))
                    if len(found) >= SUBSCRIPTIONS_MAX:
                        return found
        return found

    def tell_promoted(self, session: Session, ask: TellPromoted) -> dict[str, bool]:
        """Another node has promoted its copy: ``sub show`` says so here."""
        subscription = self._subscriptions.get(ask.topic, ask.subscription)
        same = subscription is not None and subscription.created_at_us == ask.created_at_us
        if subscription is not None and same and ask.epoch > subscription.copy.epoch:
            subscription.copy.elsewhere = ask.node
        return {"known": same}

    # --- settlements --------------------------------------------------------------------------------

    def read_settled(self, session: Session, ask: ReadSettled) -> Steps[Settlements]:
        self._find(ask)
        return self._fetching.in_turn(session, self._settlements(session.connection, ask))

    def _settlements(self, connection: int, ask: ReadSettled) -> Steps[Settlements]:
        topic, subscription = self._find(ask)
        log, cursor = topic.shards[ask.shard].log, subscription.cursors[ask.shard]
        report = self._report(connection, ask, cursor)
        upto = min(ask.upto, log.entry_durable)
        now = EntryStates.of(cursor, log.entry_first, upto)
        changes = now.changes_since(report.applied)
        touched = changes.entries
        place = cursor.cursor
        later = max(place - upto, 0) + cursor.settled.count(max(upto, place), 2**63)
        first = touched.first
        if first is None:
            return Settlements(report.number, floor=min(place, upto), left=later)
        heads, heads_end = yield from walk_heads(self._context, topic, ask.shard, first)
        pieces = _Pieces(now, changes, touched)
        end = pieces.add(heads, min(heads_end, upto))
        report.number += 1
        report.pending = (end, now)
        rest, unreported = touched.count(end, upto), changes.settled.within(end, upto).first
        floor = min(place, upto, place if unreported is None else unreported)
        return Settlements(report.number, pieces.whole, pieces.parts, floor, rest + later, rest > 0)

    def read_dropped(self, session: Session, ask: ReadDropped) -> Steps[list[WholeSegments]]:
        topic = self._catalog.find(ask.topic)
        if topic.shard(ask.shard).log.entry_first == 0:
            return []
        return (yield from self._fetching.in_turn(session, read_dropped(self._context, topic, ask.shard)))

    def _find(self, ask: ReadSettled) -> tuple[Topic, Subscription]:
        topic = self._catalog.find(ask.topic)
        topic.shard(ask.shard)
        subscription = self._subscriptions.get(topic.uuid, ask.subscription)
        if subscription is None or subscription.created_at_us != ask.created_at_us:
            raise SubscriptionNotFound(f"subscription {ask.subscription!r} of {topic.shown} was deleted")
        subscription.check_active(topic.shown)
        if subscription.copy.generation != ask.generation:
            raise SubscriptionMoved(f"the position of subscription {subscription.name!r} was set")
        return topic, subscription

    def _report(self, connection: int, ask: ReadSettled, cursor: ShardCursor) -> ShardReport:
        reports = self._reports.setdefault(connection, {})
        key = (ask.topic, ask.subscription, ask.shard)
        report = reports.get(key)
        if report is None or ask.number == 0 or ask.number != report.number:
            if report is None and len(reports) >= REPORTS_MAX:
                raise BadRequest(f"a connection follows at most {REPORTS_MAX} shards of subscriptions")
            # A floor beyond the cursor belongs to a log from before an old copy was restored.
            floor = ask.floor if ask.floor <= cursor.cursor else 0
            number = report.number if report is not None else 0
            report = reports[key] = ShardReport(EntryStates(EntrySet.of([(0, floor)])), number)
        elif report.pending is not None:
            report.applied.replace(*report.pending)
            report.pending = None
        return report


class _Pieces:
    """Turns states of entries into whole segments and rows of segments."""

    def __init__(self, now: EntryStates, changes: EntryStates, touched: EntrySet) -> None:
        self._now, self._changes, self._touched = now, changes, touched
        self.whole: list[WholeSegments] = []
        self.parts: list[PartlySettled] = []
        self._runs: dict[bytes, int] = {}
        """By block: the index of its last run in ``whole``."""

    def add(self, heads: list[RecordHead], end: int) -> int:
        """Returns the entry up to which it came, at most ``end``."""
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


def _matches(patterns: list[str], name: str) -> bool:
    return any(
        name.startswith(pattern[:-1]) if pattern.endswith(ANY) else name == pattern for pattern in patterns
    )


def check_names(patterns: list[str]) -> None:
    """Raises unless these are names or patterns of subscriptions."""
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
    return FollowedSubscription(
        topic.name,
        subscription.name,
        subscription.kind,
        subscription.mode,
        subscription.policy,
        subscription.created_at_us,
        subscription.copy.epoch,
        subscription.copy.generation,
        len(subscription.attachments),
        [_stamp(cursor) for cursor in subscription.cursors],
    )


def _stamp(cursor: ShardCursor) -> int:
    """A number that changes, with near certainty, whenever there is something new to report of a shard."""
    tally = cursor.tally
    refused = cursor.unacked_log.entries
    sizes = tuple(map(len, (cursor.settled, cursor.dead, cursor.held, cursor.ready, refused)))
    return hash((cursor.cursor, sizes, tally.delivered, tally.unseen)) & 0xFFFF_FFFF
