"""Small refill files for tests, with recognisable segments and snapshots."""

from __future__ import annotations

import struct
from typing import Any

from headpond.model.identity import SegmentKey
from headpond.producer.refill.refill import Refill
from headpond.storage.disk import Disk
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.frame import FrameType, encode
from headpond.wire.title import Title

PATH = "slot/one.refill"
BLOCK = bytes(range(16))
A, B = "headpond://a:7411", "headpond://b:7411"
PLAIN = Title("default/default/default/orders", bytes(16), "till-1")
TYPED = Title("default/default/default/meters", bytes(16), "till-1", schema=b"a schema")
ROWS = 3


def key(segment: int, shard: int = 0) -> SegmentKey:
    return SegmentKey(shard, segment)


def keys(*segments: int, shard: int = 0) -> list[SegmentKey]:
    return [SegmentKey(shard, segment) for segment in segments]


def segment_frame(segment: int, shard: int = 0, *, payload: bytes | None = None) -> bytes:
    """A frame whose content only this segment has, with ``ROWS`` rows."""
    content = f"segment {shard}/{segment} ".encode() * 2 if payload is None else payload
    body = struct.pack("<BBBBI", 2, 1, 0, 0, ROWS) + content
    return encode(FrameType.SEGMENT, body, shard=shard, segment=segment)


def snapshot_frame(segment: int, shard: int = 0) -> bytes:
    return encode(FrameType.SNAPSHOT, f"snapshot at {shard}/{segment}".encode(), shard=shard, segment=segment)


def new_refill(disk: Disk | None = None, title: Title = PLAIN, path: str = PATH, **more: Any) -> Refill:
    settings: dict[str, Any] = {"destinations": [A, B], "shard_power": 1, "block": BLOCK, **more}
    return Refill.create(MemoryDisk() if disk is None else disk, path, title=title, **settings)


def write(refill: Refill, *segments: int, shard: int = 0) -> None:
    for segment in segments:
        refill.write_segment(key(segment, shard), segment_frame(segment, shard))


def save(refill: Refill) -> None:
    refill.write_statuses()
    refill.sync()


def served(refill: Refill) -> dict[SegmentKey, bytes]:
    """Every segment that the refill hands out."""
    held = [
        key(n, shard) for shard in refill.index.shards for run in refill.index.held(shard) for n in range(*run)
    ]
    return {each: refill.get(each) for each in held}


def pending_keys(refill: Refill, destination: str) -> list[SegmentKey]:
    """The segments to send to a destination."""
    return [key(n, shard) for shard, *run in refill.pending_runs(destination) for n in range(*run)]


def restored(refill: Refill, each: SegmentKey) -> tuple[bytes | None, list[bytes]]:
    """What makes a decoder ready for a segment: a snapshot, and the segments from it up to that one."""
    snapshot, first = refill.restore_from(each)
    return snapshot, [refill.get(key(n, each.shard)) for n in range(first, each.segment)]


def true_frame(each: SegmentKey) -> bytes:
    return segment_frame(each.segment, each.shard)


ALL = [*keys(0, 1, 2, 3), key(5, 1), key(6, 1)]
"""The segments of the sample."""


def sample(title: Title = PLAIN, *, closed: bool = True) -> MemoryDisk:
    """A file with all kinds of frames, written in three rounds."""
    disk = MemoryDisk()
    refill = new_refill(disk, title)
    for shard, segment in ((0, 0), (1, 5)) if title is TYPED else ():
        refill.write_snapshot(shard, snapshot_frame(segment, shard))
    write(refill, 0, 1)
    refill.reject(key(0), A)
    save(refill)
    write(refill, 5, shard=1)
    for each in (key(0), key(1), key(5, 1), key(6, 1)):
        refill.ack(each, A)
    refill.reject(key(3), B, "bad-segment", "no")
    save(refill)
    write(refill, 2, 3)
    write(refill, 6, shard=1)
    save(refill)
    if closed:
        refill.close({0: 4, 1: 7})
    return disk


def carrying_another() -> MemoryDisk:
    """A file with a segment whose content is a refill file with other segments under the same keys."""
    other = MemoryDisk()
    foreign = new_refill(other)
    for segment in range(4):
        foreign.write_segment(key(segment), segment_frame(segment, payload=b"a stranger's"))
    foreign.close({0: 4})
    disk = MemoryDisk()
    refill = new_refill(disk)
    write(refill, 0)
    refill.write_segment(key(9), segment_frame(9, payload=other.contents(PATH)))
    save(refill)
    write(refill, 1)
    refill.close({0: 10})
    return disk
