"""The columns of a DataFrame over topics: Spark's types of them, and Arrow's that Spark takes without a copy.

``value`` is binary, or in a typed topic a struct of its columns, so that a column of theirs named ``id`` or
``key`` is no trouble. Types that Spark lacks become the nearest that holds every value: unsigned numbers the
next wider one, half floats floats, decimals of over 38 digits text. Times finer than a microsecond are cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt
from pyspark.errors import PySparkException
from pyspark.sql import types
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import DataType, StructType

from headpond.model.errors import SchemaMismatch

SPARK_DIGITS_MAX = 38
DIGITS_MAX = 76
"""The digits of Arrow's longest decimals."""
_UNSIGNED = {8: pa.int16(), 16: pa.int32(), 32: pa.int64(), 64: pa.decimal128(20, 0)}


def source_schema(columns: Sequence[str], value: pa.Schema | None) -> StructType:
    """The schema of a DataFrame of these columns; ``value`` are the columns of typed topics."""
    text, micros = types.StringType(), types.TimestampType()
    kinds: dict[str, DataType] = {
        "key": types.BinaryType(),
        "value": types.BinaryType() if value is None else _spark_type(pa.struct(list(value))),
        "id": text,
        "headers": types.MapType(text, text),
        "topic": text,
        "shard": types.IntegerType(),
        "entry": types.LongType(),
        "sent_at": micros,
        "stored_at": micros,
        "identity": text,
        "producer": text,
        "node": text,
    }
    return types.StructType([types.StructField(name, kinds[name]) for name in columns])


def arrow_schema(schema: StructType) -> pa.Schema:
    """The Arrow schema that Spark expects of batches."""
    return to_arrow_schema(schema, timezone="UTC")


def _spark_type(kind: pa.DataType) -> DataType:
    try:
        return from_arrow_type(_spark_like(kind))
    except PySparkException as error:
        raise SchemaMismatch(f"Spark has no type for {kind}: {error}") from error


def shown_as(kind: pa.DataType) -> str:
    """The name of Spark's type for a column, without nullability."""
    return _spark_type(kind).simpleString()


def _spark_like(kind: pa.DataType) -> pa.DataType:
    """The nearest type that Spark has."""
    if pt.is_unsigned_integer(kind):
        return _UNSIGNED[kind.bit_width]
    if pt.is_float16(kind):
        return pa.float32()
    if pt.is_decimal(kind) and kind.scale < 0:  # Spark has none that ends before the point
        kind = pa.decimal256(min(kind.precision - kind.scale, DIGITS_MAX), 0)
    if pt.is_decimal(kind) and kind.precision > SPARK_DIGITS_MAX:
        return pa.string()
    if pt.is_decimal256(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if pt.is_date64(kind):
        return pa.date32()
    if pt.is_time(kind):
        return pa.time64("ns")
    if pt.is_struct(kind):
        return pa.struct([field.with_type(_spark_like(field.type)) for field in kind])
    if pt.is_map(kind):
        item = kind.item_field.with_type(_spark_like(kind.item_type))
        return pa.map_(_spark_like(kind.key_type), item)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return pa.list_(kind.value_field.with_type(_spark_like(kind.value_type)))
    return kind


def fit(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """A column in the type that Spark expects, without a copy if it has it already."""
    if column.type.equals(kind):
        return column
    if pt.is_struct(kind):
        fields = list(kind)
        parts = [fit(part, field.type) for part, field in zip(column.flatten(), fields, strict=True)]
        mask = column.is_null() if column.null_count else None
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    return pc.cast(column, options=pc.CastOptions(kind, allow_time_truncate=True))
