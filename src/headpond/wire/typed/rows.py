"""Messages of a typed topic, and the flat rows that its encoder takes.

A batch of **messages** has the columns ``key``, ``id``, ``headers``, ``sent_at`` and ``value``, a struct of the
topic's columns. The encoder's **rows** are flat: the topic's columns under their own names, and the envelope as
``@key``, ``@id``, ``@headers``, ``@sent_at``; a column that is all null costs a byte, and a ``@sent_at`` that
all rows share a few bytes. ``@id`` is binary: ids rarely repeat, and a dictionary would learn them all.
"""

from __future__ import annotations

from functools import lru_cache, reduce
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headpond.model.errors import BadRequest, BadSegment, KeyMissing, SchemaMismatch
from headpond.wire.plain.columns import PLAIN_SCHEMA, check_sent_at, is_bytes, is_text
from headpond.wire.typed.schema import is_widening

ENVELOPE: Final = ("key", "id", "headers", "sent_at")
_FIELDS: Final[dict[str, pa.Field]] = {name: PLAIN_SCHEMA.field(name) for name in ENVELOPE}
_TIME: Final[pa.DataType] = _FIELDS["sent_at"].type
_FAULTS: Final = (pa.ArrowException, ValueError, TypeError)


@lru_cache(maxsize=256)
def message_schema(topic_schema: pa.Schema) -> pa.Schema:
    """The columns of a batch of messages of the topic."""
    return pa.schema([*_FIELDS.values(), pa.field("value", pa.struct(list(topic_schema)))])


@lru_cache(maxsize=256)
def row_schema(topic_schema: pa.Schema) -> pa.Schema:
    """The columns of the rows that the topic's encoder takes."""
    envelope = [field.with_name(f"@{name}") for name, field in _FIELDS.items()]
    envelope[1] = envelope[1].with_type(pa.binary())
    return pa.schema([*topic_schema, *envelope])


def to_rows(messages: pa.RecordBatch, topic_schema: pa.Schema) -> pa.RecordBatch:
    """Messages as rows. All columns but ``value`` and ``sent_at`` may be missing."""
    names = messages.schema.names
    value = messages.column("value")
    schema = row_schema(topic_schema)
    arrays: list[Any] = [*value.flatten()]
    for name in ENVELOPE:
        column = messages.column(name) if name in names else None
        kind = schema.field(f"@{name}").type
        if column is None or column.null_count == len(column):
            arrays.append(pa.nulls(messages.num_rows, kind))
        else:
            arrays.append(column.cast(kind) if name == "id" else column)
    try:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    except _FAULTS as error:
        raise SchemaMismatch(f"messages that are not of the topic's columns: {error}") from error


def from_rows(rows: pa.RecordBatch, topic_schema: pa.Schema, *, state: bool = False) -> pa.RecordBatch:
    """Decoded rows as messages; a value that no reader could show is a ``BadSegment``.

    ``state``: for a state topic, where every row has a key and a row without values is a delete.
    """
    if not rows.schema.equals(row_schema(topic_schema)):
        raise SchemaMismatch(f"rows of {', '.join(rows.schema.names)} are not of the topic's columns")
    columns = rows.columns
    width = len(topic_schema)
    key, id_bytes, headers, sent_at = columns[width:]
    if _lacks_text(headers):
        raise BadSegment("a header without text")
    check_sent_at(sent_at)
    try:
        ids = id_bytes.cast(pa.string())
    except pa.ArrowException as error:
        raise BadSegment(f"an id that is not text: {error}") from error
    arrays = [key, ids, headers, sent_at, _value(columns[:width], key, topic_schema, state=state)]
    return pa.RecordBatch.from_arrays(arrays, schema=message_schema(topic_schema))


def _value(columns: list[pa.Array], key: pa.Array, topic_schema: pa.Schema, *, state: bool) -> pa.StructArray:
    """The topic's columns as one struct; in a state topic a row of nulls is null, which deletes its key."""
    empty = None
    if state:
        if key.null_count:
            row = key.is_null().index(True).as_py()
            raise KeyMissing(f"row {row} of {len(key)} has no key, and the topic is a state topic")
        empty = reduce(pc.and_, [column.is_null() for column in columns])
    return pa.StructArray.from_arrays(columns, fields=list(topic_schema), mask=empty)


def _lacks_text(headers: pa.Array) -> bool:
    """Whether a header of these rows (not of those around a slice) has no text."""
    if headers.null_count == len(headers):
        return False
    first, last = headers.offsets[0].as_py(), headers.offsets[-1].as_py()
    return bool(headers.items.slice(first, last - first).null_count)


# --- tables from a user -------------------------------------------------------------------------------


def messages_of(
    table: pa.Table | pa.RecordBatch, topic_schema: pa.Schema, sent_at_us: int, *, state: bool = False
) -> list[pa.RecordBatch]:
    """A user's table as batches of messages, one per chunk that has rows.

    ``state``: for a state topic, where every row has a key and a row without values is a delete.

    It has a struct column ``value`` and may have ``key``, ``id``, ``headers`` and ``sent_at``; or it has the
    topic's columns themselves and may have ``@key``, ``@id``, ``@headers`` and ``@sent_at``. The order
    of columns does not matter. Missing nullable columns become nulls, a missing ``sent_at`` becomes
    ``sent_at_us``. Numbers are widened if that is exact, and other layouts of texts and bytes are accepted.
    Anything else is a ``SchemaMismatch`` that names the column.
    """
    if not isinstance(table, pa.Table | pa.RecordBatch):
        raise BadRequest(
            f"send_batch takes an Arrow table or record batch, not {type(table).__name__}",
            hint="Make one: pa.Table.from_pylist([...], schema=...), pa.Table.from_pandas(frame), …",
        )
    names = table.schema.names
    for name in names:
        if names.count(name) > 1:
            raise SchemaMismatch(f"column {name!r} comes twice")
    as_messages = is_messages(table.schema, topic_schema)
    envelope = {name: name if as_messages else f"@{name}" for name in ENVELOPE}
    own = {"value"} if as_messages else set(topic_schema.names)
    _check_unknown(names, own | set(envelope.values()), topic_schema)
    chunks = [table] if isinstance(table, pa.RecordBatch) else table.to_batches()
    return [
        _messages(chunk, envelope, topic_schema, sent_at_us, as_messages=as_messages, state=state)
        for chunk in chunks
        if chunk.num_rows
    ]


def is_messages(schema: pa.Schema, topic_schema: pa.Schema) -> bool:
    """Whether ``value`` is the value of a message, and not a column of the topic with that name."""
    place = schema.get_field_index("value")
    if place < 0 or not pt.is_struct(schema.field(place).type):
        return False
    own = topic_schema.get_field_index("value")
    if own < 0 or not pt.is_struct(topic_schema.field(own).type):
        return True
    kind = schema.field(place).type
    return all(kind.field(index).name in topic_schema.names for index in range(kind.num_fields))


def shard_column(schema: pa.Schema, topic_schema: pa.Schema) -> str:
    """The column that gives a row's shard, in a table that may have one."""
    return "shard" if is_messages(schema, topic_schema) else "@shard"


def _check_unknown(names: list[str], known: set[str], topic_schema: pa.Schema) -> None:
    for name in names:
        if name in known:
            continue
        hint = None
        if name in ENVELOPE:
            hint = f"Beside the topic's own columns a message's {name} is called '@{name}'."
        has = ", ".join(f"{field.name}: {field.type}" for field in topic_schema)
        raise SchemaMismatch(f"column {name!r} is not one of the topic's: {has}", hint=hint)


def _messages(
    chunk: pa.RecordBatch,
    envelope: dict[str, str],
    topic_schema: pa.Schema,
    sent_at_us: int,
    *,
    as_messages: bool,
    state: bool,
) -> pa.RecordBatch:
    given = dict(zip(chunk.schema.names, chunk.columns, strict=True))
    rows = chunk.num_rows
    sent_at = envelope["sent_at"]
    given[sent_at] = _times(sent_at, given.get(sent_at), rows, sent_at_us)
    arrays = [_fitted(shown, given.get(shown), _FIELDS[name], rows) for name, shown in envelope.items()]
    if _lacks_text(arrays[2]):
        raise SchemaMismatch(f"column {envelope['headers']!r} has a header without text")
    if as_messages:
        given = _parts(given["value"], topic_schema, state=state)
    values = [_fitted(field.name, given.get(field.name), field, rows) for field in topic_schema]
    value = _value(values, arrays[0], topic_schema, state=state)
    return pa.RecordBatch.from_arrays([*arrays, value], schema=message_schema(topic_schema))


def _parts(value: pa.Array, topic_schema: pa.Schema, *, state: bool) -> dict[str, pa.Array]:
    """The columns in ``value``."""
    if value.null_count and not state:
        raise SchemaMismatch(f"column 'value' takes no nulls and has {value.null_count}")
    names = [value.type.field(index).name for index in range(value.type.num_fields)]
    for name in names:
        if names.count(name) > 1:
            raise SchemaMismatch(f"column {name!r} comes twice in 'value'")
    _check_unknown(names, set(topic_schema.names), topic_schema)
    return dict(zip(names, value.flatten(), strict=True))


def _times(shown: str, column: pa.Array | None, rows: int, sent_at_us: int) -> pa.Array:
    """When each message was sent: finer units are cut to microseconds, missing times filled."""
    given = pa.scalar(sent_at_us, _TIME)
    if column is None:
        return pa.repeat(given, rows)
    if pt.is_timestamp(column.type) and column.type.tz is not None:
        column = pc.cast(column, options=pc.CastOptions(_TIME, allow_time_truncate=True))
    column = _fitted(shown, column, _FIELDS["sent_at"].with_nullable(True), rows).fill_null(given)
    try:
        check_sent_at(column)
    except BadSegment as error:
        raise SchemaMismatch(f"column {shown!r}: {error}") from error
    return column


def _fitted(shown: str, column: pa.Array | None, field: pa.Field, rows: int) -> pa.Array:
    """The column in the field's type; nulls if it is missing."""
    must = f"it must be {field.type}{'' if field.nullable else ' without nulls'}"
    if column is None:
        if not field.nullable:
            raise SchemaMismatch(f"column {shown!r} is missing; {must}")
        return pa.nulls(rows, field.type)
    try:
        column.validate(full=True)
        found = _cast(column, field.type)
    except _FAULTS as error:
        raise SchemaMismatch(f"column {shown!r} is {column.type}: {error}; {must}") from error
    if found is None:
        raise SchemaMismatch(f"column {shown!r} is {column.type}; {must}")
    if found.null_count and not field.nullable:
        raise SchemaMismatch(f"column {shown!r} has {found.null_count} nulls; {must}")
    return found


def _cast(column: pa.Array, kind: pa.DataType) -> pa.Array | None:
    """The column as ``kind`` without loss; None if its type does not allow that."""
    if column.type == kind:
        return column
    if pt.is_dictionary(column.type):
        return _cast(column.dictionary_decode(), kind)
    if not casts(column.type, kind):
        return None
    if pt.is_binary_view(column.type):  # Arrow has no direct cast; large_binary casts to everything
        column = column.cast(pa.large_binary())
    return column.cast(kind)


def casts(given: pa.DataType, kind: pa.DataType) -> bool:
    """Whether ``kind`` holds every value of a type, perhaps in another layout."""
    if pt.is_null(given) or is_widening(given, kind) or (is_text(given) and is_text(kind)):
        return True
    if is_bytes(kind) and not pt.is_fixed_size_binary(kind):
        return is_bytes(given) or is_text(given)
    if pt.is_timestamp(given) and pt.is_timestamp(kind):
        # With any zone a time is a point in time. A finer unit is accepted if it loses nothing.
        return (given.tz is None) == (kind.tz is None)
    if pt.is_map(given) and pt.is_map(kind):
        return casts(given.key_type, kind.key_type) and casts(given.item_type, kind.item_type)
    if _is_list(given) and _is_list(kind):
        return casts(given.value_type, kind.value_type)
    if pt.is_struct(given) and pt.is_struct(kind):
        return [f.name for f in given] == [f.name for f in kind] and all(
            casts(mine.type, theirs.type) for mine, theirs in zip(given, kind, strict=True)
        )
    return False


def _is_list(kind: pa.DataType) -> bool:
    return bool(pt.is_list(kind) or pt.is_large_list(kind))
