"""Iterates over the records of a log file, checks every checksum, and continues behind damage."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from google_crc32c import value

from headpond.model.errors import BadFrame
from headpond.storage.disk import DiskFile
from headpond.storage.frame_file import CRC_RESIDUE, Bad, Found, following_frame, scan
from headpond.storage.log.index import FileIndex, Point
from headpond.storage.recovery import stands_here
from headpond.wire.frame import FILE_BODY_BYTES_MAX, HEADER_BYTES, OVERHEAD_BYTES, Frame, FrameType
from headpond.wire.record import RECORD_HEADER, RECORD_HEADER_BYTES, RecordHeader, decode_record_header

_SEGMENT = int(FrameType.SEGMENT)
_LEAD = struct.Struct("<BHIIQI")
"""The header of a frame, and the first entry and count of its record."""
_RECORD_BYTES_MIN = OVERHEAD_BYTES + RECORD_HEADER_BYTES


class WalkBounds(NamedTuple):
    """The part of a file to walk."""

    offset: int
    end_offset: int
    expected: int
    """The first entry of the record at ``offset``."""
    limit: int
    """The end of the entries of the file."""


class FramedRecord(NamedTuple):
    """A record and its place; ``raw`` is its whole frame."""

    offset: int
    header: RecordHeader
    segment: int
    raw: bytes


def walk(file: DiskFile, bounds: WalkBounds, shard: int, chunk_bytes: int) -> Iterator[FramedRecord]:
    """The valid records of a part of a file, in order, up to the end of its entries."""
    offset, end, expected, limit = bounds.offset, bounds.end_offset, bounds.expected, bounds.limit
    data, start = b"", offset
    while offset < end:
        at = offset - start
        total = _total(data, at)
        if total == 0 or total > len(data) - at:
            data, start, at = _refill(file, offset, end, chunk_bytes), offset, 0
            total = _total(data, 0)
        raw = data[at : at + total]
        if not total or len(raw) < total or value(raw) != CRC_RESIDUE:
            following = _way_on(file, offset, end, expected, shard)
            if following is None:
                return
            offset = following
            continue
        if raw[0] == _SEGMENT and total >= _RECORD_BYTES_MIN:
            header = RecordHeader._make(RECORD_HEADER.unpack_from(raw, HEADER_BYTES))
            first, count = header[0], header[1]
            if first >= limit and (count or first > limit):
                return
            if first >= expected:
                expected = first + count
                yield FramedRecord(offset, header, int.from_bytes(raw[3:7], "little"), raw)
        offset += total


def hop(file: DiskFile, bounds: WalkBounds, entry: int, chunk_bytes: int) -> WalkBounds:
    """Moves the start of a walk to the record that holds ``entry``; no move if a record before it is odd.

    It looks at the entries of the records before it, not at their checksums.
    """
    data = file.read_at(bounds.offset, min(chunk_bytes, bounds.end_offset - bounds.offset))
    at, expected = 0, bounds.expected
    while len(data) - at >= _RECORD_BYTES_MIN:
        type_, _, _, size, first, count = _LEAD.unpack_from(data, at)
        total = OVERHEAD_BYTES + size
        if type_ == _SEGMENT:
            if first != expected:
                return bounds
            expected = first + count
            if entry < expected:
                raw = data[at : at + total]
                sound = len(raw) == total and value(raw) == CRC_RESIDUE
                return bounds._replace(offset=bounds.offset + at, expected=first) if sound else bounds
        at += total
    return bounds


def _way_on(file: DiskFile, offset: int, end: int, expected: int, shard: int) -> int | None:
    """The offset of the next frame of this file behind bad bytes."""

    def accept(offset: int, frame: Frame) -> bool:
        return belongs(frame, expected) and stands_here(file, offset, end)

    return following_frame(file, offset, end, shard=shard, accept=accept)


def belongs(frame: Frame, entry: int) -> bool:
    """Whether a frame behind bad bytes can belong there: a record of older entries is a copy in a payload."""
    if frame.type != FrameType.SEGMENT:
        return frame.type in (FrameType.STATUS, FrameType.RECORD)
    try:
        return decode_record_header(frame.body).first_entry >= entry
    except BadFrame:
        return False


def _total(data: bytes, at: int) -> int:
    """How long the frame at ``at`` says it is; 0 where its header is not there."""
    if len(data) - at < HEADER_BYTES or data[at] == 0:
        return 0
    return OVERHEAD_BYTES + int.from_bytes(data[at + 7 : at + 11], "little")


def _refill(file: DiskFile, offset: int, end_offset: int, chunk_bytes: int) -> bytes:
    """The bytes from ``offset`` on: a chunk, or the whole frame if that is longer."""
    data = file.read_at(offset, min(chunk_bytes, end_offset - offset))
    total = _total(data, 0)
    if len(data) < total <= min(end_offset - offset, FILE_BODY_BYTES_MAX + OVERHEAD_BYTES):
        data = file.read_at(offset, total)
    return data


def build_index(file: DiskFile, first: int, limit: int, shard: int, every_bytes: int) -> FileIndex:
    """Builds the index of a closed file from the file itself."""
    points: list[Point] = []
    end_entry, end_offset = first, 0
    size = file.size()

    def accept(offset: int, frame: Frame) -> bool:
        return belongs(frame, end_entry) and stands_here(file, offset, size)

    for item in scan(file, shard=shard, accept=accept):
        if isinstance(item, Bad):
            continue
        header = _record_of(item)
        if header is None:
            end_offset = item.end
            continue
        if header.first_entry >= limit and (header.count or header.first_entry > limit):
            break
        if not points or item.offset - points[-1].offset >= every_bytes:
            points.append(Point(header.first_entry, header.stored_at_us, item.offset))
        end_entry, end_offset = header.end_entry, item.end
    return FileIndex(first, end_entry, end_offset, points)


def _record_of(item: Found) -> RecordHeader | None:
    if item.frame.type != FrameType.SEGMENT or len(item.frame.body) < RECORD_HEADER_BYTES:
        return None
    return decode_record_header(item.frame.body)
