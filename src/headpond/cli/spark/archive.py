"""``headpond spark archive`` and ``compact``: a topic as Parquet files, every message once."""

from __future__ import annotations

from typing import Annotated

import typer

from headpond.cli.options import DEFAULT_URL, AsJson, Token, TopicArgument, UnusedToken, UnusedUrl, Url
from headpond.cli.output import note, print_fields, print_json, reports_errors
from headpond.cli.spark.job_options import ArchiveArgument, JobMaster, progress_line


@reports_errors
def archive(
    topic: TopicArgument,
    folder: ArchiveArgument,
    follow: Annotated[
        bool, typer.Option("--follow", help="Continue with new messages, until Ctrl-C.", show_default=False)
    ] = False,
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="With --follow: the interval between batches.")
    ] = "10 seconds",
    batch_bytes: Annotated[
        int, typer.Option("--batch-bytes", min=1, metavar="N", help="The bytes to read at a time, about.")
    ] = 256 * 1024 * 1024,
    compact: Annotated[
        bool, typer.Option("--compact", help="Compact the archive afterwards.", show_default=False)
    ] = False,
    master: JobMaster = "local[*]",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Add the messages of a topic to its archive.

    Run again, it adds the new ones. The next run completes one that was killed.
    """
    from headpond.spark.jobs.archive import archive as run_archive
    from headpond.spark.jobs.archive import compact as run_compact

    if follow and compact:
        raise typer.BadParameter("does not work with --follow", param_hint="'--compact'")
    with progress_line() as progress:
        result = run_archive(
            topic,
            folder,
            follow=follow,
            every=every,
            batch_bytes=batch_bytes,
            url=url,
            token=token,
            master=master,
            progress=progress,
        )
        if compact:
            run_compact(folder, master=master, progress=progress)
    if as_json:
        print_json(result)
        return
    print_fields(
        [
            ("topic", result.topic),
            ("archive", result.folder),
            ("added", result.rows),
            ("files", result.files),
        ]
    )
    note(f"{result.rows:,} messages in {result.batches:,} batches, {result.seconds:.1f} s")


@reports_errors
def compact(
    folder: ArchiveArgument,
    target_bytes: Annotated[
        int, typer.Option("--target-bytes", min=1, metavar="N", help="The size of a file, about.")
    ] = 256 * 1024 * 1024,
    master: JobMaster = "local[*]",
    url: UnusedUrl = DEFAULT_URL,
    token: UnusedToken = None,
    as_json: AsJson = False,
) -> None:
    """Join the files of each day of an archive.

    Readers see the old files of a day or the new ones, never both or neither.
    """
    from headpond.spark.jobs.archive import compact as run_compact

    with progress_line() as progress:
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
    note(f"{result.rows:,} rows rewritten in {result.seconds:.1f} s")
