"""Options of ``format("headpond")``: how source and sink declare them, and how they read the given ones.

An option that is unknown or empty is an error that names it. The tables of options in the documentation are
generated from the declarations.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from headpond.model.errors import BadRequest


class Option(NamedTuple):
    name: str
    default: str
    """As the documentation shows it."""
    meaning: str


def given_options(
    options: Mapping[str, str], declared: Iterable[Option], *, ignored: Collection[str] = ()
) -> dict[str, str]:
    """The values by declared name; given names may be in any case, and ``ignored`` ones are in lower case."""
    known = {option.name.lower(): option.name for option in declared}
    values: dict[str, str] = {}
    for key, value in options.items():
        name = known.get(key.lower())
        if name is None:
            if key.lower() in ignored:
                continue
            raise _unknown_option(key, value, known.values())
        if not str(value).strip():
            raise BadRequest(f"option {name} is empty", hint="Leave it out, or give it a value.")
        values[name] = str(value).strip()
    return values


def _unknown_option(key: str, value: str, known: Iterable[str]) -> BadRequest:
    """The error for an unknown option; a path, which ``load``, ``save`` and ``start`` take, has its own."""
    if key.lower() == "path":
        return BadRequest(
            f"a topic has no path, and {value!r} is given",
            hint='Name the topic with .option("topic", …), and call load, save and start without a path.',
        )
    return BadRequest(f"option {key!r} is unknown", hint=f"There are {', '.join(known)}.")


def word_of(name: str, values: Mapping[str, str], words: tuple[str, ...]) -> str:
    """The value of an option that is one of some words; the first is the default."""
    word = values.get(name, words[0]).lower()
    if word not in words:
        raise BadRequest(f"{name} = {values[name]!r} is none of {', '.join(words)}")
    return word


def whole_number(text: str, low: int, high: int) -> int | None:
    """The number in a text; None if it is no number, or not between these."""
    number = int(text) if text.isdecimal() and len(text) <= 20 else -1
    return number if low <= number <= high else None


def options_table(declared: Iterable[Option]) -> str:
    """The options as a table in Markdown."""
    rows = [f"| `{option.name}` | {option.default} | {option.meaning} |" for option in declared]
    return "\n".join(["| option | default | |", "|---|---|---|", *rows])
