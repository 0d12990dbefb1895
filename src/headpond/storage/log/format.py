"""The bytes of a log's files. Version 1.

A file ``<first entry, 20 digits>.log`` holds frames, all with the log's shard in their header::

    TITLE     block: 16 zero bytes
    MARKS     version u8 | first entry u64 | first entry of the file before u64 (all ones: none)
              | first kept entry u64 | stored_at of the last record before i64 µs | n u32 | m u32
              | n x (start u64, end u64) damaged entries | m x (name u64, first entry u64) incarnations
              | the marks of every live block (msgpack, marks.py)
    SEGMENT   a stored segment (wire/record.py)
    RECORD    kind u8 | next entry u64 | payload. Kind 1, the end of a block: block, at i64 µs.
              Kind 2, entries dropped: first kept entry u64.
              Kind 3, behind the MARKS of a compacted file: one past its last entry u64 | a bitmap of the
              entries that compaction took out
              Kind 4, an incarnation began: name u64 | its first entry u64
              Kind 8, the tally of a block: block, msgpack (book.py)
    STATUS    synced length u64 | next entry u64 (storage/append.py)

The entries of a file end where the next file begins: later ones in it were never durable and do not count. A
damaged TITLE costs nothing, a damaged MARKS a scan of the file before; damaged records are lost by exact range;
a damaged STATUS proves nothing, and the next one proves its frames.

A compacted file of a state topic is ``<first entry>.<generation, 8 digits>.log``. The rename that gives it its
name replaces every file of a lower generation with entries of its span. A record that lost all its rows remains
as a stub without rows (wire/record.py), so that entries have no gaps; other records have nulls in place of
removed rows.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, NamedTuple

from headpond.model.errors import BadFrame
from headpond.model.identity import BLOCK_BYTES
from headpond.storage.disk import DiskFile
from headpond.storage.frame_file import Bad, read_frame, scan
from headpond.storage.log.incarnations import ONE_BYTES, Incarnations
from headpond.wire.frame import HEADER_BYTES, FrameType, encode
from headpond.wire.title import Title, encode_title

SUFFIX = ".log"
INDEX_SUFFIX = ".index"
EXPIRY_SUFFIX = ".expires"
VERSION = 1
HEAD_BYTES = 4096
"""What is read of a file for its head, which is longer where it holds many marks."""
NO_BLOCK = bytes(BLOCK_BYTES)

_STEM = re.compile(r"([0-9]{20})(?:\.(?!0{8})([0-9]{8}))?")
_EXPIRY_NAME = re.compile(r"([0-9]{20})\.([0-9]{20})" + re.escape(EXPIRY_SUFFIX))
_NONE = 2**64 - 1
_MARKS = struct.Struct("<BQQQqII")
_SPAN = struct.Struct("<QQ")
_EVENT = struct.Struct("<BQ")


class FileId(NamedTuple):
    """The identity of a file in its log: its first entry, and how often it was compacted."""

    first: int
    generation: int = 0


def file_name(first: int, generation: int = 0) -> str:
    return f"{_stem(first, generation)}{SUFFIX}"


def index_name(first: int, generation: int = 0) -> str:
    return f"{_stem(first, generation)}{INDEX_SUFFIX}"


def _stem(first: int, generation: int) -> str:
    return f"{first:020d}.{generation:08d}" if generation else f"{first:020d}"


def expiry_name(first: int, expires_us: int) -> str:
    """The name of an empty file beside a closed one; it says when all messages of that file have expired."""
    return f"{first:020d}.{expires_us:020d}{EXPIRY_SUFFIX}"


def parse_expiry_name(name: str) -> tuple[int, int] | None:
    """The first entry and the time in such a name; None for other names."""
    match = _EXPIRY_NAME.fullmatch(name)
    return None if match is None else (int(match[1]), int(match[2]))


def parse_name(name: str) -> int | None:
    """The first entry in the name of a log file; None for other names."""
    known = parse_file(name)
    return None if known is None else known.first


def parse_file(name: str, suffix: str = SUFFIX) -> FileId | None:
    """The first entry and generation in the name of a log file; None for other names."""
    match = _STEM.fullmatch(name.removesuffix(suffix)) if name.endswith(suffix) else None
    return None if match is None else FileId(int(match[1]), int(match[2] or 0))


@dataclass(frozen=True, slots=True)
class LogPlace:
    """The folder of a log, what the heads of its files contain, and how closed files are written."""

    folder: str
    title: Title
    shard: int
    shard_power: int
    index_every_bytes: int
    pack_segments_min: int

    def path(self, first: int, generation: int = 0) -> str:
        return f"{self.folder}/{file_name(first, generation)}"

    def index_path(self, first: int, generation: int = 0) -> str:
        return f"{self.folder}/{index_name(first, generation)}"


class FileHead(NamedTuple):
    """The beginning of MARKS."""

    first: int
    previous: int | None
    kept: int
    stored_at_us: int


class MarksBody(NamedTuple):
    head: FileHead
    damaged: list[tuple[int, int]]
    incarnations: Incarnations
    marks: bytes
    """Encoded (marks.py)."""


def encode_head(body: MarksBody, place: LogPlace) -> bytes:
    """The TITLE and MARKS frames that a file begins with."""
    head, damaged, incarnations, marks = body
    spans = [_SPAN.pack(start, end) for start, end in damaged]
    previous = _NONE if head.previous is None else head.previous
    fixed = _MARKS.pack(
        VERSION, head.first, previous, head.kept, head.stored_at_us, len(spans), len(incarnations)
    )
    encoded = b"".join((fixed, *spans, incarnations.encode(), marks))
    title = encode_title(NO_BLOCK, place.shard_power, place.title)
    return encode(FrameType.TITLE, title, shard=place.shard) + encode(
        FrameType.MARKS, encoded, shard=place.shard
    )


def decode_marks_body(body: bytes) -> MarksBody:
    head, damaged, began = _decode_fixed(body)
    spans_end = _MARKS.size + damaged * _SPAN.size
    end = spans_end + began * ONE_BYTES
    if len(body) < end:
        raise BadFrame(f"a MARKS frame of {len(body)} bytes is too short")
    spans = list(_SPAN.iter_unpack(body[_MARKS.size : spans_end]))
    return MarksBody(head, spans, Incarnations.decode(body[spans_end:end]), body[end:])


def _decode_fixed(body: bytes) -> tuple[FileHead, int, int]:
    """The head, and how many damaged spans and incarnations follow it."""
    if len(body) < _MARKS.size:
        raise BadFrame(f"a MARKS frame of {len(body)} bytes is too short")
    version, first, previous, kept, stored_at_us, damaged, began = _MARKS.unpack_from(body)
    if version != VERSION:
        raise BadFrame(f"a log file of version {version}; this program reads version {VERSION}")
    return FileHead(first, None if previous == _NONE else previous, kept, stored_at_us), damaged, began


def peek_head(file: DiskFile, first: int) -> FileHead | None:
    """The head of a closed file, from its first bytes alone; None if they are damaged.

    It does not read long marks to their end, and so does not check their checksum. To notice a missing file it
    is enough that the entry agrees with the name of the file.
    """
    try:
        title = read_frame(file, 0)
        data = file.read_at(title.end, HEADER_BYTES + _MARKS.size)
        head, _, _ = _decode_fixed(data[HEADER_BYTES:])
    except BadFrame:
        return None
    return head if head.first == first and data[0] == FrameType.MARKS else None


def load_marks(file: DiskFile, first: int, shard: int) -> MarksBody | None:
    """The MARKS frame of a file, checked; None if it is damaged."""
    for item in scan(file, shard=shard, chunk_bytes=HEAD_BYTES):
        if isinstance(item, Bad):
            continue
        if item.frame.type == FrameType.MARKS:
            try:
                found = decode_marks_body(item.frame.body)
            except BadFrame:
                return None
            return found if found.head.first == first else None
        if item.frame.type != FrameType.TITLE:
            return None
    return None


class BlockEnded(NamedTuple):
    entry: int
    block: bytes
    at_us: int


class Dropped(NamedTuple):
    entry: int
    kept: int


class Compacted(NamedTuple):
    entry: int
    end: int
    """One past the last entry of the file."""
    bitmap: bytes
    """The removed entries, as an ``EntrySet`` encodes them."""


class BlockTallied(NamedTuple):
    entry: int
    block: bytes
    tally: bytes


class Began(NamedTuple):
    entry: int
    name: int
    """Of the incarnation."""
    first: int
    """Its first entry; lower than ``entry`` if entries were lost."""


Event = BlockEnded | Dropped | Compacted | Began | BlockTallied
_KINDS: dict[type[Event], tuple[int, struct.Struct]] = {
    BlockEnded: (1, struct.Struct("<16sq")),
    Dropped: (2, struct.Struct("<Q")),
    Compacted: (3, struct.Struct("<Q")),
    Began: (4, struct.Struct("<QQ")),
    BlockTallied: (8, struct.Struct("<16s")),
}
"""The number of each kind, and its fields behind the entry; the last field of kinds 3 and 8 has any length."""
_BY_NUMBER = {number: (kind, fields) for kind, (number, fields) in _KINDS.items()}


def encode_event(event: Event, shard: int) -> bytes:
    """The RECORD frame of an event."""
    number, fields = _KINDS[type(event)]
    body = _EVENT.pack(number, event.entry)
    if isinstance(event, Compacted | BlockTallied):
        body += fields.pack(event[1]) + event[2]
    else:
        body += fields.pack(*event[1:])
    return encode(FrameType.RECORD, body, shard=shard)


def decode_event(body: bytes) -> Event | None:
    """None for a kind that this version does not know."""
    if len(body) < _EVENT.size:
        return None
    number, entry = _EVENT.unpack_from(body)
    kind: Any
    kind, fields = _BY_NUMBER.get(number, (None, _EVENT))
    end = _EVENT.size + fields.size
    if kind is None or len(body) < end:
        return None
    values = fields.unpack_from(body, _EVENT.size)
    event: Event | None = None
    if kind in (Compacted, BlockTallied):
        event = kind(entry, *values, body[end:])
    elif len(body) == end:
        event = kind(entry, *values)
    return event


def load_compacted(file: DiskFile, first: int, shard: int) -> Compacted | None:
    """The event that names the removed entries of a compacted file; None if it is damaged."""
    for item in scan(file, shard=shard, chunk_bytes=HEAD_BYTES):
        if isinstance(item, Bad) or item.frame.type in (FrameType.TITLE, FrameType.MARKS):
            continue
        event = decode_event(item.frame.body) if item.frame.type == FrameType.RECORD else None
        return event if isinstance(event, Compacted) and event.entry == first else None
    return None
