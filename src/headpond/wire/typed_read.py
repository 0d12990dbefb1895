"""Reads the columns of one typed segment, which may come from anyone; the bytes are in typed_form.

Indices, sizes and texts are checked where they are read, and what a column unfolds to is added up before it
does. Texts that stand in a dictionary were validated when it learnt them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from headpond.model.errors import BadSegment, SnapshotNeeded
from headpond.wire.ipc_claims import record_batch_claims
from headpond.wire.leaves import INSTEAD, TEXT, Column, Way
from headpond.wire.typed_form import NULLS, OFFSET_BYTES, Reader
from headpond.wire.typed_labels import check_sets, map_array, unfold_sets
from headpond.wire.typed_words import Glossary

_INT64: Final = pa.int64()


class ColumnReader:
    """Reads columns in schema order. ``known`` becomes what the dictionaries are after the segment."""

    def __init__(self, reader: Reader, known: Sequence[Glossary | None], rows: int) -> None:
        self._reader = reader
        self._rows = rows
        self.known = list(known)

    def read(self, plan: Column) -> pa.Array:
        """The next column, of exactly the plan's type."""
        way, bitmap = self._head(self._rows)
        if way == Way.ABSENT and bitmap is None:
            self._reader.spend(plan.null_bytes * self._rows)
            return pa.nulls(self._rows, plan.kind)
        if way not in (plan.way, INSTEAD.get(plan.way)) or way == Way.ABSENT:
            raise BadSegment(f"a column of {plan.kind} that comes as way {way}")
        match way:
            case Way.CODED | Way.TEXTS if plan.kind == TEXT:
                return self._coded(plan.leaf, way, self._rows, bitmap)
            case Way.TEXTS:
                return self._texts(plan.kind, self._rows, bitmap)
            case Way.SETS:
                return self._sets(plan, bitmap)
            case Way.LABELS:
                return self._labels(plan, bitmap)
        found = self._ipc(plan.kind) if way == Way.IPC else self._numbers(plan, bitmap)
        found.validate(full=True)
        return found

    def read_dictionaries(self, plan: Column) -> None:
        """The dictionaries of a column as a snapshot has them."""
        leaves = {Way.CODED: 1, Way.SETS: 3}.get(plan.way, 0)
        for leaf in range(plan.leaf, plan.leaf + leaves):
            is_plain = self._reader.byte()
            if is_plain > 1:
                raise BadSegment(f"a dictionary of kind {is_plain}")
            if is_plain:
                self.known[leaf] = None
            elif leaf == plan.leaf + 2:
                self._learn_sets(plan.leaf)
            else:
                self._learn(leaf)

    # --- parts -----------------------------------------------------------------------------------

    def _head(self, rows: int) -> tuple[int, pa.Buffer | None]:
        byte = self._reader.byte()
        bitmap = self._reader.aligned((rows + 7) // 8) if byte & NULLS else None
        return byte & ~NULLS, bitmap

    def _known(self, leaf: int) -> Glossary:
        known = self.known[leaf]
        if known is None:
            raise SnapshotNeeded("a segment with a dictionary where its decoder has none any more")
        return known

    def _learn(self, leaf: int) -> Glossary:
        known = self._known(leaf)
        self.known[leaf] = known = known.extended(known.read_gain(self._reader))
        return known

    def _learn_sets(self, leaf: int) -> Glossary:
        known = self._known(leaf + 2)
        added = known.read_gain(self._reader)
        check_sets(added, self._known(leaf), self._known(leaf + 1))
        self.known[leaf + 2] = known = known.extended(added)
        return known

    def _indices(self, count: int, bitmap: pa.Buffer | None) -> pa.Array:
        self._reader.spend(OFFSET_BYTES * count)  # for each, its text will have an offset
        nulls = 0 if bitmap is None else -1
        return pa.Array.from_buffers(_INT64, count, [bitmap, self._reader.ints(count)], nulls)

    def _texts(self, kind: pa.DataType, count: int, bitmap: pa.Buffer | None) -> pa.Array:
        self._reader.spend(OFFSET_BYTES * count)
        return self._reader.texts(kind, count, bitmap)

    def _coded(self, leaf: int, way: int, count: int, bitmap: pa.Buffer | None) -> pa.Array:
        """Texts by their dictionary, or as they are: then the leaf has gone plain."""
        if way == Way.TEXTS:
            self.known[leaf] = None
            return self._texts(TEXT, count, bitmap)
        known = self._learn(leaf)
        return known.unfold(self._reader, self._indices(count, bitmap))

    def _sets(self, plan: Column, bitmap: pa.Buffer | None) -> pa.Array:
        names, texts = self._learn(plan.leaf), self._learn(plan.leaf + 1)
        sets = self._learn_sets(plan.leaf)
        indices = self._indices(self._rows, bitmap)
        return unfold_sets(self._reader, plan.kind, indices, names, texts, sets)

    def _labels(self, plan: Column, bitmap: pa.Buffer | None) -> pa.Array:
        """Labels by their parts: the sets have gone plain."""
        self.known[plan.leaf + 2] = None
        self._reader.spend(OFFSET_BYTES * self._rows)
        ends, count = self._reader.offsets(self._rows)
        parts = []
        for leaf in (plan.leaf, plan.leaf + 1):
            way, part_bitmap = self._head(count)
            if way not in (Way.CODED, Way.TEXTS):
                raise BadSegment(f"labels whose part comes as way {way}")
            parts.append(self._coded(leaf, way, count, part_bitmap))
        found = map_array(plan.kind, self._rows, bitmap, ends, *parts)
        found.validate(full=True)
        return found

    def _numbers(self, plan: Column, bitmap: pa.Buffer | None) -> pa.Array:
        rows, nulls = self._rows, 0 if bitmap is None else -1
        if plan.way == Way.INTS:
            self._reader.spend(plan.bits // 8 * rows)
            values = self._reader.ints(rows, plan.code)
        else:
            values = self._reader.aligned((plan.bits * rows + 7) // 8)
        return pa.Array.from_buffers(plan.kind, rows, [bitmap, values], nulls)

    def _ipc(self, kind: pa.DataType) -> pa.Array:
        buffer = self._reader.aligned(self._reader.varint())
        message = pa.ipc.read_message(buffer)
        claims = record_batch_claims(message, buffer.size)
        if claims.compressed or claims.rows != self._rows:
            raise BadSegment(f"a column of {self._rows:,} rows in a message that is compressed or of others")
        batch = pa.ipc.read_record_batch(message, pa.schema([pa.field("", kind)]))
        batch.validate()
        return batch.column(0)
