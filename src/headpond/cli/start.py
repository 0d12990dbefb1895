"""Where a subscription begins, or is set to, as it is written on the command line."""

from __future__ import annotations

from datetime import datetime

import typer


def parse_start(text: str, option: str, *, new: bool = True) -> str | int:
    """``earliest``, ``latest``, an entry's number, or a time; of a ``new`` subscription ``state`` too."""
    if text in ("earliest", "latest") or (new and text == "state"):
        return text
    if text.isascii() and text.isdigit() and len(text) < 20:
        return int(text)
    try:
        datetime.fromisoformat(text)
    except ValueError:
        words = "earliest, latest, state" if new else "earliest, latest"
        message = f"write {words}, an entry's number, or a time such as 2026-01-31T12:00:00+00:00"
        raise typer.BadParameter(message, param_hint=f"'{option}'") from None
    return text


def parse_place(text: str, option: str) -> tuple[int, int]:
    """``ENTRY`` or ``SHARD/ENTRY``, as (shard, entry)."""
    shard, _, entry = text.rpartition("/")
    numbers = [shard or "0", entry]
    if not all(each.isascii() and each.isdigit() and len(each) < 20 for each in numbers):
        raise typer.BadParameter(f"{text!r} is not ENTRY or SHARD/ENTRY", param_hint=f"'{option}'")
    return int(numbers[0]), int(numbers[1])
