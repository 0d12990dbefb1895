"""The index of a log file: a sparse, sorted list of (entry, stored_at, offset).

The points of the file being written are in memory. Those of a closed file are beside it in ``<first
entry>.index``, one INDEX frame::

    version u8 | first entry u64 | end entry u64 | end offset u64 | proof u32 | n u32 | n x (entry u64,
    stored_at i64 µs, offset u64)

The proof is the crc32 of the first and the last bytes that the index covers; it exposes an index that another
file of the same name left. (Frames end with their crc32c, so the crc32c of all whole frames is the same.) An
index is derived data: if it is missing, damaged or of another file, the reader builds it again.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from contextlib import closing, suppress
from typing import NamedTuple
from zlib import crc32

from headpond.model.errors import BadFrame
from headpond.storage.disk import Disk, DiskFile
from headpond.storage.frame_file import read_frame
from headpond.wire.frame import FrameType, encode

_FIXED = struct.Struct("<BQQQII")
_POINT = struct.Struct("<QqQ")
_VERSION = 2
_PROOF_BYTES = 4096
_LAST = 2**63


class Point(NamedTuple):
    """A record starts at ``offset``; ``entry`` is its first."""

    entry: int
    stored_at_us: int
    offset: int


class FileIndex(NamedTuple):
    """The points of one file, and the end of its entries and frames."""

    first: int
    end_entry: int
    end_offset: int
    points: list[Point]
    proof: int = 0

    def encode_for(self, file: DiskFile, shard: int) -> bytes:
        """The INDEX frame, with the proof that it belongs to this file."""
        proof = _proof(file, self.end_offset)
        fixed = _FIXED.pack(_VERSION, self.first, self.end_entry, self.end_offset, proof, len(self.points))
        return encode(
            FrameType.INDEX, fixed + b"".join(_POINT.pack(*point) for point in self.points), shard=shard
        )


def _proof(file: DiskFile, end_offset: int) -> int:
    size = min(_PROOF_BYTES, end_offset)
    return crc32(file.read_at(end_offset - size, size), crc32(file.read_at(0, size)))


def decode_index(body: bytes) -> FileIndex:
    if len(body) < _FIXED.size:
        raise BadFrame(f"an index of {len(body)} bytes is too short")
    version, first, end_entry, end_offset, proof, count = _FIXED.unpack_from(body)
    if version != _VERSION or len(body) != _FIXED.size + count * _POINT.size:
        raise BadFrame("the index has an unknown version or a wrong length")
    points = list(map(Point._make, _POINT.iter_unpack(body[_FIXED.size :])))
    return FileIndex(first, end_entry, end_offset, points, proof)


def load_index(disk: Disk, path: str, file: DiskFile, first: int) -> FileIndex | None:
    """The index at ``path``, if it is valid and belongs to ``file``."""
    with suppress(BadFrame, OSError), closing(disk.open(path)) as index_file:
        frame = read_frame(index_file, 0).frame
        if frame.type == FrameType.INDEX:
            index = decode_index(frame.body)
            belongs = index.first == first and index.end_offset <= file.size()
            return index if belongs and _proof(file, index.end_offset) == index.proof else None
    return None


def place_of(points: list[Point], entry: int) -> Point | None:
    """The last point at or before ``entry``, or None."""
    at = bisect_right(points, (entry, _LAST, _LAST))
    return points[at - 1] if at else None


def place_of_time(points: list[Point], stored_at_us: int) -> Point | None:
    """The last point stored before a time: a walk from there meets the first record at or after it."""
    at = bisect_left(points, stored_at_us, key=lambda point: point.stored_at_us)
    return points[at - 1] if at else None
