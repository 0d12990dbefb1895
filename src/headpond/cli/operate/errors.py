"""``headpond errors [CODE]``: the catalogue of errors."""

from __future__ import annotations

import difflib
import inspect
from functools import partial
from typing import Annotated

from headpond.cli.command import command, did_you_mean
from headpond.cli.completion import error_codes
from headpond.cli.options import argument
from headpond.cli.output import Output, print_fields
from headpond.model.errors import CATALOGUE, BadRequest, HeadpondError
from headpond.shapes.convert import explained_object


@command()
def errors(
    output: Output,
    code: Annotated[
        str | None, argument("CODE", "The code to explain. [default: list all codes]", error_codes)
    ] = None,
) -> None:
    """Explain an error code: its meaning, what to do, and whether a retry can help."""
    if code is not None:
        kind = _find(code)
        output.show(explained_object(kind), partial(_print, kind))
        return
    entries = [explained_object(kind) for _, kind in sorted(CATALOGUE.items())]
    rows = [{**entry, "meaning": entry["meaning"].partition(". ")[0]} for entry in entries]
    output.table(entries, "code retryable meaning", rows)


def _find(code: str) -> type[HeadpondError]:
    kind = CATALOGUE.get(code.lower())
    if kind is None:
        near = difflib.get_close_matches(code.lower(), CATALOGUE, n=3, cutoff=0.4)
        hint = did_you_mean(near) if near else "`headpond errors` lists all codes."
        raise BadRequest(f"there is no error code {code[:80]!r}", hint=hint)
    return kind


def _print(kind: type[HeadpondError]) -> None:
    print(f"{inspect.cleandoc(kind.__doc__ or '')}\n")
    name = f"headpond.errors.{kind.__name__}"
    print_fields([("code", kind.code), ("class", name), ("retryable", kind.retryable)])
    print(f"hint       {kind.default_hint}")
