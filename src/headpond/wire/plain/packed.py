"""A packed record: a run of small stored segments as one record, from which each comes back byte for byte.

The node makes one of segments that lie one behind the other in a log file, are in the bare form (segment.py)
with the same columns, and have no nulls. It has the header of a record (wire/record.py) with the first entry
and the number of rows of the run; ``stored_at`` is that of the last segment, the block is 16 zero bytes, and
the ``origin_crc`` and the frame's segment number are 0. Instead of a segment follows, little endian::

    form u8 = 8 | columns u8 | 36393 u16 | segments u16 | blocks u16
    16 bytes            of each block
    i64[segments]       when each segment was stored, µs
    u32[segments]       its number
    u32[segments]       its origin_crc
    u32[segments]       the checksum of its frame, as the frame was stored
    u16[segments]       how many rows it has
    u16[segments]       the place of its block among the blocks
    the rows of all segments, as one bare segment

A producer cannot send this form. A packed record that contradicts itself is a ``BadSegment``. Of one that fails
its checksum, ``salvage`` returns the segments whose own frames pass theirs: a flipped bit in the rows costs the
one or two segments that it belongs to.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from google_crc32c import value as crc32c

from headpond.model.bounds import ENTRY_MAX
from headpond.model.errors import BadSegment
from headpond.model.identity import BLOCK_BYTES
from headpond.wire import frame
from headpond.wire.plain.columns import NAMES, SENT_AT_US_UNKNOWN, TYPES, extent_us
from headpond.wire.plain.few_rows import BARE_BYTES_MAX, FORM_BARE, HEADER, HEADER_BYTES
from headpond.wire.plain.many import decode_many, parents
from headpond.wire.plain.segment import COLUMNS, HEADERS, SENT_AT, bare_parts, decode_plain
from headpond.wire.record import FRAMED_RECORD, RECORD_HEADER_BYTES, RecordHeader

FORM_PACKED: Final = 8
PACK_BYTES_MAX: Final = 224 * 1024
"""The segments of a run: two packed records fit into one read for a consumer (512 KiB)."""
PACKED_BYTES_MAX: Final = 2 * PACK_BYTES_MAX
"""No packed record is longer: its list is, at the most, another 52 KiB."""
PACK_ROWS_MAX: Final = 2048
PACK_BLOCKS_MAX: Final = 200
"""The blocks of a run: the names of their producers go into one answer (broker/reading/fetch.py)."""
SEGMENTS_MIN: Final = 8
"""Fewer segments are not worth a packed record."""

_FIXED = struct.Struct("<BBHHH")
_MAGIC: Final = 36393
_MAGIC_BYTES: Final = _MAGIC.to_bytes(2, "little")
_FACTS: Final = ("q", "I", "I", "I", "H", "H")
_FACT_BYTES: Final = sum(map(struct.calcsize, _FACTS))
_TIME = struct.Struct("<q")
_ONE_ROW = struct.Struct("<ii")
_NO_BLOCK: Final = bytes(BLOCK_BYTES)


class PlacedSegment(NamedTuple):
    """A stored segment: the header of its record, its number in its block, its bytes, its frame's checksum."""

    header: RecordHeader
    number: int
    segment: bytes
    crc: int

    def framed(self, shard: int) -> bytes:
        """Its whole frame, as it was stored."""
        size = RECORD_HEADER_BYTES + len(self.segment)
        lead = FRAMED_RECORD.pack(frame.FrameType.SEGMENT, shard, self.number, size, *self.header)
        return b"".join((lead, self.segment, frame.TRAILER.pack(self.crc)))


class PackedFacts(NamedTuple):
    """What a packed record says of its segments, in order, and where its rows begin."""

    columns: int
    rows: int
    rows_at: int
    blocks: list[bytes]
    stored_at_us: memoryview[int]
    numbers: memoryview[int]
    origin_crcs: memoryview[int]
    frame_crcs: memoryview[int]
    counts: memoryview[int]
    places: memoryview[int]
    """The place of each segment's block in ``blocks``."""


def can_pack(segment: bytes) -> bool:
    """Whether a stored segment may be part of a run."""
    return HEADER_BYTES < len(segment) <= BARE_BYTES_MAX and segment[0] == FORM_BARE and segment[2:4] == b"\0\0"


def is_packed(segment: bytes | memoryview) -> bool:
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
        struct.pack(f"<{count}q", *(each.header.stored_at_us for each in run)),
        struct.pack(f"<{count}I", *(each.number for each in run)),
        struct.pack(f"<{count}I", *(each.header.origin_crc for each in run)),
        struct.pack(f"<{count}I", *(each.crc for each in run)),
        struct.pack(f"<{count}H", *(each.header.count for each in run)),
        struct.pack(f"<{count}H", *(blocks[each.header.block] for each in run)),
    )
    fixed = _FIXED.pack(FORM_PACKED, columns, _MAGIC, count, len(blocks))
    return b"".join((fixed, *blocks, *facts, *_bare(rows, columns)))


def _bare(rows: pa.RecordBatch, columns: int) -> list[bytes]:
    """The bare segment of the rows, in pieces, whatever its size."""
    indices = [*COLUMNS[columns], SENT_AT]
    parts = bare_parts(dict(zip(indices, rows.columns, strict=True)), rows.num_rows)
    if parts is None or parts.nulls or parts.columns != columns:
        raise BadSegment("rows that have no bare form")
    return [HEADER.pack(FORM_BARE, columns, 0, 0, rows.num_rows), *parts.parts]


def facts_of(segment: bytes | memoryview) -> PackedFacts:
    """Checked: a packed record that contradicts itself is a ``BadSegment``."""
    facts = _facts_of(segment)
    counts = _array(facts.counts, pa.uint16())
    known = pc.max(_array(facts.places, pa.uint16())).as_py() < len(facts.blocks)
    if not known or pc.sum(counts).as_py() != facts.rows or pc.min(counts).as_py() == 0:
        raise BadSegment(f"a packed record of {facts.rows:,} rows that contradicts itself")
    return facts


def _facts_of(segment: bytes | memoryview) -> PackedFacts:
    rows_at = _rows_at(segment)
    _, columns, _, count, blocks = _FIXED.unpack_from(segment)
    rows = HEADER.unpack_from(segment, rows_at)[4]
    if (
        HEADER.unpack_from(segment, rows_at)[:4] != (FORM_BARE, columns, 0, 0)
        or not count <= rows <= PACK_ROWS_MAX
    ):
        raise BadSegment(f"a packed record of {rows:,} rows with columns {columns:#x}")
    at = _FIXED.size + BLOCK_BYTES * blocks
    facts: list[memoryview[int]] = []
    for kind in _FACTS:
        end = at + struct.calcsize(kind) * count
        facts.append(memoryview(segment)[at:end].cast(kind))
        at = end
    return PackedFacts(columns, rows, rows_at, blocks_of(segment), *facts)


def blocks_of(segment: bytes | memoryview) -> list[bytes]:
    """The blocks of all its segments."""
    end = _FIXED.size + BLOCK_BYTES * _FIXED.unpack_from(segment)[4]
    return [bytes(segment[at : at + BLOCK_BYTES]) for at in range(_FIXED.size, end, BLOCK_BYTES)]


def _rows_at(segment: bytes | memoryview) -> int:
    """Where the rows begin."""
    if not _FIXED.size <= len(segment) <= PACKED_BYTES_MAX:
        raise BadSegment(f"a packed record of {len(segment):,} bytes")
    form, columns, magic, segments, blocks = _FIXED.unpack_from(segment)
    rows_at: int = _FIXED.size + BLOCK_BYTES * blocks + _FACT_BYTES * segments
    known = form == FORM_PACKED and magic == _MAGIC and columns < len(COLUMNS)
    if not known or not segments or rows_at + HEADER_BYTES > len(segment):
        raise BadSegment(f"a packed record of {len(segment):,} bytes that lists {segments:,} segments")
    return rows_at


def _array(numbers: memoryview[int], kind: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


# --- rows -----------------------------------------------------------------------------------------------


def decode_packed(segment: bytes | memoryview, *, fill: bool) -> pa.RecordBatch:
    """All rows, fully validated; with ``fill`` an unknown ``sent_at`` is the time of storage."""
    rows = decode_plain(memoryview(segment)[_rows_at(segment) :])
    sent_at = rows.column(rows.num_columns - 1)
    if not fill or extent_us(sent_at)[0] != SENT_AT_US_UNKNOWN:
        return rows
    sent_at = sent_at.view(pa.int64())
    filled = pc.if_else(pc.equal(sent_at, SENT_AT_US_UNKNOWN), stored_times(facts_of(segment)), sent_at)
    return rows.set_column(rows.num_columns - 1, rows.schema.field("sent_at"), filled.view(TYPES[SENT_AT]))


def stored_times(facts: PackedFacts) -> pa.Int64Array:
    """The time of storage of each row."""
    counts = _array(facts.counts, pa.uint16()).cast(pa.int64())
    return _array(facts.stored_at_us, pa.int64()).take(parents(counts))


def time_of_row(segment: bytes, row: int) -> int:
    """When one row was sent, or else stored."""
    facts = facts_of(segment)
    (at_us,) = _TIME.unpack_from(segment, facts.rows_at + HEADER_BYTES + _TIME.size * row)
    if at_us == SENT_AT_US_UNKNOWN:
        at_us = facts.stored_at_us[bisect_right(list(accumulate(facts.counts)), row)]
    return int(at_us)


def with_columns(segment: bytes, rows: pa.RecordBatch) -> bytes:
    """The same packed record with only these columns of its rows."""
    columns = sum(1 << NAMES.index(name) for name in rows.schema.names)
    facts = segment[2 : _rows_at(segment)]
    return b"".join((segment[:1], bytes((columns,)), facts, *_bare(rows, columns)))


# --- the original segments ----------------------------------------------------------------------------


def unpack(
    header: RecordHeader, segment: bytes, start: int = 0, end: int = ENTRY_MAX
) -> Iterator[PlacedSegment]:
    """The original segments that hold entries from ``start`` to ``end``."""
    facts = facts_of(segment)
    if facts.rows != header.count:
        raise BadSegment(f"a packed record of {header.count:,} rows that holds {facts.rows:,}")
    firsts = list(accumulate(facts.counts, initial=header.first_entry))
    low, high = max(bisect_right(firsts, start) - 1, 0), bisect_left(firsts, end, 0, len(facts.counts))
    rows = _BareRows(segment, facts)
    for head, number, crc in _heads(facts, firsts, slice(low, high)):
        at = head.first_entry - header.first_entry
        yield PlacedSegment(head, number, rows.cut(at, at + head.count), crc)


def _heads(facts: PackedFacts, firsts: list[int], some: slice) -> Iterator[tuple[RecordHeader, int, int]]:
    """Of some segments: the header of its record, its number, and its frame's checksum."""
    blocks = dict(enumerate(facts.blocks))
    heads = zip(
        firsts[some],
        facts.counts[some].tolist(),
        (blocks.get(place, _NO_BLOCK) for place in facts.places[some].tolist()),
        facts.stored_at_us[some].tolist(),
        facts.origin_crcs[some].tolist(),
        strict=False,  # the last number in ``firsts`` is the end
    )
    numbers, crcs = facts.numbers[some].tolist(), facts.frame_crcs[some].tolist()
    return zip(map(RecordHeader._make, heads), numbers, crcs, strict=True)


def salvage(first_entry: int, segment: bytes, shard: int) -> Iterator[PlacedSegment]:
    """Of a damaged packed record: the segments that are byte for byte as they were stored."""
    with suppress(BadSegment):  # nothing shows where its parts are
        facts = _facts_of(segment)
        rows = _BareRows(segment, facts)
        ends = list(accumulate(facts.counts, initial=0))
        more = facts.rows - ends[-1]  # not 0 if a number of rows is damaged: what is behind it has moved
        heads = _heads(facts, ends, slice(len(facts.counts)))
        for (head, number, crc), (start, end) in zip(heads, pairwise(ends), strict=True):
            places = dict.fromkeys(((start, end), (start + more, end + more), (start, end + more)))
            for low, high in (place for place in places if 0 <= place[0] < place[1] <= facts.rows):
                its_head = head._replace(first_entry=first_entry + low, count=high - low)
                with suppress(BadSegment, struct.error):
                    each = PlacedSegment(its_head, number, rows.cut(low, high), crc)
                    if crc32c(each.framed(shard)[: -frame.TRAILER.size]) == crc:
                        yield each
                        break


class _BareRows:
    """The rows of a packed record, from which bare segments are cut."""

    def __init__(self, segment: bytes, facts: PackedFacts) -> None:
        rows, self._columns = facts.rows, facts.columns
        self._data = segment
        self._times_at = facts.rows_at + HEADER_BYTES
        self._at = self._times_at + _TIME.size * rows
        self._offsets = [self._take_offsets(rows) for _ in COLUMNS[self._columns]]
        self._inside: list[list[int]] = []
        if self._columns >> HEADERS & 1:
            self._inside = [self._take_offsets(self._offsets[-1][rows]) for _ in ("names", "texts")]
        plain = self._offsets[: len(self._offsets) - bool(self._inside)]
        self._starts = []
        """Where the data of each column begins."""
        for offsets in (*plain, *self._inside):
            self._starts.append(self._at)
            self._at += offsets[-1]
        if self._at != len(segment):
            raise BadSegment("a packed record whose rows do not end where it ends")

    def _take_offsets(self, count: int) -> list[int]:
        end = self._at + 4 * (count + 1)
        if count < 0 or end > len(self._data):
            raise BadSegment("a packed record that is too short for its rows")
        offsets = memoryview(self._data)[self._at : end].cast("i").tolist()
        if offsets[0] or offsets[count] < 0:
            raise BadSegment("a packed record whose offsets do not run from 0")
        self._at = end
        return offsets

    def cut(self, start: int, end: int) -> bytes:
        """The bare segment of the rows from ``start`` to ``end``."""
        data, times_at = self._data, self._times_at
        parts = [
            HEADER.pack(FORM_BARE, self._columns, 0, 0, end - start),
            data[times_at + _TIME.size * start : times_at + _TIME.size * end],
        ]
        spans = [_rebase(offsets, start, end, parts) for offsets in self._offsets]
        if self._inside:
            first, last = spans.pop()
            spans += [_rebase(offsets, first, last, parts) for offsets in self._inside]
        for at, (first, last) in zip(self._starts, spans, strict=True):
            parts.append(data[at + first : at + last])
        return b"".join(parts)


def _rebase(offsets: list[int], start: int, end: int, parts: list[bytes]) -> tuple[int, int]:
    """Adds the offsets of some rows, which begin at 0; returns where their data is.

    They must not run backwards: then the data of all segments together is at most what the record holds.
    """
    first, last = offsets[start], offsets[end]
    if end - start == 1:
        if not first <= last <= offsets[-1]:
            raise BadSegment("a packed record whose offsets run backwards")
        parts.append(_ONE_ROW.pack(0, last - first))
        return first, last
    its_offsets = offsets[start : end + 1]
    if its_offsets != sorted(its_offsets) or last > offsets[-1]:
        raise BadSegment("a packed record whose offsets run backwards")
    parts.append(struct.pack(f"<{len(its_offsets)}i", *(offset - first for offset in its_offsets)))
    return first, last
