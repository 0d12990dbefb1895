"""The bytes of a stage file, and how a node reads one at its start. Version 1.

Many stages share the frame file ``stages/00000001.stages``, so that many small stages cost one sync::

    RECORD   shard 0: msgpack, the tag first: 1 a stage begins, 2 it is finished, 3 some were dropped
    SEGMENT  shard = the topic's, segment = the chunk's number in its stage:
             stage 16 bytes | rows u32 | origin_crc u32 | the segment as received
    STATUS   behind every write, as in a log

A stage may continue in later files. The node removes a file when no stage that counts has a frame in it; before
that it repeats the notes of the file about stages in other files. After a restart the node begins a new file.
Damage costs only the stages whose frames it hit: a stage is finished only if every chunk that its finish names
is there. If a chunk occurs twice (its first write failed and was not acknowledged), the last one counts.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import msgspec
from google_crc32c import extend, value

from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import BadFrame
from headpond.storage.append import NEW_SUFFIX
from headpond.storage.disk import Disk, open_salvaged
from headpond.storage.frame_file import Bad, read_frame
from headpond.storage.recovery import Recovery
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
    """The place of a chunk's frame."""

    file: int
    offset: int


class FoundEnd(NamedTuple):
    """The last item of a file: its durable length."""

    bytes: int


Segment: TypeAlias = bytes


@dataclass(slots=True)
class Chunk:
    shard: int
    rows: int
    origin_crc: int
    bytes: int
    place: ChunkLocation
    segment: Segment | None = None
    """The segment, while it is in memory too (``StageMemory``)."""


class FoundChunk(NamedTuple):
    stage: bytes
    number: int
    """In its stage."""
    chunk: Chunk


_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Note] = msgspec.msgpack.Decoder(Note)


def file_path(number: int) -> str:
    return f"{FOLDER}/{number:08d}{SUFFIX}"


def encode_note(note: Note) -> bytes:
    return encode(FrameType.RECORD, _encoder.encode(note), shard=SHARD_RECORD)


def stored_chunk(
    stage: bytes, number: int, shard: int, rows: int, origin_crc: int, segment: bytes
) -> list[bytes]:
    """The frame of a chunk in pieces, so that the segment is not copied."""
    header = HEADER.pack(FrameType.SEGMENT, shard, number, CHUNK_HEADER.size + len(segment))
    lead = header + CHUNK_HEADER.pack(stage, rows, origin_crc)
    return [lead, segment, TRAILER.pack(extend(value(lead), segment))]


def read_segment(disk: Disk, place: ChunkLocation, stage: bytes, number: int) -> bytes:
    """The segment of a chunk; ``BadFrame`` if another frame is at its place."""
    file = disk.open(file_path(place.file))
    try:
        frame = read_frame(file, place.offset).frame
    finally:
        file.close()
    if frame.type != FrameType.SEGMENT or frame.segment != number or frame.body[:16] != stage:
        raise BadFrame(f"{file.path}, byte {place.offset}: the frame is not the staged chunk")
    return frame.body[CHUNK_HEADER.size :]


def remove_files(numbers: list[int], disk: Disk) -> bool:
    """Removes unneeded files; returns whether they are durably gone. The next start removes the others."""
    try:
        for number in numbers:
            if disk.exists(file_path(number)):
                disk.remove(file_path(number))
        disk.sync_folder(FOLDER)
    except OSError:
        return False
    return True


def list_files(disk: Disk) -> list[int]:
    """The numbers of the files, oldest first; removes unfinished files."""
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
    """Makes a file durable and yields its contents in order; adds its damage to ``recovered``."""
    path = file_path(number)
    damaged: list[Bad] = []
    with open_salvaged(disk, path, writable=True) as file:
        recovery = Recovery(file, sealed_bytes=0 if sealed is None else sealed.bytes)
        for item in recovery.items():
            if isinstance(item, Bad):
                damaged.append(item)
            elif item.frame.type == FrameType.SEGMENT and len(item.frame.body) > CHUNK_HEADER.size:
                frame = item.frame
                stage, rows, origin_crc = CHUNK_HEADER.unpack_from(frame.body)
                size = len(frame.body) - CHUNK_HEADER.size
                chunk = Chunk(frame.shard, rows, origin_crc, size, ChunkLocation(number, item.offset))
                yield FoundChunk(stage, frame.segment, chunk)
            elif item.frame.type == FrameType.RECORD:
                try:
                    yield _decoder.decode(item.frame.body)
                except UNDECODABLE:
                    damaged.append(Bad(item.offset, item.end))
        if recovery.unreadable:
            damaged.append(Bad(0, file.size()))
        else:
            if recovery.tail is not None and recovery.tail_damaged:
                damaged.append(recovery.tail)
            recovery.settle(0, cut=not recovery.tail_damaged)
            file.sync()
    recovered += [
        f"{path}, bytes {bad.offset} to {bad.end}: bytes are damaged; {STAGES_LOST}" for bad in damaged
    ]
    yield FoundEnd(recovery.end)
