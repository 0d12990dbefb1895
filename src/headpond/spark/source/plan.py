"""The topics and ranges to read, divided into tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

import headpond.sync
from headpond.model.errors import BadRequest, SchemaChanged, SchemaMismatch, TopicNotFound
from headpond.model.names import TopicName
from headpond.spark.options import LATEST, Place, Places, SourceOptions
from headpond.spark.source.schema import source_schema
from headpond.wire.control.catalog import TopicInfo
from headpond.wire.control.reading import Ends
from headpond.wire.typed.schema import decode_schema, shown_schema

TASK_BYTES_MAX = 64 * 1024 * 1024
TASK_BYTES_MIN = 4 * 1024 * 1024
SPAN_COST_BYTES = 16 * 1024
ROW_COST_BYTES = 200
"""The cost of a request for a range, and of passing a row to Spark, in bytes read."""


@dataclass(frozen=True, slots=True)
class Span:
    """A range of one shard, with the ids that reveal another shard in its place."""

    topic: str
    uuid: bytes
    schema_version: int | None
    shard: int
    incarnation: int | None
    start: int
    end: int
    gap: tuple[int, int, str] | None = None
    """Entries before it that are known to be gone for good: (start, end, reason)."""


@dataclass
class ReadTask(InputPartition):
    """The ranges that one task reads, one after the other."""

    spans: tuple[Span, ...]


def topic_names(client: headpond.sync.Client, options: SourceOptions) -> list[str]:
    """The full names of the topics to read; asks the node for those of a pattern."""
    if options.pattern is None:
        return list(options.topics)
    return [info.topic for info in _matching(client, options.pattern)]


def _matching(client: headpond.sync.Client, pattern: str) -> list[TopicInfo]:
    """The topics whose short name matches the pattern as a whole."""
    wanted = re.compile(pattern)
    infos = client.admin.list_topics()
    return [info for info in infos if wanted.fullmatch(TopicName.parse(info.topic).short)]


def check_covered(options: SourceOptions, topic: str) -> None:
    """Refuses a checkpoint that reads a topic which the options no longer name."""
    shown = TopicName.parse(topic).short
    if topic in options.topics or (options.pattern is not None and re.fullmatch(options.pattern, shown)):
        return
    raise BadRequest(
        f"the checkpoint reads topic {shown}, and the options do not name it",
        hint="Name it too, or begin with a new checkpoint.",
    )


def columns_of(options: SourceOptions, info: TopicInfo) -> StructType:
    """The columns of a DataFrame over one topic."""
    return source_schema(options.columns, None if info.schema is None else decode_schema(info.schema))


def plan_schema(client: headpond.sync.Client, options: SourceOptions) -> StructType:
    """The schema of a DataFrame: what all topics that are named have, or the oldest that a pattern matches.

    A stream skips topics with other columns that a pattern finds later, also after it was restarted, so they
    must not change its schema.
    """
    infos = _infos(client, options)
    if options.pattern is None:
        _check_alike(options, infos)
    return columns_of(options, min(infos, key=lambda info: (info.created_at_us, info.topic)))


def plan_versions(
    client: headpond.sync.Client, options: SourceOptions, schema: StructType
) -> dict[str, int | None]:
    """The schema version that each topic is read in; all of them must have the DataFrame's schema."""
    infos = _infos(client, options)
    _check_alike(options, infos)
    present = columns_of(options, infos[0])
    if present != schema:
        if any(info.schema_version is not None for info in infos):
            raise SchemaChanged(f"the topics' columns are now {present.simpleString()}")
        raise BadRequest(
            f"the schema given is {schema.simpleString()}; the topics' is {present.simpleString()}",
            hint="Leave .schema(...) out: the source knows its columns.",
        )
    return {info.topic: info.schema_version for info in infos}


def _infos(client: headpond.sync.Client, options: SourceOptions) -> list[TopicInfo]:
    if options.pattern is None:
        return [client.admin.show_topic(name) for name in options.topics]
    infos = _matching(client, options.pattern)
    if not infos:
        raise TopicNotFound(
            f"no topic matches {options.pattern!r}", hint="The pattern must match the whole name of a topic."
        )
    # The list of topics leaves schemas out that are too large for one answer.
    return [
        client.admin.show_topic(info.topic) if info.schema is None and info.schema_version is not None else info
        for info in infos
    ]


def _check_alike(options: SourceOptions, infos: Sequence[TopicInfo]) -> None:
    first = infos[0]
    schema = columns_of(options, first)
    for info in infos[1:]:
        if columns_of(options, info) != schema:
            raise SchemaMismatch(
                f"topics {TopicName.parse(first.topic).short} and {TopicName.parse(info.topic).short} differ: "
                f"{shown_columns(first)} against {shown_columns(info)}",
                hint="Read them as two DataFrames.",
            )


def shown_columns(info: TopicInfo) -> str:
    return "no schema" if info.schema is None else f"({shown_schema(decode_schema(info.schema))})"


def there(ends: Iterable[Ends]) -> list[Ends]:
    """The ends of topics, all of which must be there."""
    found = list(ends)
    for each in found:
        if each.uuid is None:
            raise TopicNotFound(f"there is no topic {TopicName.parse(each.topic).short!r}")
    return found


def check_assigned(options: SourceOptions, ends: Ends) -> None:
    """Refuses shards that a topic does not have."""
    missing = sorted(shard for shard in options.assigned.get(ends.topic, ()) if shard >= len(ends.shards))
    if missing:
        raise BadRequest(
            f"assign names shards {missing} of topic {TopicName.parse(ends.topic).short}; "
            f"it has 0 to {len(ends.shards) - 1}"
        )


def resolve(
    client: headpond.sync.Client, options: SourceOptions, ends: Ends, places: Places, name: str
) -> list[int]:
    """The entry of ``start`` or ``end`` in each shard of a topic; in a shard that is not read, the first."""
    check_assigned(options, ends)
    read = [shard for shard in range(len(ends.shards)) if options.reads(ends.topic, shard)]
    found = [shard.entry_first for shard in ends.shards]
    times: dict[datetime, list[int]] = {}
    for shard, place in _places_by_shard(ends, places, name, read).items():
        known, where = ends.shards[shard], f"shard {shard} of topic {TopicName.parse(ends.topic).short}"
        if place == LATEST:
            found[shard] = known.entry_next
        elif isinstance(place, int):
            if place > known.entry_next:
                raise BadRequest(
                    f"{name}: entry {place} of {where} is not there yet; its entries end at {known.entry_next}"
                )
            found[shard] = place
        elif isinstance(place, datetime):
            if place not in times:
                with client.reader(ends.topic, uuid=ends.uuid, subscription=options.reads_as) as reader:
                    times[place] = reader.entries_at(place)
            # This plan ignores entries that the node stored after the ends were read.
            found[shard] = min(times[place][shard], known.entry_next)
            if name == "start" and options.start_beyond_end == "error" and found[shard] == known.entry_next:
                raise BadRequest(
                    f"start: nothing was stored in {where} at {place} or later",
                    hint="Give an earlier time, or startBeyondEnd = latest to begin with what comes next.",
                )
    return found


def _places_by_shard(ends: Ends, places: Places, name: str, read: Sequence[int]) -> dict[int, Place]:
    """The places of the shards that are read, which must all be named if any is."""
    if not isinstance(places, dict):
        return dict.fromkeys(read, places)
    shown = TopicName.parse(ends.topic).short
    by_shard = places.get(ends.topic, places.get("", {}))
    if not by_shard:
        raise BadRequest(
            f"{name} does not name topic {shown}", hint=f"Name its shards too: {', '.join(map(str, read))}."
        )
    if sorted(by_shard) != list(read):
        raise BadRequest(
            f"{name} names shards {sorted(by_shard)} of topic {shown}; those that are read are {list(read)}",
            hint="Name each of them: with an entry, a time, earliest or latest.",
        )
    return by_shard


def plan_tasks(spans: Sequence[Span], ends: Iterable[Ends], options: SourceOptions) -> list[ReadTask]:
    """Which task reads which ranges, at least ``minPartitions`` of them if there are so many entries.

    A task reads at most about ``TASK_BYTES_MAX``, so a larger range is cut. Small ranges share a task, since
    starting one takes Spark longer than reading ``TASK_BYTES_MIN`` takes; with ``taskPerShard`` they do not.
    Ranges stay in their order, within a task and from task to task.
    """
    entry_bytes = {each.topic: _entry_bytes(each) for each in ends}
    pieces = _cut(spans, entry_bytes, options.partitions_min)
    if options.task_per_shard:
        return [ReadTask((piece,)) for piece in pieces]
    weights = [
        SPAN_COST_BYTES + (piece.end - piece.start) * (ROW_COST_BYTES + entry_bytes.get(piece.topic, 1))
        for piece in pieces
    ]
    return [ReadTask(tuple(group)) for group in _grouped(pieces, weights, options.partitions_min)]


def _cut(spans: Sequence[Span], entry_bytes: Mapping[str, int], partitions_min: int) -> list[Span]:
    """Ranges divided into pieces for one task each, without empty ranges that have no gap before them."""
    rows = sum(max(0, span.end - span.start) for span in spans)
    found: list[Span] = []
    for span in spans:
        count = span.end - span.start
        if count <= 0:
            found += [replace(span, end=span.start)] if span.gap is not None else []
            continue
        by_size = -(-count * entry_bytes.get(span.topic, 1) // TASK_BYTES_MAX)
        pieces = min(count, max(by_size, -(-partitions_min * count // rows), 1))
        edges = [span.start + count * number // pieces for number in range(pieces + 1)]
        for number in range(pieces):
            gap = span.gap if number == 0 else None
            found.append(replace(span, start=edges[number], end=edges[number + 1], gap=gap))
    return found


def _grouped(pieces: Sequence[Span], weights: Sequence[int], count_min: int) -> list[list[Span]]:
    """The pieces in their order as groups of about ``TASK_BYTES_MIN``, or smaller ones to make enough."""
    groups: list[list[Span]] = []
    group: list[Span] = []
    weight, left = 0, sum(weights)
    for number, (piece, own) in enumerate(zip(pieces, weights, strict=True)):
        missing = max(1, count_min - len(groups))
        share = min(TASK_BYTES_MIN, left / missing)
        # A group ends where its weight is nearest to its share, or if the groups to come need all other pieces.
        if group and (weight + own / 2 > share or len(pieces) - number < missing):
            groups.append(group)
            left -= weight
            group, weight = [], 0
        group.append(piece)
        weight += own
    return [*groups, group] if group else groups


def _entry_bytes(ends: Ends) -> int:
    """The average bytes of an entry of a topic."""
    entries = sum(shard.entry_next - shard.entry_first for shard in ends.shards)
    return max(1, sum(shard.bytes for shard in ends.shards) // max(1, entries))
