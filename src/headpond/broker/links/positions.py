"""Where segments that another node names stand in the own log: block and number in, entries out.

What came lately is known from the marks. For older ones the log's heads are walked, in a worker thread, from
the first entry on that is of interest; what was met on the way is remembered, within bounds, so that a whole
log that is asked for piece by piece is walked once, whatever order the other node has it in.
"""

from __future__ import annotations

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.effects import HeadsFetch
from headpond.broker.steps import Steps, Wait
from headpond.model.errors import StorageFailed
from headpond.model.ranges import RangeSet
from headpond.storage.log.read import ReadResult
from headpond.wire.control.following import DROPPED_MAX, WholeSegments
from headpond.wire.control.links import RecordHead

INDEXES_MAX = 4
INDEX_SEGMENTS_MAX = 65_536
"""Remembered of one shard; what lies behind them is walked anew each time."""

Segment = tuple[bytes, int]
"""Block and number."""
Stands = tuple[int, int]
"""First entry, and how many there are."""


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
    def __init__(self, context: Context) -> None:
        self._context = context
        self._indexes: dict[tuple[bytes, int], _Index] = {}

    def find(self, topic: Topic, shard: int, wanted: set[Segment], start: int) -> Steps[dict[Segment, Stands]]:
        """Looks for segments at or behind the entry ``start``."""
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
            return found
        index = self._index(topic.uuid, shard, max(start, log.entry_first))
        known = {each: index.places[each] for each in missing if each in index.places}
        found |= known
        missing -= known.keys()
        entry = index.end
        while missing and entry < log.entry_durable:
            heads, end = yield from read_heads(self._context, topic, shard, entry)
            index.add(entry, heads, end)
            met = {(head.block, head.segment): (head.first_entry, head.count) for head in heads}
            found |= {each: met[each] for each in missing & met.keys()}
            missing -= met.keys()
            entry = end
        return found

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


def read_heads(context: Context, topic: Topic, shard: int, entry: int) -> Steps[tuple[list[RecordHead], int]]:
    """Some heads of a log from an entry on, and the entry behind them."""
    wait: Wait[ReadResult | None] = Wait()
    fetch = HeadsFetch(topic.uuid, shard, entry, 0, wait.done)
    context.add_effect(fetch)
    run = yield wait
    if run is None or run.next_entry <= entry:
        raise StorageFailed(f"the node could not read topic {topic.shown}")
    return fetch.heads, run.next_entry


# What a source had and has no more, for a copy on a node that still has it: nobody there is owed that.
#
# Settlements are told from the records in the source's log. Those that retention took out of it cannot be
# told so: of each block the source names what it admitted below the first segment that it still has. A
# segment that was admitted late may hide some of them, which are then delivered once more, and none too few.

RANGES_MAX = 16 * DROPPED_MAX


def read_dropped(context: Context, topic: Topic, shard: int) -> Steps[list[WholeSegments]]:
    """The segments that the source had and has no more, by block."""
    log = topic.shards[shard].log
    first: dict[bytes, int] = {}
    entry = log.entry_first
    while entry < log.entry_durable:
        heads, entry = yield from read_heads(context, topic, shard, entry)
        for head in heads:
            first[head.block] = min(first.get(head.block, head.segment), head.segment)
    ranges: list[WholeSegments] = []
    for block, admitted in log.marks.admitted().items():
        end = first.get(block)
        ranges += [
            (block, start, stop if end is None else min(stop, end))
            for start, stop in admitted
            if end is None or start < end
        ]
    return ranges[:RANGES_MAX]


def by_block(ranges: list[WholeSegments]) -> dict[bytes, RangeSet]:
    found: dict[bytes, RangeSet] = {}
    for block, start, stop in ranges:
        found.setdefault(block, RangeSet()).add(start, stop)
    return found
