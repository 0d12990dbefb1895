"""Whether what a stream has read is still what the node has: topics deleted, re-created or restored.

With ``onGap = fail`` any of it is an error. Otherwise the stream goes on with what there is, and what can be
said of the gap becomes part of the batch.
"""

from __future__ import annotations

from penstock.model.errors import EntriesMissing, IncarnationChanged, TopicMismatch, TopicNotFound
from penstock.model.topic import TopicName
from penstock.spark.source_offset import TopicOffset
from penstock.spark.source_options import SourceOptions
from penstock.wire.control import Ends

RECREATED = "recreated"
INCARNATION = "incarnation"


def check_standing(options: SourceOptions, topic: str, offset: TopicOffset, now: Ends) -> None:
    """Raises if a topic is not what it was, unless ``onGap`` lets that pass."""
    if options.on_gap != "fail":
        return
    shown = TopicName.parse(topic).short
    read = f"it was read up to {list(offset.entries)}"
    if now.uuid is None:
        raise TopicNotFound(
            f"topic {shown} was deleted while it was read; {read}",
            hint="Begin anew with a new checkpoint, or go on with what there is with onGap = report or skip.",
        )
    if now.uuid != offset.uuid:
        raise TopicMismatch(
            f"topic {shown} was deleted and created again while it was read; {read}",
            hint="Begin anew with a new checkpoint, or go on with the new topic with onGap = report or skip.",
        )
    for shard, (known, end) in enumerate(zip(offset.incarnations, now.shards, strict=True)):
        if known != end.incarnation:
            raise IncarnationChanged(
                f"shard {shard} of topic {shown} lost entries and began incarnation {end.incarnation}; {read}"
            )
        if offset.entries[shard] < end.entry_first:
            raise EntriesMissing(
                f"topic {shown}, shard {shard}: entries {offset.entries[shard]} to {end.entry_first - 1} "
                "are missing: retention"
            )


def span_start(before: TopicOffset | None, after: TopicOffset, shard: int) -> int:
    """Where a batch begins in a shard."""
    if before is None:
        return after.begins[shard] if after.begins is not None else 0
    if before.uuid != after.uuid:
        return 0
    return before.entries[shard]


def gap_between(before: TopicOffset | None, after: TopicOffset, shard: int) -> tuple[int, int, str] | None:
    """What lies between two offsets that are not of one life of a shard: (start, end, reason)."""
    if before is None or shard >= len(before.entries):
        return None
    entry = before.entries[shard]
    if before.uuid != after.uuid:
        return (entry, entry, RECREATED)
    if before.incarnations[shard] != after.incarnations[shard]:
        return (min(entry, after.entries[shard]), entry, INCARNATION)
    return None
