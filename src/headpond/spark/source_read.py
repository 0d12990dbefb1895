"""What a task of Spark does: fetches ranges of shards straight from the node."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import InputPartition

import headpond.sync
from headpond.client.batch import Batch
from headpond.client.options import LostSpan
from headpond.client.reader import Part
from headpond.model.errors import (
    BadRequest,
    EntriesMissing,
    IncarnationChanged,
    TopicMismatch,
    TopicNotFound,
)
from headpond.model.topic import TopicName
from headpond.spark.source_options import SourceOptions
from headpond.spark.source_rows import Rows
from headpond.spark.source_schema import arrow_schema
from headpond.spark.told import told
from headpond.wire.columns import NAMES

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

log = logging.getLogger("headpond.spark")


@dataclass(frozen=True, slots=True)
class Span:
    """A range of one shard, and all that is needed to know it again."""

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
    """What one task reads: ranges, one after the other."""

    spans: tuple[Span, ...]


def connect(options: SourceOptions, *, patient: bool = True) -> headpond.sync.Client:
    """A client of the node; one that is away now, as when it restarts, is waited for if ``patient``."""
    return options.connection.open(wait_s=options.connection.timeout_s if patient else 0.0)


def read_task(options: SourceOptions, schema: StructType, task: ReadTask) -> Iterator[pa.RecordBatch]:
    """The rows of a task, as Arrow batches."""
    with told(), connect(options) as client:
        rows = Rows(arrow_schema(schema))
        readers: dict[tuple[str, bytes, int | None], headpond.sync.Reader] = {}

        def reader_of(span: Span) -> headpond.sync.Reader:
            key = (span.topic, span.uuid, span.schema_version)
            if key not in readers:
                readers[key] = client.reader(
                    span.topic,
                    uuid=span.uuid,
                    schema_version=span.schema_version,
                    subscription=options.reads_as,
                )
            return readers[key]

        for span in task.spans:
            yield from _read(options, reader_of, rows, span)
        yield from rows.flush()


def _read(
    options: SourceOptions, reader_of: Callable[[Span], headpond.sync.Reader], rows: Rows, span: Span
) -> Iterator[pa.RecordBatch]:
    """The rows of a range that are due; the last of them stay in ``rows``."""
    if span.gap is not None:
        yield from _missing(options, rows, span, LostSpan(span.shard, *span.gap))
    if span.start >= span.end:
        return
    at = span.start
    try:
        for part in _parts(options, reader_of(span), span):
            at = part.entry_next
            rows.name(part.producers)
            for item in _in_order(part):
                if isinstance(item, Batch):
                    yield from rows.add(item)
                else:
                    yield from _missing(options, rows, span, item)
    except (TopicNotFound, TopicMismatch, IncarnationChanged) as error:
        # A batch that is tried again after its topic went: what is left of it is missing.
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
    """The columns that the node is to send; None for all."""
    given = [name for name in NAMES if name in options.columns]
    return None if len(given) == len(NAMES) else given


def _in_order(part: Part) -> list[Batch | LostSpan]:
    if not part.lost:
        return list(part.batches)
    items: list[Batch | LostSpan] = [*part.batches, *part.lost]
    return sorted(items, key=lambda item: item.start if isinstance(item, LostSpan) else item.spans[0][0])


def _missing(options: SourceOptions, rows: Rows, span: Span, lost: LostSpan) -> Iterator[pa.RecordBatch]:
    """Fails, tells or passes over, as ``onGap`` says."""
    topic = TopicName.parse(span.topic).short
    which = f"{lost.start} to {lost.end - 1}" if lost.end > lost.start else f"from {lost.start} on"
    text = f"topic {topic}, shard {lost.shard}: entries {which} are missing: {lost.reason}"
    if options.on_gap == "fail":
        raise EntriesMissing(text)
    log.warning("%s", text)
    if options.on_gap == "report":
        yield from rows.flush()
        yield rows.gap(span.topic, lost)
