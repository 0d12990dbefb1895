"""The columns of a plain topic, and batches of them made from rows or from a user's table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headpond.model.errors import BadRequest, BadSegment, SchemaMismatch, SegmentTooLarge
from headpond.wire.frame import SEGMENT_BYTES_MAX

PLAIN_SCHEMA: Final[pa.Schema] = pa.schema(
    [
        pa.field("value", pa.binary()),
        pa.field("key", pa.binary()),
        pa.field("id", pa.string()),
        pa.field("headers", pa.map_(pa.string(), pa.string())),
        pa.field("sent_at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)
"""The columns of a plain topic. A ``value`` of None is a delete in a state topic."""

NAMES: Final[list[str]] = PLAIN_SCHEMA.names
TYPES: Final[list[pa.DataType]] = PLAIN_SCHEMA.types
SCHEMAS: Final[list[pa.Schema]] = [
    pa.schema([PLAIN_SCHEMA.field(i) for i in range(len(NAMES)) if mask >> i & 1]) for mask in range(32)
]
"""The schema for each choice of columns: bit i of the index is column i."""

SENT_AT_US_MIN: Final = -62_135_596_800_000_000
SENT_AT_US_MAX: Final = 253_402_300_799_999_999
"""The years 1 to 9999, which every reader's calendar can show."""
SENT_AT_US_UNKNOWN: Final = SENT_AT_US_MIN
"""From a sender that gives no time, such as an HTTP request, whose repeat must have the same bytes: readers see
the time when the node stored the message."""

ALLOWED: Final[Mapping[str, str]] = {
    "value": "binary or string, in any of their layouts",
    "key": "binary or string, in any of their layouts",
    "id": "string, in any of its layouts",
    "headers": "map<string, string> without null texts",
    "sent_at": "a timestamp with a time zone, in the years 1 to 9999",
}

_ENCODED_SLACK_BYTES = 4096
"""The most that encoding adds to a batch: IPC metadata, header and padding."""
_FEW_ROWS = 128
_CHUNK_BYTES_MAX = 2**30
"""A chunk above this may not fit the 32-bit offsets of ``binary``; it is halved when its cast fails."""


def rows_to_batch(
    values: Sequence[bytes | None] | None,
    keys: Sequence[bytes | None] | None,
    ids: Sequence[str | None] | None,
    headers: Sequence[Mapping[str, str] | None] | None,
    sent_at_us: Sequence[int],
) -> pa.RecordBatch:
    """Rows as a batch; None for a list leaves its column out. A value that Arrow refuses: ``BadRequest``."""
    pairs = None if headers is None else [None if h is None else list(h.items()) for h in headers]
    arrays: list[Any] = []
    mask = 0
    for index, rows in enumerate((values, keys, ids, pairs, sent_at_us)):
        if rows is not None:
            try:
                arrays.append(pa.array(rows, type=TYPES[index]))
            except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
                raise BadRequest(f"{NAMES[index]}: {error}") from error
            mask |= 1 << index
    try:
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[mask])
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise BadRequest(f"the columns do not make a batch: {error}") from error


def fill_times(batch: pa.RecordBatch, stored_at_us: int) -> pa.RecordBatch:
    """Rows as readers see them: an unknown ``sent_at`` is the time of storage."""
    place = batch.schema.get_field_index("sent_at")
    sent_at = batch.column(place)
    if extent_us(sent_at)[0] != SENT_AT_US_UNKNOWN:
        return batch
    unknown = pc.equal(sent_at, pa.scalar(SENT_AT_US_UNKNOWN, sent_at.type))
    filled = pc.if_else(unknown, pa.scalar(stored_at_us, sent_at.type), sent_at)
    return batch.set_column(place, batch.schema.field(place), filled)


def extent_us(sent_at: pa.Array) -> tuple[int, int]:
    """The least and the greatest time; for a few rows Python is faster than Arrow's kernel."""
    if len(sent_at) > _FEW_ROWS:
        extent = pc.min_max(sent_at.view(pa.int64())).as_py()
        return extent["min"], extent["max"]
    start = sent_at.offset
    times = memoryview(sent_at.buffers()[1]).cast("q")[start : start + len(sent_at)]
    return min(times), max(times)


def check_sent_at(sent_at: pa.Array) -> None:
    """Refuses a row without a time, or with one that some reader's calendar cannot show."""
    if sent_at.null_count:
        raise BadSegment("a row without sent_at")
    first, last = extent_us(sent_at)
    if first < SENT_AT_US_MIN or last > SENT_AT_US_MAX:
        raise BadSegment("a row whose sent_at is outside the years 1 to 9999")


def table_to_batches(
    table: pa.Table | pa.RecordBatch, sent_at_us: int, bytes_target: int
) -> list[pa.RecordBatch]:
    """A user's table as batches of about ``bytes_target`` bytes, slices of its own memory where types allow.

    It needs ``value`` and may have the other columns; a fault is a ``SchemaMismatch`` that names the column.
    A missing ``sent_at`` is ``sent_at_us``. A row too large for a segment is a ``SegmentTooLarge``.
    """
    names = table.schema.names
    for field in table.schema:
        if field.name not in ALLOWED:
            raise SchemaMismatch(f"column {field.name!r} is unknown; a plain topic has {', '.join(NAMES)}")
        if names.count(field.name) > 1:
            raise SchemaMismatch(f"column {field.name!r} comes twice")
        if not _castable(field.name, field.type):
            raise SchemaMismatch(f"column {field.name!r} is {field.type}; it must be {ALLOWED[field.name]}")
    if "value" not in names:
        raise SchemaMismatch(f"column 'value' is missing; it must be {ALLOWED['value']}")
    chunks = [table] if isinstance(table, pa.RecordBatch) else table.to_batches()
    return [
        piece
        for chunk in chunks
        if chunk.num_rows
        for batch in _cast(chunk, sent_at_us)
        for piece in cut_batch(batch, bytes_target)
    ]


def _castable(name: str, kind: pa.DataType) -> bool:
    if pt.is_dictionary(kind):
        kind = kind.value_type
    if pt.is_null(kind):
        return True
    if name == "headers":
        return bool(pt.is_map(kind)) and is_text(kind.key_type) and is_text(kind.item_type)
    if name == "sent_at":
        return bool(pt.is_timestamp(kind)) and kind.tz is not None
    return is_text(kind) or (name != "id" and is_bytes(kind))


def is_text(kind: pa.DataType) -> bool:
    return bool(pt.is_string(kind) or pt.is_large_string(kind) or pt.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    sized = pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind)
    return bool(sized or pt.is_binary_view(kind))


def _cast(chunk: pa.RecordBatch, sent_at_us: int) -> Iterator[pa.RecordBatch]:
    """The chunk in the types of ``PLAIN_SCHEMA``: one batch, or several if one cannot hold it."""
    arrays: list[Any] = []
    mask = 0
    for index, name in enumerate(NAMES):
        place = chunk.schema.get_field_index(name)
        if place < 0:
            if name == "sent_at":
                arrays.append(pa.repeat(pa.scalar(sent_at_us, TYPES[index]), chunk.num_rows))
                mask |= 1 << index
            continue
        column = chunk.column(place)
        if TYPES[index] == pa.binary() and column.type == pa.string():
            column = column.view(TYPES[index])  # stored as it is, so no check for valid UTF-8
        try:
            column.validate(full=True)
            arrays.append(_cast_column(name, column, TYPES[index], sent_at_us))
        except (pa.ArrowException, ValueError) as error:
            if chunk.num_rows > 1 and chunk.nbytes > _CHUNK_BYTES_MAX:
                half = chunk.num_rows // 2
                yield from _cast(chunk.slice(0, half), sent_at_us)
                yield from _cast(chunk.slice(half), sent_at_us)
                return
            raise SchemaMismatch(f"column {name!r}: {error}; it must be {ALLOWED[name]}") from error
        mask |= 1 << index
    yield pa.RecordBatch.from_arrays(arrays, schema=SCHEMAS[mask])


def _cast_column(name: str, column: pa.Array, kind: pa.DataType, sent_at_us: int) -> pa.Array:
    if pt.is_dictionary(column.type):
        column = column.dictionary_decode()
    if name == "sent_at":
        column = pc.cast(column, options=pc.CastOptions(kind, allow_time_truncate=True))
        if column.null_count:
            column = column.fill_null(pa.scalar(sent_at_us, kind))
        extent = pc.min_max(column.view(pa.int64())).as_py()
        if extent["min"] < SENT_AT_US_MIN or extent["max"] > SENT_AT_US_MAX:
            raise ValueError("a time out of range")
        return column
    if column.type != kind:
        if name != "headers" and not pt.is_null(column.type) and not is_text(column.type):
            # Arrow may have no direct cast from views; large_binary casts to everything.
            column = column.cast(pa.large_binary()) if pt.is_binary_view(column.type) else column
        column = column.cast(kind)
    if name == "headers" and column.items.null_count:
        raise ValueError("a header without text")
    return column


def cut_batch(batch: pa.RecordBatch, bytes_target: int) -> Iterator[pa.RecordBatch]:
    """Even slices of about the target; a slice above twice the target is halved again."""
    bytes_max = min(2 * bytes_target, SEGMENT_BYTES_MAX - _ENCODED_SLACK_BYTES)
    rows = batch.num_rows
    pieces = max(1, round(batch.nbytes / bytes_target))
    rows_each = max(1, -(-rows // pieces))
    for at in range(0, rows, rows_each):
        yield from _halve(batch.slice(at, rows_each), bytes_max)


def _halve(batch: pa.RecordBatch, bytes_max: int) -> Iterator[pa.RecordBatch]:
    rows = batch.num_rows
    if batch.nbytes <= bytes_max:
        yield batch
    elif rows > 1:
        yield from _halve(batch.slice(0, rows // 2), bytes_max)
        yield from _halve(batch.slice(rows // 2), bytes_max)
    elif batch.nbytes <= SEGMENT_BYTES_MAX - _ENCODED_SLACK_BYTES:
        yield batch
    else:
        raise SegmentTooLarge(f"a row of {batch.nbytes:,} bytes; a segment holds {SEGMENT_BYTES_MAX:,}")
