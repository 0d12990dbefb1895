"""A packed record: a run of small stored segments as one record, from which each comes back byte for byte.

The node makes one of segments that lie one behind the other in a log file, are in the bare form (segment.py)
with the same columns, and have no nulls. It has the header of a record (wire/record.py) with the first entry
and the number of rows of the run; ``stored_at`` is that of the last segment, the block is 16 zero bytes, and
the ``origin_crc`` and the frame's segment number are 0. Instead of a segment follows, little endian::

    form u8 = 8 | columns u8 | 36393 u16 | rows u32 | segments u16 | blocks u16
    16 bytes            of each block
    u16[segments]       how many rows each segment has
    u16[segments]       the place of its block among the blocks
    u32[segments]       its number
    u32[segments]       its origin_crc
    i64[segments]       its stored_at µs
    the rows of all segments, as one bare segment without its first 8 bytes

A producer cannot send this form. A packed record that contradicts itself is a ``BadSegment``.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headpond.model.errors import BadSegment
from headpond.model.identity import BLOCK_BYTES
from headpond.wire.plain.columns import NAMES, SENT_AT_US_UNKNOWN, TYPES, extent_us
from headpond.wire.plain.few_rows import BARE_BYTES_MAX, FORM_BARE, HEADER, HEADER_BYTES
from headpond.wire.plain.many import decode_many, parents
from headpond.wire.plain.segment import COLUMNS, HEADERS, SENT_AT, bare_parts, decode_plain
from headpond.wire.record import RecordHeader

FORM_PACKED: Final = 8
PACK_BYTES_MAX: Final = 64 * 1024
"""The segments of a run; one flipped bit loses a run."""
PACK_ROWS_MAX: Final = 512
SEGMENTS_MIN: Final = 8
"""Fewer segments are not worth a packed record."""

_FIXED = struct.Struct("<BBHIHH")
_MAGIC: Final = 36393
_MAGIC_BYTES: Final = _MAGIC.to_bytes(2, "little")
_FACT_BYTES: Final = 2 + 2 + 4 + 4 + 8
_TIME = struct.Struct("<q")
_ONE_ROW = struct.Struct("<ii")
_NO_BLOCK: Final = bytes(BLOCK_BYTES)


class PlacedSegment(NamedTuple):
    """A stored segment: the header of its record, its number in its block, and its bytes."""

    header: RecordHeader
    number: int
    segment: bytes


class PackedFacts(NamedTuple):
    """What a packed record says of its segments, in order, and where its rows begin."""

    columns: int
    rows: int
    counts: memoryview[int]
    blocks: list[bytes]
    places: memoryview[int]
    """The place of each segment's block in ``blocks``."""
    numbers: memoryview[int]
    origin_crcs: memoryview[int]
    stored_at_us: memoryview[int]
    rows_at: int

    def block(self, place: int) -> bytes:
        """The block of a segment."""
        return self.blocks[self.places[place]]


def can_pack(segment: bytes) -> bool:
    """Whether a stored segment may be part of a run."""
    return HEADER_BYTES < len(segment) <= BARE_BYTES_MAX and segment[0] == FORM_BARE and segment[2:4] == b"\0\0"


def is_packed(segment: bytes) -> bool:
    return segment[:1] == bytes((FORM_PACKED,)) and segment[2:4] == _MAGIC_BYTES


def pack(run: Sequence[PlacedSegment]) -> tuple[RecordHeader, bytes] | None:
    """The packed record of a run of entries; None if it would not give back the very same segments."""
    headers = [each.header for each in run]
    try:
        rows = decode_many(pa.array([each.segment for each in run], pa.binary()))[0]
        segment = _encode(run, rows)
        first, last = headers[0], headers[-1]
        header = RecordHeader(first.first_entry, rows.num_rows, _NO_BLOCK, last.stored_at_us, 0)
        same = list(unpack(header, segment)) == list(run)
    except (BadSegment, struct.error):
        return None
    return (header, segment) if same else None


def _encode(run: Sequence[PlacedSegment], rows: pa.RecordBatch) -> bytes:
    blocks = {each.header.block: 0 for each in run}
    blocks = dict(zip(blocks, range(len(blocks)), strict=True))
    columns, count = run[0].segment[1], len(run)
    facts = (
        struct.pack(f"<{count}H", *(each.header.count for each in run)),
        struct.pack(f"<{count}H", *(blocks[each.header.block] for each in run)),
        struct.pack(f"<{count}I", *(each.number for each in run)),
        struct.pack(f"<{count}I", *(each.header.origin_crc for each in run)),
        struct.pack(f"<{count}q", *(each.header.stored_at_us for each in run)),
    )
    fixed = _FIXED.pack(FORM_PACKED, columns, _MAGIC, rows.num_rows, count, len(blocks))
    return b"".join((fixed, *blocks, *facts, *_parts_of(rows, columns)))


def _parts_of(rows: pa.RecordBatch, columns: int) -> list[bytes]:
    indices = [*COLUMNS[columns], SENT_AT]
    parts = bare_parts(dict(zip(indices, rows.columns, strict=True)), rows.num_rows)
    if parts is None or parts.nulls or parts.columns != columns:
        raise BadSegment("rows that have no bare form")
    return parts.parts


class _Layout(NamedTuple):
    """The beginning of a packed record, and where its parts are."""

    columns: int
    rows: int
    segments: int
    blocks: int
    facts_at: int
    rows_at: int


def _layout_of(segment: bytes) -> _Layout:
    if len(segment) < _FIXED.size:
        raise BadSegment(f"a packed record of {len(segment)} bytes is too short")
    form, columns, magic, rows, segments, blocks = _FIXED.unpack_from(segment)
    facts_at = _FIXED.size + BLOCK_BYTES * blocks
    rows_at = facts_at + _FACT_BYTES * segments
    known = form == FORM_PACKED and magic == _MAGIC and columns < len(COLUMNS)
    if not known or not 0 < segments <= rows <= PACK_ROWS_MAX or rows_at > len(segment):
        raise BadSegment(f"a packed record of {len(segment):,} bytes that lists {segments:,} segments")
    return _Layout(columns, rows, segments, blocks, facts_at, rows_at)


def facts_of(segment: bytes) -> PackedFacts:
    columns, rows, count, block_count, at, rows_at = _layout_of(segment)
    facts = memoryview(segment)[at:rows_at]
    blocks = [segment[start : start + BLOCK_BYTES] for start in range(_FIXED.size, at, BLOCK_BYTES)]
    counts, places = facts[: 2 * count].cast("H"), facts[2 * count : 4 * count].cast("H")
    numbers, crcs = facts[4 * count : 8 * count].cast("I"), facts[8 * count : 12 * count].cast("I")
    if sum(counts) != rows or not all(counts) or max(places) >= block_count:
        raise BadSegment(f"a packed record of {rows:,} rows that contradicts itself")
    return PackedFacts(
        columns, rows, counts, blocks, places, numbers, crcs, facts[12 * count :].cast("q"), rows_at
    )


# --- rows -----------------------------------------------------------------------------------------------


def decode_packed(segment: bytes, *, fill: bool) -> pa.RecordBatch:
    """All rows, fully validated; with ``fill`` an unknown ``sent_at`` is the time of storage."""
    layout = _layout_of(segment)
    rows = decode_plain(HEADER.pack(FORM_BARE, layout.columns, 0, 0, layout.rows) + segment[layout.rows_at :])
    sent_at = rows.column(rows.num_columns - 1)
    if not fill or extent_us(sent_at)[0] != SENT_AT_US_UNKNOWN:
        return rows
    sent_at = sent_at.view(pa.int64())
    filled = pc.if_else(pc.equal(sent_at, SENT_AT_US_UNKNOWN), stored_times(facts_of(segment)), sent_at)
    return rows.set_column(rows.num_columns - 1, rows.schema.field("sent_at"), filled.view(TYPES[SENT_AT]))


def stored_times(facts: PackedFacts) -> pa.Int64Array:
    """The time of storage of each row."""
    return pa.array(facts.stored_at_us, pa.int64()).take(parents(pa.array(facts.counts, pa.int64())))


def time_of_row(segment: bytes, row: int) -> int:
    """When one row was sent, or else stored."""
    facts = facts_of(segment)
    (at_us,) = _TIME.unpack_from(segment, facts.rows_at + _TIME.size * row)
    if at_us == SENT_AT_US_UNKNOWN:
        at_us = facts.stored_at_us[bisect_right(list(accumulate(facts.counts)), row)]
    return int(at_us)


def with_columns(segment: bytes, rows: pa.RecordBatch) -> bytes:
    """The same packed record with only these columns of its rows."""
    facts = facts_of(segment)
    columns = sum(1 << NAMES.index(name) for name in rows.schema.names)
    return b"".join((segment[:1], bytes((columns,)), segment[2 : facts.rows_at], *_parts_of(rows, columns)))


# --- the original segments ----------------------------------------------------------------------------


def unpack(header: RecordHeader, segment: bytes, entry: int = 0) -> Iterator[PlacedSegment]:
    """The original segments, from the one that holds ``entry`` on."""
    facts = facts_of(segment)
    if facts.rows != header.count:
        raise BadSegment(f"a packed record of {header.count:,} rows that holds {facts.rows:,}")
    rows = _BareRows(segment, facts)
    at = 0
    for place, count in enumerate(facts.counts):
        first = header.first_entry + at
        if first + count > entry:
            fields = (facts.block(place), facts.stored_at_us[place], facts.origin_crcs[place])
            its_header = RecordHeader(first, count, *fields)
            yield PlacedSegment(its_header, facts.numbers[place], rows.cut(at, at + count))
        at += count


class _BareRows:
    """The rows of a packed record, from which bare segments are cut."""

    def __init__(self, segment: bytes, facts: PackedFacts) -> None:
        rows, self._columns = facts.rows, facts.columns
        self._data = memoryview(segment)[facts.rows_at :]
        self._at = 8 * rows
        self._offsets = [self._take_offsets(rows) for _ in COLUMNS[self._columns]]
        self._inside: list[memoryview] = []
        if self._columns >> HEADERS & 1:
            self._inside = [self._take_offsets(self._offsets[-1][rows]) for _ in ("names", "texts")]
        plain = self._offsets[: len(self._offsets) - bool(self._inside)]
        self._starts = []
        """Where the data of each column begins."""
        for offsets in (*plain, *self._inside):
            self._starts.append(self._at)
            self._at += offsets[-1]
        if self._at != len(self._data):
            raise BadSegment("a packed record whose rows do not end where it ends")

    def _take_offsets(self, count: int) -> memoryview:
        end = self._at + 4 * (count + 1)
        if count < 0 or end > len(self._data):
            raise BadSegment("a packed record that is too short for its rows")
        offsets = self._data[self._at : end].cast("i")
        if offsets[0] or offsets[count] < 0:
            raise BadSegment("a packed record whose offsets do not run from 0")
        self._at = end
        return offsets

    def cut(self, start: int, end: int) -> bytes:
        """The bare segment of the rows from ``start`` to ``end``."""
        parts: list[bytes | memoryview | array[int]] = [
            HEADER.pack(FORM_BARE, self._columns, 0, 0, end - start),
            self._data[8 * start : 8 * end],
        ]
        spans = [_rebase(offsets, start, end, parts) for offsets in self._offsets]
        if self._inside:
            first, last = spans.pop()
            spans += [_rebase(offsets, first, last, parts) for offsets in self._inside]
        for at, (first, last) in zip(self._starts, spans, strict=True):
            parts.append(self._data[at + first : at + last])
        return b"".join(parts)


def _rebase(
    offsets: memoryview, start: int, end: int, parts: list[bytes | memoryview | array[int]]
) -> tuple[int, int]:
    """Adds the offsets of some rows, which begin at 0; returns where their data is.

    They must not run backwards: then the data of all segments together is at most what the record holds.
    """
    first, last = offsets[start], offsets[end]
    if end - start == 1:
        if not first <= last <= offsets[-1]:
            raise BadSegment("a packed record whose offsets run backwards")
        parts.append(_ONE_ROW.pack(0, last - first))
        return first, last
    its_offsets = offsets[start : end + 1].tolist()
    if its_offsets != sorted(its_offsets) or last > offsets[-1]:
        raise BadSegment("a packed record whose offsets run backwards")
    parts.append(array("i", [offset - first for offset in its_offsets]))
    return first, last
