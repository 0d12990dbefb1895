"""Writing topics with Spark, exactly once: the two writers that ``format("headpond")`` asks for.

Every task stages its rows under a new id and hands that to the driver; the driver commits all of them
as one batch. A batch that comes again (a restarted query, a driver that died before its checkpoint was written)
is known by its number, compared and dropped; with other rows it is an error. What tasks left behind that the
driver never heard of expires at the node.

The batch is numbered by the query: the writer is the query's id, which its checkpoint keeps, or ``sinkId``.

Columns are those of a message: ``value`` (binary or string; in a typed topic a struct of its columns; null to
delete a key of a state topic) and, where wanted, ``key``, ``id``, ``headers``, ``sent_at``; ``topic`` and
``shard`` say where a row goes. Rows of a typed topic may also have its columns themselves, and ``@key``,
``@id``, ``@headers``, ``@sent_at``, ``@shard`` beside them.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headpond.client.produce.tables import check_state_table, gather, take_shards
from headpond.model.errors import BadRequest, HeadpondError, SchemaMismatch, TopicNotFound
from headpond.model.names import TopicName
from headpond.model.receipt import Stage
from headpond.spark.connection import errors_with_hints
from headpond.spark.options import SinkOptions, read_sink_options
from headpond.spark.source.schema import arrow_schema, shown_as
from headpond.sync.client import Client
from headpond.sync.writer import OpenedStage, Writer
from headpond.wire.plain.columns import table_to_batches
from headpond.wire.typed.rows import casts, is_messages, messages_of, shard_column
from headpond.wire.typed.versions import SchemaVersions

log = logging.getLogger("headpond.spark")

QUERY_ID = "sql.streaming.queryId"
GATHER_BYTES = 4 * 1024 * 1024
"""Batches of Spark are gathered up to this size, so that every shard gets about a whole segment."""
TOPIC, VALUE = "topic", "value"


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """The message of a task to the driver."""

    writer: str
    stages: tuple[Stage, ...]
    query: str
    """The id of the query; empty without one."""


def batch_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> BatchSink:
    with errors_with_hints():
        read = read_sink_options(options, streaming=False)
        return BatchSink(read, own=_check(schema, read, overwrite))


def stream_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> StreamSink:
    with errors_with_hints():
        read = read_sink_options(options, streaming=True)
        # Spark makes a new writer for every commit: a node that restarts just then must not end the query.
        return StreamSink(read, own=_check(schema, read, overwrite, wait_s=read.connection.timeout_s))


def _check(schema: StructType, options: SinkOptions, overwrite: bool, *, wait_s: float = 0.0) -> frozenset[str]:
    """Checks options and columns before the first task; returns the columns of a typed topic."""
    if overwrite:
        raise BadRequest(
            "a topic can only be appended to",
            hint='Use mode("append"), and outputMode("append") for a stream.',
        )
    topic = None  # a column names it, or it is not created yet
    with options.connection.open(wait_s=wait_s) as client, contextlib.suppress(TopicNotFound):
        if options.topic is not None:
            topic = client.admin.show_topic(options.topic)
    schemas = SchemaVersions(topic.schemas) if topic is not None and topic.schemas else None
    columns = arrow_schema(schema)
    check_columns(columns, options.topic, schemas, state=topic is not None and bool(topic.state))
    return frozenset(schemas.newest.names if schemas is not None else ())


class StagedSink:
    """Stages and commits rows. Spark makes one where it plans the query, and copies it to every task."""

    def __init__(self, options: SinkOptions, *, own: frozenset[str]) -> None:
        """``own``: a typed topic's columns, which may have the names of a message's."""
        self._options = options
        self._own = own

    def _client(self) -> Client:
        return self._options.connection.open_later()

    def _writer(self, client: Client, name: str) -> Writer:
        return client.writer(name, timeout=self._options.connection.timeout_s)

    def _stage(self, writer_name: str, query: str, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Stages a task's rows on the node's disk; a failure drops the stages, if it can."""
        with self._client() as client, self._writer(client, writer_name) as writer:
            opened: dict[str, OpenedStage] = {}
            try:
                for topic, rows in by_topic(batches, self._options.topic, self._own):
                    if topic not in opened:
                        opened[topic] = writer.begin(topic)
                    columns = opened[topic].columns
                    opened[topic].add(rows if columns is None else in_types_of(columns, rows))
                return Staged(writer_name, tuple(stage.finish() for stage in opened.values()), query)
            except BaseException:
                with contextlib.suppress(HeadpondError):
                    writer.abort([stage.id for stage in opened.values()])
                raise

    def _commit(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        staged = [message for message in messages if isinstance(message, Staged)]
        if not staged:
            return
        name = staged[0].writer
        with self._client() as client, self._writer(client, name) as writer:
            done = writer.commit(
                batch,
                [stage for message in staged for stage in message.stages],
                holder=staged[0].query,
                on_repeat=self._options.on_repeat,
            )
            if done.outcome == "duplicate":
                log.warning("batch %d of writer %s was there already; its rows were dropped", batch, name)
            self._committed(writer)

    def _committed(self, writer: Writer) -> None:
        """Called when the batch is in its topics."""

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drops the stages of the tasks, never those of a committed batch; stages it cannot reach expire."""
        staged = [message for message in messages if isinstance(message, Staged)]
        if staged:
            with (
                contextlib.suppress(HeadpondError),
                self._client() as client,
                self._writer(client, staged[0].writer) as writer,
            ):
                writer.abort([stage for message in staged for stage in message.stages])


class StreamSink(StagedSink, DataSourceStreamArrowWriter):
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        query = _query()
        with errors_with_hints():
            if not query and self._options.sink is None:
                raise BadRequest("Spark does not say which query this is", hint="Set the option sinkId.")
            return self._stage(_name(f"spark-{query}", self._options), query, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        with errors_with_hints():
            self._commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._abort(messages)


class BatchSink(StagedSink, DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, *, own: frozenset[str]) -> None:
        super().__init__(options, own=own)
        self._writer_name = _name(f"spark-job-{uuid.uuid4()}", options)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        with errors_with_hints():
            return self._stage(self._writer_name, _query(), iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        with errors_with_hints():
            self._commit(messages, self._options.batch or 0)

    def _committed(self, writer: Writer) -> None:
        """Deletes the writer of a job without ``sinkId``, whose name is never used again.

        A failure is only logged: the rows are in their topics, and a job that failed now would run again.
        """
        if self._options.sink is None:
            try:
                writer.delete()
            except HeadpondError as error:
                log.info("writer %s is left behind: %s", writer.name, error.message)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._abort(messages)


def _query() -> str:
    """The id of this task's query, which its checkpoint keeps; also inside of ``foreachBatch``."""
    context = TaskContext.get()
    return (context.getLocalProperty(QUERY_ID) or "") if context is not None else ""


def _name(own: str, options: SinkOptions) -> str:
    """The writer's name. It contains the topic, so queries on different topics may share an id.

    It is below the topic, so a token that reaches the topic reaches the writer too.
    """
    name = options.sink or own
    return name if options.topic is None else f"{options.topic}/{name}"


# --- rows by topic ----------------------------------------------------------------------------------


def check_columns(
    schema: pa.Schema, topic: str | None, schemas: SchemaVersions | None, *, state: bool = False
) -> None:
    """Refuses columns that no row of the topic can have; ``schemas`` are a typed topic's."""
    if topic is None:
        place = schema.get_field_index(TOPIC)
        kind = schema.field(place).type if place >= 0 else pa.null()
        if not (pt.is_string(kind) or pt.is_large_string(kind)):
            raise SchemaMismatch(
                "no topic is given for the rows",
                hint="Set the option topic, or add a column topic of type string.",
            )
    rows = schema.empty_table()
    if schemas is None or TOPIC not in schemas.newest.names:
        rows = _without_topic(rows)
    if schemas is not None:
        rows, _ = take_shards(rows, shard_column(rows.schema, schemas.newest))
        messages_of(in_types_of(schemas.newest, rows), schemas.newest, 0, state=state)
        return
    rows, _ = take_shards(rows)
    place = rows.schema.get_field_index(VALUE)
    if topic is None and place >= 0 and pt.is_struct(rows.schema.field(place).type):
        return  # the topics are typed, and checked when their rows come
    check_state_table(rows, state)
    table_to_batches(rows, 0, GATHER_BYTES)


def by_topic(
    batches: Iterable[pa.RecordBatch], topic: str | None, own: Collection[str] = ()
) -> Iterator[tuple[str, pa.Table]]:
    """The rows with their topic, in their order within each; a row without a topic is an error.

    ``own`` are a typed topic's columns: one that is called topic says nothing of where a row goes.
    """
    for table in gather((batch for batch in batches if batch.num_rows), GATHER_BYTES):
        if topic is not None:
            yield topic, table if TOPIC in own else _without_topic(table)
            continue
        topics = table.column(TOPIC)
        if topics.null_count:
            raise SchemaMismatch("column 'topic' is null in a row, and the option topic is not set")
        rows = _without_topic(table)
        spelled: dict[str, list[str]] = {}
        for name in pc.unique(topics).to_pylist():
            spelled.setdefault(str(TopicName.parse(name)), []).append(name)
        if len(spelled) == 1:
            yield next(iter(spelled)), rows
            continue
        for full, names in spelled.items():
            yield full, rows.filter(pc.is_in(topics, value_set=pa.array(names, topics.type)))


def _without_topic(table: pa.Table) -> pa.Table:
    """The rows without the column ``topic``."""
    return table.drop_columns([TOPIC]) if TOPIC in table.schema.names else table


# --- types that Spark lacks -------------------------------------------------------------------------


def in_types_of(columns: pa.Schema, rows: pa.Table) -> pa.Table:
    """The rows, with columns cast to those types of the topic that Spark lacks: inverts ``source_schema``.

    So rows read from a topic can be written to one with the same columns. It casts only from the type in which
    the source shows a column, and only values that fit. Half floats stay as they are: they would be rounded.
    """
    as_messages = is_messages(rows.schema, columns)
    for place, field in enumerate(rows.schema):
        if not as_messages:
            kind = _kind(field.name, field.type, columns)
        elif field.name == "value":
            kind = pa.struct([part.with_type(_kind(part.name, part.type, columns)) for part in field.type])
        else:
            kind = field.type
        if kind == field.type:
            continue
        try:
            rows = rows.set_column(place, field.with_type(kind), pc.cast(rows.column(place), kind))
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"column {field.name!r} is {field.type}: {error}; it must be {kind}"
            ) from error
    return rows


def _kind(name: str, given: pa.DataType, columns: pa.Schema) -> pa.DataType:
    """The type to cast a column to before the topic, which widens numbers itself, checks it."""
    place = columns.get_field_index(name)
    if place < 0:
        return given
    kind = columns.field(place).type
    if casts(given, kind) or _has_halves(kind) or shown_as(given) != shown_as(kind):
        return given
    return kind


def _has_halves(kind: pa.DataType) -> bool:
    return bool(pt.is_float16(kind)) or any(_has_halves(kind.field(at).type) for at in range(kind.num_fields))
