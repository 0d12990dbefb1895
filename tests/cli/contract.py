"""Checks the output of a command against the fields and types in docs/json.md."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any

from tests.root import ROOT

PAGE = ROOT / "docs" / "json.md"
_LINK = re.compile(r"\[([^\]]+)\]\(#[\w-]+\)")


@dataclass(frozen=True)
class Field:
    type: str
    only_in: tuple[str, ...]
    optional: bool


@dataclass(frozen=True)
class Contract:
    commands: dict[str, str]
    objects: dict[str, dict[str, Field]]


@cache
def contract() -> Contract:
    text = PAGE.read_text()
    commands = dict(re.findall(r"^\| `([^`]+)` \| ([^|]+) \|$", text, re.MULTILINE))
    objects = {}
    for title, body in re.findall(r"^### (.+)\n\n((?:\|.*\n)+)", text, re.MULTILINE):
        rows = re.findall(r"^\| `(\w+)` \| ([^|]+) \| (.*?) ?\|$", body, re.MULTILINE)
        objects[title] = {name: _field(kind, said) for name, kind, said in rows}
    return Contract(commands, objects)


def _field(kind: str, said: str) -> Field:
    only = tuple(re.findall(r"`([^`]+)`", said.partition("only in ")[2])) if "only in " in said else ()
    return Field(kind.strip(), only, "may be left out" in said)


def check(command: str, out: bytes) -> Any:
    """What was printed, parsed; an ``AssertionError`` says where it is not as the page says."""
    prints = contract().commands[command].strip()
    if prints.endswith(", one a line"):
        lines = out.splitlines()
        assert lines, f"{command} printed nothing"
        return [_checked(command, json.loads(line), prints.removesuffix(", one a line")) for line in lines]
    assert out.count(b"\n") == 1, f"{command} printed {out[:200]!r}"
    return _checked(command, json.loads(out), prints)


def check_object(command: str, out: bytes, kind: str) -> Any:
    """The same for what a command prints only with some option: an object that the page has under a title."""
    return _checked(command, json.loads(out), f"[{kind}](#{kind.replace(' ', '-')})")


def _checked(command: str, value: Any, kind: str) -> Any:
    faults = list(_faults(value, kind, command.removesuffix(" CODE"), command))
    assert not faults, "\n".join(faults)
    return value


def _faults(value: Any, kind: str, command: str, at: str) -> Iterator[str]:
    if kind.endswith(" or null"):
        if value is not None:
            yield from _faults(value, kind.removesuffix(" or null"), command, at)
    elif kind.startswith("list of "):
        if not isinstance(value, list):
            yield f"{at}: {value!r:.80} is no list"
            return
        for number, each in enumerate(value):
            yield from _faults(each, kind.removeprefix("list of "), command, f"{at}[{number}]")
    elif kind.startswith("map of "):
        if not isinstance(value, dict):
            yield f"{at}: {value!r:.80} is no object"
            return
        for name, each in value.items():
            yield from _faults(each, kind.removeprefix("map of "), command, f"{at}.{name}")
    elif (link := _LINK.fullmatch(kind)) is not None:
        yield from _object_faults(value, link[1], command, at)
    elif not PLAIN[kind](value):
        yield f"{at}: {value!r:.80} is not {kind}"


def _object_faults(value: Any, title: str, command: str, at: str) -> Iterator[str]:
    fields = contract().objects[title]
    if not isinstance(value, dict):
        yield f"{at}: {value!r:.80} is no {title}"
        return
    for name in value.keys() - fields.keys():
        yield f"{at}: field {name!r} is not on the page"
    for name, field in fields.items():
        expected = not field.only_in or command in field.only_in
        if name in value and not expected:
            yield f"{at}: the page says that {name!r} is only in {', '.join(field.only_in)}"
        elif name in value:
            yield from _faults(value[name], field.type, command, f"{at}.{name}")
        elif expected and not field.optional:
            yield f"{at}: field {name!r} is missing"


def _is_time(value: Any) -> bool:
    return isinstance(value, str) and value.endswith("Z") and datetime.fromisoformat(value) is not None


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


PLAIN: dict[str, Callable[[Any], bool]] = {
    "any": lambda value: True,
    "text": lambda value: isinstance(value, str),
    "bool": lambda value: isinstance(value, bool),
    "int": _is_int,
    "number": lambda value: _is_int(value) or isinstance(value, float),
    "time": _is_time,
    "bytes": lambda value: isinstance(value, str) or list(value) == ["base64"],
}
