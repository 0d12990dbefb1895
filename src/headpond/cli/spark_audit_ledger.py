"""``headpond spark audit --sent-ledger``: a producer's ledger against what was received."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from headpond.cli.output import EXIT_ERROR, note, print_fields, print_json, print_table
from headpond.cli.spark_follow import EXIT_NOT_ONCE, share_text
from headpond.cli.spark_shown import shown

if TYPE_CHECKING:
    from headpond.spark.jobs.audit_ledger import LedgerAudit

LINES_MAX = 20


def audit_ledger(
    sent: str,
    received: str | None,
    *,
    as_json: bool,
    url: str,
    token: str | None,
    received_url: str | None,
    received_token: str | None,
    master: str,
) -> None:
    from headpond.spark.jobs.audit_ledger import audit_ledger as run_audit
    from headpond.spark.jobs.audit_ledger import parse_sent

    topic, producer = parse_sent(sent)
    with shown() as progress:
        result = run_audit(
            topic,
            received,
            producer=producer,
            url=url,
            token=token,
            received_url=received_url,
            received_token=received_token,
            master=master,
            progress=progress,
        )
    if as_json:
        print_json(result)
    else:
        _print(result)
    if not result.complete:
        raise typer.Exit(EXIT_ERROR)
    if not result.clean:
        raise typer.Exit(EXIT_NOT_ONCE)


def _print(result: LedgerAudit) -> None:
    at_most = "≤ " if result.unclosed else ""
    print_fields(
        [
            ("sent", f"{result.sent:,} segments"),
            ("received", f"{result.received:,} segments, {result.received_messages:,} messages"),
            ("missing", f"{result.missing:,} segments"),
            ("stored", f"{result.stored:,} segments, {result.messages:,} messages, by the ledger's node"),
            ("refused", result.refused),
            ("pending", result.pending),
            ("holes", result.holes),
            ("repeated", f"{result.repeated_messages:,} messages"),
            ("R", at_most + share_text(result.R)),
        ]
    )
    for count, words in (
        (result.short_messages, "messages at least are missing of segments that were received in part"),
        (result.unclosed, "blocks never ended: what their producer held in memory is not known"),
        (result.forgotten, "segments of forgotten blocks, which the ledger knows as a sum: not compared"),
        (result.blocks_left_out, "blocks are too many for one answer: not compared"),
        (result.ahead, "segments received that were not announced to the ledger's node"),
        (result.other_messages, "messages received of blocks that were not compared"),
    ):
        if count:
            note(f"{count:,} {words}")
    if len(result.producers) > 1:
        print()
        print_table(
            ("PRODUCER", "BLOCKS", "SENT", "RECEIVED", "MISSING", "REFUSED", "PENDING", "HOLES", "R"),
            [
                (
                    each.producer or "(unnamed)",
                    *(each.blocks, each.sent, each.received, each.missing),
                    *(each.refused, each.pending, each.holes, share_text(each.R)),
                )
                for each in result.producers
            ],
        )
    if result.ranges:
        print()
        print_table(
            ("MISSING", "SHARD", "SEGMENTS", "LEDGER'S NODE", "PRODUCER"),
            [
                (
                    each.block,
                    each.shard,
                    f"{each.first}-{each.end - 1}",
                    each.there,
                    each.producer or "(unnamed)",
                )
                for each in result.ranges[:LINES_MAX]
            ],
        )
        left = len(result.ranges) + result.ranges_left_out - LINES_MAX
        if left > 0:
            note(f"and {left:,} ranges more; --json tells the first 1,000")
    note(f"{result.ledger_of} against {result.received_from}, compared in {result.seconds:.1f} s")
