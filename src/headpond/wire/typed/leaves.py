"""The form of each column in a typed segment, and its dictionaries.

A column's type decides its **form**. A ``string`` is one leaf: its texts are coded by a dictionary. A column of
``map<string, string>`` (labels) is three leaves: the dictionaries of its names, of its texts, and of its whole
**sets**, whose values are pairs of indices into the other two. Leaves are numbered in schema order. Strings
deeper inside structs and lists stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from headpond.model.errors import SchemaMismatch

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


class Leaf(NamedTuple):
    column: int
    part: str
    """``column``, or ``names``, ``texts`` or ``sets`` of labels."""


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


def leaves_of(schema: pa.Schema) -> list[Leaf]:
    """The leaves of a topic's schema, in order."""
    found: list[Leaf] = []
    for index, kind in enumerate(schema.types):
        form = form_of(kind)
        if form == ColumnForm.CODED:
            found.append(Leaf(index, "column"))
        elif form == ColumnForm.SETS:
            found += (Leaf(index, part) for part in ("names", "texts", "sets"))
    return found


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


# --- allowed types -----------------------------------------------------------------------------------


def check_schema(schema: pa.Schema) -> None:
    """Refuses a schema that a typed topic cannot carry."""
    for field in schema:
        for kind in _types_in(field.type):
            if pt.is_dictionary(kind):
                raise SchemaMismatch(f"column {field.name!r} is {kind}; give the type of its values")
            if isinstance(kind, pa.BaseExtensionType) or pt.is_run_end_encoded(kind) or _is_list_view(kind):
                raise SchemaMismatch(f"column {field.name!r} is {kind}, which a typed topic does not carry")
    if len(set(schema.names)) < len(schema.names):
        raise SchemaMismatch("two columns have the same name")
    if all(pt.is_null(kind) or (pt.is_struct(kind) and kind.num_fields == 0) for kind in schema.types):
        raise SchemaMismatch("a schema needs a column that can hold data")


def _is_list_view(kind: pa.DataType) -> bool:
    """Views may repeat the same values many times, so that few bytes unfold to many."""
    return bool(pt.is_list_view(kind) or pt.is_large_list_view(kind))


def _types_in(kind: pa.DataType) -> Iterator[pa.DataType]:
    yield kind
    for index in range(kind.num_fields):
        yield from _types_in(kind.field(index).type)
