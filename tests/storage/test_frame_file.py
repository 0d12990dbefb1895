"""A scan of a frame file finds every valid frame and exact bad ranges, and garbage does not stop it."""

from __future__ import annotations

import random

import pytest

from headpond.model.errors import BadFrame
from headpond.storage.frame_file import CHUNK_BYTES, Bad, Found, following_frame, looks_torn, read_frame, scan
from headpond.storage.memory_disk import MemoryDisk, MemoryFile
from headpond.wire.frame import FILE_BODY_BYTES_MAX, HEADER_BYTES, OVERHEAD_BYTES, FrameType, encode

SHARD = 7


def segment(body: bytes, number: int = 0) -> bytes:
    return encode(FrameType.SEGMENT, body, shard=SHARD, segment=number)


def file_of(*parts: bytes) -> MemoryFile:
    file = MemoryDisk().create("file")
    file.write_at(0, parts)
    return file


def shape(file: MemoryFile) -> list[tuple[str, int, int]]:
    """The items of a scan as (kind, start, end)."""
    return [
        ("found" if isinstance(item, Found) else "bad", item.offset, item.end)
        for item in scan(file, shard=SHARD)
    ]


def test_frames_are_read_back_one_by_one_or_all() -> None:
    frames = [segment(body, number) for number, body in enumerate((b"", b"one", bytes(9_000)))]
    file = file_of(*frames)
    offsets = [0, len(frames[0]), len(frames[0] + frames[1])]
    assert [read_frame(file, offset).frame.segment for offset in offsets] == [0, 1, 2]
    assert read_frame(file, offsets[2]).end == file.size()
    assert [item.offset for item in scan(file)] == offsets
    with pytest.raises(BadFrame):
        read_frame(file, offsets[1] + 1)
    with pytest.raises(BadFrame, match="ends inside"):
        read_frame(file, file.size())


def test_zeros_to_the_end_are_the_clean_end() -> None:
    frame = segment(b"abc")
    file = file_of(frame)
    file.preallocate(10_000)
    assert shape(file) == [("found", 0, len(frame))]
    assert shape(file_of(bytes(5_000))) == [] == shape(file_of())


def test_frames_larger_than_a_chunk_and_across_chunks_are_found() -> None:
    draw = random.Random(1)
    sizes = [CHUNK_BYTES - 30, 3, 2 * CHUNK_BYTES + 7, 0, 100]
    frames = [segment(draw.randbytes(size), number) for number, size in enumerate(sizes)]
    found = [item for item in scan(file_of(*frames)) if isinstance(item, Found)]
    assert [len(item.frame.body) for item in found] == sizes


def test_bytes_lost_inside_a_file_are_skipped_over() -> None:
    draw = random.Random(3)
    before, after = segment(b"before"), segment(b"after", 1)
    hole = draw.randbytes(100_000)
    found = shape(file_of(before, hole, after))
    end = len(before) + len(hole)
    assert found == [
        ("found", 0, len(before)),
        ("bad", len(before), end),
        ("found", end, end + len(after)),
    ]


def test_a_valid_frame_between_two_bad_places_is_found() -> None:
    frames = [segment(random.Random(number).randbytes(50), number) for number in range(5)]
    disk = MemoryDisk()
    file = disk.create("file")
    file.write_at(0, frames)
    size = len(frames[0])
    disk.flip("file", 1 * size + 7)  # its size
    disk.flip("file", 3 * size, 7)  # its type, so that nothing plausible follows the frame between
    assert [kind for kind, _, _ in shape(file)] == ["found", "bad", "found", "bad", "found"]


def test_a_frame_inside_a_rotten_payload_is_not_found_while_its_own_header_is_right() -> None:
    inner = segment(b"a frame inside a frame", 1)
    frames = [segment(b"rot" + inner), segment(b"next", 2)]
    disk = MemoryDisk()
    file = disk.create("file")
    file.write_at(0, frames)
    disk.flip("file", 12)
    size = len(frames[0])
    assert shape(file) == [("bad", 0, size), ("found", size, size + len(frames[1]))]


def test_a_rotten_size_costs_its_frame_alone_though_the_body_holds_a_frame() -> None:
    inner = segment(b"a frame inside a frame", 1)
    frames = [segment(bytes(20) + inner + bytes(20)), *(segment(b"next", number) for number in range(1, 4))]
    starts = [sum(map(len, frames[:number])) for number in range(len(frames) + 1)]
    expected = [("found", starts[number], starts[number + 1]) for number in range(len(frames))]
    expected[0] = ("bad", 0, starts[1])
    to_third_frame = starts[2] - OVERHEAD_BYTES
    for size in (to_third_frame, 0, 20, 1_000, 2**32 - 1):
        rotten = frames[0][:7] + size.to_bytes(4, "little") + frames[0][HEADER_BYTES:]
        assert shape(file_of(rotten, *frames[1:])) == expected, size


def test_a_search_ignores_frames_of_another_shard_or_of_the_wire() -> None:
    junk = b"\x01garbage"
    other = encode(FrameType.SEGMENT, b"other", shard=SHARD + 1)
    spoken = encode(FrameType.PING, b"ping", shard=SHARD)
    ours = segment(b"ours")
    before = len(junk) + len(other) + len(spoken)
    assert shape(file_of(junk, other, spoken, ours)) == [
        ("bad", 0, before),
        ("found", before, before + len(ours)),
    ]


def test_the_caller_decides_what_belongs_to_the_file() -> None:
    old, new = segment(b"old", 1), segment(b"new", 9)
    file = file_of(b"\x01garbage", old, new)
    items = list(scan(file, shard=SHARD, accept=lambda _, frame, led: frame.segment > 5))
    assert items[0] == Bad(0, 8 + len(old)) and isinstance(items[1], Found)
    assert following_frame(file, 0, file.size(), shard=SHARD) == 8
    assert following_frame(file, 0, file.size(), shard=1) is None


def test_a_claim_beyond_the_limit_or_the_file_is_bad_without_being_read() -> None:
    frame = segment(b"x" * 100)
    for claimed in (FILE_BODY_BYTES_MAX + 1, 60 * 1024 * 1024):
        huge = bytearray(frame)
        huge[7:11] = claimed.to_bytes(4, "little")
        assert [kind for kind, _, _ in shape(file_of(bytes(huge), segment(b"next")))] == ["bad", "found"]


@pytest.mark.parametrize("pattern", ["random", "small numbers"])
def test_a_large_file_of_garbage_is_searched_within_bounds(pattern: str) -> None:
    """Small whole numbers look like headers everywhere, and each claims bytes that would have to be summed."""
    size = 512 * 1024
    if pattern == "random":
        garbage = random.Random(1).randbytes(size)
    else:
        garbage = (4).to_bytes(4, "little") + (7).to_bytes(4, "little") * 3
        garbage = garbage * (size // len(garbage))
    file = file_of(garbage)
    (item,) = list(scan(file, shard=0))
    assert isinstance(item, Bad) and item.offset == 0
    file.write_at(size, [encode(FrameType.STATUS, b"the end", shard=0)])
    assert [type(item) for item in scan(file, shard=0)] == [Bad, Found]


def test_sectors_distinguish_a_torn_write_from_rot() -> None:
    data = random.Random(2).randbytes(3_000)
    torn = bytearray(data)
    torn[1_024:1_536] = bytes(512)
    rotten = bytearray(data)
    rotten[1_100] ^= 1
    assert looks_torn(file_of(bytes(torn)), Bad(100, 3_000))
    assert not looks_torn(file_of(bytes(rotten)), Bad(100, 3_000))
    # The sector in which the bad bytes begin counts from there on.
    head = bytearray(data)
    head[200:512] = bytes(312)
    assert looks_torn(file_of(bytes(head)), Bad(200, 3_000))
    assert not looks_torn(file_of(bytes(head)), Bad(150, 3_000))
