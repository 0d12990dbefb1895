"""A stub: what stands in a compacted log file for stored segments that have no rows left. Never delivered.

It is a record (record.py) whose header tells the entries of all its segments together, and their block; the
frame tells the number of the first, and ``stored_at`` is the last one's. In the place of the segment::

    form u8 = 6 | 197 u8 | 23644 u16 | segments u32 | segments x (origin_crc u32, rows u32)

They are numbered one after the other. So each of them, sent again, is still told from a conflict. Where nobody
remembers their blocks any more, the block is 16 zero bytes and no segment is listed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headpond.model.errors import BadFrame
from headpond.wire.record import RecordHeader

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
