"""Checks the output of a command against the shape that it is declared to have."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any, get_args, get_origin

import msgspec

from tests.cli.json_shapes import PRINTS

COMMANDS: dict[str, Any] = {
    " ".join(words): kind
    for commands, kind in PRINTS.items()
    for words in product(*(word.split("|") for word in commands.split()))
}


def check(command: str, out: bytes) -> Any:
    """Parses the output; an ``AssertionError`` names where it differs from its shape."""
    kind = COMMANDS[command]
    if get_origin(kind) is Iterator:
        lines = out.splitlines()
        assert lines, f"{command} printed nothing"
        return [_checked(command, json.loads(line), get_args(kind)[0]) for line in lines]
    assert out.count(b"\n") == 1, f"{command} printed {out[:200]!r}"
    return _checked(command, json.loads(out), kind)


def _checked(command: str, value: Any, kind: Any) -> Any:
    try:
        found = msgspec.to_builtins(msgspec.convert(value, kind))
    except msgspec.ValidationError as error:
        raise AssertionError(f"{command}: {error}") from error
    more = list(_unknown(value, found, command))
    assert not more, f"no shape has {', '.join(more)}"
    return value


def _unknown(value: Any, found: Any, at: str) -> Iterator[str]:
    """The fields of a value that its shape does not have."""
    if isinstance(value, dict) and isinstance(found, dict):
        yield from (f"{at}.{name}" for name in value.keys() - found.keys())
        for name in value.keys() & found.keys():
            yield from _unknown(value[name], found[name], f"{at}.{name}")
    elif isinstance(value, list) and isinstance(found, list):
        for number, (each, other) in enumerate(zip(value, found, strict=True)):
            yield from _unknown(each, other, f"{at}[{number}]")
