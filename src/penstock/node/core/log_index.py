"""Where entries stand in a log file: a sparse list of (entry, stored_at, offset), a binary search away.

The file being written keeps its points in memory. A sealed file has them beside it, in ``<first
entry>.index``: one INDEX frame::

    version u8 | first entry u64 | end entry u64 | end offset u64 | n u32 | n x (entry u64, stored_at i64
    µs, offset u64)

An index is derived: absent or damaged, it is made again from its file.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from typing import NamedTuple

from penstock.files.disk import Disk
from penstock.files.frame_file import read_frame
from penstock.model.errors import BadFrame
from penstock.wire.frame import FrameType, encode

_FIXED = struct.Struct("<BQQQI")
_POINT = struct.Struct("<QqQ")
_VERSION = 1
_LAST = 2**63


class Point(NamedTuple):
    """A record starts at ``offset``; ``entry`` is its first."""

    entry: int
    stored_at_us: int
    offset: int


class FileIndex(NamedTuple):
    """The points of one file, and where its entries and frames end."""

    first: int
    end_entry: int
    end_offset: int
    points: list[Point]

    def encode(self, shard: int) -> bytes:
        """The INDEX frame."""
        fixed = _FIXED.pack(_VERSION, self.first, self.end_entry, self.end_offset, len(self.points))
        return encode(
            FrameType.INDEX, fixed + b"".join(_POINT.pack(*point) for point in self.points), shard=shard
        )


def decode_index(body: bytes) -> FileIndex:
    if len(body) < _FIXED.size:
        raise BadFrame(f"an index of {len(body)} bytes is too short")
    version, first, end_entry, end_offset, count = _FIXED.unpack_from(body)
    if version != _VERSION or len(body) != _FIXED.size + count * _POINT.size:
        raise BadFrame("an index that cannot be read")
    points = list(map(Point._make, _POINT.iter_unpack(body[_FIXED.size :])))
    return FileIndex(first, end_entry, end_offset, points)


def load_index(disk: Disk, path: str, first: int) -> FileIndex | None:
    """The index at ``path``, if it is whole and of this file."""
    try:
        file = disk.open(path)
    except OSError:
        return None
    try:
        frame = read_frame(file, 0).frame
        index = decode_index(frame.body) if frame.type == FrameType.INDEX else None
    except (BadFrame, OSError):
        return None
    finally:
        file.close()
    return index if index is not None and index.first == first else None


def place_of(points: list[Point], entry: int) -> Point | None:
    """The last point at or before ``entry``; None where there is none."""
    at = bisect_right(points, (entry, _LAST, _LAST))
    return points[at - 1] if at else None


def place_of_time(points: list[Point], stored_at_us: int) -> Point | None:
    """The last point stored before a time: a walk from there meets the first record at or after it."""
    at = bisect_left(points, stored_at_us, key=lambda point: point.stored_at_us)
    return points[at - 1] if at else None
