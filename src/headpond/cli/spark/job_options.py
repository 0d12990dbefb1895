"""The options and the progress line that the jobs share."""

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
    typer.Option("--batch-entries", min=1, metavar="N", help="Entries of a shard per batch."),
]
JobMaster = Annotated[str, typer.Option("--master", metavar="MASTER", help="The Spark master that runs it.")]
Overwrite = Annotated[bool, typer.Option("--overwrite", help="Replace the files in --out.", show_default=False)]


@contextmanager
def progress_line() -> Iterator[Callable[[str], None] | None]:
    """Shows the progress of a job on one line of the terminal, if there is one."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.live import Live
    from rich.text import Text

    current = ["starting Spark"]

    class Line:
        def __rich__(self) -> Text:
            return Text(current[0])

    def progress(text: str) -> None:
        current[0] = text

    with Live(Line(), console=make_console(stderr=True), refresh_per_second=4, transient=True):
        yield progress
