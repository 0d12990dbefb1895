"""A typed topic's schema: which columns it may have, and which other schemas are compatible with it.

A schema travels and is stored as Arrow's IPC schema message. Two rules, by column name, whatever the order:

- Rows **fit** a topic's schema if each of their columns has the topic's type or is a narrower number, and each
  column that they lack is nullable. Fitted rows are widened and filled with nulls.
- A topic's schema **evolves** into one that has all of its columns, each the same or a wider number, and
  whose new columns are nullable. So rows that fitted before fit after.

A number is wider if it holds every value of the other exactly. Anything else is a ``SchemaMismatch`` that names
the column, what it is and what it would have to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import pyarrow as pa
import pyarrow.types as pt

from headpond.model.errors import SchemaMismatch

SCHEMA_BYTES_MAX: Final = 32 * 1024
"""Every TITLE carries a schema, and is limited to 64 KiB."""
DEPTH_MAX: Final = 8
WIDTH_BYTES_MAX: Final = 64 * 1024
"""The memory of an empty row: a few bytes must not unfold to gigabytes."""

_FAULTS: Final = (pa.ArrowException, ValueError, OSError, EOFError, TypeError, RecursionError)
_SIMPLE: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pt.is_boolean,
    pt.is_integer,
    pt.is_floating,
    pt.is_decimal128,
    pt.is_decimal256,
    pt.is_string,
    pt.is_large_string,
    pt.is_binary,
    pt.is_large_binary,
    pt.is_fixed_size_binary,
    pt.is_date,
    pt.is_time,
    pt.is_timestamp,
    pt.is_duration,
)
_NESTED: Final[tuple[Callable[[pa.DataType], bool], ...]] = (
    pt.is_list,
    pt.is_large_list,
    pt.is_fixed_size_list,
    pt.is_struct,
    pt.is_map,
)
_SUPPORTED_HINT: Final = (
    "A typed topic carries booleans, numbers, decimals, text, bytes, dates, times, timestamps, durations, "
    "and lists, maps and structs of these."
)
_EXACT_BITS: Final = {"halffloat": 11, "float": 24, "double": 53}
"""Integers up to this many bits are exact in a floating-point number."""


def encode_schema(schema: pa.Schema) -> bytes:
    """The encoded schema, checked and without metadata."""
    if not isinstance(schema, pa.Schema):
        raise SchemaMismatch(
            f"a schema is a pyarrow.Schema, not {type(schema).__name__}",
            hint="For example pa.schema([('at', pa.timestamp('us', 'UTC')), ('value', pa.float64())]).",
        )
    check_columns(schema)
    bare = pa.schema([field.remove_metadata() for field in schema])
    data = bytes(bare.serialize())
    if len(data) > SCHEMA_BYTES_MAX:
        raise SchemaMismatch(
            f"a schema of {len(schema)} columns and {len(data):,} bytes; at most {SCHEMA_BYTES_MAX:,} can be",
            hint="Put columns that belong together into a struct or a map, or use shorter names.",
        )
    return data


def decode_schema(data: bytes) -> pa.Schema:
    """Decodes the result of ``encode_schema``; other bytes are a ``SchemaMismatch``."""
    if len(data) > SCHEMA_BYTES_MAX:
        raise SchemaMismatch(f"a schema of {len(data):,} bytes; at most {SCHEMA_BYTES_MAX:,} are allowed")
    try:
        schema = pa.ipc.read_schema(pa.py_buffer(data))
        list(texts_of(schema))
        check_columns(schema)
    except _FAULTS as error:
        raise SchemaMismatch(f"a schema that cannot be read: {error}") from error
    return schema


def texts_of(fields: Iterable[pa.Field]) -> Iterator[str]:
    """The names and time zones of columns, also inside of nested types.

    Arrow takes any bytes for such a text. If they are not UTF-8, a ``UnicodeDecodeError`` comes from here, not
    from a reader of the rows.
    """
    for field in fields:
        yield field.name
        yield getattr(field.type, "tz", None) or ""
        yield from texts_of(field.type.field(index) for index in range(field.type.num_fields))


def shown_schema(schema: pa.Schema) -> str:
    """The first 12 columns in one line."""
    shown = [f"{field.name}: {shown_column(field)}" for field in list(schema)[:12]]
    return ", ".join([*shown, "…"] if len(schema) > 12 else shown)


def shown_column(field: pa.Field) -> str:
    return f"{field.type}{'' if field.nullable else ' not null'}"


# --- allowed columns ----------------------------------------------------------------------------------


def check_columns(schema: pa.Schema) -> None:
    """Refuses a schema that a typed topic cannot have."""
    if len(schema) == 0:
        raise SchemaMismatch("a schema without columns", hint="Leave the schema out for a plain topic.")
    names: set[str] = set()
    for field in schema:
        if not field.name or field.name.startswith("@"):
            raise SchemaMismatch(
                f"column {field.name!r}: a name may not be empty or begin with '@'",
                hint="Names with '@' stand for the key, id, headers and time of a message.",
            )
        if field.name in names:
            raise SchemaMismatch(
                f"column {field.name!r} comes twice", hint="Give each column a name of its own."
            )
        names.add(field.name)
        _check_type(field.name, field.type)
    width = sum(width_bytes(field.type) for field in schema)
    if width > WIDTH_BYTES_MAX:
        raise SchemaMismatch(
            f"columns take {width:,} bytes per row even if empty; the limit is {WIDTH_BYTES_MAX:,}",
            hint="Use lists and bytes of a variable size instead of a fixed one.",
        )


def _check_type(name: str, kind: pa.DataType, depth: int = 0) -> None:
    if depth > DEPTH_MAX:
        raise SchemaMismatch(f"column {name!r} is nested more than {DEPTH_MAX} levels deep")
    if pt.is_dictionary(kind):
        raise SchemaMismatch(
            f"column {name!r} is {kind}; give the type of its values",
            hint="The topic makes its own dictionaries.",
        )
    if any(is_kind(kind) for is_kind in _SIMPLE) and not isinstance(kind, pa.BaseExtensionType):
        return
    if not any(is_kind(kind) for is_kind in _NESTED) or kind.num_fields == 0:
        raise SchemaMismatch(
            f"column {name!r} is {kind}, which a typed topic does not carry", hint=_SUPPORTED_HINT
        )
    for index in range(kind.num_fields):
        _check_type(name, kind.field(index).type, depth + 1)


def width_bytes(kind: pa.DataType) -> int:
    """The least memory of a value of the type, also if it is null."""
    if pt.is_fixed_size_list(kind):
        return 1 + int(kind.list_size) * width_bytes(kind.value_type)
    if pt.is_struct(kind):
        return 1 + sum(width_bytes(kind.field(index).type) for index in range(kind.num_fields))
    if pt.is_large_string(kind) or pt.is_large_binary(kind) or pt.is_large_list(kind):
        return 9
    if pt.is_string(kind) or pt.is_binary(kind) or pt.is_list(kind) or pt.is_map(kind):
        return 5
    if pt.is_fixed_size_binary(kind):
        return 1 + int(kind.byte_width)  # its bit_width may overflow
    return 1 + (int(kind.bit_width) + 7) // 8


# --- fitting and evolving -----------------------------------------------------------------------------


def check_fits(rows: pa.Schema, topic: pa.Schema) -> None:
    """Refuses rows that do not fit the topic's schema."""
    for field in rows:
        place = topic.get_field_index(field.name)
        if place < 0:
            raise SchemaMismatch(
                f"column {field.name!r} is not one of the topic's: {shown_schema(topic)}",
                hint="Add it to the topic first: `headpond topic alter TOPIC --column NAME:TYPE`.",
            )
        wanted = topic.field(place)
        if not is_widening(field.type, wanted.type):
            raise SchemaMismatch(f"column {field.name!r} is {field.type}; the topic has {wanted.type}")
        if field.nullable and not wanted.nullable:
            raise SchemaMismatch(f"column {field.name!r} may be null; the topic takes no nulls in it")
    for wanted in topic:
        if not wanted.nullable and rows.get_field_index(wanted.name) < 0:
            raise SchemaMismatch(f"column {wanted.name!r} is missing, and the topic takes no nulls in it")


def check_evolves(old: pa.Schema, new: pa.Schema) -> None:
    """Refuses a change of a topic's schema other than added nullable columns and widened numbers."""
    hint = "A schema changes only by added nullable columns and wider numbers; for more, create another topic."
    for field in old:
        place = new.get_field_index(field.name)
        if place < 0:
            raise SchemaMismatch(f"column {field.name!r} ({shown_column(field)}) would be lost", hint=hint)
        changed = new.field(place)
        if not is_widening(field.type, changed.type):
            raise SchemaMismatch(
                f"column {field.name!r} is {field.type} and cannot become {changed.type}", hint=hint
            )
        if field.nullable != changed.nullable:
            was, becomes = shown_column(field), shown_column(changed)
            raise SchemaMismatch(f"column {field.name!r} is {was} and cannot become {becomes}", hint=hint)
    for field in new:
        if not field.nullable and old.get_field_index(field.name) < 0:
            raise SchemaMismatch(
                f"column {field.name!r} is new and takes no nulls; the rows stored before have none in it",
                hint=hint,
            )


def is_widening(narrow: pa.DataType, wide: pa.DataType) -> bool:
    """Whether ``wide`` holds every value of ``narrow`` exactly: the same type, or a wider number."""
    if narrow == wide:
        return True
    if pt.is_decimal(narrow) and pt.is_decimal(wide):
        return bool(narrow.scale == wide.scale and narrow.precision <= wide.precision)
    if pt.is_integer(narrow) and pt.is_integer(wide):
        grows = bool(narrow.bit_width < wide.bit_width)
        return grows and bool(pt.is_unsigned_integer(narrow) or pt.is_signed_integer(wide))
    if pt.is_integer(narrow) and pt.is_floating(wide):
        return bool(narrow.bit_width <= _EXACT_BITS[str(wide)])
    return bool(pt.is_floating(narrow) and pt.is_floating(wide) and narrow.bit_width < wide.bit_width)


def fit_messages(messages: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch of messages with its values widened and filled with nulls to ``schema``, which they fit."""
    place = messages.schema.get_field_index("value")
    value = messages.column(place)
    wanted = pa.struct(list(schema))
    if value.type.equals(wanted):
        return messages
    parts = []
    for field in schema:
        at = value.type.get_field_index(field.name)
        if at < 0:
            parts.append(pa.nulls(len(value), field.type))
        else:
            part = value.field(at)
            parts.append(part if part.type.equals(field.type) else part.cast(field.type))
    missing = value.is_null() if value.null_count else None
    fitted = pa.StructArray.from_arrays(parts, fields=list(schema), mask=missing)
    return messages.set_column(place, pa.field("value", wanted, messages.schema.field(place).nullable), fitted)
