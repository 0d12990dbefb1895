"""A frame is decoded whole or not at all, however its bytes arrive or change."""

from __future__ import annotations

import struct

import pytest

from headpond.model.errors import BadChecksum, BadFrame, FrameTooLarge, UnknownFrame
from headpond.wire.frame import (
    FILE_BODY_BYTES_MAX,
    HEADER,
    Frame,
    FrameReader,
    FrameType,
    decode_at,
    encode,
)

LIMITS: dict[int, int] = {FrameType.SEGMENT: 1000, FrameType.PING: 10}
FRAMES = [
    encode(FrameType.SEGMENT, b"first", shard=3, segment=70_000),
    encode(FrameType.PING, b""),
    encode(FrameType.SEGMENT, bytes(range(256))),
]
STREAM = b"".join(FRAMES)


def bodies(frames: list[Frame]) -> list[bytes]:
    return [frame.body for frame in frames]


def test_the_header_is_the_documented_eleven_bytes() -> None:
    frame = encode(FrameType.SEGMENT, b"ab", shard=0x0102, segment=0x03040506)
    assert frame[:11] == bytes.fromhex("04 0201 06050403 02000000")
    assert frame[11:13] == b"ab"
    assert len(frame) == 11 + 2 + 4


def test_a_segment_decodes_to_the_encoded_rows() -> None:
    frame = decode_at(b"??" + FRAMES[0], 2, 1000)
    assert frame is not None
    assert frame[:4] == (FrameType.SEGMENT, 3, 70_000, b"first")
    assert frame.crc == struct.unpack("<I", FRAMES[0][-4:])[0]


def test_a_reader_says_when_it_waits_for_the_rest_of_a_frame() -> None:
    reader = FrameReader(LIMITS)
    reader.feed(FRAMES[0] + FRAMES[1][:5])
    assert reader.partial_bytes == 5


@pytest.mark.parametrize("frame", FRAMES[:2])
def test_every_single_flipped_bit_is_noticed(frame: bytes) -> None:
    for bit in range(8 * len(frame)):
        altered = bytearray(frame)
        altered[bit // 8] ^= 1 << bit % 8
        reader = FrameReader(dict.fromkeys(range(256), FILE_BODY_BYTES_MAX))
        assert reader.feed(bytes(altered)) == [], f"bit {bit}"
        # A size that grew leaves the reader waiting; everything else is a fault at once.
        assert reader.fault is not None or reader.partial_bytes, f"bit {bit}"
        try:
            assert decode_at(bytes(altered), 0, FILE_BODY_BYTES_MAX) is None, f"bit {bit}"
        except BadFrame:
            continue


@pytest.mark.parametrize("altered", [False, True])
def test_a_frame_may_come_in_three_pieces_and_the_next_one_behind_it(altered: bool) -> None:
    frame = encode(FrameType.SEGMENT, bytes(range(40)), shard=1, segment=2)
    sent = bytearray(FRAMES[1] + frame + FRAMES[2])
    if altered:
        sent[len(FRAMES[1]) + 20] ^= 1
    for first in range(len(sent)):
        for second in range(first, len(sent)):
            reader = FrameReader(LIMITS)
            found = [
                each
                for piece in (sent[:first], sent[first:second], sent[second:])
                for each in reader.feed(bytes(piece))
            ]
            assert bodies(found) == [b"", *([] if altered else [bytes(range(40)), bytes(range(256))])]
            assert (reader.fault is not None) is altered
            assert reader.partial_bytes == 0


def test_a_claim_of_four_gigabytes_is_refused_from_the_header_alone() -> None:
    header = HEADER.pack(FrameType.SEGMENT, 0, 0, 2**32 - 1)
    reader = FrameReader(LIMITS)
    assert reader.feed(header) == []
    assert isinstance(reader.fault, FrameTooLarge)
    assert reader.partial_bytes == 0
    with pytest.raises(FrameTooLarge):
        decode_at(header, 0, FILE_BODY_BYTES_MAX)


def test_each_type_has_its_own_limit() -> None:
    assert bodies(FrameReader(LIMITS).feed(encode(FrameType.PING, bytes(10)))) == [bytes(10)]
    reader = FrameReader(LIMITS)
    reader.feed(encode(FrameType.PING, bytes(11)))
    assert isinstance(reader.fault, FrameTooLarge)


@pytest.mark.parametrize("kind", [0, FrameType.TITLE, 200])
def test_a_type_that_has_no_place_here_is_a_fault(kind: int) -> None:
    reader = FrameReader(LIMITS)
    assert reader.feed(encode(kind, b"")) == []
    assert isinstance(reader.fault, UnknownFrame)


def test_an_http_answer_is_recognised_in_the_error() -> None:
    reader = FrameReader(LIMITS)
    assert reader.feed(b"HTTP/1.1 400 Bad Request\r\n\r\n") == []
    assert reader.fault is not None and "HTTP" in reader.fault.message and "`ready`" in reader.fault.hint


def test_preallocated_zeros_are_not_a_frame() -> None:
    with pytest.raises(UnknownFrame):
        decode_at(bytes(100), 0, 1000)


def test_frames_before_a_fault_are_still_returned_and_nothing_after_it() -> None:
    damaged = FRAMES[0][:-1] + bytes([FRAMES[0][-1] ^ 1])
    reader = FrameReader(LIMITS)
    assert bodies(reader.feed(FRAMES[1] + FRAMES[2] + damaged + FRAMES[1])) == [b"", bytes(range(256))]
    assert isinstance(reader.fault, BadChecksum)
    assert reader.feed(FRAMES[1]) == []
