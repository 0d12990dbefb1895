"""The growing dictionary of one leaf: ``Vocabulary`` as its encoder has it, ``Glossary`` as a decoder has it.

Both only grow, so that a state of the past is the same dictionary cut short, and an attempt that failed is
forgotten by not keeping its length.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headpond.model.errors import BadSegment, SnapshotNeeded
from headpond.wire import typed_form
from headpond.wire.leaves import TEXT
from headpond.wire.typed_form import FEW, OFFSET_BYTES, Reader, ints_of, pack_ints, texts_of, varint

_INT64: Final = pa.int64()
_EXACT_FROM_BYTES: Final = 64 * 1024
"""What surely unfolds to less than this is not added up."""


# --- the encoder's -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Gain:
    """What one segment does to a vocabulary; nothing of it has happened yet."""

    base: int
    added: list[Any]
    new: list[Any]
    """``added`` as bytes, to be written."""
    bytes: int
    indices: Sequence[int | None] | pa.Array

    def written(self) -> list[Any]:
        return [varint(self.base), varint(len(self.added)), *self.new]

    def indices_written(self) -> list[Any]:
        """The indices as ``ints``; a null's does not matter."""
        if isinstance(self.indices, pa.Array):
            return ints_of(self.indices)
        any_index = next((index for index in self.indices if index is not None), 0)
        return [pack_ints([any_index if index is None else index for index in self.indices])]


class Vocabulary:
    """The dictionary of one leaf as its encoder knows it: where each value stands."""

    __slots__ = ("bytes", "kind", "places", "plain")

    def __init__(self, kind: pa.DataType) -> None:
        self.kind = kind
        self.places: dict[Any, int] = {}
        self.bytes = 0
        self.plain = False

    def gain(self, values: pa.Array, room: int) -> Gain | None:
        """The values as indices and what must be learnt for that; None, if it is too much."""
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


# --- the decoder's -----------------------------------------------------------------------------------


class _Store:
    """Room for values and their offsets. Arrays look into it, so what was written never changes."""

    __slots__ = ("data", "offsets")

    def __init__(self, data_bytes: int, values: int) -> None:
        self.data = bytearray(data_bytes)
        self.offsets = bytearray(OFFSET_BYTES * (values + 1))


class Glossary:
    """The dictionary of one leaf at one moment.

    The longer one that ``extended`` gives shares its memory, so a segment costs what it adds and not what is
    known. Of several made from the same one only the last counts.
    """

    __slots__ = ("_store", "array", "bytes", "longest")

    def __init__(self, kind: pa.DataType) -> None:
        self._store = _Store(64, 8)
        self.array = pa.array([], kind)
        self.bytes = 0
        """As the bounds count them: the values and an offset each. The memory held is up to twice that."""
        self.longest = 0

    def __len__(self) -> int:
        return len(self.array)

    def read_gain(self, reader: Reader) -> pa.Array | None:
        """What a segment adds to this dictionary; None if nothing."""
        base, count = reader.varint(), reader.varint()
        if base != len(self):
            raise SnapshotNeeded("a segment whose dictionaries are not those of the segment before it")
        if count == 0:
            return None
        if base + count > typed_form.LEAF_VALUES_MAX:
            raise BadSegment(f"a dictionary of more than {typed_form.LEAF_VALUES_MAX:,} values")
        return reader.texts(self.array.type, count)

    def extended(self, added: pa.Array | None) -> Glossary:
        """This dictionary with ``added`` (as read: from its first offset on) behind it."""
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

    def unfold(self, reader: Reader, indices: pa.Array) -> pa.Array:
        """The values at the indices, after adding up what they will take. A wrong index is an IndexError."""
        estimate = len(indices) * self.longest
        if estimate > _EXACT_FROM_BYTES:
            reader.spend(pc.sum(pc.binary_length(self.array).take(indices)).as_py() or 0)
        return self.array.take(indices)


def _shifted(ends: pa.Array, by: int) -> Any:
    if len(ends) > FEW:
        return memoryview(pc.add(ends, pa.scalar(by, ends.type)).buffers()[1])[: OFFSET_BYTES * len(ends)]
    return struct.pack(f"<{len(ends)}i", *[end + by for end in ends.to_pylist()])
