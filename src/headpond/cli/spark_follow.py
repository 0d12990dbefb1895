"""``headpond spark audit --follow``: a line for every time window that is closed."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import typer

from headpond.cli.output import EXIT_ERROR, iso_time, note, print_json

if TYPE_CHECKING:
    from headpond.spark.jobs.follow import Following

EXIT_NOT_ONCE = 3
"""All of it arrived, but some of it more than once, or something came that nobody sent."""
_LINE = "{:<24}  {:>10}  {:>10}  {:>10}  {:>10}  {:>8}  {:>8}"


def follow_audit(sent: str, received: str, *, as_json: bool, **options: Any) -> None:
    """Goes on until Ctrl-C, and ends with what is known then."""
    from headpond.spark.jobs.follow import Following, follow

    known = Following()
    told = 0

    def update(found: Following) -> None:
        nonlocal known, told
        known = found
        if as_json:
            print_json(found)
            return
        if not told and found.windows:
            print(_LINE.format("FROM", "SENT", "MISSING", "REPEATED", "STRANGERS", "OPEN", "LATE"))
        for window in found.windows:
            if window.start_us >= told:
                told = window.start_us + 1
                missing = window.sent - window.unique
                row = (iso_time(window.start_us), window.sent, missing, window.repeated, window.strangers)
                print(_LINE.format(*row, found.open, found.late), flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        follow(sent, received, update=update, **options)
    if not as_json:
        note(
            f"{known.sent:,} sent, {known.missing:,} missing, {known.repeated:,} repeated; "
            f"R {share_text(known.R)}, UR {share_text(known.UR)}; {known.open:,} open, {known.late:,} late"
        )
    if not known.complete:
        raise typer.Exit(EXIT_ERROR)
    if not known.clean:
        raise typer.Exit(EXIT_NOT_ONCE)


def share_text(value: float | None) -> str:
    """One is written as one only if it is."""
    if value is None:
        return "-"
    return f"{value:g}" if value in (0.0, 1.0) else f"{value:.6f}"
