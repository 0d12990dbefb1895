"""Writing topics with Spark: the two writers that ``format("headpond")`` asks for. Exactly once.

Every task stages its rows under a new id and hands that to the driver; the driver commits all of them
as one batch. A batch that comes again (a restarted query, a driver that died before its checkpoint was written)
is known by its number, compared and dropped; with other rows it is an error. What tasks left behind that the
driver never heard of expires at the node.

The batch is numbered by the query: the writer is the query's id, which its checkpoint keeps, or ``sinkId``.
"""

from __future__ import annotations

import contextlib
import logging
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.pandas.types import to_arrow_schema

from headpond.model.errors import BadRequest, HeadpondError, TopicNotFound
from headpond.model.receipt import Stage
from headpond.spark.connection import errors_with_hints
from headpond.spark.sink.options import SinkOptions, read_options
from headpond.spark.sink.rows import by_topic, check_columns, in_types_of
from headpond.wire.typed.versions import SchemaVersions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from headpond.sync.client import Client
    from headpond.sync.writer import OpenedStage, Writer
    from headpond.wire.control.catalog import TopicInfo

log = logging.getLogger("headpond.spark")

QUERY_ID = "sql.streaming.queryId"


@dataclass(frozen=True, slots=True)
class Staged(WriterCommitMessage):
    """The message of a task to the driver."""

    writer: str
    stages: tuple[Stage, ...]
    query: str
    """The id of the query; empty without one."""


def batch_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> BatchSink:
    with errors_with_hints():
        read = read_options(options, streaming=False)
        return BatchSink(read, own=_check(schema, read, overwrite))


def stream_writer(schema: StructType, options: Mapping[str, str], overwrite: bool) -> StreamSink:
    with errors_with_hints():
        read = read_options(options, streaming=True)
        # Spark makes a new writer for every commit: a node that restarts just then must not end the query.
        return StreamSink(read, own=_check(schema, read, overwrite, wait_s=read.connection.timeout_s))


def _check(schema: StructType, options: SinkOptions, overwrite: bool, *, wait_s: float = 0.0) -> frozenset[str]:
    """Checks options and columns before the first task; returns the columns of a typed topic."""
    if overwrite:
        raise BadRequest(
            "a topic is only ever appended to",
            hint='Use mode("append"), and outputMode("append") for a stream.',
        )
    with options.connection.open(wait_s=wait_s) as client:
        topic = _topic(client, options.topic)
    schemas = SchemaVersions(topic.schemas) if topic is not None and topic.schemas else None
    columns = to_arrow_schema(schema, timezone="UTC")
    check_columns(columns, options.topic, schemas, state=topic is not None and bool(topic.state))
    return frozenset(schemas.newest.names if schemas is not None else ())


class StagedSink:
    """Stages and commits rows. Spark makes one where it plans the query, and copies it to every task."""

    def __init__(self, options: SinkOptions, *, own: frozenset[str]) -> None:
        """``own``: a typed topic's columns, which may have the names of a message's."""
        self._options = options
        self._own = own

    def _stage(self, writer_name: str, query: str, batches: Iterator[pa.RecordBatch]) -> Staged:
        """Stages a task's rows on the node's disk; a failure drops the stages, if it can."""
        options = self._options
        with options.connection.open_later() as client, _writer(client, writer_name, options) as writer:
            opened: dict[str, OpenedStage] = {}
            try:
                for topic, rows in by_topic(batches, options.topic, self._own):
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
        with self._options.connection.open_later() as client:
            name = staged[0].writer
            with _writer(client, name, self._options) as writer:
                done = writer.commit(
                    batch,
                    [stage for message in staged for stage in message.stages],
                    holder=staged[0].query,
                    on_repeat=self._options.on_repeat,
                )
            if done.outcome == "duplicate":
                log.warning("batch %d of writer %s was there already; its rows were dropped", batch, name)
            self._committed(client, name)

    def _committed(self, client: Client, writer: str) -> None:
        """Called when the batch is in its topics."""

    def _abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Drops the stages of the tasks, never those of a committed batch; stages it cannot reach expire."""
        staged = [message for message in messages if isinstance(message, Staged)]
        with contextlib.suppress(HeadpondError):
            if staged:
                with (
                    self._options.connection.open_later() as client,
                    _writer(client, staged[0].writer, self._options) as writer,
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

    def _committed(self, client: Client, writer: str) -> None:
        """Deletes the writer of a job without ``sinkId``, whose name is never used again.

        A failure is only logged: the rows are in their topics, and a job that failed now would run again.
        """
        if self._options.sink is None:
            try:
                client.admin.delete_writer(writer)
            except HeadpondError as error:
                log.info("writer %s is left behind: %s", writer, error.message)

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


def _writer(client: Client, name: str, options: SinkOptions) -> Writer:
    return client.writer(name, timeout=options.connection.timeout_s)


def _topic(client: Client, name: str | None) -> TopicInfo | None:
    """The topic; None if a column names it, or if it is not created yet."""
    if name is None:
        return None
    try:
        return client.admin.show_topic(name)
    except TopicNotFound:
        return None
