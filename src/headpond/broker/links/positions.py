"""Where segments that another node names stand in the own log: block and number in, entries out.

What came lately is known from the marks. For older ones the log's heads are walked, in a worker thread, from
the first entry on that is of interest; what was met on the way is remembered, within bounds, so that a whole
log that is asked for piece by piece is walked once, whatever order the other node has it in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headpond.broker.catalog.topics import Topic
from headpond.broker.effects import HeadsFetch
from headpond.broker.reading.fetch import Answer, Done, Refuse
from headpond.broker.session import Session
from headpond.model.errors import BadRequest, StorageFailed, TopicNotFound
from headpond.model.ranges import RangeSet
from headpond.storage.log.read import Run
from headpond.wire.control.following import DROPPED_MAX, ReadDropped, WholeSegments
from headpond.wire.control.links import RecordHead

if TYPE_CHECKING:
    from headpond.broker.core import NodeCore


INDEXES_MAX = 4
INDEX_SEGMENTS_MAX = 65_536
"""Remembered of one shard; what lies behind them is walked anew each time."""

Segment = tuple[bytes, int]
"""Block and number."""
Stands = tuple[int, int]
"""First entry, and how many there are."""
Found = Callable[[dict[Segment, Stands] | None], None]
"""Called with what was found; None where the disk failed."""


class _Index:
    """The segments of a log from one entry to another."""

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.places: dict[Segment, Stands] = {}

    def add(self, entry: int, heads: list[RecordHead], end: int) -> None:
        """What was read from ``entry`` to ``end``; it is left out where it would be too much."""
        if entry == self.end and len(self.places) + len(heads) <= INDEX_SEGMENTS_MAX:
            self.places |= {(head.block, head.segment): (head.first_entry, head.count) for head in heads}
            self.end = end


class FollowPlaces:
    def __init__(self, node: NodeCore) -> None:
        self._node = node
        self._indexes: dict[tuple[bytes, int], _Index] = {}

    def find(self, topic: Topic, shard: int, wanted: set[Segment], start: int, then: Found) -> None:
        """Looks for segments at or behind the entry ``start``; calls ``then``, now or later."""
        log = topic.shards[shard].log
        found: dict[Segment, Stands] = {}
        missing: set[Segment] = set()
        for block, segment in wanted:
            marks = log.marks.get(block)
            stored = marks.recent.get(segment) if marks is not None else None
            if stored is not None:
                found[block, segment] = stored[1:]
            elif marks is None or segment in marks.admitted:  # a block may be forgotten and its records kept
                missing.add((block, segment))
        if not missing:
            then(found)
            return
        index = self._index(topic.uuid, shard, max(start, log.entry_first))
        known = {each: index.places[each] for each in missing if each in index.places}
        self._walk(topic, shard, index, index.end, missing - known.keys(), found | known, then)

    def _index(self, uuid: bytes, shard: int, start: int) -> _Index:
        index = self._indexes.pop((uuid, shard), None)
        if index is None or start < index.start or (start > index.end):
            index = _Index(start)
        elif len(index.places) > INDEX_SEGMENTS_MAX // 2:  # what lies before is of no interest any more
            index.places = {key: place for key, place in index.places.items() if sum(place) > start}
            index.start = start
        self._indexes[uuid, shard] = index  # the latest asked for is the last to go
        while len(self._indexes) > INDEXES_MAX:
            del self._indexes[next(iter(self._indexes))]
        return index

    def _walk(
        self,
        topic: Topic,
        shard: int,
        index: _Index,
        entry: int,
        missing: set[Segment],
        found: dict[Segment, Stands],
        then: Found,
    ) -> None:
        if not missing or entry >= topic.shards[shard].log.entry_durable:
            then(found)
            return

        def read(run: Run | None) -> None:
            if run is None or run.next_entry <= entry:
                then(None)
                return
            index.add(entry, fetch.heads, run.next_entry)
            met = {(head.block, head.segment): (head.first_entry, head.count) for head in fetch.heads}
            these = {each: met[each] for each in missing & met.keys()}
            self._walk(topic, shard, index, run.next_entry, missing - these.keys(), found | these, then)

        fetch = HeadsFetch(topic.uuid, shard, entry, 0, read)
        self._node.add_effect(fetch)


# What a source had and has no more, for a copy on a node that still has it: nobody there is owed that.
#
# Settlements are told from the records in the source's log. Those that retention took out of it cannot be
# told so: of each block the source names what it admitted below the first segment that it still has. A
# segment that was admitted late may hide some of them, which are then delivered once more, and none too few.

RANGES_MAX = 16 * DROPPED_MAX

OnHeads = Callable[[list[RecordHead]], None]
Ended = Callable[[bool], None]


def walk(node: NodeCore, topic: Topic, shard: int, entry: int, met: OnHeads, done: Ended) -> None:
    """All heads of a log from an entry on, some at a time; ``done`` says whether the disk let them be read."""
    if entry >= topic.shards[shard].log.entry_durable:
        done(True)
        return

    def read(run: Run | None) -> None:
        if run is None or run.next_entry <= entry:
            done(False)
        else:
            met(fetch.heads)
            walk(node, topic, shard, run.next_entry, met, done)

    fetch = HeadsFetch(topic.uuid, shard, entry, 0, read)
    node.add_effect(fetch)


def read_dropped(node: NodeCore, session: Session, ask: ReadDropped, answer: Answer, refuse: Refuse) -> None:
    topic = node.catalog.by_uuid(ask.topic)
    if topic is None:
        raise TopicNotFound("the topic that was followed is not there any more")
    if ask.shard >= len(topic.shards):
        raise BadRequest(f"topic {topic.shown} has no shard {ask.shard}")
    log = topic.shards[ask.shard].log
    first: dict[bytes, int] = {}

    def met(heads: list[RecordHead]) -> None:
        for head in heads:
            first[head.block] = min(first.get(head.block, head.segment), head.segment)

    def ended(well: bool) -> None:
        if not well:
            refuse(StorageFailed(f"the node could not read topic {topic.shown}"))
            return
        ranges: list[WholeSegments] = []
        for block, admitted in log.marks.admitted().items():
            end = first.get(block)
            ranges += [
                (block, start, stop if end is None else min(stop, end))
                for start, stop in admitted
                if end is None or start < end
            ]
        answer(ranges[:RANGES_MAX])

    def begin(done: Done) -> None:
        def read(well: bool) -> None:
            ended(well)
            done()

        walk(node, topic, ask.shard, log.entry_first, met, read)

    if log.entry_first == 0:
        answer([])
    else:
        node.fetching.in_turn(session, begin)


def by_block(ranges: list[WholeSegments]) -> dict[bytes, RangeSet]:
    found: dict[bytes, RangeSet] = {}
    for block, start, stop in ranges:
        found.setdefault(block, RangeSet()).add(start, stop)
    return found
