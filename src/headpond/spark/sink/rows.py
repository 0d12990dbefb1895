"""A DataFrame's batches as rows of topics: checked, gathered and sorted by topic.

Columns are those of a message: ``value`` (binary or string; in a typed topic a struct of its columns; null to
delete a key of a state topic) and, where wanted, ``key``, ``id``, ``headers``, ``sent_at``; ``topic`` and
``shard`` say where a row goes. Rows of a typed topic may also have its columns themselves, and ``@key``,
``@id``, ``@headers``, ``@sent_at``, ``@shard`` beside them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headpond.client.produce.tables import check_state_table, take_shards
from headpond.model.errors import SchemaMismatch
from headpond.model.names import TopicName
from headpond.spark.source.schema import shown_as
from headpond.wire.plain.columns import table_to_batches
from headpond.wire.typed.rows import casts, is_messages, messages_of, shard_column
from headpond.wire.typed.versions import SchemaVersions


def in_types_of(columns: pa.Schema, rows: pa.Table) -> pa.Table:
    """The rows, with columns cast to those types of the topic that Spark lacks: inverts ``source_schema``.

    So rows read from a topic can be written to one with the same columns. It casts only from the type in which
    the source shows a column, and only values that fit. Half floats stay as they are: they would be rounded.
    """
    as_messages = is_messages(rows.schema, columns)
    for place, field in enumerate(rows.schema):
        if as_messages:
            kind = _struct(field.type, columns) if field.name == "value" else field.type
        else:
            kind = _kind(field.name, field.type, columns)
        if kind == field.type:
            continue
        try:
            rows = rows.set_column(place, field.with_type(kind), pc.cast(rows.column(place), kind))
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"column {field.name!r} is {field.type}: {error}; it must be {kind}"
            ) from error
    return rows


def _struct(value: pa.StructType, columns: pa.Schema) -> pa.StructType:
    return pa.struct([field.with_type(_kind(field.name, field.type, columns)) for field in value])


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


GATHER_BYTES = 4 * 1024 * 1024
"""Batches of Spark are joined up to this size, so that every shard gets about a whole segment."""
TOPIC, VALUE = "topic", "value"


def check_columns(
    schema: pa.Schema, topic: str | None, schemas: SchemaVersions | None, *, state: bool = False
) -> None:
    """Refuses columns that no row of the topic can have; ``schemas`` are a typed topic's."""
    if topic is None:
        place = schema.get_field_index(TOPIC)
        if place < 0 or not _is_text(schema.field(place).type):
            raise SchemaMismatch(
                "it is not said which topic the rows go to",
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
    for table in _gathered(batches):
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


def _gathered(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    held: list[pa.RecordBatch] = []
    size = 0
    for batch in batches:
        if not batch.num_rows:
            continue
        held.append(batch)
        size += batch.nbytes
        if size >= GATHER_BYTES:
            yield _joined(held)
            held, size = [], 0
    if held:
        yield _joined(held)


def _joined(held: list[pa.RecordBatch]) -> pa.Table:
    table = pa.Table.from_batches(held)
    return table if len(held) == 1 else table.combine_chunks()


def _without_topic(table: pa.Table) -> pa.Table:
    """The rows without the column ``topic``."""
    return table.drop_columns([TOPIC]) if TOPIC in table.schema.names else table


def _is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind))
