"""A stored segment of a typed topic, which can be decoded without the state of its producer's encoder.

It follows the record header (see wire/record.py), instead of the segment as received. Little endian::

    form u8 = 4 | columns u8 | schema version u16 | rows u32 | one Arrow IPC record batch message, to the end

The batch has the columns of a batch of messages (key, id, headers, sent_at and value, a struct of the topic's
columns) in the schema of that version; ``columns`` has bit i for column i: a column that is all null
is left out. The buffers are LZ4-compressed if that makes the record smaller. A reader accepts LZ4 and ZSTD.

The bytes may come from anyone: a reader adds up what they unfold to before it allocates memory.
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

from headpond.model.errors import BadSegment, SegmentTooLarge, StorageFailed
from headpond.wire.plain.columns import check_sent_at, fill_times
from headpond.wire.plain.ipc import check_unfolded, fold, record_batch_claims, unfold
from headpond.wire.plain.packed import decode_packed, is_packed
from headpond.wire.plain.segment import decode_plain
from headpond.wire.typed.versions import SchemaVersions, chosen

FORM_STORED: Final = 4
HEADER: Final = struct.Struct("<BBHI")
HEADER_BYTES: Final = HEADER.size

ROWS_BYTES_MAX: Final = 48 * 1024 * 1024
"""The largest rows of one record in memory, so that the record fits into a frame of a file."""
COMPRESS_BYTES_MIN: Final = 1024
"""Compression hardly shrinks rows below this: it adds a size to each buffer."""

_NEEDED: Final = ("sent_at", "value")
_FAULTS: Final = (pa.ArrowException, ValueError, OSError, EOFError, IndexError, struct.error)


def encode_typed_record(messages: pa.RecordBatch, version: int) -> bytes:
    """The record of a batch of messages; it is decoded and compared with them before it is returned."""
    size = messages.nbytes
    if size > ROWS_BYTES_MAX:
        raise SegmentTooLarge(f"rows of {size:,} bytes; at most {ROWS_BYTES_MAX:,} are allowed")
    mask = _mask_of(messages)
    batch = messages.select(chosen(messages.schema, mask)) if mask != _all(messages.schema) else messages
    plain = batch.serialize()
    message = fold(batch) if size > COMPRESS_BYTES_MIN else plain
    if message.size < plain.size:
        again = unfold(bytes(batch.schema.serialize()), message)
    else:
        message, again = plain, pa.ipc.read_record_batch(plain, batch.schema)
    # The record must hold exactly these rows. NaN differs from itself, so bytes are compared if values differ.
    if not again.equals(batch) and not again.serialize().equals(plain):
        raise StorageFailed("a record does not read back as the rows it was made from")
    return b"".join((HEADER.pack(FORM_STORED, mask, version, messages.num_rows), message))


def _all(schema: pa.Schema) -> int:
    return (1 << len(schema)) - 1


def _mask_of(messages: pa.RecordBatch) -> int:
    mask = 0
    for index, (name, column) in enumerate(zip(messages.schema.names, messages.columns, strict=True)):
        if name in _NEEDED or column.null_count < len(column):
            mask |= 1 << index
    return mask


# --- reading ------------------------------------------------------------------------------------------


def is_typed_record(segment: bytes | memoryview) -> bool:
    """Whether a stored segment is a typed topic's."""
    return segment[:1] == bytes((FORM_STORED,))


def version_of(segment: bytes | memoryview) -> int:
    """The schema version of a typed topic's stored segment."""
    if len(segment) < HEADER_BYTES or not is_typed_record(segment):
        raise BadSegment(f"a stored segment of {len(segment)} bytes that is not a typed topic's")
    version: int = HEADER.unpack_from(segment)[2]
    return version


def stored_rows(
    segment: bytes | memoryview, schemas: SchemaVersions | None, stored_at_us: int | None = None
) -> pa.RecordBatch:
    """The rows of a stored segment, of a plain or a typed topic, in the schema they were stored with.

    A packed record has the rows of all its segments. With ``stored_at_us`` their times are as readers see them;
    without, as the sender gave them.
    """
    if schemas is not None:
        rows = decode_typed_record(segment, schemas)
    elif is_typed_record(segment):
        raise BadSegment("a typed topic's record where the topic is plain")
    elif is_packed(segment):
        return decode_packed(segment, fill=stored_at_us is not None)
    else:
        rows = decode_plain(segment)
    return rows if stored_at_us is None else fill_times(rows, stored_at_us)


def decode_typed_record(segment: bytes | memoryview, schemas: SchemaVersions) -> pa.RecordBatch:
    """The batch of messages in a record, fully validated, with the record's columns and schema version."""
    version = version_of(segment)
    _, mask, _, rows = HEADER.unpack_from(segment)
    schema = schemas.messages(version)
    if mask & ~_all(schema) or any(not mask >> schema.get_field_index(name) & 1 for name in _NEEDED):
        raise BadSegment(f"a record with columns {mask:#x}")
    buffer = pa.py_buffer(segment).slice(HEADER_BYTES)
    try:
        message = pa.ipc.read_message(buffer)
        claims = record_batch_claims(message, buffer.size)
        if claims.rows != rows or rows == 0:
            raise BadSegment(f"a record of {rows:,} rows whose batch claims {claims.rows:,}")
        check_unfolded(message, 2 * ROWS_BYTES_MAX)
        batch = unfold(schemas.beginning(version, mask), buffer)
        batch.validate(full=True)
    except _FAULTS as error:
        raise BadSegment(f"a record that cannot be read: {error}") from error
    return batch


def check_messages(segment: bytes, schemas: SchemaVersions, *, state: bool = False) -> int:
    """The number of rows of a record from another node, after checking every rule for rows of a topic.

    ``state``: for a state topic, where a row may have no value.
    """
    batch = decode_typed_record(segment, schemas)
    sent_at, value = batch.column("sent_at"), batch.column("value")
    check_sent_at(sent_at)
    if value.null_count and not state:
        raise BadSegment("a row without value")
    for field in value.type:
        if not field.nullable and value.field(field.name).null_count:
            raise BadSegment(f"column {field.name!r} takes no nulls")
    if "headers" in batch.schema.names and batch.column("headers").items.null_count:
        raise BadSegment("a header without text")
    return int(batch.num_rows)


def fill_messages(messages: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The batch with all columns of ``schema``; those left out are nulls."""
    if messages.num_columns == len(schema):
        return messages
    present = dict(zip(messages.schema.names, messages.columns, strict=True))
    arrays = [
        present[field.name] if field.name in present else pa.nulls(messages.num_rows, field.type)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
