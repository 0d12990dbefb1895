"""The bytes of a stage file, and what is read from one when a node starts. Version 1.

``stages/00000001.stages`` is a frame file that many stages share, so that many small ones cost one sync::

    RECORD   shard 0: msgpack, the tag first: 1 a stage begins, 2 it is finished, 3 some were dropped
    SEGMENT  shard = the topic's, segment = the chunk's number in its stage:
             stage 16 bytes | rows u32 | origin_crc u32 | the segment as it came
    STATUS   behind every write, as in a log

A stage may go on in later files. A file is removed when no stage that still counts has anything in it; what it
notes of the end of stages in other files is noted anew before. It is never written to after the node that made
it ended. Damage costs the stages whose frames it hit and no others: a stage is finished only if every chunk
that its finish names is there. A chunk that comes twice (its first write failed and was not acknowledged)
counts as it came last.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
from google_crc32c import extend, value

from headpond.model.errors import BadFrame
from headpond.storage.append import NEW_SUFFIX
from headpond.storage.disk import Disk
from headpond.storage.frame_file import Bad, read_frame
from headpond.storage.recovery import Recovery
from headpond.storage.salvage import open_salvaged
from headpond.storage.seal import SealedFile
from headpond.wire.frame import HEADER, TRAILER, FrameType, encode

FOLDER = "stages"
SUFFIX = ".stages"
CHUNK_HEADER = struct.Struct("<16sII")
SHARD_RECORD = 0
STAGES_LOST = "stages that had something there do not count"


class StageBegun(msgspec.Struct, array_like=True, frozen=True, tag=1):
    stage: bytes
    writer: str
    topic: bytes
    at_us: int


class StageFinished(msgspec.Struct, array_like=True, frozen=True, tag=2):
    stage: bytes
    chunks: int
    at_us: int


class StagesDropped(msgspec.Struct, array_like=True, frozen=True, tag=3):
    stages: list[bytes]


Note = StageBegun | StageFinished | StagesDropped


class ChunkLocation(NamedTuple):
    """Where a chunk's frame stands."""

    file: int
    offset: int


class FoundEnd(NamedTuple):
    """The last thing in a file: how much of it is durable."""

    bytes: int


class FoundChunk(NamedTuple):
    stage: bytes
    number: int
    shard: int
    rows: int
    origin_crc: int
    bytes: int
    place: ChunkLocation


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Note] = msgspec.msgpack.Decoder(Note)


def file_path(number: int) -> str:
    return f"{FOLDER}/{number:08d}{SUFFIX}"


def encode_note(note: Note) -> bytes:
    return encode(FrameType.RECORD, _encoder.encode(note), shard=SHARD_RECORD)


def stored_chunk(
    stage: bytes, number: int, shard: int, rows: int, origin_crc: int, segment: bytes
) -> list[bytes]:
    """A chunk's frame in pieces, so that the segment is not copied."""
    header = HEADER.pack(FrameType.SEGMENT, shard, number, CHUNK_HEADER.size + len(segment))
    lead = header + CHUNK_HEADER.pack(stage, rows, origin_crc)
    return [lead, segment, TRAILER.pack(extend(value(lead), segment))]


def read_segment(disk: Disk, place: ChunkLocation, stage: bytes, number: int) -> bytes:
    """The segment of a chunk; ``BadFrame`` if what stands there is not that chunk."""
    file = disk.open(file_path(place.file))
    try:
        frame = read_frame(file, place.offset).frame
    finally:
        file.close()
    if frame.type != FrameType.SEGMENT or frame.segment != number or frame.body[:16] != stage:
        raise BadFrame(f"{file.path}, byte {place.offset}: another frame than the one that was staged")
    return frame.body[CHUNK_HEADER.size :]


def list_files(disk: Disk) -> list[int]:
    """The numbers of the files, oldest first; one whose making was cut short is removed."""
    found = []
    for name in disk.list(FOLDER):
        digits = name.removesuffix(SUFFIX)
        if digits.isdecimal() and name.endswith(SUFFIX):
            found.append(int(digits))
        elif name.endswith(NEW_SUFFIX):
            disk.remove(f"{FOLDER}/{name}")
    return sorted(found)


def read_file(
    disk: Disk, number: int, recovered: list[str], sealed: SealedFile | None
) -> Iterator[Note | FoundChunk | FoundEnd]:
    """What counts of a file, in order; made sure of before it is built on. ``recovered`` gets its damage."""
    path = file_path(number)
    file = open_salvaged(disk, path, writable=True)
    recovery = Recovery(file, sealed_bytes=0 if sealed is None else sealed.bytes)
    damaged: list[Bad] = []
    try:
        for item in recovery.items():
            if isinstance(item, Bad):
                damaged.append(item)
            elif item.frame.type == FrameType.SEGMENT and len(item.frame.body) > CHUNK_HEADER.size:
                frame = item.frame
                stage, rows, origin_crc = CHUNK_HEADER.unpack_from(frame.body)
                size = len(frame.body) - CHUNK_HEADER.size
                place = ChunkLocation(number, item.offset)
                yield FoundChunk(stage, frame.segment, frame.shard, rows, origin_crc, size, place)
            elif item.frame.type == FrameType.RECORD:
                try:
                    yield _decoder.decode(item.frame.body)
                except msgspec.MsgspecError:
                    damaged.append(Bad(item.offset, item.end))
        if recovery.unreadable:
            damaged.append(Bad(0, file.size()))
        else:
            if recovery.tail is not None and recovery.tail_damaged:
                damaged.append(recovery.tail)
            recovery.settle(0, cut=not recovery.tail_damaged)
            file.sync()
    finally:
        file.close()
    recovered += [
        f"{path}, bytes {bad.offset} to {bad.end}: bytes are damaged; {STAGES_LOST}" for bad in damaged
    ]
    yield FoundEnd(recovery.end)
