"""A node that has passive copies of another's subscriptions: made, kept up to date, promoted.

What is told by identity becomes entries of the own log and goes into the settlement journal as any settlement
does. What is settled stays so, so that everything may be told twice; only another ``generation`` of the source
replaces what is here. An active subscription takes nothing from a link: a promotion raises the epoch, and what
comes with a lower one is ignored and counted. One that is active here and is told of by a node with a higher
epoch was promoted there: it becomes the copy of that.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

import msgspec

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.links.positions import FollowPlaces, Segment, Stands, by_block, read_heads
from headpond.broker.links.progress import LinkProgress
from headpond.broker.session import Session
from headpond.broker.steps import Steps, on_disk
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.consume import Consuming
from headpond.broker.subscriptions.records import (
    RETURNED_MAX,
    CameBack,
    Change,
    Copied,
    CopyPlace,
    LastAttached,
    Moved,
    Removed,
    Returned,
    Settlement,
)
from headpond.broker.subscriptions.subscribe import Start, check_subscription, find_or_open
from headpond.broker.subscriptions.subscription import Subscription, passive_error
from headpond.model.entry_set import EntrySet, Span
from headpond.model.errors import BadRequest, HeadpondError, TopicNotFound
from headpond.model.ranges import RangeSet
from headpond.wire.control.following import (
    SEGMENTS_MAX,
    ApplyDropped,
    ApplySettled,
    CopyApplied,
    CopyOpened,
    OpenCopy,
)
from headpond.wire.record import RecordHeader

logger = logging.getLogger("headpond.node")

CLOCKS_US = 5_000_000
"""How far the clocks of two nodes may differ."""
FOLLOWING, PROMOTED, OWN, IGNORED = "following", "promoted", "own", "ignored"


class FollowSink:
    def __init__(self, context: Context, stores: Stores, consuming: Consuming, progress: LinkProgress) -> None:
        self._context = context
        self._stores = stores
        self._catalog = stores.catalog
        self._subscriptions = stores.subscriptions
        self._consuming = consuming
        self._progress = progress
        self._places = FollowPlaces(context)

    def _topic(self, uuid: bytes) -> Topic:
        topic = self._catalog.by_uuid(uuid)
        if topic is None:
            raise TopicNotFound("the topic of the subscription that follows is not there any more")
        return topic

    # --- a copy -------------------------------------------------------------------------------------

    def open(self, session: Session, ask: OpenCopy) -> Steps[CopyOpened]:
        topic = self._topic(ask.topic)
        check_subscription(ask.subscription, ask.kind, ask.mode, ask.policy)
        if not ask.node:
            raise BadRequest("a copy of a node without a name cannot be")
        here = self._subscriptions.get(topic.uuid, ask.subscription)
        same = here is not None and here.created_at_us == ask.created_at_us
        if here is not None and (standing := _stands(here, ask, same=same)) != FOLLOWING:
            return CopyOpened(standing, epoch=here.copy.epoch)
        if here is not None and not same:  # the source's was deleted, and made again
            self._write([self._change(Removed(topic.uuid, ask.subscription))])
            here = None
        record = Copied(
            topic.uuid,
            ask.subscription,
            ask.node,
            ask.link,
            ask.url,
            ask.epoch,
            ask.generation,
            self._context.now_us(),
        )
        if here is None:
            here = self._make(topic, ask)
            here.copy.generation = ask.generation
        elif not here.copy.passive:
            self._demote(here, record, topic)
        self._write(self._begin(topic, here, record))
        yield on_disk(self._stores.settlements.lane)
        return self._opened(topic, here, ask.node)

    def _make(self, topic: Topic, ask: OpenCopy) -> Subscription:
        """Everything in the log is unsettled until the source tells otherwise, so that nothing is lost."""
        start = Start([shard.log.entry_first for shard in topic.shards])
        asked = (ask.subscription, ask.kind, ask.mode, start, ask.policy)
        may_make = partial(self._consuming.check_quota, None)
        return find_or_open(self._stores, topic, *asked, ask.created_at_us, may_make=may_make)

    def _demote(self, here: Subscription, record: Copied, topic: Topic) -> None:
        text = "subscription %r of %s was promoted on node %s: here it is a passive copy from now on"
        logger.warning(text, here.name, topic.shown, record.node)
        self._consuming.send_away(here, passive_error(here.name, record, topic.shown))
        here.copy.elsewhere = ""

    def _begin(self, topic: Topic, here: Subscription, record: Copied) -> list[Change]:
        """Writes down whose copy it is. Another generation is told from its start, and so is another node."""
        before, changes = here.copy.record, list[Change]()
        moved = here.copy.generation != record.generation
        if moved:
            run = self._stores.runs.number
            for number, shard in enumerate(topic.shards):
                first = shard.log.entry_first
                changes.append(self._change(Moved(topic.uuid, here.name, number, first, run)))
        if moved or before is None or before.node != record.node:
            floors = [CopyPlace(topic.uuid, here.name, number, 0) for number in range(len(topic.shards))]
            changes += [self._change(place) for place in floors]
        if before is None or (before.node, before.link, before.url, before.epoch, before.generation) != (
            record.node,
            record.link,
            record.url,
            record.epoch,
            record.generation,
        ):
            changes.append(self._change(record))
        return changes

    def _opened(self, topic: Topic, here: Subscription, node: str) -> CopyOpened:
        """A floor counts as far as the data is known to be here: else the own log is not what it was."""
        floors: list[int] = []
        for number in range(len(topic.shards)):
            place = self._progress.of(topic, node, number)
            floors.append(min(here.copy.floors.get(number, 0), place.entry if place is not None else 0))
        return CopyOpened(FOLLOWING, floors, here.copy.epoch)

    # --- what was settled there ---------------------------------------------------------------------

    def apply(self, session: Session, ask: ApplySettled) -> Steps[CopyApplied]:
        topic = self._topic(ask.topic)
        if ask.shard >= len(topic.shards):
            raise BadRequest(f"topic {topic.shown} has no shard {ask.shard}")
        wanted = _segments(ask)
        with suppress(HeadpondError):  # the records that could not be written are not found below
            yield on_disk(topic.shards[ask.shard].lane)  # positions are never ahead of the log
        here = self._followed(topic, ask)
        if here is None:
            return CopyApplied(IGNORED)
        places = yield from self._places.find(topic, ask.shard, wanted, here.cursors[ask.shard].cursor)
        here = self._followed(topic, ask)
        if here is None:
            return CopyApplied(IGNORED)
        applied = self._settle(topic, here, ask, wanted, places)
        yield on_disk(self._stores.settlements.lane)
        return applied

    def _followed(self, topic: Topic, ask: ApplySettled | ApplyDropped) -> Subscription | None:
        """The copy that is meant, unless it was promoted or replaced meanwhile."""
        here = self._subscriptions.get(topic.uuid, ask.subscription)
        record = here.copy.record if here is not None else None
        if here is None or record is None:
            return None
        asked = (ask.node, ask.epoch, ask.generation, ask.created_at_us)
        if (record.node, record.epoch, record.generation, here.created_at_us) == asked and here.copy.passive:
            return here
        here.copy.ignored += 1
        self._context.counters["peer_settlements_ignored"] += 1
        return None

    def _settle(
        self,
        topic: Topic,
        here: Subscription,
        ask: ApplySettled,
        wanted: set[Segment],
        places: dict[Segment, Stands],
    ) -> CopyApplied:
        settled, dead, returned = _entries(ask, places, topic.shards[ask.shard].log.entry_durable)
        fresh = EntrySet.of(_unsettled(here, ask.shard, settled))
        buried = EntrySet.of(_unsettled(here, ask.shard, dead))
        fresh.exclude(buried)
        ids = (topic.uuid, here.name, ask.shard)
        changes = self._settled(here, ask.shard, fresh, buried)
        others: list[Change] = [CameBack(*ids, part) for part in batched(returned)]
        if here.copy.floors.get(ask.shard, 0) != ask.floor:
            others.append(CopyPlace(*ids, ask.floor))
        self._write([*changes, *map(self._change, others)])
        copy = here.copy
        copy.left[ask.shard], copy.consumers, copy.told_us = ask.left, ask.consumers, self._context.now_us()
        marks = topic.shards[ask.shard].log.marks
        unknown = sum(
            (known := marks.get(block)) is None or segment not in known.admitted
            for block, segment in wanted - places.keys()
        )
        self._context.counters["peer_settlements_in"] += len(fresh) + len(buried)
        self._context.counters["peer_settlements_unknown"] += unknown
        return CopyApplied(FOLLOWING, len(fresh) + len(buried), unknown)

    def apply_dropped(self, session: Session, ask: ApplyDropped) -> Steps[CopyApplied]:
        """Settles what the source had and dropped: it owes that to nobody."""
        topic = self._topic(ask.topic)
        if ask.shard >= len(topic.shards):
            raise BadRequest(f"topic {topic.shown} has no shard {ask.shard}")
        dropped, nothing, settled = by_block(ask.ranges), RangeSet(), EntrySet()
        here = self._followed(topic, ask)
        if here is None:
            return CopyApplied(IGNORED)
        entry = here.cursors[ask.shard].cursor
        while entry < topic.shards[ask.shard].log.entry_durable:
            heads, entry = yield from read_heads(self._context, topic, ask.shard, entry)
            for head in heads:
                if head.segment in dropped.get(head.block, nothing):
                    settled.add(head.first_entry, head.end_entry)
        here = self._followed(topic, ask)
        if here is None:
            return CopyApplied(IGNORED)
        fresh = EntrySet.of(_unsettled(here, ask.shard, settled))
        self._write(self._settled(here, ask.shard, fresh, EntrySet()))
        yield on_disk(self._stores.settlements.lane)
        return CopyApplied(FOLLOWING, len(fresh))

    def _settled(self, here: Subscription, shard: int, acked: EntrySet, buried: EntrySet) -> list[Change]:
        """Settles entries; returns what the journal is to hold."""
        if not acked and not buried:
            return []
        spans = [list(each.spans(0, each.end)) for each in (acked, buried)]
        changes: list[Change] = []
        for at in range(0, max(map(len, spans)), RETURNED_MAX):
            one, other = (each[at : at + RETURNED_MAX] for each in spans)
            change = Settlement(here.topic_uuid, here.name, shard, one, [], [], [], other)
            self._change(change)
            copies = here.cursors[shard].noted = here.cursors[shard].tally.copies
            changes.append(msgspec.structs.replace(change, copies=copies))
        return changes

    # --- promotion ----------------------------------------------------------------------------------

    def promote(self, topic: Topic, here: Subscription) -> None:
        """Makes it active here; the caller waits for the journal. One that is active already stays as it is."""
        record = here.copy.record
        if record is None or record.active:
            return
        ids, now_us = (topic.uuid, here.name), self._context.now_us()
        epoch, generation = record.epoch + 1, record.generation
        active = Copied(*ids, record.node, record.link, record.url, epoch, generation, now_us, active=True)
        changes: list[Change] = [active, LastAttached(*ids, now_us)]
        if here.copy.consumers != 0:  # somebody may have been handed more than was told of
            for number, shard in enumerate(topic.shards):
                spans = _never_out(here, number, shard.log.entry_durable)
                changes += [CameBack(*ids, number, part) for part in batched(spans)]
        self._write([self._change(change) for change in changes])
        for cursor in here.cursors:
            cursor.begin()
        here.reset()
        self._context.counters["subscriptions_promoted"] += 1
        text = "subscription %r of %s was promoted; it was a copy of node %s's"
        logger.warning(text, here.name, topic.shown, record.node)
        self._consuming.pump(here)

    def stored(self, topic: Topic, number: int, first: int, header: RecordHeader) -> None:
        """A link brought a record. If its node had it before a promotion here, it may have handed it out."""
        for here in self._subscriptions.of_topic(topic.uuid):
            record, copy = here.copy.record, here.copy
            if record is None or not record.active or header.stored_at_us >= record.at_us + CLOCKS_US:
                continue
            if copy.consumers == 0 and not any(copy.left.values()):
                continue  # there was nobody, and nothing that was not told
            end = first + header.count
            mark = partial(self._mark_late, topic, number, here, first, end)
            topic.shards[number].lane.wait(mark)  # which comes before anybody is handed it

    def _mark_late(
        self, topic: Topic, number: int, here: Subscription, first: int, end: int, error: HeadpondError | None
    ) -> None:
        cursor = here.cursors[number]
        if error is None and not here.copy.passive and first >= cursor.cursor and cursor.may_be_tried_after(1):
            self._write([self._change(CameBack(topic.uuid, here.name, number, [(first, end, 1)]))])

    def _change(self, change: Change) -> Change:
        self._subscriptions.apply(change)
        return change

    def _write(self, changes: list[Change]) -> None:
        self._stores.settlements.stage(*changes)


def _stands(here: Subscription, ask: OpenCopy, *, same: bool) -> str:
    """Whether a subscription that is here is, or becomes, the copy of the one that is told of."""
    record = here.copy.record
    if record is not None and not record.active and record.node == ask.node:
        return FOLLOWING if not same or ask.epoch >= record.epoch else PROMOTED
    if same and ask.epoch > here.copy.epoch:
        return FOLLOWING
    # Two that are told of by two nodes, and none was promoted last: the first one keeps its copy.
    return PROMOTED if same and not here.copy.passive else OWN


def batched(returned: list[Returned]) -> list[list[Returned]]:
    """In the sizes that a record of the journal takes."""
    return [returned[at : at + RETURNED_MAX] for at in range(0, len(returned), RETURNED_MAX)]


def _segments(ask: ApplySettled) -> set[Segment]:
    """What is told of; refused where it cannot be."""
    count = sum(max(stop - start, 0) for _, start, stop in ask.whole) + len(ask.parts)
    if count > SEGMENTS_MAX:
        raise BadRequest(f"{count} segments; at most {SEGMENTS_MAX} are settled at a time")
    segments = {(block, number) for block, start, stop in ask.whole for number in range(start, stop)}
    return segments | {(part.block, part.segment) for part in ask.parts}


def _entries(
    ask: ApplySettled, places: dict[Segment, Stands], end: int
) -> tuple[EntrySet, EntrySet, list[Returned]]:
    """Settled and dead ones, and those that were delivered, of this node's log."""
    settled, dead = EntrySet(), EntrySet()
    returned: list[Returned] = []
    for block, start, stop in ask.whole:
        for number in range(start, stop):
            first, count = places.get((block, number), (0, 0))
            settled.add(first, min(first + count, end))
    for part in ask.parts:
        first, count = places.get((part.block, part.segment), (0, 0))
        last = min(first + count, end)
        for begin, stop in part.settled:
            settled.add(first + begin, min(first + stop, last))
        for begin, stop in part.dead:
            dead.add(first + begin, min(first + stop, last))
        for begin, stop, deliveries in part.returned:
            span = (first + begin, min(first + stop, last))
            if span[0] < span[1]:
                returned.append((*span, deliveries))
    return settled, dead, sorted(returned)


def _unsettled(here: Subscription, shard: int, entries: EntrySet) -> list[Span]:
    cursor = here.cursors[shard]
    return [
        span
        for start, end in entries.spans(cursor.cursor, entries.end)
        for span in cursor.settled.missing(start, end)
    ]


def _never_out(here: Subscription, shard: int, end: int) -> list[Returned]:
    """What is not settled and, as far as was told, was never delivered: it counts as delivered once."""
    cursor = here.cursors[shard]
    if not cursor.may_be_tried_after(1):
        return []
    spans = list(cursor.settled.missing(cursor.cursor, end))
    return [(start, stop, 1) for start, stop, deliveries in cursor.delivered.cut(spans) if not deliveries]
