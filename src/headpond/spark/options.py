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
    """In words, for the documentation."""
    meaning: str


def given_options(
    options: Mapping[str, str], declared: Iterable[Option], *, ignored: Collection[str] = ()
) -> dict[str, str]:
    """The values by declared name; Spark's spelling of a name is any. ``ignored`` names are in lower case."""
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
    """Also of the path that ``load``, ``save`` and ``start`` take, which a topic has none of."""
    if key.lower() == "path":
        return BadRequest(
            f"a path is given, {value!r}, and a topic has none",
            hint='Name the topic with .option("topic", …), and call load, save and start without a path.',
        )
    return BadRequest(f"option {key!r} is unknown", hint=f"There are {', '.join(known)}.")


def word_of(name: str, values: Mapping[str, str], words: tuple[str, ...]) -> str:
    """An option that is one of some words, the first unless another is given."""
    word = values.get(name, words[0]).lower()
    if word not in words:
        raise BadRequest(f"{name} = {values[name]!r} is none of {', '.join(words)}")
    return word


def whole_number(text: str, low: int, high: int) -> int | None:
    """The number that a text is; None where it is none, or not within these."""
    number = int(text) if text.isdecimal() and len(text) <= 20 else -1
    return number if low <= number <= high else None


def options_table(declared: Iterable[Option]) -> str:
    """The options as a table in Markdown."""
    rows = [f"| `{option.name}` | {option.default} | {option.meaning} |" for option in declared]
    return "\n".join(["| option | default | |", "|---|---|---|", *rows])
