"""Columns as people write them: ``name:type``, a file that lists them, or a file of data that has them.

A type is written as ``topic show`` prints it: ``int64``, ``string``, ``timestamp[us, UTC]``,
``decimal128(10, 2)``, ``list<string>``, ``map<string, string>``, ``struct<a: int32, b: string>``; with
``not null`` behind it the column takes no nulls.
"""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any, Final

import pyarrow as pa

from headpond.model.errors import BadRequest, SchemaMismatch

_NOT_NULL: Final = re.compile(r"\s+not\s+null\s*$", re.IGNORECASE)
_WRAPPED: Final = re.compile(r"(\w+)\s*(?:<(.*)>(?:\[(\d+)\])?|\((.*)\)|\[(.*)\])", re.DOTALL)
_HINT: Final = (
    "For example int64, float64, string, binary, bool, date32, timestamp[us, UTC], decimal128(10, 2), "
    "list<string>, map<string, string>, struct<a: int32>."
)
_FILE_HINT: Final = (
    'Write JSON, [{"name": "at", "type": "timestamp[us, UTC]"}, …], or TOML, [[columns]] with name and type; '
    "or give an Arrow or Parquet file that has these columns."
)
_BYTES_MAX: Final = 1024 * 1024


def parse_column(text: str) -> pa.Field:
    """A field from ``name:type``; a ``SchemaMismatch`` names the column."""
    name, colon, kind = text.partition(":")
    if not colon or not name.strip() or not kind.strip():
        raise SchemaMismatch(f"column {text!r} is not NAME:TYPE", hint=_HINT)
    return make_field(name.strip(), kind)


def make_field(name: str, text: str, nullable: bool = True) -> pa.Field:
    """A column of the type that a text names; a ``SchemaMismatch`` names the column."""
    try:
        return _field(name, text, nullable)
    except (ValueError, TypeError, RecursionError, pa.ArrowException) as error:
        raise SchemaMismatch(f"column {name!r}: {error}", hint=_HINT) from error


def _field(name: str, text: str, nullable: bool = True) -> pa.Field:
    bare = _NOT_NULL.sub("", text)
    return pa.field(name, parse_type(bare), nullable and bare == text)


def parse_type(text: str) -> pa.DataType:
    """The type that a text names; ``ValueError`` if there is none."""
    text = text.strip()
    wrapped = _WRAPPED.fullmatch(text)
    if wrapped is None:
        return pa.type_for_alias({"str": "string", "bytes": "binary", "int": "int64"}.get(text, text))
    kind, types, size, digits, unit = wrapped.groups()
    if types is not None:
        return _nested_type(kind, _split(types), size)
    if unit is not None and kind == "timestamp":
        name, _, zone = unit.partition(",")
        return pa.timestamp(name.strip(), zone.strip().removeprefix("tz=") or None)
    if unit is not None and kind == "fixed_size_binary":
        return pa.binary(int(unit))
    if unit is not None:
        return pa.type_for_alias(text.replace(" ", ""))
    make = {"decimal128": pa.decimal128, "decimal256": pa.decimal256}.get(kind)
    if make is None:
        raise ValueError(f"{text!r} is not a type")
    return make(*(int(number) for number in digits.split(",")))


def _nested_type(kind: str, parts: list[str], size: str | None) -> pa.DataType:
    if kind == "struct":
        return pa.struct([_member(part) for part in parts])
    if kind == "map" and len(parts) == 2:
        return pa.map_(_inner(parts[0], "key").type, _inner(parts[1], "value"))
    make = {"list": pa.list_, "large_list": pa.large_list}.get(kind)
    if make is not None and len(parts) == 1:
        return make(_inner(parts[0], "item"))
    if kind == "fixed_size_list" and len(parts) == 1 and size is not None:
        return pa.list_(_inner(parts[0], "item"), int(size))
    raise ValueError(f"{kind}<{', '.join(parts)}> is not a type")


def _split(text: str) -> list[str]:
    """The parts between the commas outside of brackets."""
    parts, depth, start = [], 0, 0
    for at, letter in enumerate(text):
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and depth == 0:
            parts.append(text[start:at].strip())
            start = at + 1
    return [*parts, text[start:].strip()]


def _inner(text: str, name: str) -> pa.Field:
    """A list's or a map's inner type, with or without the name that Arrow prints before it."""
    named, colon, kind = text.partition(":")
    if colon and re.fullmatch(r"\w+", named.strip()):
        return _field(named.strip(), kind)
    return _field(name, text)


def _member(text: str) -> pa.Field:
    name, colon, kind = text.partition(":")
    if not colon or not name.strip():
        raise ValueError(f"{text!r} is not NAME: TYPE")
    return _field(name.strip(), kind)


# --- files --------------------------------------------------------------------------------------------


def read_schema(path: Path) -> pa.Schema:
    """The columns that a file lists, or those of the data in an Arrow or Parquet file."""
    import pyarrow.parquet as pq

    try:
        with path.open("rb") as file:
            start = file.read(8)
    except OSError as error:
        raise BadRequest(f"cannot read {path}: {error.strerror}", hint=_FILE_HINT) from error
    try:
        if start[:4] == b"PAR1":
            return pq.read_schema(path)
        if start[:6] == b"ARROW1":
            with pa.OSFile(str(path)) as source:
                return pa.ipc.open_file(source).schema
        if start[:4] == b"\xff\xff\xff\xff":
            with pa.OSFile(str(path)) as source:
                return pa.ipc.open_stream(source).schema
    except (pa.ArrowException, OSError) as error:
        raise BadRequest(f"{path} cannot be read: {error}", hint=_FILE_HINT) from error
    return pa.schema([_listed(path, each) for each in _list(path)])


def _list(path: Path) -> list[Any]:
    """The columns that a JSON or TOML file lists."""
    try:
        with path.open("rb") as file:
            text = file.read(_BYTES_MAX).decode()
        listed: Any = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        raise BadRequest(f"{path} cannot be read: {error}", hint=_FILE_HINT) from error
    if isinstance(listed, dict) and "columns" in listed:
        listed = listed["columns"]
    if isinstance(listed, dict):
        listed = [{"name": name, "type": kind} for name, kind in listed.items()]
    if not isinstance(listed, list) or not listed:
        raise BadRequest(f"{path} lists no columns", hint=_FILE_HINT)
    return listed


def _listed(path: Path, column: Any) -> pa.Field:
    if isinstance(column, list | tuple) and len(column) == 2:
        column = {"name": column[0], "type": column[1]}
    if not isinstance(column, dict) or not all(isinstance(column.get(key), str) for key in ("name", "type")):
        raise BadRequest(f"{path}: {column!r:.80} has no name and type", hint=_FILE_HINT)
    unknown = sorted(set(column) - {"name", "type", "nullable"})
    if unknown or not isinstance(column.get("nullable", True), bool):
        what = f"{unknown[0]!r} is not known" if unknown else "nullable is true or false"
        raise BadRequest(f"{path}: column {column['name']!r}: {what}", hint=_FILE_HINT)
    return make_field(column["name"], column["type"], column.get("nullable", True))
