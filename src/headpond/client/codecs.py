"""Codecs: how the values of messages become bytes, and bytes values.

``codec_of`` finds the codec of a type: text as UTF-8; structs of msgspec, dataclasses, dicts, lists and
whatever else msgspec knows as JSON; models of pydantic by their own JSON, without an import of pydantic. A
``Codec`` of two functions is for all other forms, such as Protobuf.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar, get_origin, is_typeddict

import msgspec

from headpond.model.errors import BadRequest, BadValue
from headpond.model.message import Message

Item = TypeVar("Item")

_WHY_LENGTH_MAX = 300
_TYPED = "the topic has a schema, and its values are rows: open the consumer without value="


@dataclass(frozen=True)
class Codec(Generic[Item]):
    """Two functions, and the name of the type in errors."""

    encode: Callable[[Item], bytes]
    decode: Callable[[bytes], Item]
    name: str = "the codec's type"

    def to_bytes(self, value: Item) -> bytes:
        """A value as bytes; ``BadValue`` if it cannot be."""
        try:
            return self.encode(value)
        except BadValue:
            raise
        except Exception as error:  # a codec is the program's
            raise BadValue(f"{type(value).__name__} cannot be written as {self.name}: {_why(error)}") from error

    def read(self, message: Message[Any]) -> None:
        """Puts the decoded value into a message; ``BadValue`` has the message as ``raw``."""
        data = message.value
        if data is None:  # a deleted key of a state topic
            return
        try:
            if not isinstance(data, bytes):
                raise TypeError(_TYPED)
            message.value = self.decode(data)
        except Exception as error:  # a codec is the program's
            place = f"entry {message.entry} of shard {message.shard} of {message.topic}"
            bad = BadValue(f"{place} cannot be read as {self.name}: {_why(error)}")
            bad.raw = message
            raise bad from error


def codec_of(kind: Any) -> Codec[Any] | None:
    """The codec of a type, or the given one; None for bytes, which need none."""
    if kind is bytes:
        return None
    if isinstance(kind, Codec):
        return kind
    if kind is str:
        return Codec(partial(_encode, str, str.encode), bytes.decode, "text")
    name = getattr(kind, "__name__", None) or str(kind)
    if hasattr(kind, "model_validate_json"):
        return Codec(partial(_encode, kind, _pydantic_json), kind.model_validate_json, name)
    try:
        known = not isinstance(msgspec.inspect.type_info(kind), msgspec.inspect.CustomType)
        decode = msgspec.json.Decoder(kind).decode if known else None
    except TypeError:
        decode = None
    if decode is None:
        raise BadRequest(
            f"value is {kind!r:.60}; it must be bytes, str, a type that JSON can hold, or a Codec",
            hint="Structs of msgspec, dataclasses, models of pydantic, dict and list are such types.",
        )
    origin = dict if is_typeddict(kind) else get_origin(kind) or kind
    kinds = origin if isinstance(origin, type) and origin is not float else object
    return Codec(partial(_encode, kinds, msgspec.json.encode), decode, name)


def _encode(kind: type, encode: Callable[[Any], bytes], value: Any) -> bytes:
    if not isinstance(value, kind):
        raise BadValue(f"a value of this producer is {kind.__name__}, not {type(value).__name__}")
    return encode(value)


def _pydantic_json(value: Any) -> bytes:
    text: str = value.model_dump_json()
    return text.encode()


def _why(error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    return text if len(text) <= _WHY_LENGTH_MAX else f"{text[:_WHY_LENGTH_MAX]}…"
