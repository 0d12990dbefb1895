"""A digest of rows that is the same in whatever order and pieces they come: the sum of the rows' hashes.

A batch that is done again after a crash has the same rows, in another order wherever Spark shuffles them, and
in other stages. All rows of a piece are hashed at once, in numpy: calling a hash function for each row would
take longer than all else that staging does with it. A row's bytes are those of its columns, by name, padded to
words of 8 bytes; its hash is ``mix(Σ word[j] · BASE**j)`` modulo 2**64, and their sum has 63 bits.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

BASE, MIX = 0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93
PIECE_BYTES = 2 * 1024 * 1024
PIECE_ROWS = 16 * 1024
"""Rows are hashed in pieces that stay in a core's cache."""
SEPARATOR = pa.scalar(b"\x1f", pa.binary())
NULL = pa.scalar(b"\x00null", pa.binary())
PADS = pa.array([bytes(8 - over) for over in range(8)], pa.binary())
"""By length modulo 8; never empty, so that each row has a word of its own."""


def rows_digest(rows: pa.Table | pa.RecordBatch) -> int:
    """The digest of the rows; those of several tables are added up, modulo 2**63."""
    total = 0
    for batch in rows.to_batches() if isinstance(rows, pa.Table) else [rows]:
        step = max(1, min(PIECE_ROWS, PIECE_BYTES * batch.num_rows // max(batch.nbytes, 1)))
        columns = sorted(zip(batch.schema.names, batch.columns, strict=True), key=lambda column: column[0])
        for at in range(0, batch.num_rows, step):
            total += int(_hashes([_bytes(array.slice(at, step)) for _, array in columns]).sum())
    return total % 2**63


def _hashes(columns: list[pa.Array]) -> Words:
    sizes = len(columns) + sum(np.asarray(pc.binary_length(column)) for column in columns)
    padded = _joined([*columns, PADS.take(pa.array(sizes & 7))])
    _, offsets, data = padded.buffers()
    places = np.frombuffer(offsets, np.int32, len(padded) + 1) >> 3
    words = np.frombuffer(data, "<u8", int(places[-1]))
    powers, inverses = _powers(1 << len(words).bit_length())
    hashes: Words = np.add.reduceat(words * powers[: len(words)], places[:-1])
    hashes *= inverses[places[:-1]]
    hashes ^= hashes >> np.uint64(32)
    hashes *= np.uint64(MIX)
    hashes ^= hashes >> np.uint64(32)
    return hashes


@lru_cache(4)
def _powers(count: int) -> tuple[Words, Words]:
    """The first powers of BASE, and their inverses."""
    inverse = pow(BASE, -1, 2**64)
    powers, inverses = (np.full(count, number, np.uint64).cumprod() for number in (BASE, inverse))
    return powers, inverses


def _joined(columns: Iterable[pa.Array]) -> Any:
    return pc.binary_join_element_wise(*columns, SEPARATOR)


def _bytes(array: Any) -> pa.Array:
    """Each value as bytes, of any type."""
    found = _as_bytes(array)
    return found.fill_null(NULL) if found.null_count else found


def _as_bytes(array: Any) -> Any:
    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return _as_bytes(array.storage)
    if pt.is_dictionary(kind):
        return _as_bytes(array.dictionary_decode())
    if pt.is_run_end_encoded(kind):
        return _as_bytes(pc.run_end_decode(array))
    if pt.is_struct(kind):
        fields = [_bytes(field) for field in array.flatten()]
        return pc.if_else(array.is_valid(), _joined(fields) if fields else b"", NULL)
    if pt.is_map(kind):
        return _as_bytes(array.cast(pa.list_(pa.struct([kind.key_field, kind.item_field]))))
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        lengths = pc.list_value_length(array).fill_null(0).cast(pa.int32())
        offsets = pa.concat_arrays([pa.array([0], pa.int32()), pc.cumulative_sum(lengths)])
        items = pc.binary_join(pa.ListArray.from_arrays(offsets, _bytes(array.flatten())), SEPARATOR)
        return pc.if_else(array.is_valid(), items, NULL)
    if pt.is_boolean(kind):
        return _as_bytes(array.cast(pa.uint8()))
    if pt.is_primitive(kind) or pt.is_decimal(kind):
        array = array.view(pa.binary(kind.bit_width // 8))
    return array.cast(pa.binary())
