"""Arrow IPC record batches from untrusted senders: what one claims, and how its buffers are compressed.

A message here is one encapsulated IPC record batch, without its schema. Arrow checks the structure of the
metadata when it opens a message, and the bounds of the buffers when it reads the batch. It accepts a
**compressed** body, a few bytes of which may unfold to gigabytes, and pyarrow does not show the field. So
this module reads the fields from the flatbuffer: a table begins with the signed distance back to its vtable;
the vtable holds its own size, the size of the table, and the offset of each field in the table (0: absent).

Each buffer of a compressed batch begins with its unfolded size, i64, or -1 if it is stored as it is. Arrow
allocates that size; ``check_unfolded`` adds the sizes up first.

Arrow 0.17 had no such field and noted compression in the message's custom metadata. Arrow still obeys that note
in messages of its version (V4), so such messages with custom metadata are refused.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import pyarrow as pa

from headpond.model.errors import BadSegment

_U16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_I64_PAIR = struct.Struct("<qq")

_MESSAGE_VERSION, _MESSAGE_HEADER, _MESSAGE_CUSTOM = 0, 2, 4
_V5 = 4
"""The version since Arrow 1.0, as the metadata counts them."""
_BATCH_LENGTH, _BATCH_NODES, _BATCH_BUFFERS, _BATCH_COMPRESSION = 0, 1, 2, 3
_PREFIX_BYTES = 8
"""The continuation marker and the size of the metadata, before an encapsulated message."""


# --- claims ------------------------------------------------------------------------------------------


class BatchClaims(NamedTuple):
    rows: int
    compressed: bool


def message_bytes(message: pa.Message) -> int:
    """The size of an encapsulated message, with its prefix."""
    return int(_PREFIX_BYTES + message.metadata.size + message.body.size)


def record_batch_claims(message: pa.Message, size: int) -> BatchClaims:
    """The claims of a record batch that fills ``size`` bytes exactly; anything else is a ``BadSegment``."""
    if message.type != "record batch":
        raise BadSegment(f"a {message.type} where a record batch was expected")
    if message_bytes(message) != size:
        raise BadSegment(f"a message of {message_bytes(message):,} bytes in {size:,}")
    data = memoryview(message.metadata)
    table = _batch_table(data)
    length_at = _field(data, table, _BATCH_LENGTH)
    rows = _I64.unpack_from(data, length_at)[0] if length_at else 0
    for length, nulls in _pairs(data, table, _BATCH_NODES):
        if not 0 <= nulls <= length:
            raise BadSegment(f"a batch that claims {nulls} nulls in {length} values")
    return BatchClaims(rows, _field(data, table, _BATCH_COMPRESSION) != 0)


def unfolded_bytes(message: pa.Message) -> int:
    """The size of all buffers of a record batch after decompression; faults are ``BadSegment``."""
    data = memoryview(message.metadata)
    body = memoryview(message.body) if message.body is not None else memoryview(b"")
    try:
        table = _batch_table(data)
        compressed = _field(data, table, _BATCH_COMPRESSION) != 0
        buffers = _pairs(data, table, _BATCH_BUFFERS)
        return sum(_unfolded(body, offset, size, compressed=compressed) for offset, size in buffers)
    except (struct.error, IndexError) as error:
        raise BadSegment(f"a record batch whose buffers cannot be found: {error}") from error


def check_unfolded(message: pa.Message, bytes_max: int) -> None:
    """Refuses a message that would take more memory than ``bytes_max``; call it before ``unfold``."""
    size = unfolded_bytes(message)
    if size > bytes_max:
        raise BadSegment(f"a batch that would unfold to {size:,} bytes; at most {bytes_max:,} are allowed")


def _unfolded(body: memoryview, offset: int, size: int, *, compressed: bool) -> int:
    if offset < 0 or size < 0 or offset + size > len(body):
        raise BadSegment(f"a buffer of {size:,} bytes at {offset:,} in a body of {len(body):,}")
    if size == 0 or not compressed:
        return size
    (unfolded,) = _I64.unpack_from(body[offset : offset + size])
    if unfolded < -1:
        raise BadSegment(f"a buffer that claims to unfold to {unfolded} bytes")
    return size if unfolded == -1 else int(unfolded)


# --- the flatbuffer ----------------------------------------------------------------------------------


def _batch_table(data: memoryview) -> int:
    """The offset of the record batch's table in a message's metadata."""
    root = int(_U32.unpack_from(data)[0])
    version_at = _field(data, root, _MESSAGE_VERSION)
    version = _U16.unpack_from(data, version_at)[0] if version_at else 0
    if version != _V5 and _field(data, root, _MESSAGE_CUSTOM):
        raise BadSegment("a batch in the format of Arrow 0.17 with custom metadata, which may compress it")
    return _reference(data, root, _MESSAGE_HEADER)


def _pairs(data: memoryview, table: int, index: int) -> list[tuple[int, int]]:
    """A field that is a vector of pairs of i64; empty if it is absent."""
    if not _field(data, table, index):
        return []
    vector = _reference(data, table, index)
    (count,) = _U32.unpack_from(data, vector)
    return list(_I64_PAIR.iter_unpack(data[vector + 4 : vector + 4 + _I64_PAIR.size * count]))


def _field(data: memoryview, table: int, index: int) -> int:
    """The offset of a table's field; 0 if it is absent."""
    vtable = table - _I32.unpack_from(data, table)[0]
    if vtable < 0:
        raise BadSegment("a message whose metadata points before its beginning")
    (vtable_bytes,) = _U16.unpack_from(data, vtable)
    at = 4 + 2 * index
    if at + 2 > vtable_bytes:
        return 0
    (offset,) = _U16.unpack_from(data, vtable + at)
    return table + offset if offset else 0


def _reference(data: memoryview, table: int, index: int) -> int:
    """The offset that a table's field points to."""
    at = _field(data, table, index)
    if not at:
        raise BadSegment("a message whose metadata lacks a part")
    return at + int(_U32.unpack_from(data, at)[0])


# --- compression -------------------------------------------------------------------------------------

SAMPLE_BYTES: Final = 16 * 1024
WORTH: Final = 0.8
"""A sample must shrink below this, or the whole is not compressed: random bytes cost time for nothing."""

_LZ4: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_SAMPLED: Final = pa.Codec("lz4_raw")
_NO_THREADS: Final = pa.ipc.IpcReadOptions(use_threads=False)
"""Starting threads takes longer than unfolding the few buffers of a segment."""


def is_worth_folding(data: pa.Buffer) -> bool:
    """Whether compression makes bytes like these smaller, judged by a sample from their middle."""
    at = max(0, (data.size - SAMPLE_BYTES) // 2)
    sample = data.slice(at, min(SAMPLE_BYTES, data.size))
    return bool(_SAMPLED.compress(sample).size < WORTH * sample.size)


def fold(batch: pa.RecordBatch) -> pa.Buffer:
    """The batch as a compressed message. Arrow compresses only streams, so the stream's schema is cut off."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, batch.schema, options=_LZ4).write_batch(batch)
    stream = sink.getvalue()
    schema_bytes = 8 + int.from_bytes(stream[4:8], "little")  # a marker, the metadata's size, the metadata
    return stream.slice(schema_bytes)


def unfold(beginning: bytes, message: pa.Buffer, *, column: int | None = None) -> pa.RecordBatch:
    """The batch in a message, or one column of it; ``beginning`` is the beginning of a stream of its schema."""
    stream = pa.py_buffer(b"".join((beginning, message)))
    options = _NO_THREADS
    if column is not None:
        options = pa.ipc.IpcReadOptions(use_threads=False, included_fields=[column])
    return pa.ipc.open_stream(stream, options=options).read_next_batch()
