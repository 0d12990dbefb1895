"""What an Arrow IPC message claims about itself, read from its metadata before its body is touched.

Arrow checks the metadata's structure when it opens a message, and the buffers' bounds when it reads the batch.
It does not refuse a **compressed** body, whose few bytes may unfold to gigabytes, and pyarrow does not show the
field. So the few fields that matter are read here from the flatbuffer: a table begins with the signed distance
back to its vtable; the vtable holds its own size, the table's, and each field's place in the table (0: absent).

Before there was that field, Arrow 0.17 put a note among a message's own metadata, and Arrow still goes by it in
messages of that version (V4). So such messages with metadata of their own are refused.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

import pyarrow as pa

from headpond.model.errors import BadSegment

_I16 = struct.Struct("<H")
_I32 = struct.Struct("<i")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")

_MESSAGE_VERSION, _MESSAGE_HEADER, _MESSAGE_CUSTOM = 0, 2, 4
_V5 = 4
"""The version since Arrow 1.0, as the metadata counts them."""
_BATCH_LENGTH, _BATCH_NODES, _BATCH_COMPRESSION = 0, 1, 3
_PREFIX_BYTES = 8
"""The continuation marker and the metadata's size, in front of an encapsulated message."""


class BatchClaims(NamedTuple):
    rows: int
    nodes: list[tuple[int, int]]
    """Length and null count of each array, depth first."""
    compressed: bool


def message_bytes(message: pa.Message) -> int:
    """How many bytes an encapsulated message takes, with its prefix."""
    return int(_PREFIX_BYTES + message.metadata.size + message.body.size)


def record_batch_claims(message: pa.Message, size: int) -> BatchClaims:
    """The claims of a record batch that fills ``size`` bytes exactly; anything else is a ``BadSegment``."""
    if message.type != "record batch":
        raise BadSegment(f"a {message.type} where a record batch was expected")
    if message_bytes(message) != size:
        raise BadSegment(f"a message of {message_bytes(message):,} bytes in {size:,}")
    data = memoryview(message.metadata)
    return _batch_claims(data, batch_table(data))


def batch_table(data: memoryview) -> int:
    """Where a message's metadata tells of its record batch."""
    root = int(_U32.unpack_from(data)[0])
    version_at = _field(data, root, _MESSAGE_VERSION)
    version = _I16.unpack_from(data, version_at)[0] if version_at else 0
    if version != _V5 and _field(data, root, _MESSAGE_CUSTOM):
        raise BadSegment("a batch in the format of Arrow 0.17 with metadata of its own, which may fold it")
    return _reference(data, root, _MESSAGE_HEADER)


def _batch_claims(data: memoryview, table: int) -> BatchClaims:
    length_at = _field(data, table, _BATCH_LENGTH)
    rows = _I64.unpack_from(data, length_at)[0] if length_at else 0
    nodes: list[tuple[int, int]] = []
    if _field(data, table, _BATCH_NODES):
        vector = _reference(data, table, _BATCH_NODES)
        (count,) = _U32.unpack_from(data, vector)
        nodes = list(struct.iter_unpack("<qq", data[vector + 4 : vector + 4 + 16 * count]))
    for length, nulls in nodes:
        if not 0 <= nulls <= length:
            raise BadSegment(f"a batch that claims {nulls} nulls in {length} values")
    return BatchClaims(rows, nodes, _field(data, table, _BATCH_COMPRESSION) != 0)


def _field(data: memoryview, table: int, index: int) -> int:
    """Where a table's field stands; 0 if it is absent."""
    vtable = table - _I32.unpack_from(data, table)[0]
    if vtable < 0:
        raise BadSegment("a message whose metadata points before its beginning")
    (vtable_bytes,) = _I16.unpack_from(data, vtable)
    at = 4 + 2 * index
    if at + 2 > vtable_bytes:
        return 0
    (place,) = _I16.unpack_from(data, vtable + at)
    return table + place if place else 0


def _reference(data: memoryview, table: int, index: int) -> int:
    """What a table's field points to."""
    at = _field(data, table, index)
    if not at:
        raise BadSegment("a message whose metadata lacks a part")
    return at + int(_U32.unpack_from(data, at)[0])


# How large the body of a compressed Arrow IPC record batch becomes, told before anything is unfolded.
#
# In a compressed batch each buffer begins with its size once unfolded, i64, or -1 where it is stored as it
# is. Arrow allocates what stands there; so it is added up here first. The metadata's layout is told in
# ipc_claims.

_COUNT = struct.Struct("<I")
_PLACE = struct.Struct("<qq")
_SIZE = struct.Struct("<q")
_BATCH_BUFFERS, _COMPRESSION_FIELD = 2, 3


def unfolded_bytes(message: pa.Message) -> int:
    """The bytes of all buffers of a record batch, unfolded where they are folded; faults are ``BadSegment``."""
    data = memoryview(message.metadata)
    body = memoryview(message.body) if message.body is not None else memoryview(b"")
    try:
        table = batch_table(data)
        compressed = _field(data, table, _COMPRESSION_FIELD) != 0
        if not _field(data, table, _BATCH_BUFFERS):
            return 0
        vector = _reference(data, table, _BATCH_BUFFERS)
        (count,) = _COUNT.unpack_from(data, vector)
        places = list(_PLACE.iter_unpack(data[vector + 4 : vector + 4 + _PLACE.size * count]))
        return sum(_unfolded(body, offset, size, compressed=compressed) for offset, size in places)
    except (struct.error, IndexError) as error:
        raise BadSegment(f"a record batch whose buffers cannot be found: {error}") from error


def _unfolded(body: memoryview, offset: int, size: int, *, compressed: bool) -> int:
    if offset < 0 or size < 0 or offset + size > len(body):
        raise BadSegment(f"a buffer of {size:,} bytes at {offset:,} in a body of {len(body):,}")
    if size == 0 or not compressed:
        return size
    (unfolded,) = _SIZE.unpack_from(body[offset : offset + size])
    if unfolded < -1:
        raise BadSegment(f"a buffer that claims to unfold to {unfolded} bytes")
    return size if unfolded == -1 else int(unfolded)


# Arrow record batches whose buffers are LZ4-compressed: written where that is worth it, read where it is
# safe.
#
# A message here is one encapsulated IPC record batch, without its schema. The bytes may come from anyone:
# what they would unfold to is added up before it is allocated.

SAMPLE_BYTES: Final = 16 * 1024
WORTH: Final = 0.8
"""A sample must become smaller than this, or the whole is not tried: random bytes cost time for nothing."""

_LZ4: Final = pa.ipc.IpcWriteOptions(compression="lz4", use_threads=False)
_SAMPLED: Final = pa.Codec("lz4_raw")
_HERE: Final = pa.ipc.IpcReadOptions(use_threads=False)
"""Threads would take longer to begin than to unfold the few buffers of a segment."""


def is_worth_folding(data: pa.Buffer) -> bool:
    """Whether bytes like these become smaller, told from some in their middle."""
    at = max(0, (data.size - SAMPLE_BYTES) // 2)
    sample = data.slice(at, min(SAMPLE_BYTES, data.size))
    return bool(_SAMPLED.compress(sample).size < WORTH * sample.size)


def fold(batch: pa.RecordBatch) -> pa.Buffer:
    """The batch as a compressed message. Only a stream can be compressed, so what it begins with is cut off."""
    sink = pa.BufferOutputStream()
    pa.ipc.new_stream(sink, batch.schema, options=_LZ4).write_batch(batch)
    stream = sink.getvalue()
    schema_bytes = 8 + int.from_bytes(stream[4:8], "little")  # a marker, the metadata's size, the metadata
    return stream.slice(schema_bytes)


def check_unfolded(message: pa.Message, bytes_max: int) -> None:
    """Refuses a message that would take more memory than that; to be asked before ``unfold``."""
    size = unfolded_bytes(message)
    if size > bytes_max:
        raise BadSegment(f"a batch that would unfold to {size:,} bytes; at most {bytes_max:,} are allowed")


def unfold(beginning: bytes, message: pa.Buffer) -> pa.RecordBatch:
    """The batch in a message; ``beginning`` is what a stream of its schema begins with."""
    stream = pa.py_buffer(b"".join((beginning, message)))
    return pa.ipc.open_stream(stream, options=_HERE).read_next_batch()
