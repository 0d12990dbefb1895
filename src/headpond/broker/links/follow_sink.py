"""The sink of copied subscriptions: passive copies of another node's, created, kept up to date, promoted.

The source reports settlements by block and segment. The sink finds the entries in its own log and writes
ordinary settlements to its journal. An entry that is settled stays settled, so a source may report twice; only
another ``generation`` of the source replaces the state here. An active subscription takes nothing from a link:
a promotion raises the epoch, and reports with a lower one are ignored and counted. If a subscription is active
here and a node reports it with a higher epoch, it was promoted there, and becomes a copy of that one.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

import msgspec

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.links.link_table import LinkProgress
from headpond.broker.links.positions import Location, Segment, SegmentFinder, walk_heads
from headpond.broker.session import Session
from headpond.broker.steps import Steps, on_disk
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.consume import Dispatcher
from headpond.broker.subscriptions.records import (
    RETURNED_MAX,
    CameBack,
    Copied,
    CopyPlace,
    LastAttached,
    Moved,
    Removed,
    Returned,
    Settlement,
)
from headpond.broker.subscriptions.subscribe import Start, check_subscription
from headpond.broker.subscriptions.subscription import Subscription, passive_error
from headpond.model.entry_set import EntrySet, Span
from headpond.model.errors import BadRequest, HeadpondError
from headpond.model.ranges import RangeSet
from headpond.wire.control.links import (
    SEGMENTS_MAX,
    ApplyDropped,
    ApplySettled,
    CopyApplied,
    CopyOpened,
    OpenCopy,
)
from headpond.wire.record import RecordHeader

logger = logging.getLogger("headpond.node")

CLOCK_DIFFERENCE_US_MAX = 5_000_000
"""Between two nodes."""
FOLLOWING, PROMOTED, OWN, IGNORED = "following", "promoted", "own", "ignored"


class FollowSink:
    def __init__(self, context: Context, stores: Stores, consuming: Dispatcher, progress: LinkProgress) -> None:
        self._context = context
        self._stores = stores
        self._catalog = stores.catalog
        self._subscriptions = stores.subscriptions
        self._settlements = stores.settlements
        self._consuming = consuming
        self._progress = progress
        self._finder = SegmentFinder(context)

    # --- a copy -------------------------------------------------------------------------------------

    def open_copy(self, session: Session, ask: OpenCopy) -> Steps[CopyOpened]:
        topic = self._catalog.find(ask.topic)
        check_subscription(ask)
        if not ask.node:
            raise BadRequest("the node of the copied subscription has no name")
        here = self._subscriptions.get(topic.uuid, ask.subscription)
        same = here is not None and here.created_at_us == ask.created_at_us
        if here is not None and (state := _copy_state(here, ask, same=same)) != FOLLOWING:
            return CopyOpened(state, epoch=here.copy.epoch)
        if here is not None and not same:  # the source's was deleted and created again
            self._settlements.note(Removed(topic.uuid, ask.subscription))
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
            here = self._create(topic, ask)
            here.copy.generation = ask.generation
        elif not here.copy.passive:
            self._demote(here, record, topic)
        self._begin(topic, here, record)
        yield on_disk(self._settlements.lane)
        return self._opened(topic, here, ask.node)

    def _create(self, topic: Topic, ask: OpenCopy) -> Subscription:
        """Everything in the log is unsettled until the source reports it, so that nothing is lost."""
        start = Start([shard.log.entry_first for shard in topic.shards])
        return self._consuming.opener.find_or_create(None, topic, ask, start, ask.created_at_us)

    def _demote(self, here: Subscription, record: Copied, topic: Topic) -> None:
        text = "subscription %r of %s was promoted on node %s; it is a passive copy here now"
        logger.warning(text, here.name, topic.shown, record.node)
        self._consuming.send_away(here, passive_error(here.name, record, topic.shown))
        here.copy.elsewhere = ""

    def _begin(self, topic: Topic, here: Subscription, record: Copied) -> None:
        """Notes whose copy it is. Another generation, or another node, reports from the start."""
        before = here.copy.record
        moved = here.copy.generation != record.generation
        if moved:
            run = self._stores.runs.number
            for number, shard in enumerate(topic.shards):
                self._settlements.note(Moved(topic.uuid, here.name, number, shard.log.entry_first, run))
        if moved or before is None or before.node != record.node:
            floors = [CopyPlace(topic.uuid, here.name, number, 0) for number in range(len(topic.shards))]
            self._settlements.note(*floors)
        if before is None or msgspec.structs.replace(record, at_us=before.at_us) != before:
            self._settlements.note(record)

    def _opened(self, topic: Topic, here: Subscription, node: str) -> CopyOpened:
        """A floor counts up to the position of the copied records: this node's log may have been restored."""
        floors: list[int] = []
        for number in range(len(topic.shards)):
            place = self._progress.place(topic, node, number)
            floors.append(min(here.copy.floors.get(number, 0), place.entry if place is not None else 0))
        return CopyOpened(FOLLOWING, floors, here.copy.epoch)

    # --- settlements --------------------------------------------------------------------------------

    def apply_settled(self, session: Session, ask: ApplySettled) -> Steps[CopyApplied]:
        topic = self._catalog.find(ask.topic)
        lane = topic.shard(ask.shard).lane
        wanted = _segments(ask)
        with suppress(HeadpondError):  # records that could not be written are not found below
            yield on_disk(lane)  # positions are never ahead of the log
        here = self._followed(topic, ask)
        if here is None:
            return CopyApplied(IGNORED)
        places = yield from self._finder.find(topic, ask.shard, wanted, here.cursors[ask.shard].cursor)
        here = self._followed(topic, ask)
        if here is None:
            return CopyApplied(IGNORED)
        applied = self._settle(topic, here, ask, wanted, places)
        yield on_disk(self._settlements.lane)
        return applied

    def _followed(self, topic: Topic, ask: ApplySettled | ApplyDropped) -> Subscription | None:
        """The copy that a report is for; None if it was promoted or replaced meanwhile."""
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
        places: dict[Segment, Location],
    ) -> CopyApplied:
        settled, dead, returned = _entries(ask, places, topic.shards[ask.shard].log.entry_durable)
        fresh = EntrySet.of(_unsettled(here, ask.shard, settled))
        buried = EntrySet.of(_unsettled(here, ask.shard, dead))
        fresh.exclude(buried)
        self._note_settled(here, ask.shard, fresh, buried)
        self._note_returned(here, ask.shard, returned)
        if here.copy.floors.get(ask.shard, 0) != ask.floor:
            self._settlements.note(CopyPlace(topic.uuid, here.name, ask.shard, ask.floor))
        copy, now_us = here.copy, self._context.now_us()
        copy.left[ask.shard], copy.consumers, copy.reported_us = ask.left, ask.consumers, now_us
        marks = topic.shards[ask.shard].log.marks
        unknown = sum(
            (known := marks.get(block)) is None or segment not in known.admitted
            for block, segment in wanted - places.keys()
        )
        self._context.counters["peer_settlements_in"] += len(fresh) + len(buried)
        self._context.counters["peer_settlements_unknown"] += unknown
        return CopyApplied(FOLLOWING, len(fresh) + len(buried), unknown)

    def apply_dropped(self, session: Session, ask: ApplyDropped) -> Steps[CopyApplied]:
        """Settles segments that the source had and dropped: it does not deliver them to anyone."""
        topic = self._catalog.find(ask.topic)
        log = topic.shard(ask.shard).log
        dropped: dict[bytes, RangeSet] = {}
        for block, start, stop in ask.ranges:
            dropped.setdefault(block, RangeSet()).add(start, stop)
        settled = EntrySet()
        here = self._followed(topic, ask)
        if here is None:
            return CopyApplied(IGNORED)
        entry = here.cursors[ask.shard].cursor
        while entry < log.entry_durable:
            heads, entry = yield from walk_heads(self._context, topic, ask.shard, entry)
            for head in heads:
                if head.segment in dropped.get(head.block, ()):
                    settled.add(head.first_entry, head.end_entry)
        here = self._followed(topic, ask)
        if here is None:
            return CopyApplied(IGNORED)
        fresh = EntrySet.of(_unsettled(here, ask.shard, settled))
        self._note_settled(here, ask.shard, fresh, EntrySet())
        yield on_disk(self._settlements.lane)
        return CopyApplied(FOLLOWING, len(fresh))

    def _note_settled(self, here: Subscription, shard: int, acked: EntrySet, buried: EntrySet) -> None:
        spans = [list(each.spans(0, each.end)) for each in (acked, buried)]
        for at in range(0, max(map(len, spans)), RETURNED_MAX):
            one, other = (each[at : at + RETURNED_MAX] for each in spans)
            change = Settlement(here.topic_uuid, here.name, shard, one, [], [], [], other)
            self._subscriptions.apply(change)
            copies = here.cursors[shard].journaled_copies = here.cursors[shard].tally.copies
            self._settlements.stage(msgspec.structs.replace(change, copies=copies))

    def _note_returned(self, here: Subscription, shard: int, returned: list[Returned]) -> None:
        for at in range(0, len(returned), RETURNED_MAX):
            part = returned[at : at + RETURNED_MAX]
            self._settlements.note(CameBack(here.topic_uuid, here.name, shard, part))

    # --- promotion ----------------------------------------------------------------------------------

    def promote(self, topic: Topic, here: Subscription) -> None:
        """Makes a copy active here; the caller waits for the journal. An active one stays as it is."""
        record = here.copy.record
        if record is None or record.active:
            return
        now_us = self._context.now_us()
        active = msgspec.structs.replace(record, epoch=record.epoch + 1, at_us=now_us, active=True)
        self._settlements.note(active, LastAttached(topic.uuid, here.name, now_us))
        if here.copy.consumers != 0:  # a consumer there may have got more than was reported
            for number, shard in enumerate(topic.shards):
                self._note_returned(here, number, _undelivered(here, number, shard.log.entry_durable))
        for cursor in here.cursors:
            cursor.begin()
        here.reset()
        self._context.counters["subscriptions_promoted"] += 1
        text = "subscription %r of %s was promoted; it was a copy of the one on node %s"
        logger.warning(text, here.name, topic.shown, record.node)
        self._consuming.pump(here)

    def stored(self, topic: Topic, number: int, first: int, header: RecordHeader) -> None:
        """A link brought a record. If its node had it before a promotion here, it may have delivered it."""
        for here in self._subscriptions.of_topic(topic.uuid):
            record, copy = here.copy.record, here.copy
            if (
                record is None
                or not record.active
                or header.stored_at_us >= record.at_us + CLOCK_DIFFERENCE_US_MAX
            ):
                continue
            if copy.consumers == 0 and not any(copy.left.values()):
                continue  # there was no consumer, and everything was reported
            end = first + header.count
            mark = partial(self._mark_late, topic, number, here, first, end)
            topic.shards[number].lane.wait(mark)  # before a consumer gets it

    def _mark_late(
        self, topic: Topic, number: int, here: Subscription, first: int, end: int, error: HeadpondError | None
    ) -> None:
        cursor = here.cursors[number]
        if error is None and not here.copy.passive and first >= cursor.cursor and cursor.may_be_tried_after(1):
            self._settlements.note(CameBack(topic.uuid, here.name, number, [(first, end, 1)]))


def _copy_state(here: Subscription, ask: OpenCopy, *, same: bool) -> str:
    """Whether a subscription of this node is, or becomes, the copy of the source's."""
    record = here.copy.record
    if record is not None and not record.active and record.node == ask.node:
        return FOLLOWING if not same or ask.epoch >= record.epoch else PROMOTED
    if same and ask.epoch > here.copy.epoch:
        return FOLLOWING
    # Two nodes report one subscription and neither was promoted last: the first one keeps its copy.
    return PROMOTED if same and not here.copy.passive else OWN


def _segments(ask: ApplySettled) -> set[Segment]:
    """The segments of a report; ``BadRequest`` if they are too many."""
    count = sum(max(stop - start, 0) for _, start, stop in ask.whole) + len(ask.parts)
    if count > SEGMENTS_MAX:
        raise BadRequest(f"a report names {count:,} segments; at most {SEGMENTS_MAX:,} are allowed")
    segments = {(block, number) for block, start, stop in ask.whole for number in range(start, stop)}
    return segments | {(part.block, part.segment) for part in ask.parts}


def _entries(
    ask: ApplySettled, places: dict[Segment, Location], end: int
) -> tuple[EntrySet, EntrySet, list[Returned]]:
    """The entries of this node's log that are settled, dead, or were delivered."""
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


def _undelivered(here: Subscription, shard: int, end: int) -> list[Returned]:
    """Unsettled entries without a reported delivery, as delivered once."""
    cursor = here.cursors[shard]
    if not cursor.may_be_tried_after(1):
        return []
    spans = list(cursor.settled.missing(cursor.cursor, end))
    return [(start, stop, 1) for start, stop, deliveries in cursor.delivered.cut(spans) if not deliveries]
