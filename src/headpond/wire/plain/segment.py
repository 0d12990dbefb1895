"""A plain topic's segment: rows of ``PLAIN_SCHEMA``, self-contained; the node stores it as received.

Little endian; the first 8 bytes are the same in all forms::

    form u8 | columns u8 | nulls u8 | 0 u8 | rows u32

``columns`` has bit i for column i of ``PLAIN_SCHEMA``; a column of nulls is left out (``sent_at`` never).

Form 1, IPC, for segments above ``BARE_BYTES_MAX``: ``nulls`` is 0 and one encapsulated Arrow IPC record batch
message of the columns follows (no schema, no dictionaries, no body compression), to the last byte.

Form 7, folded: the same message with LZ4-compressed buffers, for segments of more than ``FOLD_BYTES_MIN`` if
that makes them smaller. All buffers together unfold to at most ``UNFOLDED_BYTES_MAX``.

Form 2, bare, for small ones: the Arrow buffers without metadata, because IPC costs 630 bytes for a row of five
columns, and this form 64. ``nulls`` has bit i for a column that has a validity bitmap. In this order::

    sent_at i64[rows]
    offsets i32[rows + 1]                of value, key, id, headers: each that is in ``columns``
    offsets i32[entries + 1], twice      of the headers' names and texts; entries is the last offset of headers
    bitmap, ceil(rows / 8) bytes         of each column in ``nulls``
    data                                 of value, key, id, the headers' names, the headers' texts

Offsets begin at 0, and the last one is the length of their data, so nothing else needs a length.

The bytes may come from anyone: every fault is a ``BadSegment``, found before memory is allocated.
"""

from __future__ import annotations

import struct
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headpond.model.errors import BadSegment, KeyMissing, SchemaMismatch, SegmentTooLarge, ValueMissing
from headpond.wire.frame import SEGMENT_BYTES_MAX
from headpond.wire.plain.columns import NAMES, SCHEMAS, TYPES, check_sent_at
from headpond.wire.plain.few_rows import BARE_BYTES_MAX, FORM_BARE, HEADER, HEADER_BYTES, count_few
from headpond.wire.plain.ipc import check_unfolded, fold, is_worth_folding, record_batch_claims, unfold

FORM_IPC: Final = 1
FORM_FOLDED: Final = 7

BARE_ROWS_MAX = 512
FOLD_BYTES_MIN = 16 * 1024
"""Below this size folding saves little: a few hundred bytes are metadata."""
FOLDED_MAX = 0.9
"""Folding must shrink the bytes to less than this share, or readers would unfold for little."""
UNFOLDED_BYTES_MAX = SEGMENT_BYTES_MAX * 9 // 8
"""The most that a reader unfolds. It is above the limit for senders, because compaction replaces rows by nulls,
which may add a bitmap to a column."""
TAKEN_BYTES_MAX = SEGMENT_BYTES_MAX + 4096
"""The rows of a segment that a node accepts, with Arrow's padding between buffers."""

HEADERS, SENT_AT = 3, 4
COLUMNS: Final = [[index for index in range(SENT_AT) if mask >> index & 1] for mask in range(32)]
"""The columns with offsets, for each choice of columns."""
_TEXT: Final = pa.string()
_ENTRY: Final = pa.struct([TYPES[HEADERS].key_field, TYPES[HEADERS].item_field])
BEGINNINGS: Final = [bytes(schema.serialize()) for schema in SCHEMAS]
"""The beginning of an Arrow stream, for each choice of columns."""
_FIRST = struct.Struct("<i")
FAULTS: Final = (pa.ArrowException, ValueError, OSError, EOFError, struct.error)


# --- encoding ---------------------------------------------------------------------------------------


def encode_plain(batch: pa.RecordBatch, rows_bytes_max: int = SEGMENT_BYTES_MAX) -> bytes:
    """The segment of a batch, in the best form for its size; slices are cut to their rows.

    Rows above ``rows_bytes_max`` are not folded, so they are too large for a segment.
    """
    return b"".join(plain_parts(batch, rows_bytes_max))


def plain_parts(batch: pa.RecordBatch, rows_bytes_max: int = SEGMENT_BYTES_MAX) -> tuple[bytes, pa.Buffer]:
    """The segment that ``encode_plain`` makes, as header and body, so that a large body is not copied."""
    rows = batch.num_rows
    if rows == 0:
        raise BadSegment("a segment without rows")
    columns = _columns_of(batch)
    small = _bare(columns, rows)
    if small is not None:
        return small
    mask = sum(1 << index for index in columns)
    kept = pa.RecordBatch.from_arrays(list(columns.values()), schema=SCHEMAS[mask])
    folded = _folded(kept, rows_bytes_max)
    if folded is not None:
        return HEADER.pack(FORM_FOLDED, mask, 0, 0, rows), folded
    message = kept.serialize()
    if message.size <= BARE_BYTES_MAX and rows <= BARE_ROWS_MAX:
        # A slice: IPC has rebased its offsets, so its buffers now begin at its first row.
        whole = pa.ipc.read_record_batch(message, SCHEMAS[mask])
        small = _bare(dict(zip(columns, whole.columns, strict=True)), rows)
        if small is not None:
            return small
    _check_size(HEADER_BYTES + message.size)
    return HEADER.pack(FORM_IPC, mask, 0, 0, rows), message


def _columns_of(batch: pa.RecordBatch) -> dict[int, pa.Array]:
    """The columns of the batch that are not all null, by their index in the schema, in order."""
    found: dict[int, pa.Array] = {}
    for field, column in zip(batch.schema, batch.columns, strict=True):
        try:
            index = NAMES.index(field.name)
        except ValueError:
            raise SchemaMismatch(f"column {field.name!r}: a plain topic has {', '.join(NAMES)}") from None
        if field.type != TYPES[index] or index in found:
            raise SchemaMismatch(f"column {field.name!r} is {field.type}; it must be one {TYPES[index]}")
        if column.null_count < len(column):
            found[index] = column
    if SENT_AT not in found or found[SENT_AT].null_count:
        raise SchemaMismatch("column 'sent_at' is missing or has nulls")
    if HEADERS in found and found[HEADERS].items.null_count:
        raise SchemaMismatch("column 'headers' has a header without text")
    return dict(sorted(found.items()))


def _folded(batch: pa.RecordBatch, bytes_max: int) -> pa.Buffer | None:
    """The batch as a compressed message; None if compression saves too little."""
    size = batch.nbytes
    if not FOLD_BYTES_MIN < size <= bytes_max:
        return None
    values = _data_of(batch.column(0)) if batch.schema.names[0] == "value" else None
    if values is not None and 2 * values.size > size and not is_worth_folding(values):
        return None
    message = fold(batch)
    return message if message.size < FOLDED_MAX * size else None


def _data_of(column: pa.BinaryArray) -> pa.Buffer | None:
    """The bytes of all values, without those around a slice."""
    _, offsets, data = column.buffers()
    if data is None:
        return None
    (first,) = _FIRST.unpack_from(offsets, 4 * column.offset)
    (end,) = _FIRST.unpack_from(offsets, 4 * (column.offset + len(column)))
    return data.slice(first, end - first)


def _bare(columns: dict[int, pa.Array], rows: int) -> tuple[bytes, pa.Buffer] | None:
    """The bare form; None if it would be too large, or for a slice whose offsets do not begin at 0."""
    if rows > BARE_ROWS_MAX or (found := bare_parts(columns, rows)) is None or found.size > BARE_BYTES_MAX:
        return None
    body = pa.py_buffer(b"".join(found.parts))
    return HEADER.pack(FORM_BARE, found.columns, found.nulls, 0, rows), body


class BareParts(NamedTuple):
    """The bare form of rows, without its header."""

    columns: int
    nulls: int
    parts: list[Any]
    size: int
    """Of the offsets and the data."""


def bare_parts(columns: dict[int, pa.Array], rows: int) -> BareParts | None:
    """The bare form, whatever its size; None for a slice whose offsets do not begin at 0."""
    offsets: list[Any] = []
    bitmaps: list[Any] = []
    data: list[Any] = []
    mask = nulls = 0
    for index, column in columns.items():
        mask |= 1 << index
        if column.offset:
            return None
        buffers = column.buffers()
        if column.null_count:
            nulls |= 1 << index
            bitmaps.append(buffers[0][: (rows + 7) // 8])
        if index == SENT_AT:
            offsets.insert(0, buffers[1][: 8 * rows])
            continue
        parts = _bare_headers(column, buffers, rows) if index == HEADERS else _bare_bytes(buffers[1:], rows)
        if parts is None:
            return None
        offsets += parts[0]
        data += parts[1]
    size = sum(map(len, offsets)) + sum(map(len, data))
    return BareParts(mask, nulls, [*offsets, *bitmaps, *data], size)


def _bare_bytes(buffers: list[Any], count: int) -> tuple[list[Any], list[Any]] | None:
    """Offsets and data of a binary or text array; None if the offsets do not begin at 0."""
    offsets = buffers[0][: 4 * (count + 1)]
    if _FIRST.unpack_from(offsets)[0]:
        return None
    (end,) = _FIRST.unpack_from(offsets, 4 * count)
    return [offsets], [buffers[1][:end]] if end else []


def _bare_headers(column: pa.Array, buffers: list[Any], rows: int) -> tuple[list[Any], list[Any]] | None:
    offsets = buffers[1][: 4 * (rows + 1)]
    if _FIRST.unpack_from(offsets)[0] or column.keys.offset or column.items.offset:
        return None
    (entries,) = _FIRST.unpack_from(offsets, 4 * rows)
    if entries == 0:  # an empty array may have no buffers
        return [offsets, bytes(8)], []
    names = _bare_bytes(buffers[4:6], entries)
    texts = _bare_bytes(buffers[7:9], entries)
    if names is None or texts is None:
        return None
    return [offsets, *names[0], *texts[0]], names[1] + texts[1]


def _check_size(size: int) -> None:
    if size > SEGMENT_BYTES_MAX:
        raise SegmentTooLarge(f"a segment of {size:,} bytes; at most {SEGMENT_BYTES_MAX:,} are allowed")


# --- decoding ---------------------------------------------------------------------------------------


def decode_plain(data: bytes | memoryview) -> pa.RecordBatch:
    """The batch in a segment, fully validated, over the same memory: the segment's columns in schema order."""
    if not HEADER_BYTES <= len(data) <= SEGMENT_BYTES_MAX:
        _check_size(len(data))
        raise BadSegment(f"a segment of {len(data)} bytes is too short")
    form, mask, nulls, zero, rows = HEADER.unpack_from(data)
    if rows == 0:
        raise BadSegment("a segment without rows")
    if mask >= len(SCHEMAS) or not mask >> SENT_AT & 1 or nulls & ~mask or nulls >> SENT_AT or zero:
        raise BadSegment(f"a segment with columns {mask:#x} and nulls {nulls:#x}")
    if 8 * rows > (UNFOLDED_BYTES_MAX if form == FORM_FOLDED else len(data) - HEADER_BYTES):
        raise BadSegment(f"a segment of {len(data):,} bytes cannot hold {rows:,} rows")
    try:
        if form == FORM_BARE:
            batch = _decode_bare(data, mask, nulls, rows)
        elif form in (FORM_IPC, FORM_FOLDED) and nulls == 0:
            batch = _decode_ipc(data, mask, rows, folded=form == FORM_FOLDED)
        else:
            raise BadSegment(f"a segment of form {form}")
        check_rows(batch)
    except FAULTS as error:
        raise BadSegment(f"a segment that cannot be read: {error}") from error
    return batch


def check_rows(batch: pa.RecordBatch) -> None:
    """Refuses rows that are invalid, or that no reader could show; an error of Arrow's is one of ``FAULTS``."""
    batch.validate(full=True)
    check_sent_at(batch.column("sent_at"))
    if "headers" in batch.schema.names:
        headers = batch.column("headers")
        if headers.items.null_count or headers.keys.null_count:
            raise BadSegment("a header without name or text")


def headers_of(rows: int, buffers: list[Any], names: pa.StringArray, texts: pa.StringArray) -> pa.MapArray:
    """The column ``headers``: a map of all names and texts, from its bitmap and offsets."""
    entry = pa.Array.from_buffers(_ENTRY, len(names), [None], 0, children=[names, texts])
    unknown = 0 if buffers[0] is None else -1
    return pa.Array.from_buffers(TYPES[HEADERS], rows, buffers, unknown, children=[entry])


def check_state_rows(data: bytes, *, state: bool, message_bytes_max: int | None = None) -> int:
    """The number of rows of a segment, after full validation and the topic's rules for keys and values.

    Rows of a state topic have a key; those of others have a value. No value exceeds ``message_bytes_max``.
    """
    if few := count_few(data, state=state, value_bytes_max=message_bytes_max):
        return few
    batch = decode_plain(data)
    if batch.nbytes > TAKEN_BYTES_MAX:
        raise SegmentTooLarge(f"rows of {batch.nbytes:,} bytes; a segment holds {SEGMENT_BYTES_MAX:,}")
    name = "key" if state else "value"
    place = batch.schema.get_field_index(name)
    if place < 0 or batch.column(place).null_count:
        row = 0 if place < 0 else batch.column(place).is_null().index(True).as_py()
        if state:
            raise KeyMissing(f"row {row} of {batch.num_rows} has no key, and the topic is a state topic")
        raise ValueMissing(f"row {row} of {batch.num_rows} has no value, and the topic is no state topic")
    if message_bytes_max is not None and "value" in batch.schema.names:
        _check_message_bytes(batch.column("value"), message_bytes_max)
    return int(batch.num_rows)


def _check_message_bytes(values: pa.BinaryArray, bytes_max: int) -> None:
    longest = pc.max(pc.binary_length(values)).as_py()
    if longest is not None and longest > bytes_max:
        raise SegmentTooLarge(
            f"a message of {longest:,} bytes; the topic takes at most {bytes_max:,} (message_bytes_max)",
            hint="Send smaller messages, or raise message_bytes_max with `headpond topic set`.",
        )


def _aligned(data: bytes | memoryview) -> pa.Buffer:
    """The bytes as a buffer; copied in the rare case that their address is no multiple of 8."""
    buffer = pa.py_buffer(data)
    return buffer if buffer.address % 8 == 0 else pa.py_buffer(bytes(data))


def _decode_ipc(data: bytes | memoryview, mask: int, rows: int, *, folded: bool) -> pa.RecordBatch:
    buffer = _aligned(data).slice(HEADER_BYTES)
    message = pa.ipc.read_message(buffer)
    claims = record_batch_claims(message, buffer.size)
    if claims.rows != rows:
        raise BadSegment(f"a segment of {rows:,} rows whose batch claims {claims.rows:,}")
    if claims.compressed != folded:
        raise BadSegment(f"a segment of another form than its batch, which is compressed: {claims.compressed}")
    if folded:
        check_unfolded(message, UNFOLDED_BYTES_MAX)
        return unfold(BEGINNINGS[mask], buffer)
    return pa.ipc.read_record_batch(message, SCHEMAS[mask])


class _Cursor:
    """Reads the buffers of the bare form in order; one beyond the end is a ``BadSegment``."""

    __slots__ = ("at", "buffer", "data", "size")

    def __init__(self, data: bytes | memoryview) -> None:
        self.buffer = _aligned(data)
        self.data = data
        self.size = len(data)
        self.at = HEADER_BYTES

    def take(self, size: int) -> pa.Buffer:
        at = self.at
        self.at = end = at + size
        if end > self.size:
            raise BadSegment(f"a segment of {self.size:,} bytes that refers to byte {end:,}")
        return self.buffer.slice(at, size)

    def take_offsets(self, count: int) -> tuple[pa.Buffer, int]:
        """``count + 1`` offsets and the last of them; Arrow validates those between."""
        offsets = self.take(4 * (count + 1))
        (last,) = _FIRST.unpack_from(self.data, self.at - 4)
        if last < 0 or _FIRST.unpack_from(self.data, self.at - 4 * (count + 1))[0]:
            raise BadSegment("a segment whose offsets do not run from 0")
        return offsets, last


def _decode_bare(data: bytes | memoryview, mask: int, nulls: int, rows: int) -> pa.RecordBatch:
    cursor = _Cursor(data)
    from_buffers = pa.Array.from_buffers
    sent_at = from_buffers(TYPES[SENT_AT], rows, [None, cursor.take(8 * rows)], 0)
    offsets = [cursor.take_offsets(rows) for _ in COLUMNS[mask]]
    entries = offsets[-1][1] if mask >> HEADERS & 1 else 0
    inside = [cursor.take_offsets(entries) for _ in ("names", "texts")] if mask >> HEADERS & 1 else []
    bitmaps: dict[int, pa.Buffer] = {}
    for index in COLUMNS[nulls]:
        bitmaps[index] = cursor.take((rows + 7) // 8)
    arrays: list[Any] = []
    for index, (starts, end) in zip(COLUMNS[mask], offsets, strict=True):
        bitmap = bitmaps.get(index)
        if index == HEADERS:
            inner = [from_buffers(_TEXT, entries, [None, at, cursor.take(size)], 0) for at, size in inside]
            arrays.append(headers_of(rows, [bitmap, starts], *inner))
        else:
            unknown = 0 if bitmap is None else -1
            arrays.append(from_buffers(TYPES[index], rows, [bitmap, starts, cursor.take(end)], unknown))
    if cursor.at != cursor.size:
        raise BadSegment(f"a segment with {cursor.size - cursor.at:,} bytes behind its end")
    return pa.RecordBatch.from_arrays([*arrays, sent_at], schema=SCHEMAS[mask])
