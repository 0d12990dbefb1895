"""From a struct of the wire to a JSON object: one rule for all fields, and the error of the catalogue."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from functools import cache
from types import NoneType, UnionType
from typing import Any, TypedDict, TypeVar, Union, cast, get_args, get_origin, get_type_hints

import msgspec

from headpond.model.errors import HeadpondError
from headpond.model.grant import redacted

Shape = TypeVar("Shape")


class ErrorShape(TypedDict):
    code: str
    message: str
    hint: str
    retryable: bool


def error_object(error: HeadpondError) -> ErrorShape:
    message, hint = redacted(error.message), redacted(error.hint)
    return {"code": error.code, "message": message, "hint": hint, "retryable": error.retryable}


class ErrorExplained(TypedDict):
    code: str
    meaning: str
    hint: str
    retryable: bool


def explained_object(kind: type[HeadpondError]) -> ErrorExplained:
    """The entry of an error in the catalogue."""
    meaning = " ".join((kind.__doc__ or "").split())
    return {"code": kind.code, "meaning": meaning, "hint": kind.default_hint, "retryable": kind.retryable}


def shape_of(name: str, struct: type[msgspec.Struct], nullable: Collection[str] = (), **given: Any) -> Any:
    """A TypedDict with the fields of a struct, as ``derive`` reads them; the ``nullable`` ones may be null.

    ``given`` are the types of fields that have another one in JSON.
    """
    fields: dict[str, Any] = {}
    for field, hint in get_type_hints(struct).items():
        field, hint = (field.removesuffix("_us"), str) if field.endswith("_us") else (field, hint)
        hint = given.get(field, hint)
        if get_origin(hint) in (Union, UnionType):
            hint = next(each for each in get_args(hint) if each is not NoneType)
        fields[field] = hint | None if field in nullable else hint
    return TypedDict(name, fields)  # type: ignore[operator]  # mypy knows literal ones only


def derive(shape: type[Shape], info: object, *optional: str, **given: Any) -> Shape:
    """The required fields of a TypedDict and some ``optional`` ones, read from ``info`` unless ``given``.

    A field ``x`` is read from ``info.x_us`` as a time, or from ``info.x``. Bytes become hexadecimal. Where the
    field may be null, an empty text and a zero become null: on the wire they mean "none".
    """
    found: dict[str, Any] = {}
    required, nullable = _fields(shape)  # type: ignore[arg-type]  # a class is hashable
    for name in (*required, *optional):
        if name in given:
            found[name] = given[name]
            continue
        micros = getattr(info, f"{name}_us", None)
        value = getattr(info, name, None) if micros is None else iso_time(micros)
        if name in nullable and (micros == 0 or value == ""):
            value = None
        found[name] = value.hex() if isinstance(value, bytes) else value
    return cast(Shape, found)  # tests/cli/test_json.py compares every field with docs/json.md


@cache
def _fields(shape: Any) -> tuple[list[str], set[str]]:
    """The required fields in their order, and all that may be null."""
    hints = get_type_hints(shape)
    required = [name for name in hints if name in shape.__required_keys__]
    return required, {name for name, hint in hints.items() if NoneType in get_args(hint)}


def iso_time(micros: int) -> str:
    """A time in UTC, to the millisecond."""
    from headpond.model.message import from_micros

    return from_micros(micros).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def iso_exact(at: datetime) -> str:
    """A time in UTC, to the microsecond."""
    return at.isoformat().replace("+00:00", "Z")
