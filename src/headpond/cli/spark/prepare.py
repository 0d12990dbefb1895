"""``headpond spark prepare``: makes sessions of Spark start faster."""

from __future__ import annotations

import shlex
from typing import Annotated

import typer

from headpond.cli.options import DEFAULT_URL, AsJson, UnusedToken, UnusedUrl
from headpond.cli.output import note, print_fields, print_json, reports_errors
from headpond.cli.spark.job_options import progress_line


@reports_errors
def prepare(
    again: Annotated[
        bool, typer.Option("--again", help="Replace the file if it is there.", show_default=False)
    ] = False,
    url: UnusedUrl = DEFAULT_URL,
    token: UnusedToken = None,
    as_json: AsJson = False,
) -> None:
    """Make Spark start faster on this machine, once for each Java and Spark.

    Runs a session and stores the classes that it loads in a file of about 200 MB, which later sessions map into
    memory. Takes a minute or two of CPU. Nothing depends on the file; you can remove it at any time.
    """
    from headpond.spark.start.class_cache import prepare as run_prepare

    with progress_line() as progress:
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
        note(f"removed {folder}, which no session can use")
    if result.made:
        note(f"made in {result.seconds:.0f} s; sessions on this Java and Spark use it from now on")
    else:
        note("it was there, and sessions use it; --again replaces it")
    note(f"to remove it: rm -r {shlex.quote(result.folder)}")
