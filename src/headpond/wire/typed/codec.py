"""A typed topic's segments: rows of a schema, their strings coded by dictionaries that grow with the encoder.

The **encoder's state** is one growing dictionary per leaf (see leaves): the texts of a column; for labels
their names, their texts and their whole sets, so that the labels of a row are one index. A ``TypedSegment``
carries the additions to the dictionaries and the rows as indices into them; ``Redundant`` holds the lengths
of the dictionaries before it. Dictionaries only grow, so the ``Snapshot`` at segment k is the dictionaries
cut to their length before k, and a decoder that loads it can decode k, k + 1, …. form.py documents the
bytes.

**Bounds.** A leaf has at most 65,535 values and 1 MiB, all leaves of an encoder 6 MiB, so that a snapshot
fits into a frame. A leaf that would exceed them **goes plain for good**: from that segment on its texts
travel as they are; sets that go plain travel as indices of names and texts, as long as those have not. (The
encoder keeps its dictionaries, for snapshots at earlier segments.) A new block begins with empty
dictionaries. The decoder enforces the same bounds.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from headpond.model.errors import BadSegment, SchemaMismatch, SegmentTooLarge, SnapshotNeeded
from headpond.model.identity import SegmentKey
from headpond.wire.frame import SEGMENT_BYTES_MAX
from headpond.wire.typed import form as typed_form
from headpond.wire.typed.columns import ColumnReader, ColumnWriter
from headpond.wire.typed.dictionaries import Glossary, Vocabulary, is_whole
from headpond.wire.typed.form import (
    ARROW_FAULTS,
    FORM_SNAPSHOT,
    FORM_TYPED,
    PLAIN,
    BodyReader,
    Redundant,
    Snapshot,
    TypedSegment,
    varint,
)
from headpond.wire.typed.leaves import ColumnForm, columns_of, is_labels, leaf_kinds
from headpond.wire.typed.schema import shown_schema

_SNAPSHOT_HEADER: Final = struct.Struct("<BI")


class RowEncoder:
    """Encodes the rows of one shard as segments ``first_segment``, ``first_segment + 1``, …."""

    def __init__(self, schema: pa.Schema, shard: int, first_segment: int = 0) -> None:
        self.schema = schema
        self.shard = shard
        self.last_segment = first_segment - 1
        """The number of the last encoded segment; ``first_segment - 1`` before the first."""
        self._columns = columns_of(schema)
        self._strict = strict_columns(schema)
        self._words = [Vocabulary(kind) for kind in leaf_kinds(schema)]

    @property
    def state_bytes(self) -> int:
        """The bytes of all dictionaries in use."""
        return sum(words.bytes for words in self._words if not words.plain)

    def encode(self, rows: pa.RecordBatch) -> tuple[TypedSegment, Redundant]:
        """The next segment. A fault (wrong columns, too large) leaves the encoder unchanged."""
        columns = self._checked(rows)
        before = Redundant(self.last_segment + 1, tuple(self._lengths()))
        writer = ColumnWriter(self._words, typed_form.STATE_BYTES_MAX - self.state_bytes)
        parts: list[Any] = [bytes((FORM_TYPED,)), varint(rows.num_rows)]
        for plan, column in zip(self._columns, columns, strict=True):
            parts += writer.write(plan, column)
        body = b"".join(parts)
        if len(body) > SEGMENT_BYTES_MAX:
            raise SegmentTooLarge(
                f"a segment of {len(body):,} bytes; at most {SEGMENT_BYTES_MAX:,} are allowed"
            )
        writer.learn()
        self.last_segment += 1
        return TypedSegment(SegmentKey(self.shard, self.last_segment), body), before

    def snapshot(self, redundants: Sequence[Redundant]) -> Snapshot:
        """The snapshot at segment k, from the redundants of k, k + 1, …, ``last_segment``.

        Without redundants it is the snapshot at the next segment.
        """
        first = self.last_segment + 1 - len(redundants)
        if [redundant.segment for redundant in redundants] != list(range(first, self.last_segment + 1)):
            raise ValueError(f"a snapshot takes the redundants of k to {self.last_segment} without a gap")
        lengths = redundants[0].lengths if redundants else self._lengths()
        schema = self.schema.serialize()
        parts: list[Any] = [_SNAPSHOT_HEADER.pack(FORM_SNAPSHOT, schema.size), schema]
        for words, length in zip(self._words, lengths, strict=True):
            parts += [b"\1"] if length == PLAIN else [b"\0", *words.written(length)]
        return Snapshot(first, b"".join(parts))

    def _lengths(self) -> list[int]:
        return [PLAIN if words.plain else len(words.places) for words in self._words]

    def _checked(self, rows: pa.RecordBatch) -> list[pa.Array]:
        """The columns, cut so that each begins at its first row."""
        if not rows.schema.equals(self.schema):
            raise SchemaMismatch(
                f"rows of {shown_schema(rows.schema)}; the topic has {shown_schema(self.schema)}"
            )
        if rows.num_rows == 0:
            raise BadSegment("a segment without rows")
        try:
            rows.validate(full=True)
        except pa.ArrowInvalid as error:
            raise BadSegment(f"rows that are not valid Arrow: {error}") from error
        columns: list[pa.Array] = rows.columns
        fault = null_fault(columns, self._strict, self.schema)
        if fault:
            raise SchemaMismatch(fault)
        if any(
            column.offset or (plan.form == ColumnForm.SETS and not is_whole(column))
            for plan, column in zip(self._columns, columns, strict=True)
        ):
            # IPC cuts a slice to its rows: a leaf must not learn the values around the slice.
            rows = pa.ipc.read_record_batch(rows.serialize(), self.schema)
            columns = rows.columns
        self._check_size(rows, columns)
        return columns

    def _check_size(self, rows: pa.RecordBatch, columns: list[pa.Array]) -> None:
        """Refuses rows that exceed the decoder's limit."""
        count = rows.num_rows
        nulls = sum(
            plan.null_bytes * count
            for plan, column in zip(self._columns, columns, strict=True)
            if column.null_count == count
        )
        size_max = typed_form.DECODED_BYTES_MAX
        # The exact size takes longer. This estimate counts a buffer that several arrays share only once.
        if nulls + 2 * len(columns) * rows.get_total_buffer_size() <= size_max:
            return
        if nulls + rows.nbytes > size_max:
            raise SegmentTooLarge(f"rows of {nulls + rows.nbytes:,.0f} bytes; at most {size_max:,} are allowed")


class RowDecoder:
    """Decodes the segments of one block and shard in order, from segment 0 or from a snapshot."""

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.next_segment = 0
        self._columns = columns_of(schema)
        self._strict = strict_columns(schema)
        self._known: list[Glossary | None] = [Glossary(kind) for kind in leaf_kinds(schema)]
        """The dictionary of each leaf; None after it has gone plain."""

    @classmethod
    def from_snapshot(cls, snapshot: Snapshot, schema: pa.Schema) -> RowDecoder:
        """A decoder of rows of ``schema`` that begins at the snapshot's segment."""
        if len(snapshot.body) > SEGMENT_BYTES_MAX:
            raise SegmentTooLarge(f"a snapshot of {len(snapshot.body):,} bytes")
        try:
            return cls._read_snapshot(snapshot, schema)
        except (*ARROW_FAULTS, SnapshotNeeded) as error:
            raise BadSegment(f"a snapshot that cannot be read: {error}") from error

    @classmethod
    def _read_snapshot(cls, snapshot: Snapshot, schema: pa.Schema) -> RowDecoder:
        form, size = _SNAPSHOT_HEADER.unpack_from(snapshot.body)
        if form != FORM_SNAPSHOT:
            raise BadSegment(f"a snapshot of form {form}")
        reader = BodyReader(snapshot.body)
        reader.take(_SNAPSHOT_HEADER.size)
        given = _read_schema(reader.aligned(size))
        if not given.equals(schema):
            raise SchemaMismatch(f"a snapshot of {shown_schema(given)}; the topic has {shown_schema(schema)}")
        decoder = cls(schema)
        decoder.next_segment = snapshot.segment
        columns = ColumnReader(reader, decoder._known, 0)
        for plan in decoder._columns:
            columns.read_dictionaries(plan)
        reader.check_end()
        decoder._known = columns.known
        decoder._check_bounds(decoder._known)
        return decoder

    @property
    def state_bytes(self) -> int:
        """The bytes of all dictionaries held."""
        return sum(known.bytes for known in self._known if known is not None)

    def decode(self, segment: TypedSegment) -> pa.RecordBatch:
        """The rows of the next segment. A fault leaves the decoder unchanged."""
        if segment.key.segment != self.next_segment:
            raise SnapshotNeeded(f"segment {segment.key.segment} arrived, and {self.next_segment} is next")
        if len(segment.body) > SEGMENT_BYTES_MAX:
            raise SegmentTooLarge(f"a segment of {len(segment.body):,} bytes")
        try:
            arrays, known = self._read(segment.body)
        except ARROW_FAULTS as error:
            raise BadSegment(f"a segment that cannot be read: {error}") from error
        fault = null_fault(arrays, self._strict, self.schema)
        if fault:
            raise BadSegment(fault)
        batch = pa.RecordBatch.from_arrays(arrays, schema=self.schema)
        self._known = known
        self.next_segment += 1
        return batch

    def _read(self, body: bytes) -> tuple[list[pa.Array], list[Glossary | None]]:
        reader = BodyReader(body)
        form, rows = reader.byte(), reader.varint()
        if form != FORM_TYPED or rows == 0:
            raise BadSegment(f"a segment of form {form} with {rows:,} rows")
        columns = ColumnReader(reader, self._known, rows)
        arrays = [columns.read(plan) for plan in self._columns]
        reader.check_end()
        self._check_bounds(columns.known)
        return arrays, columns.known

    def _check_bounds(self, known: list[Glossary | None]) -> None:
        size = sum(words.bytes for words in known if words is not None)
        if size > typed_form.STATE_BYTES_MAX:
            raise BadSegment(f"dictionaries of {size:,} bytes are above the bounds")


def _read_schema(buffer: pa.Buffer) -> pa.Schema:
    message = pa.ipc.read_message(buffer)
    if message.type != "schema":
        raise BadSegment("a snapshot without a schema")
    schema = pa.ipc.read_schema(message)
    if schema.serialize().size != buffer.size:
        raise BadSegment("a snapshot whose schema has bytes behind its end")
    return schema


def strict_columns(schema: pa.Schema) -> list[int]:
    """The columns that accept no nulls, or no labels without text."""
    return [
        index
        for index, field in enumerate(schema)
        if not field.nullable or (is_labels(field.type) and not field.type.item_field.nullable)
    ]


def null_fault(columns: list[pa.Array], strict: list[int], schema: pa.Schema) -> str:
    """The fault of a column that accepts no nulls and has one; empty if there is none."""
    for index in strict:
        field, column = schema.field(index), columns[index]
        if not field.nullable and column.null_count:
            return f"column {field.name!r} takes no nulls and has {column.null_count}"
        if is_labels(field.type) and not field.type.item_field.nullable and column.items.null_count:
            return f"column {field.name!r} takes no labels without text"
    return ""
