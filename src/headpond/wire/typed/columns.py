"""Writes and reads the columns of one typed segment; form.py documents the bytes.

The bytes to read may come from anyone. The reader checks indices, sizes and texts as it reads them, and adds up
what a column unfolds to before it allocates it. Texts in a dictionary were validated when it learnt them.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, Final

import pyarrow as pa

from headpond.model.errors import BadSegment, SnapshotNeeded
from headpond.wire.plain.ipc import record_batch_claims
from headpond.wire.typed.dictionaries import (
    Gain,
    Glossary,
    Vocabulary,
    check_sets,
    label_counts,
    map_array,
    sets_of,
    unfold_sets,
)
from headpond.wire.typed.form import (
    FEW,
    NULLS,
    OFFSET_BYTES,
    BodyReader,
    ints_of,
    pack_ints,
    texts_of,
    values_buffer,
    varint,
)
from headpond.wire.typed.leaves import INSTEAD, STORED, TEXT, Column, ColumnForm

_INT64: Final = pa.int64()


class ColumnWriter:
    """Writes columns that each begin at their first row, and remembers what the vocabularies must learn."""

    def __init__(self, words: Sequence[Vocabulary], room: int) -> None:
        self._words = words
        self._room = room
        self._gains: list[tuple[Vocabulary, Gain]] = []
        self._plain: list[Vocabulary] = []

    def learn(self) -> None:
        """Applies the segment's gains to the vocabularies, which ``write`` leaves unchanged."""
        for words, gain in self._gains:
            words.learn(gain)
        for words in self._plain:
            words.plain = True

    def write(self, plan: Column, column: pa.Array) -> list[Any]:
        """The column's form and its content in that form."""
        if column.null_count == len(column):
            return [bytes((ColumnForm.ABSENT,))]
        match plan.form:
            case ColumnForm.CODED:
                return _coded(self._gain(self._words[plan.leaf], column), column)
            case ColumnForm.SETS:
                return self._labels(plan, column)
            case ColumnForm.INTS:
                return [*_head(ColumnForm.INTS, column), *_ints(column, plan.code)]
            case ColumnForm.FIXED:
                return [*_head(ColumnForm.FIXED, column), values_buffer(column, plan.bits)]
            case ColumnForm.TEXTS:
                return [*_head(ColumnForm.TEXTS, column), *texts_of(column)]
        return _ipc(column)

    def _labels(self, plan: Column, column: pa.Array) -> list[Any]:
        """Labels as whole sets; as names and texts if the sets have gone plain."""
        name_words, text_words, set_words = self._words[plan.leaf : plan.leaf + 3]
        keys, items = column.keys, column.items
        names, texts = self._gain(name_words, keys), self._gain(text_words, items)
        if names is None or texts is None:
            self._go_plain(set_words)
        elif not set_words.plain:
            sets = self._gain(set_words, sets_of(column, names, texts))
            if sets is not None:
                gains = [part for gain in (names, texts, sets) for part in gain.written()]
                return [*_head(ColumnForm.SETS, column), *gains, *sets.indices_written()]
        counts = ints_of(label_counts(column))
        return [*_head(ColumnForm.LABELS, column), *counts, *_coded(names, keys), *_coded(texts, items)]

    def _gain(self, words: Vocabulary, values: pa.Array) -> Gain | None:
        """What the vocabulary gains by these values; None if it is plain or goes plain by them."""
        if words.plain:
            return None
        gain = words.gain(values, self._room)
        if gain is None:
            self._go_plain(words)
            return None
        self._room -= gain.bytes
        self._gains.append((words, gain))
        return gain

    def _go_plain(self, words: Vocabulary) -> None:
        if not words.plain:
            self._plain.append(words)
            self._room += words.bytes


def _head(form: ColumnForm, column: pa.Array) -> list[Any]:
    """The form and, if a row is null, the bitmap."""
    if not column.null_count:
        return [bytes((form,))]
    if column.offset:
        raise ValueError("a bitmap is written from its first row")
    return [bytes((form | NULLS,)), column.buffers()[0].slice(0, (len(column) + 7) // 8)]


def _coded(gain: Gain | None, texts: pa.Array) -> list[Any]:
    """Texts as indices, or as they are without a dictionary."""
    if gain is None:
        return [*_head(ColumnForm.TEXTS, texts), *texts_of(texts)]
    return [*_head(ColumnForm.CODED, texts), *gain.written(), *gain.indices_written()]


def _ints(column: pa.Array, code: str) -> list[Any]:
    if len(column) > FEW or column.null_count:
        return ints_of(column.view(STORED[code]))
    return [pack_ints(struct.unpack_from(f"<{len(column)}{code}", column.buffers()[1]))]


def _ipc(column: pa.Array) -> list[Any]:
    """A record batch of this one column, as an IPC message."""
    message = pa.RecordBatch.from_arrays([column], names=[""]).serialize()
    return [bytes((ColumnForm.IPC,)), varint(message.size), message]


class ColumnReader:
    """Reads columns in schema order; afterwards ``known`` holds the dictionaries after the segment."""

    def __init__(self, reader: BodyReader, known: Sequence[Glossary | None], rows: int) -> None:
        self._reader = reader
        self._rows = rows
        self.known = list(known)

    def read(self, plan: Column) -> pa.Array:
        """The next column, of exactly the plan's type."""
        form, bitmap = self._head(self._rows)
        if form == ColumnForm.ABSENT and bitmap is None:
            self._reader.spend(plan.null_bytes * self._rows)
            return pa.nulls(self._rows, plan.kind)
        if form not in (plan.form, INSTEAD.get(plan.form)) or form == ColumnForm.ABSENT:
            raise BadSegment(f"a column of {plan.kind} that has form {form}")
        match form:
            case ColumnForm.CODED | ColumnForm.TEXTS if plan.kind == TEXT:
                return self._coded(plan.leaf, form, self._rows, bitmap)
            case ColumnForm.TEXTS:
                return self._texts(plan.kind, self._rows, bitmap)
            case ColumnForm.SETS:
                return self._sets(plan, bitmap)
            case ColumnForm.LABELS:
                return self._labels(plan, bitmap)
        found = self._ipc(plan.kind) if form == ColumnForm.IPC else self._numbers(plan, bitmap)
        found.validate(full=True)
        return found

    def read_dictionaries(self, plan: Column) -> None:
        """The dictionaries of a column as a snapshot has them."""
        leaves = {ColumnForm.CODED: 1, ColumnForm.SETS: 3}.get(plan.form, 0)
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
            raise SnapshotNeeded("a segment with a dictionary that its decoder no longer has")
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
        self._reader.spend(OFFSET_BYTES * count)  # each text will have an offset
        nulls = 0 if bitmap is None else -1
        return pa.Array.from_buffers(_INT64, count, [bitmap, self._reader.ints(count)], nulls)

    def _texts(self, kind: pa.DataType, count: int, bitmap: pa.Buffer | None) -> pa.Array:
        self._reader.spend(OFFSET_BYTES * count)
        return self._reader.texts(kind, count, bitmap)

    def _coded(self, leaf: int, form: int, count: int, bitmap: pa.Buffer | None) -> pa.Array:
        """Texts by their dictionary, or as they are, which means that the leaf has gone plain."""
        if form == ColumnForm.TEXTS:
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
        """Labels as names and texts, which means that the sets have gone plain."""
        self.known[plan.leaf + 2] = None
        self._reader.spend(OFFSET_BYTES * self._rows)
        ends, count = self._reader.offsets(self._rows)
        parts = []
        for leaf in (plan.leaf, plan.leaf + 1):
            form, part_bitmap = self._head(count)
            if form not in (ColumnForm.CODED, ColumnForm.TEXTS):
                raise BadSegment(f"labels whose part has form {form}")
            parts.append(self._coded(leaf, form, count, part_bitmap))
        found = map_array(plan.kind, self._rows, bitmap, ends, *parts)
        found.validate(full=True)
        return found

    def _numbers(self, plan: Column, bitmap: pa.Buffer | None) -> pa.Array:
        rows, nulls = self._rows, 0 if bitmap is None else -1
        if plan.form == ColumnForm.INTS:
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
            raise BadSegment(f"a compressed column, or one of other than {self._rows:,} rows")
        batch = pa.ipc.read_record_batch(message, pa.schema([pa.field("", kind)]))
        batch.validate()
        return batch.column(0)
