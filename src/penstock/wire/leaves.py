"""Leaves: the text arrays of a schema that a typed topic dictionary-encodes.

A column of ``string`` is one leaf; one of ``map<string, string>`` (labels) is two, its names and its texts.
Strings deeper inside structs and lists stay as they are. On the wire a leaf is ``dictionary<uint16, string>``
until it goes plain. Leaves are numbered in schema order, which is also the order of Arrow's dictionary ids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.types as pt

from penstock.model.errors import SchemaMismatch

TEXT: Final[pa.DataType] = pa.string()
INDEX: Final[pa.DataType] = pa.uint16()
CODED: Final[pa.DataType] = pa.dictionary(INDEX, TEXT)


class Leaf(NamedTuple):
    column: int
    part: str
    """``column``, or ``key`` or ``item`` of a map."""


def leaves_of(schema: pa.Schema) -> list[Leaf]:
    """The leaves of a topic's schema, in order."""
    found: list[Leaf] = []
    for index, kind in enumerate(schema.types):
        if kind == TEXT:
            found.append(Leaf(index, "column"))
        elif pt.is_map(kind) and kind.key_type == TEXT and kind.item_type == TEXT:
            found += (Leaf(index, "key"), Leaf(index, "item"))
    return found


def check_schema(schema: pa.Schema) -> None:
    """Refuses what a typed topic cannot carry."""
    for field in schema:
        for kind in _types_in(field.type):
            if pt.is_dictionary(kind):
                raise SchemaMismatch(f"column {field.name!r} is {kind}; give the type of its values")
            if isinstance(kind, pa.BaseExtensionType) or pt.is_run_end_encoded(kind) or _is_list_view(kind):
                raise SchemaMismatch(f"column {field.name!r} is {kind}, which a typed topic does not carry")
    if len(set(schema.names)) < len(schema.names):
        raise SchemaMismatch("a column's name comes twice")
    if all(pt.is_null(kind) or (pt.is_struct(kind) and kind.num_fields == 0) for kind in schema.types):
        raise SchemaMismatch("a schema needs a column that can hold data")


def _is_list_view(kind: pa.DataType) -> bool:
    """Views may name the same values many times, so that few bytes unfold to many."""
    return bool(pt.is_list_view(kind) or pt.is_large_list_view(kind))


def _types_in(kind: pa.DataType) -> Iterator[pa.DataType]:
    yield kind
    for index in range(kind.num_fields):
        yield from _types_in(kind.field(index).type)


def wire_schema(schema: pa.Schema, plain: Sequence[bool]) -> pa.Schema:
    """A topic's schema with each leaf that is not plain as a dictionary."""
    coded = {leaf for leaf, is_plain in zip(leaves_of(schema), plain, strict=True) if not is_plain}
    fields = [
        field.with_type(
            _map_of(field.type, CODED if (i, "key") in coded else TEXT, CODED if (i, "item") in coded else TEXT)
            if {(i, "key"), (i, "item")} & coded
            else CODED
        )
        if {(i, "column"), (i, "key"), (i, "item")} & coded
        else field
        for i, field in enumerate(schema)
    ]
    return pa.schema(fields, metadata=schema.metadata)


def topic_schema(wire: pa.Schema) -> pa.Schema:
    """The topic's schema behind a wire schema: each dictionary that stands for a leaf is its text again."""
    fields = []
    for field in wire:
        kind = field.type
        if kind == CODED:
            field = field.with_type(TEXT)
        elif pt.is_map(kind) and kind.key_type in (TEXT, CODED) and kind.item_type in (TEXT, CODED):
            field = field.with_type(_map_of(kind, TEXT, TEXT))
        fields.append(field)
    return pa.schema(fields, metadata=wire.metadata)


def leaf_array(batch: pa.RecordBatch, leaf: Leaf) -> pa.Array:
    """The array of a leaf. A map's must begin at its first row and hold no more (as read from IPC)."""
    column = batch.column(leaf.column)
    if leaf.part == "column":
        return column
    return column.keys if leaf.part == "key" else column.items


def replace_leaves(
    batch: pa.RecordBatch, schema: pa.Schema, replaced: Mapping[Leaf, pa.Array]
) -> pa.RecordBatch:
    """The batch with some leaves' arrays replaced, in the schema that then fits."""
    arrays: list[Any] = []
    for index, column in enumerate(batch.columns):
        names, texts = replaced.get(Leaf(index, "key")), replaced.get(Leaf(index, "item"))
        if names is not None or texts is not None:
            names = column.keys if names is None else names
            texts = column.items if texts is None else texts
            column = _map_array(column, schema.field(index).type, names, texts)
        arrays.append(replaced.get(Leaf(index, "column"), column))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _map_of(kind: pa.DataType, key: pa.DataType, item: pa.DataType) -> pa.DataType:
    return pa.map_(kind.key_field.with_type(key), kind.item_field.with_type(item), kind.keys_sorted)


def _map_array(column: pa.Array, kind: pa.DataType, names: pa.Array, texts: pa.Array) -> pa.Array:
    if names.null_count:  # Arrow aborts the process over a map with a null key, so it is told here
        raise ValueError("a label without name")
    entry = pa.StructArray.from_arrays([names, texts], fields=[kind.key_field, kind.item_field])
    bitmap, offsets = column.buffers()[:2]
    bitmap = bitmap if column.null_count else None
    return pa.Array.from_buffers(
        kind, len(column), [bitmap, offsets], column.null_count, column.offset, children=[entry]
    )
