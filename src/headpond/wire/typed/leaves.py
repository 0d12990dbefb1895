"""The form of each column in a typed segment, and its dictionaries.

A column's type decides its **form**. A ``string`` is one leaf: its texts are coded by a dictionary. A column of
``map<string, string>`` (labels) is three leaves: the dictionaries of its names, of its texts, and of its whole
**sets**, whose values are pairs of indices into the other two. Leaves are numbered in schema order. Strings
deeper inside structs and lists stay as they are.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

TEXT: Final[pa.DataType] = pa.string()
BYTES: Final[pa.DataType] = pa.binary()


class ColumnForm(IntEnum):
    """How a segment encodes a column; form.py documents the bytes."""

    ABSENT = 0
    FIXED = 1
    INTS = 2
    TEXTS = 3
    CODED = 4
    LABELS = 5
    SETS = 6
    IPC = 7


STORED: Final = {"i": pa.int32(), "I": pa.uint32(), "q": pa.int64()}
"""The integer types by struct code (``integer_code``)."""
INSTEAD: Final = {ColumnForm.CODED: ColumnForm.TEXTS, ColumnForm.SETS: ColumnForm.LABELS}
"""The form of a column after one of its dictionaries has gone plain."""


class Column(NamedTuple):
    """The properties of a column that follow from its type."""

    kind: pa.DataType
    form: ColumnForm
    leaf: int
    """The number of its first leaf; for a column without leaves, the number of the next leaf."""
    code: str
    """The struct code of its integers, if its form is ``INTS``."""
    bits: int
    """The width of its values, if Arrow stores them in one buffer."""
    null_bytes: float
    """Memory per row if the column is all null."""


def is_labels(kind: pa.DataType) -> bool:
    return bool(pt.is_map(kind)) and kind.key_type == TEXT and kind.item_type == TEXT


def form_of(kind: pa.DataType) -> ColumnForm:
    """The form of a type while its dictionaries are in use."""
    if kind == TEXT:
        return ColumnForm.CODED
    if is_labels(kind):
        return ColumnForm.SETS
    if kind == BYTES:
        return ColumnForm.TEXTS
    if integer_code(kind):
        return ColumnForm.INTS
    if pt.is_null(kind):
        return ColumnForm.ABSENT
    return ColumnForm.FIXED if _bits(kind) else ColumnForm.IPC


def integer_code(kind: pa.DataType) -> str:
    """The struct code of a type that Arrow stores as integers of four or eight bytes; else empty."""
    if kind == pa.uint32():
        return "I"
    if kind == pa.int32() or pt.is_date32(kind) or pt.is_time32(kind):
        return "i"
    if kind == pa.int64() or pt.is_date64(kind) or pt.is_time64(kind):
        return "q"
    return "q" if pt.is_timestamp(kind) or pt.is_duration(kind) else ""


def _bits(kind: pa.DataType) -> int:
    """The width of a type that Arrow stores in one buffer; else 0."""
    fixed = pt.is_primitive(kind) or pt.is_decimal(kind) or pt.is_fixed_size_binary(kind)
    return int(kind.bit_width) if fixed else 0


def columns_of(schema: pa.Schema) -> list[Column]:
    """The columns of a topic's schema, in order."""
    found: list[Column] = []
    leaves = 0
    for kind in schema.types:
        form = form_of(kind)
        found.append(Column(kind, form, leaves, integer_code(kind), _bits(kind), _null_bytes(kind)))
        leaves += {ColumnForm.CODED: 1, ColumnForm.SETS: 3}.get(form, 0)
    return found


def leaf_kinds(schema: pa.Schema) -> list[pa.DataType]:
    """The types of the leaves' values, in order: texts, or sets as bytes."""
    kinds = {ColumnForm.CODED: [TEXT], ColumnForm.SETS: [TEXT, TEXT, BYTES]}
    return [kind for column in schema.types for kind in kinds.get(form_of(column), [])]


def _null_bytes(kind: pa.DataType) -> float:
    """At least what Arrow allocates for a null of this type."""
    if pt.is_null(kind):
        return 0
    children = [_null_bytes(kind.field(index).type) for index in range(kind.num_fields)]
    if pt.is_fixed_size_list(kind):
        return 1 / 8 + int(kind.list_size) * children[0]
    if pt.is_struct(kind) or pt.is_union(kind):
        return 5 + sum(children)
    return 1 / 8 + (_bits(kind) / 8 if _bits(kind) else 16)
