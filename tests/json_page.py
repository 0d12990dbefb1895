"""docs/json.md, from the shapes: ``python -m tests.reference_pages`` writes it."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from datetime import datetime
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec

from headpond.shapes.convert import ErrorShape
from headpond.shapes.message import Row
from tests.cli.json_shapes import MEANINGS, PRINTS

START = """\
# What `--json` prints

<!-- Generated from the code: python -m tests.reference_pages -->

Every command takes `--json`. Its output on stdout is then a contract: the tests run every command and compare
its output with these tables.

- **Stable**: fields keep their names, types and meaning. Versions can add fields, so ignore those that you do
  not know. A change that breaks this needs a new major version and an entry in the changelog.
- **One value** on one line: an object, or a list of objects; or *lines*, one object each.
- **Exit codes** are the same as without `--json` ([cli.md](cli.md)).
- **Errors**: with exit code 1 the last line on stderr is an [error](#error), unless the result itself shows the
  fault (`produce`, `ledger`, `inspect`, `refill show`, `refill send`, `explain`, `lab`, `demo`). With exit code
  2 stderr has text for a person. Stderr can have lines for a person before the error; stdout never has.

Types: `text`, `int`, `number`, `bool`, `time` (ISO 8601 in UTC, ending in `Z`), `any`, `list of T`, `map of T`
(an object whose keys are names), `T or null`. A field with a question mark is only in some of the commands.
Topics have all four parts of their name. Bytes are text if they are UTF-8, otherwise `{"base64": text}`.
"""
PLAIN = {str: "text", int: "int", float: "number", bool: "bool", Any: "any", datetime: "time"}
TIMES = re.compile(r"(\w+_at|at|since|last)")
TITLES = {Row: "message"}
SHARED_MIN = 5
"""A shape with all the fields of another, of so many or more, refers to it."""
SUFFIX = re.compile(r"(Shape|Result|Info)$")


EXPLAINED_IN = {
    "ledger.md": "ledger, log account, producer account, subscription account, block account",
    "subscriptions.md": "policy",
    "spark_jobs.md": "audit, audit latency, audit part, orders, followed audit, ledger audit, sent account",
    "pipes.md": "lab, faults, delay, crash, interval, latency, predicted, sweep, route summary",
}
"""Shapes whose fields another page explains."""
PAGE_OF = {shape: page for page, shapes in EXPLAINED_IN.items() for shape in shapes.split(", ")}
IN_JSON = {
    "topic.schema": "Its newest columns; null: a plain topic",
    "place.topic_list": "The topics below it; at most 10,000",
    "subscription.dead_entries": "`[shard, first, end)` of dead entries, only in `sub show`; at most 10,000",
    "subscription.lost_ranges": "The latest 1,000 losses, only in `sub show`",
}
"""Fields whose docstring describes another form of them."""


class Line(NamedTuple):
    name: str
    type: str
    meaning: str


Shown = dict[Any, list[Line]]
"""The lines of the shapes that have a section already."""


def json_page() -> str:
    printed: dict[Any, list[str]] = {ErrorShape: []}
    for command, kind in PRINTS.items():
        form, shape = _form(kind)
        printed.setdefault(shape, []).append(f"`{command}`{form}")
    parts = [START]
    shown: Shown = {}
    for shape, commands in printed.items():
        parts += _sections(shape, [f"Printed by {', '.join(commands)}"] if commands else [], shown)
    return "\n".join(parts)


def _form(kind: Any) -> tuple[str, Any]:
    """How many objects of a shape a command prints, in words; and the shape."""
    origin = get_origin(kind)
    if origin is None:
        return "", kind
    return " (list)" if origin is list else " (lines)", get_args(kind)[0]


def _sections(shape: Any, commands: list[str], shown: Shown) -> Iterator[str]:
    """The section of a shape, and those of the shapes in it that have none yet."""
    if shape in shown:
        return
    hints = {name: hint for name, hint in get_type_hints(shape).items() if _is_field(hint)}
    lines = list(_lines(shape, hints))
    page = PAGE_OF.get(title(shape))
    if page is not None:
        lines = [line._replace(meaning="") for line in lines]
        if commands or title(shape) == "policy":
            commands = [*commands, f"[{page}]({page}) explains the fields"]
    yield "\n".join([f"## {title(shape)}", "", *_body(lines, commands, shown)])
    shown[shape] = lines
    for hint in hints.values():
        for inner in _shapes_in(hint):
            yield from _sections(inner, [], shown)


def _body(lines: list[Line], commands: list[str], shown: Shown) -> Iterator[str]:
    """The commands, the fields that need no explanation by their type, and a table of the others."""
    if commands:
        yield f"{'; '.join(commands)}.\n"
    found: list[str] = []
    contained = [each for each in shown if len(shown[each]) >= SHARED_MIN and set(shown[each]) < set(lines)]
    if contained:
        largest = max(contained, key=lambda each: len(shown[each]))
        lines = [line for line in lines if line not in shown[largest]]
        found.append(f"All fields of {_link(largest)}")
    by_type: dict[str, list[str]] = {}
    for line in lines:
        if not line.meaning:
            by_type.setdefault(line.type, []).append(line.name)
    found += [f"{', '.join(names)}: {kind}" for kind, names in by_type.items()]
    if found:
        yield f"{'; '.join(found)}.\n"
    explained = [line for line in lines if line.meaning]
    if explained:
        yield "| field | meaning |\n|---|---|"
        yield from (f"| {line.name} {line.type} | {line.meaning} |" for line in explained)
        yield ""


def _lines(shape: Any, hints: dict[str, Any]) -> Iterator[Line]:
    meanings = meanings_of(shape)
    optional = getattr(shape, "__optional_keys__", ())
    for name, hint in hints.items():
        meaning = IN_JSON.get(f"{title(shape)}.{name}", meanings.get(name, ""))
        if NoneType in get_args(hint):  # on the wire, an empty text or a 0 means "none"
            meaning = re.sub(r"\b(0|empty)(?=:| if| for| with| at)", "null", meaning)
        yield Line(f"`{name}`" + "?" * (name in optional), _type(name, hint), meaning)


def title(shape: Any) -> str:
    words = re.findall(r"[A-Z]+[a-z]*", SUFFIX.sub("", shape.__name__))
    return TITLES.get(shape, " ".join(words).lower())


def _type(name: str, hint: Any) -> str:
    if get_origin(hint) in (Union, UnionType):
        kinds = [_type(name, each) for each in get_args(hint) if each is not NoneType]
        whole = " or ".join(dict.fromkeys(kinds)) if len(kinds) < 3 else "any"
        return f"{whole} or null" if NoneType in get_args(hint) else whole
    if get_origin(hint) is Annotated:
        return _type(name, get_args(hint)[0])
    if get_origin(hint) in (list, tuple):
        return f"list of {_type('', get_args(hint)[0])}"
    if get_origin(hint) is dict:
        return f"map of {_type('', get_args(hint)[1])}"
    if hint is str and TIMES.fullmatch(name):
        return "time"
    if hint in PLAIN:
        return PLAIN[hint]
    return _link(hint) if _is_shape(hint) else "text"


def _link(shape: Any) -> str:
    return f"[{title(shape)}](#{title(shape).replace(' ', '-')})"


def _shapes_in(hint: Any) -> Iterator[Any]:
    if _is_shape(hint):
        yield hint
    for inner in get_args(hint):
        yield from _shapes_in(inner)


def _is_shape(hint: Any) -> bool:
    return isinstance(hint, type) and (issubclass(hint, msgspec.Struct) or hasattr(hint, "__required_keys__"))


def _is_field(hint: Any) -> bool:
    return "ClassVar" not in str(hint)


def meanings_of(shape: Any) -> dict[str, str]:
    """The docstring behind each field: of the shape, its bases, or the class that its values come from."""
    found: dict[str, str] = {}
    for kind in (shape, *MEANINGS.get(shape, ())):
        for name, text in _field_docs(kind).items():
            found.setdefault(name.removesuffix("_us"), text)
            found.setdefault(name, text)
    return found


def _field_docs(kind: Any) -> dict[str, str]:
    try:
        (body,) = ast.parse(inspect.getsource(kind)).body
    except (OSError, TypeError, ValueError):  # made at run time
        return {}
    if not isinstance(body, ast.ClassDef):
        return {}
    module = vars(sys.modules[kind.__module__])
    found: dict[str, str] = {}
    for base in body.bases:
        if isinstance(base, ast.Name) and base.id in module and base.id not in ("TypedDict", "object"):
            found |= _field_docs(module[base.id])
    for field, text in zip(body.body, body.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
            assert isinstance(field.target, ast.Name) and isinstance(text.value, ast.Constant)
            found[field.target.id] = _shown(" ".join(str(text.value.value).split()))
    return found


def _shown(text: str) -> str:
    """The first clause of a docstring, and what null means, as a cell of a table."""
    sentence = re.split(r"\. [A-Z]|; (?!None|null|0|empty)", text.replace("``", "`").replace("|", "\\|"))[0]
    return re.sub(r"\bNone\b", "null", sentence).removesuffix(".")
