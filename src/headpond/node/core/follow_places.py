"""Where segments that another node names stand in the own log: block and number in, entries out.

What came lately is known from the marks. For older ones the log's heads are walked, in a worker thread, from
the first entry on that is of interest; what was met on the way is remembered, within bounds, so that a whole
log that is asked for piece by piece is walked once, whatever order the other node has it in.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headpond.node.core.log import Run
from headpond.node.core.log_heads import HeadsFetch
from headpond.node.core.topics import Topic
from headpond.wire.peering import Head

if TYPE_CHECKING:
    from headpond.node.core.node import NodeCore

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

    def add(self, entry: int, heads: list[Head], end: int) -> None:
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
