"""Walking through the records of a log file, every checksum checked, around damage where there is some."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from google_crc32c import value

from penstock.files.disk import DiskFile
from penstock.files.frame_file import Bad, Found, following_frame, scan
from penstock.model.errors import BadFrame
from penstock.node.core.log_index import FileIndex, Point
from penstock.wire.frame import FILE_BODY_BYTES_MAX, HEADER, HEADER_BYTES, OVERHEAD_BYTES, Frame, FrameType
from penstock.wire.record import RECORD_HEADER, RECORD_HEADER_BYTES, RecordHeader, decode_record_header

CRC_RESIDUE = 0x48674BC7
"""The crc32c of any bytes that end with their own crc32c."""


class Bounds(NamedTuple):
    """The part of a file to be walked."""

    offset: int
    end_offset: int
    expected: int
    """The first entry of the record at ``offset``."""
    limit: int
    """Where the file's entries end."""


class Item(NamedTuple):
    """A record met on a walk; ``raw`` is its whole frame."""

    offset: int
    header: RecordHeader
    segment: int
    raw: bytes


def walk(file: DiskFile, bounds: Bounds, shard: int, chunk_bytes: int) -> Iterator[Item]:
    """The valid records of a part of a file, in order, up to where its entries end."""
    offset, expected = bounds.offset, bounds.expected
    data, start = b"", offset
    while offset < bounds.end_offset:
        at = offset - start
        if len(data) - at < HEADER_BYTES or len(data) - at < _total(data, at):
            data, start, at = _refill(file, offset, bounds.end_offset, chunk_bytes), offset, 0
        raw = _checked(data, at)
        if raw is None:
            lowest = expected

            def accept(_: int, frame: Frame, lowest: int = lowest) -> bool:
                return belongs(frame, lowest)

            found = following_frame(file, offset, bounds.end_offset, shard=shard, accept=accept)
            if found is None:
                return
            offset = found
            continue
        if raw[0] == FrameType.SEGMENT and len(raw) >= OVERHEAD_BYTES + RECORD_HEADER_BYTES:
            header = RecordHeader._make(RECORD_HEADER.unpack_from(raw, HEADER_BYTES))
            if header.first_entry >= bounds.limit and (header.count or header.first_entry > bounds.limit):
                return
            if header.first_entry >= expected:
                expected = header.end_entry
                yield Item(offset, header, HEADER.unpack_from(raw)[2], raw)
        offset += len(raw)


def belongs(frame: Frame, entry: int) -> bool:
    """Whether a frame found behind bad bytes can stand there: one of older entries is a copy in a payload."""
    if frame.type != FrameType.SEGMENT:
        return True
    try:
        return decode_record_header(frame.body).first_entry >= entry
    except BadFrame:
        return False


def _total(data: bytes, at: int) -> int:
    return OVERHEAD_BYTES + int(HEADER.unpack_from(data, at)[3])


def _refill(file: DiskFile, offset: int, end_offset: int, chunk_bytes: int) -> bytes:
    """The bytes from ``offset``: a chunk, or the whole frame that stands there if it is longer."""
    data = file.read_at(offset, min(chunk_bytes, end_offset - offset))
    if len(data) >= HEADER_BYTES:
        total = _total(data, 0)
        if len(data) < total <= min(end_offset - offset, FILE_BODY_BYTES_MAX):
            data = file.read_at(offset, total)
    return data


def _checked(data: bytes, at: int) -> bytes | None:
    """The whole frame at ``at`` if it passes its checksum."""
    if len(data) - at < OVERHEAD_BYTES or data[at] == 0:
        return None
    raw = data[at : at + _total(data, at)]
    if len(raw) != _total(data, at) or value(raw) != CRC_RESIDUE:
        return None
    return raw


def build_index(file: DiskFile, first: int, limit: int, shard: int, every_bytes: int) -> FileIndex:
    """The index of a sealed file, from the file itself."""
    points: list[Point] = []
    end_entry, end_offset = first, 0

    def accept(_: int, frame: Frame) -> bool:
        return belongs(frame, end_entry)

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
