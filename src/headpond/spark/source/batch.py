"""Reading topics with ``spark.read``: the tasks that read what is stored now, and what a task does.

A task fetches ranges of shards directly from the node; a stream's tasks are the same.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

import headpond.sync
from headpond.client.consume.batch import Batch
from headpond.client.consume.packed_origins import segment_facts, stored_times_of
from headpond.client.options import LostSpan
from headpond.client.reader import Part
from headpond.model.errors import BadRequest, EntriesMissing, IncarnationChanged, TopicMismatch, TopicNotFound
from headpond.model.names import TopicName
from headpond.spark.connection import errors_with_hints
from headpond.spark.options import SourceOptions, read_source_options
from headpond.spark.source.plan import (
    ReadTask,
    Span,
    plan_schema,
    plan_tasks,
    plan_versions,
    resolve,
    there,
    topic_names,
)
from headpond.spark.source.schema import arrow_schema, fit
from headpond.wire.plain.columns import NAMES, PLAIN_SCHEMA

log = logging.getLogger("headpond.spark")

ROWS_TARGET = 20_000
BYTES_TARGET = 8 * 1024 * 1024
"""A batch for Spark has about so many rows or bytes, whichever comes first."""
GAP_REASON, GAP_END = "gap.reason", "gap.end"
"""Headers of the row that reports missing entries."""


def connect(options: SourceOptions, *, patient: bool = True) -> headpond.sync.Client:
    """A client of the node; ``patient`` waits for an unreachable node, for example one that restarts."""
    return options.connection.open(wait_s=options.connection.timeout_s if patient else 0.0)


def schema(options: Mapping[str, str]) -> StructType:
    """The columns of a DataFrame over the topics that the options name."""
    with errors_with_hints():
        settings = read_source_options(options)
        with connect(settings, patient=False) as client:
            return plan_schema(client, settings)


def batch_reader(schema: StructType, options: Mapping[str, str]) -> DataSourceReader:
    with errors_with_hints():
        return BatchReader(schema, read_source_options(options, streaming=False))


class BatchReader(DataSourceReader):
    """What is stored when the plan is made, or a part of it."""

    def __init__(self, schema: StructType, options: SourceOptions) -> None:
        self._schema = schema
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with errors_with_hints(), connect(options, patient=False) as client:
            names = topic_names(client, options)
            ends = there(client.admin.ends(names)) if names else []
            # In this order: no row of the range is of a newer schema than the one that is read.
            versions = plan_versions(client, options, self._schema)
            spans: list[Span] = []
            for each in ends:
                assert each.uuid is not None
                starts = resolve(client, options, each, options.start, "start")
                stops = resolve(client, options, each, options.end, "end")
                spans += [
                    Span(
                        each.topic, each.uuid, versions.get(each.topic), number, shard.incarnation, start, stop
                    )
                    for number, (shard, start, stop) in enumerate(zip(each.shards, starts, stops, strict=True))
                    if options.reads(each.topic, number)
                ]
            return plan_tasks(spans, ends, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        if not isinstance(partition, ReadTask):  # Spark makes one where there are none
            return iter(())
        return read_task(self._options, self._schema, partition)


# --- a task -----------------------------------------------------------------------------------------


def read_task(options: SourceOptions, schema: StructType, task: ReadTask) -> Iterator[pa.RecordBatch]:
    """The rows of a task, as Arrow batches."""
    with errors_with_hints(), connect(options) as client:
        rows = RowBatcher(arrow_schema(schema))

        @functools.cache
        def reader_of(topic: str, uuid: bytes, version: int | None) -> headpond.sync.Reader:
            return client.reader(topic, uuid=uuid, schema_version=version, subscription=options.reads_as)

        for span in task.spans:
            reader = functools.partial(reader_of, span.topic, span.uuid, span.schema_version)
            yield from _read(options, reader, rows, span)
        yield from rows.flush()


def _read(
    options: SourceOptions, opened: Callable[[], headpond.sync.Reader], rows: RowBatcher, span: Span
) -> Iterator[pa.RecordBatch]:
    """The rows of a range in batches for Spark; the last rows stay in ``rows``."""
    if span.gap is not None:
        yield from _missing(options, rows, span, LostSpan(span.shard, *span.gap))
    if span.start >= span.end:
        return
    at = span.start
    try:
        for part in _parts(options, opened(), span):
            at = part.entry_next
            rows.name(part.producers)
            for item in _in_order(part):
                if isinstance(item, Batch):
                    yield from rows.add(item)
                else:
                    yield from _missing(options, rows, span, item)
    except (TopicNotFound, TopicMismatch, IncarnationChanged) as error:
        # A repeated batch whose topic is gone: its remaining entries are missing.
        if options.on_gap == "fail":
            raise
        yield from _missing(options, rows, span, LostSpan(span.shard, at, span.end, error.code))


def _parts(options: SourceOptions, reader: headpond.sync.Reader, span: Span) -> Iterator[Part]:
    try:
        yield from reader.read(
            span.shard,
            span.start,
            span.end,
            incarnation=span.incarnation,
            filter=options.filter,
            columns=_given(options),
            named="producer" in options.columns,
        )
    except BadRequest:
        if reader.ends()[span.shard].entry_next >= span.end:
            raise
        where = f"shard {span.shard} of topic {TopicName.parse(span.topic).short}"
        raise IncarnationChanged(
            f"{where} had entries up to {span.end - 1} and ends before: an old copy of it was restored"
        ) from None


def _given(options: SourceOptions) -> list[str] | None:
    """The columns to request from the node; None for all."""
    given = [name for name in NAMES if name in options.columns]
    return None if len(given) == len(NAMES) else given


def _in_order(part: Part) -> list[Batch | LostSpan]:
    if not part.lost:
        return list(part.batches)
    items: list[Batch | LostSpan] = [*part.batches, *part.lost]
    return sorted(items, key=lambda item: item.start if isinstance(item, LostSpan) else item.spans[0][0])


def _missing(options: SourceOptions, rows: RowBatcher, span: Span, lost: LostSpan) -> Iterator[pa.RecordBatch]:
    """Raises, reports or skips a gap, as ``onGap`` says."""
    topic = TopicName.parse(span.topic).short
    which = f"{lost.start} to {lost.end - 1}" if lost.end > lost.start else f"from {lost.start} on"
    text = f"topic {topic}, shard {lost.shard}: entries {which} are missing: {lost.reason}"
    if options.on_gap == "fail":
        raise EntriesMissing(text)
    log.warning("%s", text)
    if options.on_gap == "report":
        yield from rows.flush()
        yield rows.gap(span.topic, lost)


# --- rows for Spark ---------------------------------------------------------------------------------


class RowBatcher:
    """Gathers batches of any shards, and returns them in Spark's columns."""

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema
        self._batches: list[Batch] = []
        self._rows = self._bytes = 0
        self._names: dict[bytes, str] = {}
        """Names of producers, by block."""
        self._makers: dict[str, Callable[[list[Batch]], pa.Array]] = {
            "topic": lambda batches: _each([batch.topic for batch in batches], _lengths(batches)),
            "shard": _shards,
            "entry": lambda batches: pa.array(_entries(batches)),
            "stored_at": _stored_at,
            "node": lambda batches: _each([batch.node for batch in batches], _lengths(batches)),
            "identity": _identities,
            "producer": self._producers,
        }

    def add(self, batch: Batch) -> Iterator[pa.RecordBatch]:
        """Adds a batch; yields a batch for Spark when there are enough rows."""
        self._batches.append(batch)
        self._rows += len(batch)
        self._bytes += batch.nbytes
        if self._rows >= ROWS_TARGET or self._bytes >= BYTES_TARGET:
            yield from self.flush()

    def name(self, producers: Mapping[bytes, str]) -> None:
        """Adds names of producers whose batches follow."""
        self._names |= producers

    def _producers(self, batches: list[Batch]) -> pa.Array:
        """The producers' names; the block of one that has none."""
        names = _by_block(batches, lambda block: self._names.get(block) or block.hex())
        return _repeated(names, _counts(batches))

    def flush(self) -> Iterator[pa.RecordBatch]:
        """Yields all gathered rows."""
        batches, self._batches = self._batches, []
        self._rows = self._bytes = 0
        if batches:
            yield self._made(batches)

    def _made(self, batches: list[Batch]) -> pa.RecordBatch:
        columns = []
        for field in self._schema:
            maker = self._makers.get(field.name)
            column = maker(batches) if maker is not None else _whole(batches, field)
            columns.append(
                pa.nulls(sum(_lengths(batches)), field.type) if column is None else fit(column, field.type)
            )
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def gap(self, topic: str, lost: LostSpan) -> pa.RecordBatch:
        """The row that reports missing entries."""
        cells = {
            "topic": topic,
            "shard": lost.shard,
            "entry": lost.start,
            "headers": [(GAP_REASON, lost.reason), (GAP_END, str(lost.end))],
        }
        columns = [pa.array([cells.get(field.name)], field.type) for field in self._schema]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)


def _whole(batches: list[Batch], field: pa.Field) -> pa.Array | None:
    """A column of all batches; None where none has it."""
    parts = [batch.column(field.name) for batch in batches]
    kinds = {part.type for part in parts if part is not None}
    if not kinds or len(parts) == 1:
        return parts[0]
    if len(kinds) > 1:  # topics may differ in types that Spark does not distinguish
        kinds = {field.type}
        parts = [None if part is None else fit(part, field.type) for part in parts]
    (kind,) = kinds
    return pa.concat_arrays(
        [
            pa.nulls(len(batch), kind) if part is None else part
            for batch, part in zip(batches, parts, strict=True)
        ]
    )


def _entries(batches: list[Batch]) -> np.ndarray:
    return np.concatenate([np.arange(*span, dtype=np.int64) for batch in batches for span in batch.spans])


def _lengths(batches: list[Batch]) -> list[int]:
    return [len(batch) for batch in batches]


def _by_block(batches: list[Batch], text_of: Callable[[bytes], str]) -> pa.Array:
    """For each segment, the text of its block."""
    parts = []
    for batch in batches:
        facts = segment_facts(batch.origins)
        parts.append(pa.array(map(text_of, facts.blocks), pa.string()).take(pa.array(np.asarray(facts.places))))
    return pa.concat_arrays(parts)


def _counts(batches: list[Batch]) -> list[int]:
    """The rows of each segment of all batches."""
    return [count for batch in batches for count in batch.counts]


def _each(texts: list[str], counts: list[int]) -> pa.Array:
    """Texts, each repeated as often as its count says."""
    if len(set(texts)) == 1:
        return pa.repeat(pa.scalar(texts[0]), sum(counts))
    return _repeated(pa.array(texts, pa.string()), counts)


def _repeated(column: pa.Array, counts: list[int]) -> pa.Array:
    """Cells, each repeated as often as its count says."""
    if counts.count(1) == len(counts):
        return column
    return column.take(pa.array(np.repeat(np.arange(len(column), dtype=np.int32), counts)))


def _shards(batches: list[Batch]) -> pa.Array:
    return pa.array(np.repeat(np.array([batch.shard for batch in batches], np.int32), _lengths(batches)))


def _stored_at(batches: list[Batch]) -> pa.Array:
    times = [time for batch in batches for time in stored_times_of(batch.origins)]
    return _repeated(pa.array(times, PLAIN_SCHEMA.field("sent_at").type), _counts(batches))


def _firsts(entries: Sequence[int]) -> np.ndarray:
    """Entries that are mostly a range: of a packed record of single rows."""
    if isinstance(entries, range):
        return np.arange(entries.start, entries.stop, dtype=np.int64)
    return np.array(entries, np.int64)


def _identities(batches: list[Batch]) -> pa.Array:
    facts, counts = [segment_facts(batch.origins) for batch in batches], _counts(batches)
    shards = np.repeat([batch.shard for batch in batches], [len(each.numbers) for each in facts])
    numbers = (shards, np.concatenate([np.asarray(each.numbers) for each in facts]))
    # The text before the row is made once per segment: joining and writing numbers is what takes time here.
    segments = pc.binary_join_element_wise(
        _by_block(batches, bytes.hex), *(pa.array(each).cast(pa.string()) for each in numbers), "/"
    )
    firsts = np.repeat(np.concatenate([_firsts(each.firsts) for each in facts]), counts)
    rows = pa.array(_entries(batches) - firsts).cast(pa.string())
    return pc.binary_join_element_wise(_repeated(segments, counts), rows, "/")
