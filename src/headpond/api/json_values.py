"""A typed topic's values out of JSON, by its columns: the way back from what ``consume --json`` prints.

Times are ISO 8601, bytes are text or ``{"base64": …}``, decimals are numbers or text, maps are objects or
lists of pairs. What does not fit is left as it is: the check of the row names its column. A number with a point
in it comes as a ``Decimal``, so that all of its digits are there for a column that holds them.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from headpond.model.errors import BadRequest


def from_json(value: Any, kind: pa.DataType) -> Any:
    if value is None:
        return None
    if pt.is_struct(kind) and isinstance(value, dict):
        kinds = {kind.field(index).name: kind.field(index).type for index in range(kind.num_fields)}
        return {name: from_json(each, kinds[name]) if name in kinds else each for name, each in value.items()}
    if pt.is_map(kind):
        pairs = list(value.items()) if isinstance(value, dict) else value
        if isinstance(pairs, list) and all(isinstance(each, list | tuple) and len(each) == 2 for each in pairs):
            return [(from_json(key, kind.key_type), from_json(each, kind.item_type)) for key, each in pairs]
        return value
    if isinstance(value, list) and (pt.is_list(kind) or pt.is_large_list(kind) or pt.is_fixed_size_list(kind)):
        return [from_json(each, kind.value_type) for each in value]
    return _scalar(value, kind)


def _scalar(value: Any, kind: pa.DataType) -> Any:
    if _is_bytes(kind):
        return as_bytes(value)
    if isinstance(value, Decimal) and not pt.is_decimal(kind):
        return _number(value, kind)
    if not isinstance(value, str):
        return value
    try:
        if pt.is_decimal(kind):
            return Decimal(value)
        if pt.is_timestamp(kind):
            return datetime.fromisoformat(_in_micros(value))
        if pt.is_date(kind):
            return date.fromisoformat(value)
        if pt.is_time(kind):
            return time.fromisoformat(_in_micros(value))
    except (ValueError, InvalidOperation):
        pass
    return value


def _number(value: Decimal, kind: pa.DataType) -> Any:
    """The nearest number for a floating-point column, unless it is infinite; others look if it is whole."""
    if not pt.is_floating(kind):
        return value
    nearest = float(value)
    return value if math.isinf(nearest) else nearest


def _in_micros(text: str) -> str:
    """Python reads six digits behind the point and drops what follows: that must be nothing."""
    if re.search(r"[.,]\d{6}0*[1-9]", text):
        raise ValueError(text)
    return text


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def as_bytes(value: Any) -> Any:
    """Text as UTF-8, ``{"base64": …}`` as its bytes; anything else as it is."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        try:
            return base64.b64decode(value["base64"], validate=True)
        except (binascii.Error, ValueError):
            raise BadRequest(f"{value['base64'][:40]!r} is not base64") from None
    return value
