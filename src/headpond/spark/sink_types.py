"""The way back of source_schema: what Spark has instead of a typed topic's types, in those types again.

So what was read from a topic can be written to one of the same columns. Only what the source itself shows a
column as is taken, and only values that the topic's type holds. Half floats would be rounded, and are not.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

from headpond.model.errors import SchemaMismatch
from headpond.spark.source_schema import shown_as
from headpond.wire.typed_rows import casts, is_messages


def in_types_of(columns: pa.Schema, rows: pa.Table) -> pa.Table:
    """The rows, with those columns in the topic's types that Spark could only have in others."""
    as_messages = is_messages(rows.schema, columns)
    for place, field in enumerate(rows.schema):
        if as_messages:
            kind = _struct(field.type, columns) if field.name == "value" else field.type
        else:
            kind = _kind(field.name, field.type, columns)
        if kind == field.type:
            continue
        try:
            rows = rows.set_column(place, field.with_type(kind), pc.cast(rows.column(place), kind))
        except pa.ArrowException as error:
            raise SchemaMismatch(
                f"column {field.name!r} is {field.type}: {error}; it must be {kind}"
            ) from error
    return rows


def _struct(value: pa.StructType, columns: pa.Schema) -> pa.StructType:
    return pa.struct([field.with_type(_kind(field.name, field.type, columns)) for field in value])


def _kind(name: str, given: pa.DataType, columns: pa.Schema) -> pa.DataType:
    """What a column is to be before it is held against the topic's, which widens numbers by itself."""
    place = columns.get_field_index(name)
    if place < 0:
        return given
    kind = columns.field(place).type
    if casts(given, kind) or _has_halves(kind) or shown_as(given) != shown_as(kind):
        return given
    return kind


def _has_halves(kind: pa.DataType) -> bool:
    return bool(pt.is_float16(kind)) or any(_has_halves(kind.field(at).type) for at in range(kind.num_fields))
