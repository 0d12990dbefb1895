"""``headpond spark reshard``: a topic as a new one with another number of shards."""

from __future__ import annotations

from typing import Annotated

import typer

from headpond.cli.options import DEFAULT_URL, AsJson, Token, TopicArgument, Url
from headpond.cli.output import EXIT_ERROR, note, print_fields, print_json, reports_errors
from headpond.cli.spark_shown import BatchEntries, Master, shown


@reports_errors
def reshard(
    source: TopicArgument,
    target: Annotated[str, typer.Argument(metavar="NEW", help="The new topic; made if it is not there.")],
    shards: Annotated[int, typer.Option("--shards", min=1, metavar="N", help="Its shards, a power of two.")],
    batch_entries: BatchEntries = 500_000,
    master: Master = "local[*]",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Copy a topic into a new one with another number of shards, and compare the two.

    Exits with 1 unless everything is there, once, and in order.
    """
    from headpond.spark.jobs.reshard import reshard as run_reshard

    with shown() as progress:
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
