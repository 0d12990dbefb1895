"""A stored segment: what a log file holds and what is delivered, byte for byte the same.

The body of a SEGMENT frame in a log file (and behind DELIVER on the wire)::

    first_entry u64 | count u32 | block: 16 bytes | stored_at i64 µs | origin_crc u32 | the segment as it came

``origin_crc`` is the crc32c of the producer's own frame: it tells a repeat from a conflict. A record of
count 0 and an empty segment is a refusal that moved the mark (its reason stands in its place).

In a compacted file it may be a stub (stub.py), which stands for segments that have no rows left.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headpond.model.errors import BadFrame

RECORD_HEADER = struct.Struct("<QI16sqI")
RECORD_HEADER_BYTES = RECORD_HEADER.size


class RecordHeader(NamedTuple):
    first_entry: int
    count: int  # type: ignore[assignment]  # a record counts its rows; the tuple's method is not used
    block: bytes
    stored_at_us: int
    origin_crc: int

    @property
    def end_entry(self) -> int:
        return self.first_entry + self.count

    def encode(self) -> bytes:
        return RECORD_HEADER.pack(*self)


def decode_record_header(body: bytes) -> RecordHeader:
    """Reads the fixed part of a stored segment's body."""
    if len(body) < RECORD_HEADER_BYTES:
        raise BadFrame(f"a stored segment of {len(body)} bytes is too short")
    return RecordHeader._make(RECORD_HEADER.unpack_from(body))
