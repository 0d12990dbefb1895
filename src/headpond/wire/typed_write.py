"""Writes the columns of one typed segment; the bytes are in typed_form, the dictionaries in typed_words."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from headpond.wire.leaves import STORED, Column, Way
from headpond.wire.typed_form import FEW, NULLS, ints_of, pack_ints, texts_of, values_buffer, varint
from headpond.wire.typed_labels import label_counts, sets_of
from headpond.wire.typed_words import Gain, Vocabulary


class ColumnWriter:
    """Writes columns that each begin at their first row, and remembers what the vocabularies must learn."""

    def __init__(self, words: Sequence[Vocabulary], room: int) -> None:
        self._words = words
        self._room = room
        self._gains: list[tuple[Vocabulary, Gain]] = []
        self._plain: list[Vocabulary] = []

    def learn(self) -> None:
        """Does to the vocabularies what the segment did; nothing has happened to them before."""
        for words, gain in self._gains:
            words.learn(gain)
        for words in self._plain:
            words.plain = True

    def write(self, plan: Column, column: pa.Array) -> list[Any]:
        """The column's way and what the way says."""
        if column.null_count == len(column):
            return [bytes((Way.ABSENT,))]
        match plan.way:
            case Way.CODED:
                return _coded(self._gain(self._words[plan.leaf], column), column)
            case Way.SETS:
                return self._labels(plan, column)
            case Way.INTS:
                return [*_head(Way.INTS, column), *_ints(column, plan.code)]
            case Way.FIXED:
                return [*_head(Way.FIXED, column), values_buffer(column, plan.bits)]
            case Way.TEXTS:
                return [*_head(Way.TEXTS, column), *texts_of(column)]
        return _ipc(column)

    def _labels(self, plan: Column, column: pa.Array) -> list[Any]:
        """As whole sets; if they have gone plain, by their parts."""
        name_words, text_words, set_words = self._words[plan.leaf : plan.leaf + 3]
        keys, items = column.keys, column.items
        names, texts = self._gain(name_words, keys), self._gain(text_words, items)
        if names is None or texts is None:
            self._go_plain(set_words)
        elif not set_words.plain:
            sets = self._gain(set_words, sets_of(column, names, texts))
            if sets is not None:
                gains = [part for gain in (names, texts, sets) for part in gain.written()]
                return [*_head(Way.SETS, column), *gains, *sets.indices_written()]
        counts = ints_of(label_counts(column))
        return [*_head(Way.LABELS, column), *counts, *_coded(names, keys), *_coded(texts, items)]

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


def _head(way: Way, column: pa.Array) -> list[Any]:
    """The way and, where a row is null, the bitmap."""
    if not column.null_count:
        return [bytes((way,))]
    if column.offset:
        raise ValueError("a bitmap is written from its first row")
    return [bytes((way | NULLS,)), column.buffers()[0].slice(0, (len(column) + 7) // 8)]


def _coded(gain: Gain | None, texts: pa.Array) -> list[Any]:
    """Texts as indices; as they are, where there is no dictionary."""
    if gain is None:
        return [*_head(Way.TEXTS, texts), *texts_of(texts)]
    return [*_head(Way.CODED, texts), *gain.written(), *gain.indices_written()]


def _ints(column: pa.Array, code: str) -> list[Any]:
    if len(column) > FEW or column.null_count:
        return ints_of(column.view(STORED[code]))
    return [pack_ints(struct.unpack_from(f"<{len(column)}{code}", column.buffers()[1]))]


def _ipc(column: pa.Array) -> list[Any]:
    """A record batch of this one column, as Arrow itself would send it."""
    message = pa.RecordBatch.from_arrays([column], names=[""]).serialize()
    return [bytes((Way.IPC,)), varint(message.size), message]
