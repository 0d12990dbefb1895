"""What a source had and has no more, for a copy on a node that still has it: nobody there is owed that.

Settlements are told from the records in the source's log. Those that retention took out of it cannot be told
so: of each block the source names what it admitted below the first segment that it still has. A segment that
was admitted late may hide some of them, which are then delivered once more, and none too few.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headpond.model.errors import BadRequest, StorageFailed, TopicNotFound
from headpond.model.ranges import RangeSet
from headpond.node.core.fetching import Answer, Done, Refuse
from headpond.node.core.log import Run
from headpond.node.core.log_heads import HeadsFetch
from headpond.node.core.session import Session
from headpond.node.core.topics import Topic
from headpond.wire.following import DROPPED_MAX, ReadDropped, WholeSegments
from headpond.wire.peering import Head

if TYPE_CHECKING:
    from headpond.node.core.node import NodeCore

RANGES_MAX = 16 * DROPPED_MAX

OnHeads = Callable[[list[Head]], None]
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

    def met(heads: list[Head]) -> None:
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
