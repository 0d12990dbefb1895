"""What commands on Spark have in common: their options, and a line on the terminal while they work."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import typer

from headpond.cli.output import make_console

ArchiveArgument = Annotated[str, typer.Argument(metavar="DIR", help="The archive's folder.")]
BatchEntries = Annotated[
    int,
    typer.Option("--batch-entries", min=1, metavar="N", help="Entries of a shard written at once."),
]
Master = Annotated[str, typer.Option("--master", metavar="MASTER", help="The Spark master that runs it.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace what is in --out.", show_default=False)]


@contextmanager
def shown() -> Iterator[Callable[[str], None] | None]:
    """Tells what is being done on a line that changes; says nothing where there is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.live import Live
    from rich.text import Text

    said = ["starting Spark"]

    class Line:
        def __rich__(self) -> Text:
            return Text(said[0])

    def progress(text: str) -> None:
        said[0] = text

    with Live(Line(), console=make_console(stderr=True), refresh_per_second=4, transient=True):
        yield progress
