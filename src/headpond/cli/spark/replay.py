"""``headpond spark replay`` and ``reshard``: messages written to a topic, each once in all runs."""

from __future__ import annotations

from typing import Annotated

import typer

from headpond.cli.options import DEFAULT_URL, AsJson, Token, TopicArgument, Url
from headpond.cli.output import EXIT_ERROR, note, print_fields, print_json, reports_errors
from headpond.cli.spark.job_options import BatchEntries, JobMaster, progress_line


@reports_errors
def replay(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A topic, an archive, or another folder of Parquet files.")
    ],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The topic to write to.")],
    start: Annotated[
        str | None, typer.Option("--start", metavar="P", help="Where to begin in a topic: an entry, a time.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="P", help="Where to end in a topic, likewise.")
    ] = None,
    where: Annotated[
        str | None, typer.Option("--where", metavar="SQL", help="Write only rows for which this is true.")
    ] = None,
    batch_entries: BatchEntries = 500_000,
    to_url: Annotated[
        str | None, typer.Option("--to-url", metavar="URL", help="The node to write to, if it is another one.")
    ] = None,
    to_token: Annotated[
        str | None, typer.Option("--to-token", metavar="TEXT", help="The access token of that node.")
    ] = None,
    master: JobMaster = "local[*]",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Write the messages of a source to a topic.

    Run again, after a kill or on a topic that grew, it writes only the rest.
    """
    from headpond.spark.jobs.replay import replay as run_replay

    with progress_line() as progress:
        result = run_replay(
            source,
            target,
            start=start,
            end=end,
            where=where,
            batch_entries=batch_entries,
            url=url,
            token=token,
            to_url=to_url,
            to_token=to_token,
            master=master,
            progress=progress,
        )
    if as_json:
        print_json(result)
        return
    print_fields(
        [
            ("source", result.source),
            ("target", result.target),
            ("written", result.rows),
            ("there before", result.there),
        ]
    )
    note(f"{result.rows:,} messages in {result.batches:,} batches, {result.seconds:.1f} s")


@reports_errors
def reshard(
    source: TopicArgument,
    target: Annotated[str, typer.Argument(metavar="NEW", help="The new topic; created if it is not there.")],
    shards: Annotated[int, typer.Option("--shards", min=1, metavar="N", help="Its shards, a power of two.")],
    batch_entries: BatchEntries = 500_000,
    master: JobMaster = "local[*]",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Copy a topic into a new one with another number of shards, and compare the two.

    Exits with 1 unless every message is there once and in order.
    """
    from headpond.spark.jobs.reshard import reshard as run_reshard

    with progress_line() as progress:
        result = run_reshard(
            source,
            target,
            shards,
            batch_entries=batch_entries,
            url=url,
            token=token,
            master=master,
            progress=progress,
        )
    if as_json:
        print_json(result)
    else:
        print_fields(
            [
                ("source", f"{result.source} ({result.shards_before} shards)"),
                ("target", f"{result.target} ({result.shards} shards)"),
                ("written", result.rows),
                ("there before", result.there),
                ("compared", result.sent),
                ("missing", result.missing),
                ("repeated", result.repeated),
                ("from elsewhere", result.strangers),
                ("in order", result.in_order),
                ("verified", result.verified),
            ]
        )
        note(f"{result.sent:,} messages in {result.seconds:.1f} s")
    if not result.verified:
        raise typer.Exit(EXIT_ERROR)
