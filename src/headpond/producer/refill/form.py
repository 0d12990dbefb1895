"""The bytes of a refill file. Version 1: the transport document's frames, each with its checksum.

::

    TITLE         block, shard power (255: not known yet), topic, producer, schema … (wire/title)
    DESTINATIONS  names of the destinations | the TITLE's body once more, in case the first one rots
    SNAPSHOT      shard, segment k: what makes a decoder ready for segment k of a typed topic
    SEGMENT       shard, segment: as it was encoded, and as it is sent
    REJECT        runs of segments by destination: not delivered yet, or refused for good and why
    STATUS        segment = its place (mod 2**32): synced bytes, written and confirmed segments

TITLE and DESTINATIONS come first, once; the others follow in the order of events. The bodies of DESTINATIONS,
REJECT and STATUS are msgpack by position; fields are added at the end with a default, so an older reader reads
a newer file, and skips frames of types that it does not know.

**A STATUS holds for the segments before it.** ``confirmed`` has for each destination and shard the first
segment that is not confirmed: all below it were confirmed or refused for good. A segment after the last such
STATUS counts as unconfirmed: a late one is sent rather than lost. A STATUS without ``confirmed`` only marks
synced bytes; one with ``closed`` ends a file in good order.

**The note** ``NAME.refill.note`` is one STATUS frame, written in place after every sync and not synced itself:
the length of the file, all its segments, the confirmed ones. It is never ahead of the file. So a file that ends
earlier was cut short or is damaged at its end, and the note names the lost segments.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, TypeVar

import msgspec

from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import BadFrame
from headpond.model.identity import BLOCK_BYTES, SEGMENT_NUMBER_MAX, SHARD_POWER_MAX
from headpond.storage.disk import Disk
from headpond.storage.frame_file import read_frame
from headpond.wire.frame import FrameType, encode
from headpond.wire.title import Title, decode_title, encode_title

SUFFIX = ".refill"
NOTE_SUFFIX = ".note"
NOTE_RUNS_MAX = 4096
"""A note with more runs of segments would be long; then it only has their number."""
NOTE_BYTES_MAX = 1024 * 1024
PLACE_MASK = 0xFFFFFFFF
UNSHARDED = 0xFF
"""In place of the shard power: the segments, all of shard 0, are rows that have no shard yet."""
TYPES = frozenset(
    {
        FrameType.TITLE,
        FrameType.DESTINATIONS,
        FrameType.SNAPSHOT,
        FrameType.SEGMENT,
        FrameType.STATUS,
        FrameType.REJECT,
    }
)
MESSAGE_CHARACTERS_MAX = 500
REJECTIONS_A_FRAME = 4096
ROWS_MAX = 2**32 - 1
HEAD_BYTES = 8
"""The first bytes of a segment's body, which have its number of rows."""
_FORM_TYPED = b"\x03"
_VARINT_END = 6
_ROWS_AT = 4

Count = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]
Shard = Annotated[int, msgspec.Meta(ge=0, lt=2**SHARD_POWER_MAX)]
Number = Annotated[int, msgspec.Meta(ge=0, le=SEGMENT_NUMBER_MAX + 1)]
"""A segment's number, or one past it."""


class Destinations(msgspec.Struct, frozen=True, array_like=True):
    names: list[str]
    title: bytes = b""
    """The body of the TITLE before it."""


class Rejection(msgspec.Struct, frozen=True, array_like=True):
    """Segments ``first <= n < end`` of a shard that a destination did not take."""

    destination: str
    shard: Shard
    first: Number
    end: Number
    code: str = ""
    """Empty: not delivered yet, to be sent again. Else refused for good, never sent again."""
    message: str = ""


class Rejections(msgspec.Struct, frozen=True, array_like=True):
    entries: list[Rejection]


class Status(msgspec.Struct, frozen=True, array_like=True):
    kept_bytes: Count
    """The length of the file at its last sync (with durability ``os``: at its last write to the system)."""
    written: list[tuple[Shard, Number, Number]] = []
    """Runs (shard, first, end) of segments since the STATUS before: a reader names lost ones by them."""
    segments_total: Count = 0
    """The number of all segments before it."""
    confirmed: dict[str, dict[Shard, Number]] | None = None
    """By destination and shard: the first segment that is not confirmed. None: as it was."""
    closed: dict[Shard, Number] | None = None
    """The next segment of every shard: the block may be continued there, if nothing follows this frame."""


Body = TypeVar("Body", Destinations, Rejections, Status)
_encoder = msgspec.msgpack.Encoder()


def encode_head(
    block: bytes, shard_power: int | None, title: Title, destinations: Iterable[str]
) -> list[bytes]:
    """The two frames that every file begins with."""
    assert len(block) == BLOCK_BYTES
    body = encode_title(block, shard_power or 0, title)
    if shard_power is None:
        body = block + bytes((UNSHARDED,)) + body[BLOCK_BYTES + 1 :]
    names = _encoder.encode(Destinations(list(destinations), body))
    return [encode(FrameType.TITLE, body), encode(FrameType.DESTINATIONS, names)]


def decode_refill_title(body: bytes) -> tuple[bytes, int | None, Title]:
    """Block, shard power and the rest of a TITLE's body; None where the rows have no shard yet."""
    if body[BLOCK_BYTES : BLOCK_BYTES + 1] != bytes((UNSHARDED,)):
        return decode_title(body)
    block, _, title = decode_title(body[:BLOCK_BYTES] + b"\0" + body[BLOCK_BYTES + 1 :])
    return block, None, title


def encode_status(status: Status, place: int) -> bytes:
    """``place`` is its offset, by which a reader recognises a copy elsewhere."""
    return encode(FrameType.STATUS, _encoder.encode(status), segment=place & PLACE_MASK)


def read_note(disk: Disk, path: str) -> Status | None:
    """The note beside a refill file; None where there is none, or it cannot be read."""
    try:
        file = disk.open(path + NOTE_SUFFIX)
        try:
            frame = read_frame(file, 0, NOTE_BYTES_MAX).frame
        finally:
            file.close()
        return decode_body(frame.body, Status) if frame.type == FrameType.STATUS else None
    except (OSError, BadFrame):
        return None


def encode_rejections(rejections: list[Rejection]) -> Iterator[bytes]:
    for start in range(0, len(rejections), REJECTIONS_A_FRAME):
        part = Rejections(rejections[start : start + REJECTIONS_A_FRAME])
        yield encode(FrameType.REJECT, _encoder.encode(part))


def decode_body(body: bytes, kind: type[Body]) -> Body:
    """Reads one of the three msgpack bodies; ``BadFrame`` for anything else."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except UNDECODABLE as error:
        raise BadFrame(f"a body that cannot be read as {kind.__name__.lower()}: {error}") from error


def rows_of(segment: bytes) -> int:
    """The number of rows in a segment's body, by its first bytes."""
    if segment[:1] == _FORM_TYPED:
        rows = 0
        for place, byte in enumerate(segment[1:_VARINT_END]):
            rows |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                break
        return min(rows, ROWS_MAX)
    return int.from_bytes(segment[_ROWS_AT : _ROWS_AT + 4], "little")


def runs_of(ranges: Mapping[int, Iterable[tuple[int, int]]]) -> list[tuple[int, int, int]]:
    """Ranges by shard as (shard, first, end), sorted."""
    return [(shard, first, end) for shard in sorted(ranges) for first, end in ranges[shard]]
