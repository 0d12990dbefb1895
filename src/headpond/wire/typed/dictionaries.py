"""The growing dictionary of one leaf: ``Vocabulary`` for its encoder, ``Glossary`` for a decoder.

Both only grow: an earlier state is the same dictionary cut to its earlier length, and so is the state before a
failed attempt.

Labels, which are ``map<string, string>``, are coded as whole sets: a set is one value of a dictionary. The
value is, for each label in its order, the index of its name and of its text (u16 each), so equal sets are
equal bytes, and Arrow's kernels for binary values work for sets too.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headpond.model.errors import BadSegment, SnapshotNeeded
from headpond.wire.typed import form as typed_form
from headpond.wire.typed.form import FEW, OFFSET_BYTES, BodyReader, ints_of, pack_ints, texts_of, varint
from headpond.wire.typed.leaves import BYTES, TEXT

_INT64: Final = pa.int64()
_EXACT_FROM_BYTES: Final = 64 * 1024
"""Below this upper estimate of a size, the exact size is not computed."""


# --- encoder -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gain:
    """What one segment adds to a vocabulary, before ``learn`` applies it."""

    base: int
    added: list[Any]
    new: list[Any]
    """``added``, encoded."""
    bytes: int
    indices: Sequence[int | None] | pa.Array

    def written(self) -> list[Any]:
        return [varint(self.base), varint(len(self.added)), *self.new]

    def indices_written(self) -> list[Any]:
        """The indices as ``ints``; the index of a null is arbitrary."""
        if isinstance(self.indices, pa.Array):
            return ints_of(self.indices)
        any_index = next((index for index in self.indices if index is not None), 0)
        return [pack_ints([any_index if index is None else index for index in self.indices])]


class Vocabulary:
    """The dictionary of one leaf for its encoder: the index of each value."""

    __slots__ = ("bytes", "kind", "places", "plain")

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.places: dict[Any, int] = {}
        self.bytes = 0
        self.plain = False

    def gain(self, values: pa.Array, room: int) -> Gain | None:
        """The values as indices, with the new values to learn; None if they exceed the bounds."""
        few = len(values) <= FEW
        coded = None if few else values.dictionary_encode()
        distinct = values.to_pylist() if coded is None else coded.dictionary.to_pylist()
        known, base = self.places, len(self.places)
        fresh: dict[Any, int] = {}
        found: list[int | None] = list(map(known.get, distinct))
        if None in found:
            for at, (value, place) in enumerate(zip(distinct, found, strict=True)):
                if place is None and value is not None:
                    found[at] = fresh.setdefault(value, base + len(fresh))
        indices = found if coded is None else pa.array(found, _INT64).take(coded.indices)
        if not fresh:
            return Gain(base, [], [], 0, indices)
        added = list(fresh)
        new = pa.array(added, self.kind)
        size = sum(map(len, added)) if self.kind != TEXT else int(pc.sum(pc.binary_length(new)).as_py())
        size += OFFSET_BYTES * len(added)
        over = base + len(added) > typed_form.LEAF_VALUES_MAX or self.bytes + size > typed_form.LEAF_BYTES_MAX
        return None if over or size > room else Gain(base, added, texts_of(new), size, indices)

    def learn(self, gain: Gain) -> None:
        self.places.update(zip(gain.added, range(gain.base, gain.base + len(gain.added)), strict=True))
        self.bytes += gain.bytes

    def written(self, length: int) -> list[Any]:
        """Its first ``length`` values, as one gain."""
        first = pa.array(list(self.places)[:length], self.kind)
        return [varint(0), varint(length), *(texts_of(first) if length else [])]


# --- decoder -----------------------------------------------------------------------------------------


class _Store:
    """Memory for values and their offsets. Arrays share it, so written parts never change."""

    __slots__ = ("data", "offsets")

    def __init__(self, data_bytes: int, values: int) -> None:
        self.data = bytearray(data_bytes)
        self.offsets = bytearray(OFFSET_BYTES * (values + 1))


class Glossary:
    """The dictionary of one leaf at one moment.

    ``extended`` returns a longer one that shares its memory, so a segment costs only what it adds. Of several
    made from the same one, only the last is valid.
    """

    __slots__ = ("_store", "array", "bytes", "longest")

    def __init__(self, kind: pa.DataType) -> None:
        self._store = _Store(64, 8)
        self.array = pa.array([], kind)
        self.bytes = 0
        """The values and an offset each, as the bounds count them. The memory is up to twice that."""
        self.longest = 0

    def __len__(self) -> int:
        return len(self.array)

    def read_gain(self, reader: BodyReader) -> pa.Array | None:
        """The values that a segment adds to this dictionary; None if there are none."""
        base, count = reader.varint(), reader.varint()
        if base != len(self):
            raise SnapshotNeeded("a segment whose dictionaries are not those of the segment before it")
        if count == 0:
            return None
        if base + count > typed_form.LEAF_VALUES_MAX:
            raise BadSegment(f"a dictionary of more than {typed_form.LEAF_VALUES_MAX:,} values")
        return reader.texts(self.array.type, count)

    def extended(self, added: pa.Array | None) -> Glossary:
        """This dictionary with ``added`` appended; ``added`` begins at its first offset."""
        if added is None:
            return self
        count, more = len(self), len(added)
        used = self.bytes - OFFSET_BYTES * count
        _, offsets, data = added.buffers()
        ends = pa.Array.from_buffers(pa.int32(), more, [None, offsets.slice(OFFSET_BYTES)], 0)
        size = ends[-1].as_py()
        longer = Glossary.__new__(Glossary)
        longer.bytes = self.bytes + size + OFFSET_BYTES * more
        if longer.bytes > typed_form.LEAF_BYTES_MAX:
            raise BadSegment(f"a dictionary of {longer.bytes:,} bytes is above the bound")
        store = longer._store = self._room_for(used, used + size, count + more)
        store.data[used : used + size] = memoryview(data)[:size]
        at = OFFSET_BYTES * (count + 1)
        store.offsets[at : at + OFFSET_BYTES * more] = _shifted(ends, used)
        longer.longest = max(self.longest, pc.max(pc.binary_length(added)).as_py())
        buffers = [None, pa.py_buffer(store.offsets), pa.py_buffer(store.data)]
        longer.array = pa.Array.from_buffers(added.type, count + more, buffers, 0)
        return longer

    def _room_for(self, used: int, data_bytes: int, values: int) -> _Store:
        store, count = self._store, len(self)
        if len(store.data) >= data_bytes and len(store.offsets) >= OFFSET_BYTES * (values + 1):
            return store
        larger = _Store(max(data_bytes, 2 * used), max(values, 2 * count))
        larger.data[:used] = memoryview(store.data)[:used]
        larger.offsets[: OFFSET_BYTES * (count + 1)] = memoryview(store.offsets)[: OFFSET_BYTES * (count + 1)]
        return larger

    def unfold(self, reader: BodyReader, indices: pa.Array) -> pa.Array:
        """The values at the indices; their size is counted first. A wrong index is an IndexError."""
        estimate = len(indices) * self.longest
        if estimate > _EXACT_FROM_BYTES:
            reader.spend(pc.sum(pc.binary_length(self.array).take(indices)).as_py() or 0)
        return self.array.take(indices)


def _shifted(ends: pa.Array, by: int) -> Any:
    if len(ends) > FEW:
        return memoryview(pc.add(ends, pa.scalar(by, ends.type)).buffers()[1])[: OFFSET_BYTES * len(ends)]
    return struct.pack(f"<{len(ends)}i", *[end + by for end in ends.to_pylist()])


# --- sets of labels ----------------------------------------------------------------------------------

PAIR_BYTES: Final = 4
NULL_TEXT: Final = 2**16 - 1
_INT32: Final = pa.int32()
_PAIR: Final = pa.uint32()


@cache
def _pair(number: int) -> pa.Scalar:
    """A number of the pairs' type: a Python number would make the result 64 bits wide.

    Made on first use: pyarrow imports pandas for its first scalar, which takes longer than everything else.
    """
    return pa.scalar(number, _PAIR)


def is_whole(labels: pa.Array) -> bool:
    """Whether a map array is no slice: its names and texts are exactly those of its rows."""
    if labels.offset or labels.keys.offset or labels.items.offset:
        return False
    ends = memoryview(labels.buffers()[1]).cast("i")
    return ends[0] == 0 and ends[len(labels)] == len(labels.keys)


def label_counts(labels: pa.Array) -> pa.Array:
    """The number of labels of each row of a whole map array, null or not."""
    ends = pa.Array.from_buffers(_INT32, len(labels) + 1, [None, labels.buffers()[1]], 0)
    return pc.subtract(ends.slice(1), ends.slice(0, len(labels)))


def sets_of(labels: pa.Array, names: Gain, texts: Gain) -> pa.Array:
    """The set of each row of a whole map array, from the indices of its names and texts."""
    rows = len(labels)
    bitmap, offsets = labels.buffers()[:2]
    ends = pa.Array.from_buffers(_INT32, rows + 1, [None, offsets], 0)
    if isinstance(names.indices, pa.Array):
        low = names.indices.cast(_PAIR)
        high = (
            texts.indices.cast(_PAIR) if isinstance(texts.indices, pa.Array) else pa.array(texts.indices, _PAIR)
        )
        high = high.fill_null(NULL_TEXT) if high.null_count else high
        pairs = pc.bit_wise_or(low, pc.shift_left(high, _pair(16))).buffers()[1]
    else:
        flat: list[Any] = [NULL_TEXT] * (2 * len(names.indices))
        flat[0::2] = names.indices
        flat[1::2] = [NULL_TEXT if index is None else index for index in texts.indices]
        pairs = pa.py_buffer(struct.pack(f"<{len(flat)}H", *flat))
    bitmap = bitmap if labels.null_count else None
    return pa.Array.from_buffers(BYTES, rows, [bitmap, _times_pair(ends), pairs], labels.null_count)


def _times_pair(ends: pa.Array) -> pa.Buffer:
    if len(ends) > FEW:
        return pc.multiply_checked(ends, pa.scalar(PAIR_BYTES, _INT32)).buffers()[1]
    return pa.py_buffer(struct.pack(f"<{len(ends)}i", *[PAIR_BYTES * end for end in ends.to_pylist()]))


def check_sets(added: pa.Array | None, names: Glossary, texts: Glossary) -> None:
    """Refuses sets with unknown names or texts."""
    if added is None:
        return
    _, offsets, data = added.buffers()
    ends = pa.Array.from_buffers(_INT32, len(added), [None, offsets.slice(OFFSET_BYTES)], 0)
    if pc.max(pc.bit_wise_and(ends, pa.scalar(PAIR_BYTES - 1, _INT32))).as_py():
        raise BadSegment("a set of labels with half a label")
    name_places, text_places = _places(data, ends[-1].as_py() // PAIR_BYTES)
    for places, known in ((name_places, names), (text_places, texts)):
        highest = pc.max(places).as_py()
        if highest is not None and highest >= len(known):
            raise BadSegment("a set of labels with a name or text that is not known")


def _places(pairs: pa.Buffer, count: int) -> tuple[pa.Array, pa.Array]:
    """The indices of names and of texts in consecutive pairs."""
    if count <= FEW:
        halves = memoryview(pairs)[: PAIR_BYTES * count].cast("B").tobytes()
        flat = struct.unpack(f"<{2 * count}H", halves)
        text_places = [None if place == NULL_TEXT else place for place in flat[1::2]]
        return pa.array(flat[0::2], _INT64), pa.array(text_places, _INT64)
    whole = pairs if pairs.address % 8 == 0 else pa.py_buffer(pairs.to_pybytes())
    array = pa.Array.from_buffers(_PAIR, count, [None, whole], 0)
    high = pc.shift_right(array, _pair(16))
    is_null = pc.equal(high, _pair(NULL_TEXT))
    if pc.any(is_null).as_py():
        high = pc.if_else(is_null, pa.scalar(None, _PAIR), high)
    return pc.bit_wise_and(array, _pair(NULL_TEXT)), high


def unfold_sets(
    reader: BodyReader, kind: pa.DataType, indices: pa.Array, names: Glossary, texts: Glossary, sets: Glossary
) -> pa.Array:
    """The map array for indices into the sets; its size is counted first."""
    taken = sets.unfold(reader, indices)
    bitmap, offsets, pairs = taken.buffers()
    rows = len(taken)
    ends = pa.Array.from_buffers(_INT32, rows + 1, [None, offsets], 0)
    if rows <= FEW:
        few = [end // PAIR_BYTES for end in ends.to_pylist()]
        count, label_ends = few[-1], pa.py_buffer(struct.pack(f"<{rows + 1}i", *few))
    else:
        count = ends[-1].as_py() // PAIR_BYTES
        label_ends = pc.shift_right(ends, pa.scalar(2, _INT32)).buffers()[1]
    name_places, text_places = _places(pairs, count) if count else (pa.array([], _INT64),) * 2
    found_names, found_texts = names.unfold(reader, name_places), texts.unfold(reader, text_places)
    return map_array(kind, rows, bitmap if taken.null_count else None, label_ends, found_names, found_texts)


def map_array(
    kind: pa.DataType, rows: int, bitmap: pa.Buffer | None, ends: pa.Buffer, names: pa.Array, texts: pa.Array
) -> pa.Array:
    """Labels from their names and texts."""
    if names.null_count:  # Arrow aborts the process over a map with a null key
        raise BadSegment("a label without name")
    if names.type != TEXT or texts.type != TEXT:
        raise BadSegment("labels that are not texts")
    entry = pa.StructArray.from_arrays([names, texts], fields=[kind.key_field, kind.item_field])
    nulls = 0 if bitmap is None else -1
    return pa.Array.from_buffers(kind, rows, [bitmap, ends], nulls, children=[entry])
