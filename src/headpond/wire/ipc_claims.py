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
from typing import NamedTuple

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
