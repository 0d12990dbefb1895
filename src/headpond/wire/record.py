"""A stored segment: what a log file holds and what is delivered, byte for byte the same.

The body of a SEGMENT frame in a log file (and behind DELIVER on the wire)::

    first_entry u64 | count u32 | block: 16 bytes | stored_at i64 µs | origin_crc u32 | the segment as it came

``origin_crc`` is the crc32c of the producer's own frame: it tells a repeat from a conflict. A record of
count 0 and an empty segment is a refusal that moved the mark (its reason stands in its place).

In a compacted file it may be a stub, which stands for segments that have no rows left.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
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


# A stub: what stands in a compacted log file for stored segments that have no rows left. Never delivered.
#
# It is a record (record.py) whose header tells the entries of all its segments together, and their block; the
# frame tells the number of the first, and ``stored_at`` is the last one's. In the place of the segment::
#
#     form u8 = 6 | 197 u8 | 23644 u16 | segments u32 | segments x (origin_crc u32, rows u32)
#
# They are numbered one after the other. So each of them, sent again, is still told from a conflict. Where
# nobody remembers their blocks any more, the block is 16 zero bytes and no segment is listed.

FORM_STUB = 6
SEGMENTS_MAX = 64 * 1024
_HEAD = struct.Struct("<BBHI")
_SEGMENT = struct.Struct("<II")
_MAGIC = _HEAD.pack(FORM_STUB, 197, 23644, 0)[:4]


class Stubbed(NamedTuple):
    """A segment whose rows are gone."""

    segment: int
    origin_crc: int
    first_entry: int
    count: int  # type: ignore[assignment]  # the tuple's method is not used


def encode_stub(segments: Iterable[tuple[int, int]]) -> bytes:
    """``segments`` are the origin_crc and the rows of each."""
    listed = [_SEGMENT.pack(*each) for each in segments]
    return b"".join((_MAGIC, len(listed).to_bytes(4, "little"), *listed))


def is_stub(segment: bytes) -> bool:
    return segment[:4] == _MAGIC and len(segment) >= _HEAD.size


def segments_of(header: RecordHeader, segment: int, body: bytes) -> Iterator[Stubbed]:
    """The segments that a record is for: itself, or the ones that a stub lists."""
    if not is_stub(body):
        yield Stubbed(segment, header.origin_crc, header.first_entry, header.count)
        return
    count = _HEAD.unpack_from(body)[3]
    if len(body) != _HEAD.size + count * _SEGMENT.size:
        raise BadFrame(f"a stub of {len(body)} bytes that lists {count} segments")
    first = header.first_entry
    for number, (crc, rows) in enumerate(_SEGMENT.iter_unpack(body[_HEAD.size :])):
        yield Stubbed(segment + number, crc, first, rows)
        first += rows
