"""``headpond errors [CODE]``: the catalogue of errors."""

from __future__ import annotations

import difflib
import inspect
from typing import Annotated, Any

import typer

from headpond.cli.completion import error_codes
from headpond.cli.options import DEFAULT_URL, AsJson, UnusedToken, UnusedUrl
from headpond.cli.output import print_fields, print_json, print_table, reports_errors
from headpond.model.errors import CATALOGUE, BadRequest, HeadpondError


@reports_errors
def errors(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE", help="The code to explain. [default: list all codes]", autocompletion=error_codes
        ),
    ] = None,
    url: UnusedUrl = DEFAULT_URL,
    token: UnusedToken = None,
    as_json: AsJson = False,
) -> None:
    """Explain an error code: its meaning, what to do, and whether a retry can help."""
    if code is None:
        _print_all(as_json=as_json)
    else:
        _print_one(_find(code), as_json=as_json)


def _find(code: str) -> type[HeadpondError]:
    kind = CATALOGUE.get(code.lower())
    if kind is None:
        near = difflib.get_close_matches(code.lower(), CATALOGUE, n=3, cutoff=0.4)
        hint = f"Did you mean {' or '.join(near)}?" if near else "`headpond errors` lists all codes."
        raise BadRequest(f"there is no error code {code!r}", hint=hint)
    return kind


def _entry(kind: type[HeadpondError]) -> dict[str, Any]:
    return {
        "code": kind.code,
        "meaning": inspect.cleandoc(kind.__doc__ or ""),
        "hint": kind.default_hint,
        "retryable": kind.retryable,
    }


def _print_one(kind: type[HeadpondError], *, as_json: bool) -> None:
    entry = _entry(kind)
    if as_json:
        print_json(entry)
        return
    print(f"{entry['meaning']}\n")
    print_fields(
        [("code", kind.code), ("class", f"headpond.errors.{kind.__name__}"), ("retryable", kind.retryable)]
    )
    print(f"hint       {kind.default_hint}")


def _print_all(*, as_json: bool) -> None:
    entries = [_entry(CATALOGUE[code]) for code in sorted(CATALOGUE)]
    if as_json:
        print_json(entries)
        return
    rows = [(entry["code"], entry["retryable"], entry["meaning"].splitlines()[0]) for entry in entries]
    print_table(("CODE", "RETRYABLE", "MEANING"), rows)
