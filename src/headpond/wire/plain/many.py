"""Many small stored segments decoded at once, as one batch.

A message that is sent by itself is a segment of one row, and Arrow takes longer to make the arrays of one row
than everything else takes. So segments in the bare form (segment.py) are put one behind the other, and each
step below is one call of Arrow for all of them:

1. Segments with the same columns are decoded together; at the end, all rows are put into order again.
2. ``_cut`` takes a piece out of every segment: its times, the offsets of a column, the data of a column. The
   pieces of all segments, joined, are the buffers of the result.
3. Offsets count from the beginning of a segment's data. Their differences are the lengths of the rows; the sums
   of these are the offsets in the joined data.

A segment that has nulls, or another form, is decoded by itself, and so are the few of a rare kind. All rules
are those of ``decode_plain``; a fault in any segment is a ``BadSegment``, which does not say in which one.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from headpond.model.errors import BadSegment
from headpond.wire.frame import SEGMENT_BYTES_MAX
from headpond.wire.plain.columns import SCHEMAS, SENT_AT_US_UNKNOWN, TYPES
from headpond.wire.plain.few_rows import FORM_BARE, HEADER_BYTES
from headpond.wire.plain.segment import COLUMNS, FAULTS, HEADERS, SENT_AT, check_rows, decode_plain, headers_of
from headpond.wire.record import RECORD_HEADER_BYTES

TOGETHER_BYTES_MAX: Final = 1 << 30
"""All segments of a call together: positions in the joined data must fit 32 bits."""

TOGETHER_MIN: Final = 32
"""Fewer segments of a kind are faster to decode one by one."""

_I32, _I64, _U32 = pa.int32(), pa.int64(), pa.uint32()
_FORM_BITS: Final = 0xFF
_NULLS_AND_ZERO_SHIFT: Final = 16
_ZERO: Final = pa.array([0], _I64)
_NOTHING: Final = pa.py_buffer(b"")
_OFFSET: Final = struct.Struct("<i")
_END: Final = SEGMENT_BYTES_MAX
"""Arrow multiplies the end of a slice by the number of slices, and its default overflows."""


class ManyRecords(NamedTuple):
    """The rows of stored segments with their times as readers see them, and the fields of each one's header."""

    rows: pa.RecordBatch
    first_entries: list[int]
    counts: list[int]
    blocks: list[bytes]
    stored_at_us: list[int]

    @property
    def end_entry(self) -> int:
        return self.first_entries[-1] + self.counts[-1]


def decode_records(bodies: Sequence[bytes]) -> ManyRecords:
    """The bodies of stored segments (wire/record.py), in the order of their entries."""
    records = pa.array(bodies, pa.binary())
    if min(map(len, bodies)) < RECORD_HEADER_BYTES + HEADER_BYTES:
        raise BadSegment("a stored segment is too short")
    first_entries = _numbers(pc.binary_slice(records, 0, 8), _I64)
    counts = _numbers(pc.binary_slice(records, 8, 12), _U32).cast(_I64)
    blocks = pc.binary_slice(records, 12, 28)
    stored_at = _numbers(pc.binary_slice(records, 28, 36), _I64)
    batch, rows = decode_many(pc.binary_slice(records, RECORD_HEADER_BYTES, _END))
    if not rows.equals(counts):
        raise BadSegment("a record that holds another number of rows than it claims")
    if pc.any(pc.less(first_entries[1:], pc.add(first_entries, counts)[:-1])).as_py():
        raise BadSegment("records whose entries are not in order")
    sent_at = batch.column("sent_at").view(_I64)
    unknown = pc.equal(sent_at, SENT_AT_US_UNKNOWN)
    if pc.any(unknown).as_py():
        filled = pc.if_else(unknown, stored_at.take(parents(counts)), sent_at).view(TYPES[SENT_AT])
        batch = batch.set_column(batch.num_columns - 1, batch.schema.field("sent_at"), filled)
    fields = (first_entries, counts, blocks, stored_at)
    return ManyRecords(batch, *(field.to_pylist() for field in fields))


def decode_many(segments: pa.BinaryArray) -> tuple[pa.RecordBatch, pa.Int64Array]:
    """The rows of all segments, in order, and the number of rows of each.

    The batch has the columns that any of the segments has; a row without one of them has a null there.
    """
    lengths = pc.binary_length(segments)
    extent = pc.min_max(lengths).as_py()
    if not HEADER_BYTES <= extent["min"] <= extent["max"] <= SEGMENT_BYTES_MAX:
        raise BadSegment(f"segments of {extent['min']:,} to {extent['max']:,} bytes")
    if pc.sum(lengths).as_py() > TOGETHER_BYTES_MAX:
        raise BadSegment(f"segments of more than {TOGETHER_BYTES_MAX:,} bytes together")
    kinds = _numbers(pc.binary_slice(segments, 0, 4), _U32)
    rows = _numbers(pc.binary_slice(segments, 4, 8), _U32).cast(_I64)
    try:
        found = pc.unique(kinds).to_pylist()
        if len(found) == 1:
            return _decode_kind(segments, found[0], rows), rows
        parts: list[pa.RecordBatch] = []
        numbers: list[pa.Array] = []
        for kind in found:
            places = pc.indices_nonzero(pc.equal(kinds, kind))
            its_rows = rows.take(places)
            parts.append(_decode_kind(segments.take(places), kind, its_rows))
            numbers.append(places.take(parents(its_rows)))
        whole = pa.Table.from_batches(_same_columns(parts)).combine_chunks().to_batches()[0]
        return whole.take(pc.array_sort_indices(pa.concat_arrays(numbers))), rows
    except FAULTS as error:
        raise BadSegment(f"segments that cannot be read: {error}") from error


def parents(counts: pa.Int64Array) -> pa.Int64Array:
    """The number of its segment for each row, where ``counts`` are the rows of each segment."""
    offsets = pa.concat_arrays([_ZERO, pc.cumulative_sum(counts)]).cast(_I32)
    return pc.list_parent_indices(pa.ListArray.from_arrays(offsets, pa.nulls(offsets[-1].as_py())))


def _same_columns(parts: list[pa.RecordBatch]) -> list[pa.RecordBatch]:
    """The parts, each with all columns that any of them has."""
    names = {name for part in parts for name in part.schema.names}
    schema = next(schema for schema in SCHEMAS if set(schema.names) == names)
    return [
        pa.RecordBatch.from_arrays(
            [
                part.column(field.name) if field.name in part.schema.names else pa.nulls(len(part), field.type)
                for field in schema
            ],
            schema=schema,
        )
        for part in parts
    ]


def _decode_kind(segments: pa.BinaryArray, kind: int, rows: pa.Int64Array) -> pa.RecordBatch:
    """Segments that begin with the same four bytes."""
    mask = kind >> 8 & 0xFF
    bare = kind & _FORM_BITS == FORM_BARE and not kind >> _NULLS_AND_ZERO_SHIFT
    if not bare or mask >= len(SCHEMAS) or not mask >> SENT_AT & 1 or len(segments) < TOGETHER_MIN:
        parts = [decode_plain(each) for each in segments.to_pylist()]
        return pa.Table.from_batches(_same_columns(parts)).combine_chunks().to_batches()[0]
    if pc.min(rows).as_py() == 0:
        raise BadSegment("a segment without rows")
    return _BareSegments(segments, rows).decode(mask)


class _BareSegments:
    """Bare segments with the same columns, without nulls. ``_at`` is how far each of them was read."""

    def __init__(self, segments: pa.BinaryArray, rows: pa.Int64Array) -> None:
        _, edges, self._data = segments.buffers()
        bounds = pa.Array.from_buffers(_I32, len(segments) + 1, [None, edges], offset=segments.offset)
        bounds = bounds.cast(_I64)
        self._at = pc.add(bounds[:-1], HEADER_BYTES)
        self._ends = bounds[1:]
        self._rows = rows

    def decode(self, mask: int) -> pa.RecordBatch:
        total = pc.sum(self._rows).as_py()
        sent_at = _numbers(self._take(pc.multiply(self._rows, 8)), _I64).view(TYPES[SENT_AT])
        offsets = [self._take_offsets(self._rows) for _ in COLUMNS[mask]]
        inside = []
        if mask >> HEADERS & 1:
            inside = [self._take_offsets(offsets[-1].totals) for _ in ("names", "texts")]
        arrays: list[Any] = []
        for index, its_offsets in zip(COLUMNS[mask], offsets, strict=True):
            if index != HEADERS:
                arrays.append(self._take_column(TYPES[index], its_offsets))
                continue
            names, texts = (self._take_column(pa.string(), each) for each in inside)
            arrays.append(headers_of(total, [None, its_offsets.buffer], names, texts))
        if not self._at.equals(self._ends):
            raise BadSegment("a segment with bytes behind its end")
        batch = pa.RecordBatch.from_arrays([*arrays, sent_at], schema=SCHEMAS[mask])
        check_rows(batch)
        return batch

    def _take(self, sizes: pa.Int64Array) -> pa.BinaryArray:
        """The next piece of each segment; one that reaches beyond its segment is a ``BadSegment``."""
        at = self._at
        self._at = pc.add(at, sizes)
        if not pc.all(pc.less_equal(self._at, self._ends)).as_py():
            raise BadSegment("a segment that refers to bytes behind its end")
        # As pairs of 32-bit numbers, start and end are the offsets of a piece, a gap, a piece, a gap …
        edges = pc.bit_wise_or(at, pc.shift_left(self._at, 32))
        count = 2 * len(at) - 1
        pieces = pa.Array.from_buffers(pa.binary(), count, [None, edges.buffers()[1], self._data], 0)
        return pieces.take(pa.arange(0, count, 2))

    def _take_offsets(self, counts: pa.Int64Array) -> _Offsets:
        return _Offsets(self._take(pc.multiply(pc.add(counts, 1), 4)))

    def _take_column(self, kind: pa.DataType, offsets: _Offsets) -> pa.Array:
        data = self._take(offsets.totals).buffers()[2] or _NOTHING
        return pa.Array.from_buffers(kind, offsets.count, [None, offsets.buffer, data], 0)


class _Offsets:
    """The offsets of one column. ``buffer`` has those of its ``count`` rows in the joined data of all segments;
    ``totals`` is how much of that is each segment's."""

    def __init__(self, pieces: pa.BinaryArray) -> None:
        if pc.any(_numbers(pc.binary_slice(pieces, 0, 4), _I32).cast(pa.bool_())).as_py():
            raise BadSegment("a segment whose offsets do not run from 0")
        lengths = pc.subtract(
            _numbers(pc.binary_slice(pieces, 4, _END), _I32).cast(_I64),
            _numbers(pc.binary_slice(pieces, 0, -4), _I32).cast(_I64),
        )
        self.count = len(lengths)
        if self.count and pc.min(lengths).as_py() < 0:  # a piece of less than nothing would reach anywhere
            raise BadSegment("a segment whose offsets run backwards")
        self.totals = _numbers(pc.binary_slice(pieces, -4, _END), _I32).cast(_I64)
        self.buffer = pa.concat_arrays([_ZERO, pc.cumulative_sum(lengths)]).cast(_I32).buffers()[1]


def _numbers(pieces: pa.BinaryArray, kind: pa.DataType) -> pa.Array:
    """The joined bytes of all pieces, as numbers."""
    _, offsets, data = pieces.buffers()
    (size,) = _OFFSET.unpack_from(offsets, 4 * len(pieces))
    return pa.Array.from_buffers(kind, size // (kind.bit_width // 8), [None, data or _NOTHING], 0)
