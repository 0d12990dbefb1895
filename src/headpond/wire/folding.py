"""Arrow record batches whose buffers are LZ4-compressed: written where that is worth it, read where it is safe.

A message here is one encapsulated IPC record batch, without its schema. The bytes may come from anyone: what
they would unfold to is added up before it is allocated.
"""

from __future__ import annotations

from typing import Final

import pyarrow as pa

from headpond.model.errors import BadSegment
from headpond.wire.ipc_sizes import unfolded_bytes

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
