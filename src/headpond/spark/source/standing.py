"""Whether the node still has what a stream has read: topics deleted, re-created or restored from an old copy.

With ``onGap = fail`` each of these is an error. Otherwise the stream continues with the entries that are there,
and the batch reports the gap.

A shard restored from an old copy may grow beyond the stream's position before the stream looks. The node then
refuses the position, because its incarnation is none of that log's. Stored times never fall within a shard, so
the stream continues with the first entry that was stored later than all that it read.
"""

from __future__ import annotations

import headpond.sync
from headpond.model.errors import EntriesMissing, IncarnationChanged, TopicMismatch, TopicNotFound
from headpond.model.message import from_micros
from headpond.model.names import TopicName
from headpond.spark.options import SourceOptions
from headpond.spark.source.offset import TopicOffset
from headpond.wire.control.reading import Ends

RECREATED = "recreated"
INCARNATION = "incarnation"
_CONTINUE_HINT = "Begin with a new checkpoint, or continue with what is there: onGap = report or skip."


def check_standing(options: SourceOptions, topic: str, offset: TopicOffset, now: Ends) -> None:
    """Raises if a topic is not what it was, unless ``onGap`` lets that pass."""
    if options.on_gap != "fail":
        return
    shown = TopicName.parse(topic).short
    read = f"it was read up to {list(offset.entries)}"
    if now.uuid is None:
        raise TopicNotFound(
            f"topic {shown} was deleted while it was read; {read}",
            hint=_CONTINUE_HINT,
        )
    if now.uuid != offset.uuid:
        raise TopicMismatch(
            f"topic {shown} was deleted and created again while it was read; {read}",
            hint="Begin with a new checkpoint, or continue with the new topic: onGap = report or skip.",
        )
    for shard, end in enumerate(now.shards):
        if not options.reads(topic, shard):
            continue
        if offset.entries[shard] < end.entry_first:
            raise EntriesMissing(
                f"topic {shown}, shard {shard}: entries {offset.entries[shard]} to {end.entry_first - 1} "
                "are missing: retention"
            )


def check_same_life(options: SourceOptions, topic: str, offset: TopicOffset, now: tuple[int, ...]) -> None:
    """Raises if the stream cannot continue at its position, unless ``onGap`` lets that pass."""
    if options.on_gap == "fail" and now != offset.entries:
        raise IncarnationChanged(
            f"an old copy of topic {TopicName.parse(topic).short} was restored: it was read up to "
            f"{list(offset.entries)}, and continues at {list(now)} with other messages",
            hint=_CONTINUE_HINT,
        )


def position_now(
    client: headpond.sync.Client, options: SourceOptions, topic: str, offset: TopicOffset, now: Ends
) -> tuple[int, ...]:
    """Where a stream continues in each shard: at its offset, or where an old copy departs from what it read."""
    if now.uuid != offset.uuid:
        return offset.entries
    found = list(offset.entries)
    with client.reader(topic, uuid=offset.uuid, subscription=options.reads_as) as reader:
        for shard, (entry, known, end) in enumerate(
            zip(offset.entries, offset.incarnations, now.shards, strict=True)
        ):
            same = known == end.incarnation and entry <= end.entry_next
            if options.reads(topic, shard) and not same and not _is_held(reader, shard, known, entry):
                stored = offset.stored[shard]
                found[shard] = min(entry, end.entry_next)
                # Only entries before the position that are newer than all it read can be mistaken for read
                # ones.
                if stored and end.stored_at_us > stored and end.entry_first < found[shard]:
                    found[shard] = _position_now(reader, shard, found[shard], stored)
    return tuple(found)


def _is_held(reader: headpond.sync.Reader, shard: int, incarnation: int, entry: int) -> bool:
    """Whether the log still has this position of this incarnation."""
    try:
        reader.fetch(shard, entry, entry, incarnation=incarnation)
    except IncarnationChanged:
        return False
    return True


def _position_now(reader: headpond.sync.Reader, shard: int, entry: int, stored_us: int) -> int:
    """Where a stream continues that was at ``entry`` and had read all entries stored up to a time."""
    for part in reader.read(shard, entry - 1, entry, columns=()):
        # The last entry read mostly settles it, and the search below goes through every shard.
        if any(batch.origins[0].stored_at_us <= stored_us for batch in part.batches):
            return entry
    since = reader.entries_at(from_micros(stored_us + 1))[shard]
    return _first_since(reader, shard, since, entry, stored_us) if since < entry else entry


def _first_since(reader: headpond.sync.Reader, shard: int, start: int, end: int, stored_us: int) -> int:
    """The first message from ``start`` on that was stored later than that; ``end`` where there is none.

    In a state topic a time may be that of compacted entries, which have the last one's.
    """
    for part in reader.read(shard, start, end, columns=()):
        for batch in part.batches:
            for origin, spans in batch.by_segment():
                if origin.stored_at_us > stored_us:
                    return spans[0][0]
    return end


def span_start(before: TopicOffset | None, after: TopicOffset, shard: int) -> int:
    """Where a batch begins in a shard."""
    if after.begins is not None:
        return after.begins[shard]
    if before is None or before.uuid != after.uuid:
        return 0
    return before.entries[shard]


def gap_between(before: TopicOffset | None, after: TopicOffset, shard: int) -> tuple[int, int, str] | None:
    """The gap between two offsets of different lives of a shard: (start, end, reason).

    Nobody knows how much of the old life was unread, so the gap begins and ends at the stream's position.
    """
    if before is None or shard >= len(before.entries):
        return None
    entry = before.entries[shard]
    if before.uuid != after.uuid:
        return (entry, entry, RECREATED)
    if after.begins is not None and after.begins[shard] != entry:
        return (entry, entry, INCARNATION)
    return None
