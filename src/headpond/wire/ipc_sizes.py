"""How large the body of a compressed Arrow IPC record batch becomes, told before anything is unfolded.

In a compressed batch each buffer begins with its size once unfolded, i64, or -1 where it is stored as it is.
Arrow allocates what stands there; so it is added up here first. The metadata's layout is told in ipc_claims.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from headpond.model.errors import BadSegment
from headpond.wire.ipc_claims import _field, _reference, batch_table

_COUNT = struct.Struct("<I")
_PLACE = struct.Struct("<qq")
_SIZE = struct.Struct("<q")
_BATCH_BUFFERS, _BATCH_COMPRESSION = 2, 3


def unfolded_bytes(message: pa.Message) -> int:
    """The bytes of all buffers of a record batch, unfolded where they are folded; faults are ``BadSegment``."""
    data = memoryview(message.metadata)
    body = memoryview(message.body) if message.body is not None else memoryview(b"")
    try:
        table = batch_table(data)
        compressed = _field(data, table, _BATCH_COMPRESSION) != 0
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
