"""A stored segment: the same bytes in a log file and in a delivery.

The body of a SEGMENT frame in a log file (and after DELIVER on a connection)::

    first_entry u64 | count u32 | block: 16 bytes | stored_at i64 µs | origin_crc u32 | the segment as received

``origin_crc`` is the crc32c of the producer's frame: it distinguishes a repeat from a conflict. A record with
count 0 is a refusal that moved the mark; the reason replaces the segment.

A **stub** replaces segments of a compacted log file that have no rows left; it is never delivered. It is a
record whose header has the entries of all these segments and their block; the frame has the number of the
first segment, and ``stored_at`` is that of the last. Instead of the segment::

    form u8 = 6 | 197 u8 | 23644 u16 | segments u32 | segments x (origin_crc u32, rows u32)

The segments are numbered consecutively, so a repeat of each can still be distinguished from a conflict. After
the marks have forgotten a block, the block is 16 zero bytes and the stub lists no segments.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headpond.model.errors import BadFrame
from headpond.wire.frame import HEADER

RECORD_HEADER = struct.Struct("<QI16sqI")
RECORD_HEADER_BYTES = RECORD_HEADER.size
FRAMED_RECORD = struct.Struct(HEADER.format + RECORD_HEADER.format[1:])
"""The headers of a frame and of its record."""


class RecordHeader(NamedTuple):
    first_entry: int
    count: int  # type: ignore[assignment]  # hides the tuple's method, which is not used
    block: bytes
    stored_at_us: int
    origin_crc: int

    @property
    def end_entry(self) -> int:
        return self.first_entry + self.count

    def encode(self) -> bytes:
        return RECORD_HEADER.pack(*self)


def decode_record_header(body: bytes) -> RecordHeader:
    """The header of a stored segment's body."""
    if len(body) < RECORD_HEADER_BYTES:
        raise BadFrame(f"a stored segment of {len(body)} bytes is too short")
    return RecordHeader._make(RECORD_HEADER.unpack_from(body))


# --- stubs -------------------------------------------------------------------------------------------

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
    """The stub for segments, each given by its origin_crc and its rows."""
    listed = [_SEGMENT.pack(*each) for each in segments]
    return b"".join((_MAGIC, len(listed).to_bytes(4, "little"), *listed))


def is_stub(segment: bytes) -> bool:
    return segment[:4] == _MAGIC and len(segment) >= _HEAD.size


def segments_of(header: RecordHeader, segment: int, body: bytes) -> Iterator[Stubbed]:
    """The segments of a record: itself, or those that a stub lists."""
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
