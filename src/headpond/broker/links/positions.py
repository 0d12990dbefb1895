"""The entries of segments that another node names by block and number, and the heads of records in a log.

The admission marks have recent segments. For older ones a worker thread walks the heads of the log, from the
first entry of interest on. The heads it meets are remembered, within bounds, so a log that is asked for piece
by piece is walked once, whatever order the other node has it in.
"""

from __future__ import annotations

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.effects import HeadsFetch
from headpond.broker.steps import Steps
from headpond.model.errors import StorageFailed
from headpond.wire.control.links import DROPPED_MAX, RecordHead, WholeSegments

INDEXES_MAX = 4
INDEX_SEGMENTS_MAX = 65_536
"""Segments that are remembered of one shard; those behind them are looked up in the log each time."""
RANGES_MAX = 16 * DROPPED_MAX

Segment = tuple[bytes, int]
"""Block and number."""
Location = tuple[int, int]
"""The first entry, and the number of entries."""


def walk_heads(context: Context, topic: Topic, shard: int, entry: int) -> Steps[tuple[list[RecordHead], int]]:
    """Some heads of a log from an entry on, and the entry behind them, which is a later one."""
    fetch, run = yield from topic.read(context, HeadsFetch, shard, entry)
    if run.next_entry <= entry:
        raise StorageFailed(f"the node could not read entry {entry} of topic {topic.shown}")
    return fetch.heads, run.next_entry


class _Index:
    """The segments of a log from one entry to another."""

    def __init__(self, start: int) -> None:
        self.start = self.end = start
        self.places: dict[Segment, Location] = {}


class SegmentFinder:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._indexes: dict[tuple[bytes, int], _Index] = {}
        """By topic and shard; the latest used is the last."""

    def find(
        self, topic: Topic, shard: int, wanted: set[Segment], start: int
    ) -> Steps[dict[Segment, Location]]:
        """Looks for segments at or behind the entry ``start``."""
        log = topic.shards[shard].log
        found: dict[Segment, Location] = {}
        missing: set[Segment] = set()
        for block, segment in wanted:
            marks = log.marks.get(block)
            stored = marks.recent.get(segment) if marks is not None else None
            if stored is not None:
                found[block, segment] = stored[1:]
            elif marks is None or segment in marks.admitted:  # a log may forget a block that it has records of
                missing.add((block, segment))
        if not missing:
            return found
        index = self._index(topic.uuid, shard, max(start, log.entry_first))
        heads, entry = index.places, index.end
        while True:
            met = missing & heads.keys()
            found |= {each: heads[each] for each in met}
            missing -= met
            if not missing or entry >= log.entry_durable:
                return found
            read, end = yield from walk_heads(self._context, topic, shard, entry)
            heads = {(head.block, head.segment): (head.first_entry, head.count) for head in read}
            if entry == index.end and len(index.places) + len(heads) <= INDEX_SEGMENTS_MAX:
                index.places |= heads
                index.end = end
            entry = end

    def _index(self, uuid: bytes, shard: int, start: int) -> _Index:
        index = self._indexes.pop((uuid, shard), None)
        if index is None or not index.start <= start <= index.end:
            index = _Index(start)
        elif len(index.places) > INDEX_SEGMENTS_MAX // 2:  # segments before the start are not needed again
            index.places = {key: place for key, place in index.places.items() if sum(place) > start}
            index.start = start
        self._indexes[uuid, shard] = index
        while len(self._indexes) > INDEXES_MAX:
            del self._indexes[next(iter(self._indexes))]
        return index


def read_dropped(context: Context, topic: Topic, shard: int) -> Steps[list[WholeSegments]]:
    """The segments, by block, that this node had and has no more: no consumer here will get them.

    Settlements are sent for records that are in the log. For records that retention removed, the node names
    what each block admitted below its first segment that is still there. A segment that was admitted late may
    hide some of them; a copy then delivers those once more, and none too few.
    """
    log = topic.shards[shard].log
    first: dict[bytes, int] = {}
    entry = log.entry_first
    while entry < log.entry_durable:
        heads, entry = yield from walk_heads(context, topic, shard, entry)
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
