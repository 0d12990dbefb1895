"""A typed topic's columns as Python values: a row is a dict, labels are a dict, times are datetimes.

Values that Python cannot hold are approximated: times are cut to microseconds, a time beyond the year 9999 is
its number, and a time in a zone that this machine does not know is in UTC.
"""

from __future__ import annotations

import base64
from itertools import pairwise
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.types as pt

_UNSHOWN: Final = (ValueError, OverflowError, KeyError, pa.ArrowException)


def python_values(column: pa.Array) -> list[Any]:
    """The values of a column of any type that a typed topic carries; None for null."""
    kind = column.type
    if pt.is_struct(kind):
        return _rows(column)
    if pt.is_map(kind):
        return _maps(column)
    if pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind):
        return _lists(column)
    if pt.is_temporal(kind):
        return _times(column)
    values: list[Any] = column.to_pylist()
    return values


def _rows(column: pa.Array) -> list[dict[str, Any] | None]:
    kind = column.type
    names = [kind.field(index).name for index in range(kind.num_fields)]
    parts = [python_values(column.field(index)) for index in range(kind.num_fields)]
    rows: list[dict[str, Any] | None] = [dict(zip(names, row, strict=True)) for row in zip(*parts, strict=True)]
    return _with_nulls(column, rows)


def _maps(column: pa.Array) -> list[dict[Any, Any] | None]:
    """Each map as a dict, in which the last of equal keys wins; as a list if its keys are not hashable."""
    starts = column.offsets.to_pylist()
    first, size = starts[0], starts[-1] - starts[0]
    keys = python_values(column.keys.slice(first, size))
    items = python_values(column.items.slice(first, size))
    make: Any = list if pt.is_nested(column.type.key_type) else dict
    maps = [
        make(zip(keys[start - first : end - first], items[start - first : end - first], strict=True))
        for start, end in pairwise(starts)
    ]
    return _with_nulls(column, maps)


def _lists(column: pa.Array) -> list[list[Any] | None]:
    values = python_values(column.flatten())  # flatten leaves out the values under a null list
    lists: list[list[Any] | None] = []
    at = 0
    for size in pc.list_value_length(column).to_pylist():
        lists.append(None if size is None else values[at : at + size])
        at += size or 0
    return lists


def _times(column: pa.Array) -> list[Any]:
    kind = column.type
    if getattr(kind, "unit", "") == "ns":
        micros: Any = pa.time64("us")
        if pt.is_timestamp(kind):
            micros = pa.timestamp("us", kind.tz)
        elif pt.is_duration(kind):
            micros = pa.duration("us")
        column = column.cast(micros, safe=False)
    try:
        values: list[Any] = column.to_pylist()
        return values
    except _UNSHOWN:
        return [_time(each) for each in column]


def _time(scalar: pa.Scalar) -> Any:
    try:
        return scalar.as_py()
    except _UNSHOWN:
        pass
    try:
        return scalar.cast(pa.timestamp(scalar.type.unit, "UTC")).as_py()
    except (*_UNSHOWN, AttributeError):
        return scalar.value


def _with_nulls(column: pa.Array, values: list[Any]) -> list[Any]:
    if not column.null_count:
        return values
    present = column.is_valid().to_pylist()
    return [value if there else None for value, there in zip(values, present, strict=True)]


# --- JSON --------------------------------------------------------------------------------------------
# One rule for ``consume --json`` and for dead letters of typed topics: bytes are text if they are UTF-8, else
# ``{"base64": …}``; times are ISO 8601, decimals are text, NaN is null. A map with other keys than strings is a
# list of pairs.

_ENCODER = msgspec.json.Encoder(enc_hook=str)


def readable(data: Any) -> Any:
    """A value with its bytes in their JSON form, nested ones included."""
    if isinstance(data, bytes):
        try:
            return data.decode()
        except UnicodeDecodeError:
            return {"base64": base64.b64encode(data).decode()}
    if isinstance(data, list | tuple):
        return [readable(each) for each in data]
    if isinstance(data, dict):
        if all(isinstance(key, str) for key in data):
            return {key: readable(each) for key, each in data.items()}
        return [[readable(key), readable(each)] for key, each in data.items()]
    return data


def value_json(value: Any) -> bytes:
    """A value of any kind as JSON."""
    return _ENCODER.encode(readable(value))


def json_lines(values: list[Any]) -> bytes:
    """Values from ``readable``, one per line."""
    return _ENCODER.encode_lines(values)
