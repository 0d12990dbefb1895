"""Reading topics with ``spark.readStream``.

Spark asks for offsets in one process that lives as long as the query, and reads ranges in others. Its
checkpoint has two offsets per batch (offset.py); between them the same rows come, however often Spark repeats
the batch.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

import headpond.sync
from headpond.model.bounds import ENTRY_MAX
from headpond.model.errors import (
    IncarnationChanged,
    SchemaChanged,
    SubscriptionNotFound,
    TopicMismatch,
    TopicNotFound,
)
from headpond.model.names import TopicName
from headpond.spark.connection import errors_with_hints
from headpond.spark.options import EARLIEST, Places, SourceOptions, read_source_options
from headpond.spark.source.batch import BatchReader, connect, read_task
from headpond.spark.source.offset import (
    BatchDelay,
    IdleWait,
    Offset,
    Shard,
    TopicOffset,
    backlog,
    limited,
    limited_by_bytes,
    offset_json,
    read_offset,
    read_start,
)
from headpond.spark.source.plan import (
    ReadTask,
    Span,
    check_assigned,
    check_covered,
    columns_of,
    plan_tasks,
    plan_versions,
    resolve,
    shown_columns,
    there,
    topic_names,
)
from headpond.spark.source.standing import (
    INCARNATION,
    check_same_life,
    check_standing,
    gap_between,
    position_now,
    span_start,
)
from headpond.wire.control.reading import Ends

log = logging.getLogger("headpond.spark")

SchemaState = tuple[bytes | None, int | None]
"""A topic's uuid and the version of its schema."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Spark makes one in each of its processes. It opens and checks nothing before its first use.

    Spark hides errors of a reader's constructor.
    """

    def __init__(self, schema: StructType, options: Mapping[str, str]) -> None:
        self._schema = schema
        self._given = dict(options)
        self._checked: SourceOptions | None = None
        self._open: headpond.sync.Client | None = None
        self._read_as: dict[str, SchemaState] = {}
        """The schema with which each topic is read."""
        self._skipped: dict[str, SchemaState] = {}
        """Topics that a pattern found later and that have other columns."""
        self._ends: dict[str, Ends] = {}
        """How far each topic reached at the last look."""
        self._until: dict[str, Ends] | None = None
        """With ``AvailableNow``: how far to read."""
        self._initial: Offset | None = None
        self._reached: Offset = {}
        """The end of the last batch."""
        self._settled: Offset = {}
        self._idle = IdleWait()
        self._delay = BatchDelay()
        self._looked = -1
        """The number of the connection on which the topics were last found unchanged."""

    def __reduce__(self) -> tuple[Any, ...]:
        """A task only reads. It gets the options as read here, since it has another environment."""
        with errors_with_hints():
            return BatchReader, (self._schema, self._options)

    @property
    def _options(self) -> SourceOptions:
        if self._checked is None:
            self._checked = read_source_options(self._given, streaming=True)
        return self._checked

    @property
    def _client(self) -> headpond.sync.Client:
        if self._open is None:
            self._open = connect(self._options)
        return self._open

    # --- offsets ------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Where a query without a checkpoint begins. A subscription keeps that place across restarts.

        Spark stores it only when the first batch has ended, and asks again with every question until then.
        """
        with errors_with_hints():
            if self._initial is None:
                client = self._client
                plan_versions(client, self._options, self._schema)
                ends = there(self._ends_of(topic_names(client, self._options)))
                self._initial = {each.topic: self._first(each, self._options.start) for each in ends}
            return offset_json(self._initial)

    def _first(self, ends: Ends, start: Places) -> TopicOffset:
        """Where the reading of a topic begins: at the subscription's place, if the subscription exists."""
        options = self._options
        entries = resolve(self._client, options, ends, start, "start")
        if options.subscription is not None:
            made = self._client.admin.create_subscription(
                ends.topic, options.subscription, positions=entries, exist_ok=True
            )
            if any(
                place != wanted and options.reads(ends.topic, shard)
                for shard, (place, wanted) in enumerate(zip(made.positions, entries, strict=True))
            ):
                log.warning(
                    "topic %s is read from entries %s, where subscription %s stands; start would be %s",
                    TopicName.parse(ends.topic).short,
                    made.positions,
                    options.subscription,
                    entries,
                )
            entries = made.positions
        return _offset(ends, entries)

    def getDefaultReadLimit(self) -> ReadLimit:
        with errors_with_hints():
            options = self._options
            if options.entries_max is not None:
                return ReadMaxRows(options.entries_max)
            if options.bytes_max is not None:
                return ReadMaxBytes(options.bytes_max)
            return ReadMinRows(options.entries_min) if options.entries_min > 1 else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        with errors_with_hints():
            found = self._ends_of(topic_names(self._client, self._options))
            self._until = {each.topic: each for each in found}

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; ``start`` itself if there are no new entries, or not enough."""
        with errors_with_hints():
            before = read_start(start)
            self._look(before)
            reach = self._reach(before)
            self._settle(before)
            if self._until is None:
                wait_s = self._idle.seconds(time.monotonic())
                if _same(before, reach) and wait_s:
                    self._await_growth(before, wait_s)
                    reach = self._reach(before)
                held = not isinstance(limit, ReadAllAvailable) and self._holds(before, reach, wait_s)
                self._idle.answered(time.monotonic())
                if held:
                    reach = before
            self._reached = before if _same(before, reach) else self._limit(before, reach, limit)
            return start if self._reached is before else offset_json(self._reached)

    def _holds(self, before: Offset, reach: Offset, wait_s: float) -> bool:
        """Whether entries wait for others, so that they make a batch of ``minEntriesPerTrigger``."""
        if any(each.begins is not None for each in reach.values()):
            return False  # the offset must record where reading begins before the next look
        options, starts = self._options, self._starts(before, reach)
        entries = sum(reach[topic].entries[shard] - start for (topic, shard), start in starts.items())
        held_s = self._delay.waits_s(entries, options.entries_min, options.delay_s_max, time.monotonic())
        time.sleep(min(held_s, wait_s))
        return held_s > 0

    def _look(self, before: Offset) -> None:
        """Learns how far the topics reach: those of the offset, and those that a pattern finds now."""
        client, options = self._client, self._options
        for name in before:
            check_covered(options, name)
        names = sorted({*before, *topic_names(client, options)})
        self._ends = self._read_of(self._ends_of(names), before)
        self._skipped = {name: state for name, state in self._skipped.items() if name in names}

    def _ends_of(
        self, topics: Sequence[str], known: Sequence[Sequence[int]] | None = None, wait_s: float = 0.0
    ) -> list[Ends]:
        if not topics:
            return []
        return self._client.admin.ends(topics, known, wait=wait_s, subscription=self._options.reads_as)

    def _await_growth(self, before: Offset, wait_s: float) -> None:
        """Asks again about these topics; the node answers when one has grown."""
        if not self._ends:
            time.sleep(wait_s)
            return
        known = [self._read_ends(each, ENTRY_MAX) for each in self._ends.values()]
        self._ends = self._read_of(self._ends_of(list(self._ends), known, wait_s), before)

    def _read_of(self, found: Sequence[Ends], before: Offset) -> dict[str, Ends]:
        """The topics among these to read. A topic of the offset that is gone has no shards here."""
        read: dict[str, Ends] = {}
        for each in found:
            if each.uuid is not None and self._is_read(each, before):
                read[each.topic] = each
            elif each.topic in before or self._options.pattern is None:
                read[each.topic] = Ends(each.topic, None, None, [])
        return read

    def _is_read(self, ends: Ends, before: Offset) -> bool:
        """Whether a topic has the columns of the query.

        A topic that a pattern finds, new or re-created, is skipped if it has others; a topic that the options
        name, or whose columns change while it is read, ends the query.
        """
        topic, state = ends.topic, (ends.uuid, ends.schema_version)
        wanted = self._options.pattern is None or (topic in before and before[topic].uuid == ends.uuid)
        if state == self._read_as.get(topic):
            return True
        check_assigned(self._options, ends)
        if state == self._skipped.get(topic) and not wanted:
            return False
        try:
            info = self._client.admin.show_topic(topic)
        except TopicNotFound:  # deleted just now
            return False
        if columns_of(self._options, info) == self._schema:
            self._read_as[topic] = (info.uuid, info.schema_version)
            self._skipped.pop(topic, None)
            return True
        shown, schema = TopicName.parse(topic).short, self._schema
        reads = (schema["value"].dataType if "value" in schema.names else schema).simpleString()
        if wanted:
            version = "" if info.schema_version is None else f" (version {info.schema_version})"
            raise SchemaChanged(
                f"topic {shown} has {shown_columns(info)}{version} now; the query reads values as {reads}"
            )
        log.warning(
            "topic %s matches the pattern and is skipped: it has %s; the query reads values as %s",
            shown,
            shown_columns(info),
            reads,
        )
        self._skipped[topic] = (info.uuid, info.schema_version)
        return False

    def _reach(self, before: Offset) -> Offset:
        """How far a batch without limits would go; with ``AvailableNow``, to where the topics then ended."""
        for topic, offset in before.items():
            check_standing(self._options, topic, offset, self._ends[topic])
        moved = self._moved(before)
        self._looked = self._client.reconnects
        after: Offset = {}
        for topic, now in self._ends.items():
            known = before.get(topic)
            bound = now if self._until is None else self._until.get(topic)
            # A topic that is gone (onGap is not fail), or created after a query with AvailableNow began.
            if now.uuid is None or bound is None or bound.uuid != now.uuid:
                if known is not None:
                    after[topic] = known
                continue
            begins = moved.get(topic) if known is not None else self._first(now, EARLIEST).entries
            # A shard that is not read stays where it was: it may be assigned later.
            unread = [shard for shard in range(len(bound.shards)) if not self._options.reads(topic, shard)]
            entries = [end.entry_next for end in bound.shards]
            for shard in unread:
                entries[shard] = begins[shard] if begins is not None else 0
            after[topic] = _offset(bound, entries, begins)
            if known is not None and known.uuid == now.uuid:
                after[topic] = after[topic].keep(known, unread)
        return after

    def _moved(self, offset: Offset) -> dict[str, tuple[int, ...]]:
        """Topics that continue at another place, because an old copy of them was restored.

        That takes a restart of the node, so this looks once per connection, or if a log ends too early.
        """
        moved: dict[str, tuple[int, ...]] = {}
        for topic, each in offset.items():
            now = self._ends.get(topic)
            if now is None or now.uuid != each.uuid:
                continue
            short = any(
                end.entry_next < at and self._options.reads(topic, shard)
                for shard, (end, at) in enumerate(zip(now.shards, each.entries, strict=True))
            )
            if short or self._looked != self._client.reconnects:
                place = position_now(self._client, self._options, topic, each, now)
                check_same_life(self._options, topic, each, place)
                if place != each.entries:
                    moved[topic] = place
        return moved

    def _starts(self, before: Offset, after: Offset) -> dict[Shard, int]:
        """Where a batch begins in each shard: not before the first entry that retention has left.

        Deleted entries do not count for a limit: otherwise a long gap would be very many empty batches.
        """
        starts: dict[Shard, int] = {}
        for topic, offset in after.items():
            ends = self._ends[topic].shards
            for shard, entry in enumerate(offset.entries):
                kept = ends[shard].entry_first if shard < len(ends) else 0
                starts[topic, shard] = min(max(span_start(before.get(topic), offset, shard), kept), entry)
        return starts

    def _limit(self, before: Offset, reach: Offset, limit: ReadLimit) -> Offset:
        starts = self._starts(before, reach)
        stops = {(topic, shard): reach[topic].entries[shard] for topic, shard in starts}
        entries_max = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        bytes_max = limit.max_bytes if isinstance(limit, ReadMaxBytes) else None
        if isinstance(limit, ReadMaxRows | ReadMinRows):  # Spark passes on one limit, the user may set several
            bytes_max = self._options.bytes_max
        sizes = {
            (topic, number): shard.bytes / max(1, shard.entry_next - shard.entry_first)
            for topic, each in self._ends.items()
            for number, shard in enumerate(each.shards)
        }
        stops = limited_by_bytes(starts, limited(starts, stops, entries_max), sizes, bytes_max)
        return {
            topic: replace(each, entries=tuple(stops[topic, shard] for shard in range(len(each.entries))))
            for topic, each in reach.items()
        }

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """How far the topics reached at the last look, for Spark's progress reports.

        It also has the backlog of each topic, and the skipped topics.
        """
        found = {
            topic: _offset(each, self._read_ends(each, 0))
            for topic, each in self._ends.items()
            if each.uuid is not None
        }
        if not found:
            return None
        skipped = {"skipped": sorted(self._skipped)} if self._skipped else {}
        return offset_json(found) | {"backlog": backlog(self._reached, found)} | skipped

    def _read_ends(self, ends: Ends, unread: int) -> list[int]:
        """The next entries of a topic's shards; ``unread`` stands for one that is not read."""
        return [
            shard.entry_next if self._options.reads(ends.topic, number) else unread
            for number, shard in enumerate(ends.shards)
        ]

    # --- batches ------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        with errors_with_hints():
            before, after = read_start(start), read_offset(end)
            for name in after:  # a repeated batch may be of a query with other options
                check_covered(self._options, name)
            if not self._ends.keys() >= after.keys():
                self._look(after)
            moved = self._moved(after)
            spans: list[Span] = []
            for topic, offset in sorted(after.items()):
                _, version = self._read_as.get(topic, (None, None))
                known, place = before.get(topic), moved.get(topic)
                for shard, end_entry in enumerate(offset.entries):
                    if not self._options.reads(topic, shard):
                        continue
                    begin, gap = span_start(known, offset, shard), gap_between(known, offset, shard)
                    stop, incarnation = end_entry, offset.incarnations[shard]
                    if place is not None:  # a repeated batch, at whose place there are other messages now
                        stop = min(end_entry, place[shard])
                        lost = max(stop, begin)
                        gap = (lost, end_entry, INCARNATION) if lost < end_entry else gap
                        incarnation = self._ends[topic].shards[shard].incarnation
                    begin = min(begin, stop)
                    spans.append(Span(topic, offset.uuid, version, shard, incarnation, begin, stop, gap))
            return plan_tasks(spans, self._ends.values(), self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        return read_task(self._options, self._schema, partition)

    # --- progress ------------------------------------------------------------------------------

    def commit(self, end: dict[str, Any]) -> None:
        """Spark calls this on every source of a query for each batch, also on idle ones."""
        self._idle.batch_made()
        with errors_with_hints():
            self._settle(read_offset(end))

    def _settle(self, offset: Offset) -> None:
        """Moves the subscription to the offset.

        Spark asks for the next offset only after a batch has succeeded, so ``latestOffset`` calls this too:
        ``commit`` comes with the next batch, and the last batch would never count.
        """
        name = self._options.subscription
        if name is None or offset == self._settled:
            return
        for topic, each in offset.items():
            if topic not in self._ends:
                self._ends |= {found.topic: found for found in self._ends_of([topic])}
            if self._settled.get(topic) == each or self._ends[topic].uuid != each.uuid:
                continue
            # A place in another topic, or in what stood here before an old copy was restored, settles nothing.
            # The next look at the topics reports it, or lets it pass.
            with suppress(TopicNotFound, TopicMismatch, IncarnationChanged):
                self._keep_place(topic, name, each)
        self._settled = offset

    def _keep_place(self, topic: str, name: str, offset: TopicOffset) -> None:
        admin, places, runs = self._client.admin, offset.entries, offset.incarnations
        try:
            admin.advance(topic, name, places, topic_uuid=offset.uuid, incarnations=runs)
        except SubscriptionNotFound:  # the checkpoint is older than it, or a user deleted it
            admin.create_subscription(topic, name, positions=places, incarnations=runs, exist_ok=True)

    def stop(self) -> None:
        if self._open is not None:
            self._open.close()
            self._open = None


def _same(before: Offset, after: Offset) -> bool:
    """Whether there is nothing new; where a batch began does not count."""
    places = [{topic: each.place() for topic, each in offset.items()} for offset in (before, after)]
    return places[0] == places[1] and all(each.begins is None for each in after.values())


def _offset(ends: Ends, entries: Sequence[int], begins: tuple[int, ...] | None = None) -> TopicOffset:
    assert ends.uuid is not None
    incarnations = tuple(shard.incarnation for shard in ends.shards)
    stored = tuple(shard.stored_at_us for shard in ends.shards)
    return TopicOffset(ends.uuid, incarnations, tuple(entries), stored, begins)
