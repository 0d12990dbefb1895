"""All subscriptions of a node, and the settlement journal that restores them.

One journal for the whole node, one record per change. When it grows long it is compacted to ``snapshot``: each
subscription as it is now. Records are idempotent, so reading one twice does no harm. A record about a topic
that is gone is skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial

import msgspec

from headpond.broker.subscriptions.cursor import ShardCursor
from headpond.broker.subscriptions.key_shared import KeyShared
from headpond.broker.subscriptions.kinds import Failover, Shared, SharedInOrder, Unique
from headpond.broker.subscriptions.records import (
    EXPIRED,
    PASSED_MAX,
    UNACKED_MAX,
    CameBack,
    Change,
    Copied,
    CopiesDelivered,
    CopyPlace,
    EntriesRedriven,
    LastAttached,
    Missed,
    MissedBefore,
    Moved,
    Opened,
    PassedOver,
    Paused,
    Reach,
    Removed,
    Returned,
    Settlement,
    ShardState,
    Tallied,
    Totals,
    Unacked,
    came_back,
)
from headpond.broker.subscriptions.subscription import Subscription
from headpond.broker.subscriptions.unacked_log import Keyed, due_step_up
from headpond.model.bounds import SECONDS_MAX
from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadFrame
from headpond.model.policy import Policy
from headpond.storage.journal import TableState
from headpond.wire.typed.versions import SchemaVersions

KINDS: dict[str, type[Subscription]] = {
    "unique": Unique,
    "failover": Failover,
    "shared": Shared,
    "key_shared": KeyShared,
}


def make_subscription(
    opened: Opened, cursors: list[ShardCursor], schemas: Callable[[], SchemaVersions | None] = lambda: None
) -> Subscription:
    in_order = (opened.kind, opened.mode) == ("shared", "resilient")
    made = SharedInOrder if in_order else KINDS[opened.kind]
    names = (opened.topic, opened.name, opened.kind, opened.mode)
    return made(*names, cursors, opened.created_at_us, opened.policy, schemas)


class Subscriptions(TableState):
    """The journal has times of day (``now_us``), the unacked log those of a clock that is never set back."""

    decoder = msgspec.msgpack.Decoder(Change)

    def __init__(
        self,
        now_us: Callable[[], int],
        clock_us: Callable[[], int],
        schemas: Callable[[bytes], SchemaVersions | None],
        tenant_of: Callable[[bytes], str],
    ) -> None:
        """``schemas`` and ``tenant_of`` are those of a topic."""
        self._now_us, self._clock_us = now_us, clock_us
        self._schemas = schemas
        self._tenant_of = tenant_of
        self._by_topic: dict[bytes, dict[str, Subscription]] = {}
        self._tenants: dict[bytes, str] = {}
        """Of the topics that have subscriptions; a topic may be gone before they are."""
        self._of_tenant: Counter[str] = Counter()
        self._count = 0

    def get(self, topic: bytes, name: str) -> Subscription | None:
        return self._by_topic.get(topic, {}).get(name)

    def __len__(self) -> int:
        return self._count

    def count_of(self, topic: bytes) -> int:
        return len(self._by_topic.get(topic, ()))

    def of_tenant(self, tenant: str) -> int:
        """How many subscriptions its topics have."""
        return self._of_tenant[tenant]

    def of_topic(self, topic: bytes) -> list[Subscription]:
        return list(self._by_topic.get(topic, {}).values())

    def all(self) -> Iterator[Subscription]:
        for subscriptions in self._by_topic.values():
            yield from subscriptions.values()

    def drop_topic(self, topic: bytes) -> list[Subscription]:
        dropped = list(self._by_topic.pop(topic, {}).values())
        if dropped:
            self._counted(topic, -len(dropped))
        self._tenants.pop(topic, None)
        return dropped

    def _counted(self, topic: bytes, more: int) -> None:
        self._count += more
        self._of_tenant[self._tenants[topic]] += more

    def apply(self, change: Change) -> None:
        """Applies a record that is in the journal, or is about to be."""
        if isinstance(change, Opened):
            self._open(change)
            return
        subscription = self.get(change.topic, change.name)
        if subscription is None:
            return
        if isinstance(change, Removed):
            del self._by_topic[change.topic][change.name]
            self._counted(change.topic, -1)
        elif isinstance(change, Totals):
            counts = subscription.counts
            counts.acked, counts.skipped, counts.lost = change.acked, change.skipped, change.lost
            counts.nacked, counts.buried = change.nacked, change.buried
            counts.redriven, subscription.redrives = change.redriven, change.redrives
            subscription.copy.generation = change.generation
        elif isinstance(change, Paused):
            subscription.paused = change.paused
        elif isinstance(change, Copied):
            subscription.copy.record, subscription.copy.generation = change, change.generation
        elif isinstance(change, LastAttached):
            history = subscription.history
            history.seen_us = max(history.seen_us, change.at_us)
        elif isinstance(change, MissedBefore):
            history = subscription.history
            history.lost, history.expired = list(change.lost), change.expired
            history.compacted = change.compacted
            history.seen_us = max(history.seen_us, change.seen_us)
        elif change.shard >= len(subscription.cursors):
            raise BadFrame(f"a settlement of shard {change.shard}, which the topic does not have")
        elif isinstance(change, ShardState):
            subscription.cursors[change.shard] = _restore(change, subscription.policy)
        elif isinstance(change, Moved):
            subscription.seek(change.shard, change.entry, change.run)
            subscription.copy.generation = max(subscription.copy.generation, change.generation)
        elif isinstance(change, EntriesRedriven):
            subscription.redrives = max(subscription.redrives, change.redrives)
            subscription.copy.generation = max(subscription.copy.generation, change.generation)
            for start, end in change.spans:
                subscription.redrive(change.shard, start, end)
        elif isinstance(change, Missed):
            _miss(subscription, change)
        elif isinstance(change, PassedOver):
            passed = subscription.cursors[change.shard].pass_over(EntrySet.decode(change.entries))
            subscription.history.compacted += passed
        elif isinstance(change, CameBack):
            cursor = subscription.cursors[change.shard]
            _replay_returned(cursor, change.returned)
            for deliveries, entries in change.sets:
                cursor.restore_deliveries(EntrySet.decode(entries), deliveries)
        elif isinstance(change, Unacked):
            self._refuse(
                subscription.cursors[change.shard],
                [(due_us, EntrySet.decode(entries)) for due_us, entries in change.by_due_us],
                [(bound, EntrySet.decode(entries)) for bound, entries in change.by_bound],
                change.at_us,
            )
        elif isinstance(change, Tallied):
            subscription.cursors[change.shard].tally = change.tally
            subscription.cursors[change.shard].journaled_copies = change.tally.copies
        elif isinstance(change, Reach):
            cursor = subscription.cursors[change.shard]
            cursor.reach = cursor.reach_staged = max(change.end, cursor.cursor)
            if change.flagged:
                cursor.flag(EntrySet.decode(change.flagged))
        elif isinstance(change, CopyPlace):
            subscription.copy.floors[change.shard] = change.floor
        elif isinstance(change, CopiesDelivered):
            _restore_copies(subscription.cursors[change.shard], change)
        else:
            self._settle(subscription, change)

    def _settle(self, subscription: Subscription, change: Settlement) -> None:
        shard, cursor = change.shard, subscription.cursors[change.shard]
        before = cursor.tally.copies
        for start, end in change.acked:
            subscription.ack(shard, start, end)
        for start, end in change.skipped:
            subscription.skip(shard, start, end)
        if change.upto is not None:
            subscription.ack_upto(shard, change.upto)
        for start, end in change.dead:
            subscription.bury(shard, start, end)
        for start, end, deliveries, due_us, bound in change.refused:
            span = [(start, end)]
            cursor.restore_deliveries(EntrySet.of(span), deliveries)
            entries = EntrySet.of(span)
            self._refuse(cursor, [(due_us, entries)], [(bound, entries)], change.at_us)
            subscription.counts.nacked += end - start
        cursor.restore_dying(EntrySet.of(change.dying))
        cursor.restore_reasons(change.reasons)
        if change.copies is not None:
            cursor.tally.restore_copies(before, change.copies)
            cursor.journaled_copies = change.copies

    def _refuse(self, cursor: ShardCursor, by_due_us: list[Keyed], by_bound: list[Keyed], at_us: int) -> None:
        """``by_due_us`` has times of day. No entry waits for longer than it had to when that was written, at
        ``at_us``: the clock may have been set back since."""
        now_us, clock_us = self._now_us(), self._clock_us()
        due: list[Keyed] = []
        for due_us, entries in by_due_us:
            wait_us = min(due_us - now_us, due_us - at_us, round(SECONDS_MAX * 1e6))
            due.append((due_step_up(clock_us + wait_us, wait_us) if wait_us > 0 else 0, entries))
        cursor.restore_refused(due, by_bound)

    def _open(self, change: Opened) -> None:
        cursors = [ShardCursor(start, change.run, journaled=True) for start in change.starts]
        subscription = make_subscription(change, cursors, partial(self._schemas, change.topic))
        if (before := self.get(change.topic, change.name)) is not None:  # the record is read twice
            subscription.history = before.history
        else:
            self._tenants.setdefault(change.topic, self._tenant_of(change.topic))
            self._counted(change.topic, 1)
        self._by_topic.setdefault(change.topic, {})[change.name] = subscription
        subscription.history.compacted = 0
        for cursor, (end, current) in zip(cursors, change.state, strict=False):
            superseded = EntrySet()
            superseded.add(cursor.cursor, end)
            superseded.exclude(EntrySet.decode(current))
            subscription.history.compacted += cursor.pass_over(superseded)

    def pass_compacted(self, subscription: Subscription, shard: int, compacted: EntrySet) -> list[PassedOver]:
        """Settles what compaction removed behind the subscription's position; returns the journal records."""
        cursor = subscription.cursors[shard]
        changes: list[PassedOver] = []
        for start in range(cursor.cursor, compacted.end, PASSED_MAX):
            fresh = compacted.within(start, min(start + PASSED_MAX, compacted.end))
            fresh.exclude(cursor.settled)
            if fresh:
                encoded = fresh.encode()
                changes.append(PassedOver(subscription.topic_uuid, subscription.name, shard, encoded))
        for change in changes:
            self.apply(change)
        return changes

    def snapshot(self) -> Iterator[Change]:
        """Every subscription as it is now."""
        for subscription in self.all():
            yield from _snapshot(subscription, self._now_us(), self._clock_us())


def release(subscription: Subscription) -> list[CameBack | Unacked | Reach]:
    """The node stops, and the leases of disconnected consumers end: the records of what they held."""
    for attachment in list(subscription.attachments):
        subscription.leave(attachment)
    return [
        *records_of(subscription),
        *(_reach(subscription, shard, 0) for shard in range(len(subscription.cursors))),
    ]


def _reach(subscription: Subscription, shard: int, end: int) -> Reach:
    """The record of a shard whose deliveries before now are all known."""
    flagged = subscription.cursors[shard].flagged
    return Reach(subscription.topic_uuid, subscription.name, shard, end, flagged.encode() if flagged else b"")


def unjournaled_copies(subscription: Subscription) -> Iterator[CopiesDelivered]:
    """Totals that no journal record has yet."""
    for shard, cursor in enumerate(subscription.cursors):
        if (copies := cursor.tally.copies) != cursor.journaled_copies or cursor.unsure:
            cursor.journaled_copies, unsure = copies, cursor.unsure.encode()
            yield CopiesDelivered(subscription.topic_uuid, subscription.name, shard, copies, unsure)


def records_of(subscription: Subscription) -> Iterator[CameBack | Unacked]:
    """The journal records of a subscription's ``consequences``."""
    if (consequences := subscription.consequences) is None:
        return
    topic, name = subscription.topic_uuid, subscription.name
    for shard, returned in consequences.returned:
        yield from came_back(topic, name, shard, returned)
    for shard, entries, bound in consequences.refused:
        for part in entries.parts(UNACKED_MAX):
            bits = part.encode()
            yield Unacked(topic, name, shard, [(0, bits)], [(bound, bits)])


def _miss(subscription: Subscription, change: Missed) -> None:
    """Entries cannot be delivered: they are settled, and the history has them."""
    count = sum(subscription.give_up(change.shard, *span, change.reason) for span in change.spans)
    if change.reason == EXPIRED:  # that is no loss
        subscription.counts.lost -= count
        subscription.history.expired += count
    else:
        subscription.history.add(change.shard, change.spans, change.reason, change.at_us)


def _restore_copies(cursor: ShardCursor, change: CopiesDelivered) -> None:
    cursor.tally.restore_copies(cursor.tally.copies, change.copies)
    cursor.journaled_copies = change.copies
    for start, end in EntrySet.decode(change.unsure).spans(0, 2**63) if change.unsure else ():
        for span in cursor.settled.missing(max(start, cursor.cursor), end):
            cursor.unsure.add(*span)


def _replay_returned(cursor: ShardCursor, returned: list[Returned]) -> None:
    by_deliveries: dict[int, EntrySet] = {}
    for start, end, deliveries in returned:
        by_deliveries.setdefault(deliveries, EntrySet()).add(start, end)
    for deliveries, entries in by_deliveries.items():
        cursor.restore_deliveries(entries, deliveries)


def _snapshot(subscription: Subscription, now_us: int, clock_us: int) -> Iterator[Change]:
    topic, name = subscription.topic_uuid, subscription.name
    starts = [cursor.cursor for cursor in subscription.cursors]
    kind, mode, created_at_us = subscription.kind, subscription.mode, subscription.created_at_us
    yield Opened(topic, name, kind, mode, starts, created_at_us, subscription.policy)
    if subscription.paused:
        yield Paused(topic, name, True)
    if subscription.copy.record is not None:
        yield subscription.copy.record
    for shard, floor in subscription.copy.floors.items():
        yield CopyPlace(topic, name, shard, floor)
    for shard, cursor in enumerate(subscription.cursors):
        sets = (cursor.settled.encode(), cursor.dead.encode(), cursor.skipped.encode(), cursor.dying.encode())
        reasons = cursor.reasons
        dropped = reasons.dropped.encode() if reasons.dropped else b""
        yield ShardState(topic, name, shard, cursor.cursor, *sets, reasons.items(), dropped)
        yield from came_back(topic, name, shard, cursor.delivered.sets.items())
        log = cursor.unacked_log
        for part in log.entries.parts(UNACKED_MAX):
            due = [(us and us - clock_us + now_us, each.encode()) for us, each in log.by_due_us(part)]
            bounds = [(bound, each.encode()) for bound, each in log.by_bound(part)]
            yield Unacked(topic, name, shard, due, bounds, now_us)
        yield Tallied(topic, name, shard, cursor.tally)
        yield _reach(subscription, shard, cursor.reach_staged)
    counts = subscription.counts
    totals = (counts.acked, counts.skipped, counts.lost, counts.nacked, counts.buried, counts.redriven)
    yield Totals(topic, name, *totals, subscription.redrives, subscription.copy.generation)
    history = subscription.history
    missed = (history.lost, history.expired, history.seen_us, history.compacted)
    if any(missed):
        yield MissedBefore(topic, name, *missed)


def _restore(state: ShardState, policy: Policy) -> ShardCursor:
    cursor = ShardCursor(state.cursor, journaled=True)
    cursor.attempts_max = policy.max_attempts or 0
    cursor.settled = EntrySet.decode(state.settled)
    cursor.dead = EntrySet.decode(state.dead)
    cursor.skipped = EntrySet.decode(state.skipped)
    if state.dying:
        cursor.restore_dying(EntrySet.decode(state.dying))
    cursor.restore_reasons(state.reasons)
    if state.reasons_dropped:
        cursor.reasons.dropped = EntrySet.decode(state.reasons_dropped)
    # The ``Tallied`` record that follows says of what kind they are.
    cursor.tally.unknown = len(cursor.settled) - cursor.dead.count(state.cursor, cursor.dead.end)
    return cursor
