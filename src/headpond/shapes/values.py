"""Values that people write as JSON: bytes as text or base64, the columns of typed topics, and times."""

from __future__ import annotations

import base64
import binascii
import math
import re
from datetime import UTC, date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.types as pt

from headpond.model.errors import BadRequest
from headpond.model.message import to_micros

WITH_DIGITS: Final = msgspec.json.Decoder(float_hook=Decimal)
"""Keeps all digits of a number with a point."""


class Base64(msgspec.Struct, forbid_unknown_fields=True):
    base64: str


def text_bytes(given: str | Base64 | None) -> bytes | None:
    """Text as UTF-8; base64 as the bytes that it stands for."""
    if isinstance(given, Base64):
        return _unpacked(given.base64)
    return None if given is None else given.encode()


def _unpacked(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise BadRequest(f"{text[:40]!r} is not base64") from None


def utc_micros(at: datetime) -> int:
    """Microseconds since 1970; a time without a zone is one in UTC."""
    return to_micros(at if at.tzinfo is not None else at.replace(tzinfo=UTC))


def from_json(value: Any, kind: pa.DataType) -> Any:
    """A value of a typed topic from JSON, as ``consume --json`` prints it.

    Times are ISO 8601, bytes are text or ``{"base64": …}``, decimals are numbers or text, maps are objects or
    lists of pairs. A value that does not fit stays as it is: the check of the row names its column. A number
    with a point comes as a ``Decimal``, with all its digits.
    """
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
        return _column_bytes(value)
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
    """For a floating-point column the nearest number, unless that is infinite; for others the decimal."""
    if not pt.is_floating(kind):
        return value
    nearest = float(value)
    return value if math.isinf(nearest) else nearest


def _in_micros(text: str) -> str:
    """Refuses digits beyond microseconds, which Python would drop."""
    if re.search(r"[.,]\d{6}0*[1-9]", text):
        raise ValueError(text)
    return text


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pt.is_binary(kind) or pt.is_large_binary(kind) or pt.is_fixed_size_binary(kind))


def _column_bytes(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict) and set(value) == {"base64"} and isinstance(value["base64"], str):
        return _unpacked(value["base64"])
    return value
