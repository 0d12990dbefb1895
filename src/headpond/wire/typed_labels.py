"""Labels, which are ``map<string, string>``, as whole sets: a set is one value of a dictionary.

The value is, for each label in its order, the index of its name and of its text (u16 each), so that equal sets
are equal bytes and Arrow's kernels for binary serve for sets too.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from headpond.model.errors import BadSegment
from headpond.wire.leaves import BYTES, TEXT
from headpond.wire.typed_form import FEW, OFFSET_BYTES, Reader
from headpond.wire.typed_words import Gain, Glossary

PAIR_BYTES: Final = 4
NULL_TEXT: Final = 2**16 - 1
_INT32: Final = pa.int32()
_INT64: Final = pa.int64()
_PAIR: Final = pa.uint32()


@cache
def _pair(number: int) -> pa.Scalar:
    """A number of the pairs' own type: one of Python's would make the result 64 bits wide.

    Made when it is needed: pyarrow imports pandas for its first scalar, which takes longer than all the rest.
    """
    return pa.scalar(number, _PAIR)


def is_whole(labels: pa.Array) -> bool:
    """Whether a map array begins at its first row and its names and texts are those of its rows alone."""
    if labels.offset or labels.keys.offset or labels.items.offset:
        return False
    ends = memoryview(labels.buffers()[1]).cast("i")
    return ends[0] == 0 and ends[len(labels)] == len(labels.keys)


def label_counts(labels: pa.Array) -> pa.Array:
    """How many labels stand under each row of a whole map array, whether or not it is null."""
    ends = pa.Array.from_buffers(_INT32, len(labels) + 1, [None, labels.buffers()[1]], 0)
    return pc.subtract(ends.slice(1), ends.slice(0, len(labels)))


def sets_of(labels: pa.Array, names: Gain, texts: Gain) -> pa.Array:
    """Each row's set, of a whole map array whose names and texts have become indices."""
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
    """Refuses sets that speak of names or texts which are not known."""
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
    """The indices of names and of texts in pairs that stand end to end."""
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
    reader: Reader, kind: pa.DataType, indices: pa.Array, names: Glossary, texts: Glossary, sets: Glossary
) -> pa.Array:
    """The map array that indices into the sets stand for; what it takes is added up before."""
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
    """Labels from their parts."""
    if names.null_count:  # Arrow aborts the process over a map with a null key, so it is told here
        raise BadSegment("a label without name")
    if names.type != TEXT or texts.type != TEXT:
        raise BadSegment("labels that are not texts")
    entry = pa.StructArray.from_arrays([names, texts], fields=[kind.key_field, kind.item_field])
    nulls = 0 if bitmap is None else -1
    return pa.Array.from_buffers(kind, rows, [bitmap, ends], nulls, children=[entry])
