"""Values as JSON, one rule for all: what ``consume`` prints, and what a dead letter of a typed topic holds.

Bytes are text where they are UTF-8, else ``{"base64": …}``; times are ISO 8601, decimals are text, a number
that is none (NaN) is null. A map whose keys cannot be JSON's is a list of pairs.
"""

from __future__ import annotations

import base64
from typing import Any

import msgspec

_ENCODER = msgspec.json.Encoder(enc_hook=str)


def readable(data: Any) -> Any:
    """A value with its bytes as JSON can hold them; so inside of a typed topic's rows too."""
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
    """Values that are readable already, one a line."""
    return _ENCODER.encode_lines(values)
