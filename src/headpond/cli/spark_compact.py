"""``headpond spark compact``: the small files of an archive as few large ones."""

from __future__ import annotations

from typing import Annotated

import typer

from headpond.cli.options import DEFAULT_URL, AsJson, UnusedToken, UnusedUrl
from headpond.cli.output import note, print_fields, print_json, reports_errors
from headpond.cli.spark_shown import ArchiveArgument, Master, shown


@reports_errors
def compact(
    folder: ArchiveArgument,
    target_bytes: Annotated[
        int, typer.Option("--target-bytes", min=1, metavar="N", help="The size of a file, about.")
    ] = 256 * 1024 * 1024,
    master: Master = "local[*]",
    url: UnusedUrl = DEFAULT_URL,
    token: UnusedToken = None,
    as_json: AsJson = False,
) -> None:
    """Put the files of each day of an archive together.

    Readers see the old files of a day or the new ones, never both or neither.
    """
    from headpond.spark.jobs.compact import compact as run_compact

    with shown() as progress:
        result = run_compact(folder, target_bytes=target_bytes, master=master, progress=progress)
    if as_json:
        print_json(result)
        return
    print_fields(
        [
            ("archive", result.folder),
            ("days", result.days),
            ("files before", result.files_before),
            ("files after", result.files_after),
            ("bytes before", result.bytes_before),
            ("bytes after", result.bytes_after),
        ]
    )
    note(f"{result.rows:,} rows written anew in {result.seconds:.1f} s")
