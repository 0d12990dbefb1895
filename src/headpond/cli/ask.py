"""One question to a node, and one to the person at the terminal."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import typer

from headpond.cli.output import note, run
from headpond.model.errors import HeadpondError

if TYPE_CHECKING:
    from headpond.client.admin import Admin

Result = TypeVar("Result")


def ask(url: str, token: str | None, question: Callable[[Admin], Awaitable[Result]]) -> Result:
    """Asks the node one thing."""
    import headpond
    from headpond.cli.near import with_near_names

    async def main() -> Result:
        async with headpond.connect(url, token=token) as client:
            try:
                return await question(client.admin)
            except HeadpondError as error:
                raise await with_near_names(client.admin, error) from None

    return run(main())


def confirm(question: str) -> None:
    """Asks a person; a script has to say ``--yes``."""
    if not sys.stdin.isatty():
        raise typer.BadParameter("there is no terminal to ask at; say --yes", param_hint="'--yes'")
    if not typer.confirm(question, err=True):
        note("nothing was deleted")
        raise typer.Exit(1)
