"""``headpond spark prepare``: sessions of Spark that start faster from then on."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from headpond.cli.options import DEFAULT_URL, AsJson, UnusedToken, UnusedUrl
from headpond.cli.output import note, print_fields, print_json, reports_errors
from headpond.cli.spark.pipeline import shown


@reports_errors
def prepare(
    again: Annotated[
        bool, typer.Option("--again", help="Make it anew if it is there.", show_default=False)
    ] = False,
    url: UnusedUrl = DEFAULT_URL,
    token: UnusedToken = None,
    as_json: AsJson = False,
) -> None:
    """Make Spark start faster on this machine, once for each Java and Spark.

    Runs a session, and keeps the classes that it loaded as a file of about 200 MB that later sessions map into
    memory. Takes a minute or two of CPU. Nothing depends on the file, and it can be removed at any time.
    """
    from headpond.spark.start.preparing import prepare as run_prepare

    with shown() as progress:
        result = run_prepare(again=again, progress=progress)
    if as_json:
        print_json(result)
        return
    print_fields(
        [
            ("folder", result.folder),
            ("bytes", result.bytes),
            ("classes", result.classes),
            ("java", f"{result.java} ({result.java_version})"),
            ("spark", result.spark),
        ]
    )
    for folder in result.removed:
        note(f"removed {folder}, which no session can use any more")
    if result.made:
        note(f"made in {result.seconds:.0f} s; sessions on this Java and Spark use it from now on")
    else:
        note("it was there, and sessions use it; --again makes it anew")
    note(f"to be rid of it: rm -r {shlex.quote(result.folder)}")
