"""The frame: the envelope of everything on a connection and in a file.

Little endian::

    type u8 | shard u16 | segment u32 | size u32 | body: size bytes | crc32c u32 over header and body

The maker of a frame computes its checksum, and every boundary checks it. A reader checks ``size`` against the
limit of the type before it allocates memory. Type 0 is never valid, so preallocated zeros in a file are not
mistaken for frames.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from enum import IntEnum
from typing import NamedTuple

from google_crc32c import extend, value

from headpond.model.bounds import SEGMENT_BYTES_MAX as SEGMENT_BYTES_MAX
from headpond.model.errors import BadChecksum, BadFrame, FrameTooLarge, UnknownFrame

HEADER = struct.Struct("<BHII")
TRAILER = struct.Struct("<I")
HEADER_BYTES = HEADER.size
OVERHEAD_BYTES = HEADER_BYTES + TRAILER.size

FILE_BODY_BYTES_MAX = 64 * 1024 * 1024
"""The largest body in a file: a stored segment with its record header, marks, or a compacted journal part."""
CONTROL_BYTES_MAX = 1024 * 1024
"""The largest control frame."""
TITLE_BYTES_MAX = 64 * 1024
RESPONSE_BYTES_MAX = 16 * 1024 * 1024
"""The largest answer to a request, such as a list of all topics."""
_NOT_THAT_PORT = (
    "Give the node's own address, which `headpond node` prints after `ready`, not its HTTP address."
)


class FrameType(IntEnum):
    # Segments and their context (docs/transport.md).
    TITLE = 1
    DESTINATIONS = 2
    SNAPSHOT = 3
    SEGMENT = 4
    STATUS = 5
    REJECT = 6
    # Only in files.
    MARKS = 7
    RECORD = 8
    INDEX = 9
    # Messages between a client and a node; their bodies are msgpack (wire/control/codec.py).
    HELLO = 16
    WELCOME = 17
    ERROR = 18
    PING = 19
    PONG = 20
    REQUEST = 21
    RESPONSE = 22
    ACK = 23
    HOLE = 24
    BLOCK_END = 25
    SUBSCRIBE = 26
    SUBSCRIBED = 27
    UNSUBSCRIBE = 28
    UNSUBSCRIBED = 29
    CREDIT = 30
    DELIVER = 31
    SETTLE = 32
    SETTLED = 33
    LOST = 34
    EXTEND = 35
    RENEW = 36
    GIVE_BACK = 37
    FETCHED = 38
    STAGE = 40
    PEER = 41


class Frame(NamedTuple):
    type: int
    shard: int
    segment: int
    body: bytes
    crc: int


_new_frame = tuple.__new__
"""Half the time of ``Frame(...)``, which a connection makes for every message that is sent by itself."""


def encode(type: int, body: bytes, *, shard: int = 0, segment: int = 0) -> bytes:
    """A whole frame."""
    header = HEADER.pack(type, shard, segment, len(body))
    return b"".join((header, body, TRAILER.pack(extend(value(header), body))))


def frame_parts(type: int, lead: bytes, body: bytes, *, shard: int, segment: int) -> list[bytes]:
    """A whole frame whose body is ``lead`` and ``body``, in pieces, so that ``body`` is not copied."""
    start = HEADER.pack(type, shard, segment, len(lead) + len(body)) + lead
    return [start, body, TRAILER.pack(extend(value(start), body))]


def frame_of(type: int, body: bytes, *, shard: int = 0, segment: int = 0) -> Frame:
    """The frame that ``encode`` and ``decode_at`` would make, for a receiver in the same process."""
    crc: int = extend(value(HEADER.pack(type, shard, segment, len(body))), body)
    return Frame(type, shard, segment, body, crc)


def decode_at(data: bytes, at: int, body_bytes_max: int) -> Frame | None:
    """The frame at ``at``, or None if the bytes end before it does. Faults are ``BadFrame``."""
    if len(data) - at < HEADER_BYTES:
        return None
    type_, shard, segment, size = HEADER.unpack_from(data, at)
    if type_ == 0:
        raise UnknownFrame("a frame of type 0")
    if size > body_bytes_max:
        raise FrameTooLarge(f"a frame of type {type_} claims {size:,} bytes; the limit is {body_bytes_max:,}")
    end = at + OVERHEAD_BYTES + size
    return _whole_at(data, at, end, type_, shard, segment) if end <= len(data) else None


def _whole_at(data: bytes, at: int, end: int, type: int, shard: int, segment: int) -> Frame:
    """The frame from ``at`` to ``end``, whose bytes are all there."""
    body = data[at + HEADER_BYTES : end - TRAILER.size]
    (crc,) = TRAILER.unpack_from(data, end - TRAILER.size)
    return _checked(data[at : at + HEADER_BYTES], body, crc, type, shard, segment)


def _checked(header: bytes, body: bytes, crc: int, type: int, shard: int, segment: int) -> Frame:
    if extend(value(header), body) != crc:
        raise BadChecksum(f"a frame of type {type} and {len(body):,} bytes failed its checksum")
    return _new_frame(Frame, (type, shard, segment, body, crc))


class FrameReader:
    """Cuts a stream of bytes into frames, however the bytes arrive.

    ``limits`` maps each accepted frame type to its largest body. After a fault (an unknown type, a size over
    the limit, a wrong checksum) the stream cannot be trusted: ``fault`` holds the error, and the reader
    ignores all further bytes.
    """

    def __init__(self, limits: Mapping[int, int]) -> None:
        self._limits = limits
        self._chunks: list[bytes | memoryview] = []
        self._need = HEADER_BYTES
        self._next = (0, 0, 0)
        """Type, shard and segment of an incomplete frame whose header is there."""
        self.partial_bytes = 0
        """The bytes in memory of an incomplete frame."""
        self.fault: BadFrame | None = None

    def clear(self) -> None:
        """Drops an incomplete frame."""
        self._chunks.clear()
        self.partial_bytes = 0

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that ``data`` completes, in order."""
        if self.fault is not None:
            return []
        frames: list[Frame] = []
        buffer = data
        at, have = 0, self.partial_bytes + len(data)
        header_at, limit_of = HEADER.unpack_from, self._limits.get
        try:
            if self._chunks or have < self._need:
                self._chunks.append(data)
                self.partial_bytes = have
                if have < self._need:
                    return []
                if self._need == HEADER_BYTES:
                    buffer = b"".join(self._chunks)
                else:
                    at, have = len(data) - (have - self._need), len(data)
                    frames.append(self._frame_to(at))
            self._need = HEADER_BYTES
            while have - at >= HEADER_BYTES:
                type_, shard, segment, size = header_at(buffer, at)
                if size > limit_of(type_, -1):
                    raise self._refuse(type_, size, buffer, at)
                end = at + OVERHEAD_BYTES + size
                if end > have:
                    self._need, self._next = end - at, (type_, shard, segment)
                    break
                frames.append(_whole_at(buffer, at, end, type_, shard, segment))
                at = end
        except BadFrame as fault:
            self.fault = fault
            self.clear()
            return frames
        self.partial_bytes = have - at
        if self.partial_bytes > have // 2:  # the rest of the buffer, which then lives on, is smaller
            self._chunks = [memoryview(buffer)[at:]]
        else:
            self._chunks = [buffer[at:]] if have > at else []
        return frames

    def _frame_to(self, end: int) -> Frame:
        """The frame of all chunks, which ends at ``end`` of the last one; the first has the header.

        The body is copied once, and twice if the checksum is cut.
        """
        first, *middle, last = self._chunks
        type_, shard, segment = self._next
        if end < TRAILER.size:
            return _whole_at(b"".join((first, *middle, last[:end])), 0, self._need, type_, shard, segment)
        body = b"".join((memoryview(first)[HEADER_BYTES:], *middle, memoryview(last)[: end - TRAILER.size]))
        (crc,) = TRAILER.unpack_from(last, end - TRAILER.size)
        return _checked(bytes(first[:HEADER_BYTES]), body, crc, type_, shard, segment)

    def _refuse(self, type: int, size: int, buffer: bytes, at: int) -> BadFrame:
        limit = self._limits.get(type)
        if limit is not None:
            return FrameTooLarge(f"a frame of type {type} claims {size:,} bytes; at most {limit:,} are allowed")
        if buffer.startswith(b"HTTP/", at):
            return UnknownFrame("the other side speaks HTTP, not Headpond", hint=_NOT_THAT_PORT)
        return UnknownFrame(f"a frame of type {type}, which is not accepted here")
