"""``headpond spark audit``: what was sent against what was received, message by message."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headpond.cli.options import DEFAULT_URL, AsJson, Token, Url
from headpond.cli.output import (
    EXIT_ERROR,
    iso_time,
    note,
    print_fields,
    print_json,
    print_table,
    reports_errors,
)
from headpond.cli.spark.pipeline import JobMaster, Overwrite, shown

if TYPE_CHECKING:
    from headpond.spark.jobs.audit.audit import AuditResult
    from headpond.spark.jobs.audit.figures import Figures, Part
    from headpond.spark.jobs.audit.follow import Following
    from headpond.spark.jobs.audit.ledger import LedgerAudit


EXIT_NOT_ONCE = 3
"""All of it arrived, but some of it more than once, or something came that nobody sent."""
_LINE = "{:<24}  {:>10}  {:>10}  {:>10}  {:>10}  {:>8}  {:>8}"


def follow_audit(sent: str, received: str, *, as_json: bool, **options: Any) -> None:
    """Goes on until Ctrl-C, and ends with what is known then."""
    from headpond.spark.jobs.audit.follow import Following, follow

    known = Following()
    told = 0

    def update(found: Following) -> None:
        nonlocal known, told
        known = found
        if as_json:
            print_json(found)
            return
        if not told and found.windows:
            print(_LINE.format("FROM", "SENT", "MISSING", "REPEATED", "STRANGERS", "OPEN", "LATE"))
        for window in found.windows:
            if window.start_us >= told:
                told = window.start_us + 1
                missing = window.sent - window.unique
                row = (iso_time(window.start_us), window.sent, missing, window.repeated, window.strangers)
                print(_LINE.format(*row, found.open, found.late), flush=True)

    with contextlib.suppress(KeyboardInterrupt):
        follow(sent, received, update=update, **options)
    if not as_json:
        note(
            f"{known.sent:,} sent, {known.missing:,} missing, {known.repeated:,} repeated; "
            f"R {share_text(known.R)}, UR {share_text(known.UR)}; {known.open:,} open, {known.late:,} late"
        )
    if not known.complete:
        raise typer.Exit(EXIT_ERROR)
    if not known.clean:
        raise typer.Exit(EXIT_NOT_ONCE)


def share_text(value: float | None) -> str:
    """One is written as one only if it is."""
    if value is None:
        return "-"
    return f"{value:g}" if value in (0.0, 1.0) else f"{value:.6f}"


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
    from headpond.spark.jobs.audit.ledger import audit_ledger as run_audit
    from headpond.spark.jobs.audit.ledger import parse_sent

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
        _print_ledger(result)
    if not result.complete:
        raise typer.Exit(EXIT_ERROR)
    if not result.clean:
        raise typer.Exit(EXIT_NOT_ONCE)


def _print_ledger(result: LedgerAudit) -> None:
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


LINES_MAX = 20


@reports_errors
def audit(
    sent: Annotated[
        str | None, typer.Argument(metavar="SENT", help="A topic, or a folder of Parquet files.")
    ] = None,
    received: Annotated[
        str | None, typer.Argument(metavar="RECEIVED", help="A topic, or a folder, to compare with it.")
    ] = None,
    sent_ledger: Annotated[
        str | None,
        typer.Option(
            "--sent-ledger",
            metavar="TOPIC[@PRODUCER]",
            help="In the place of SENT: what producers announced, as that topic's ledger knows it.",
        ),
    ] = None,
    by: Annotated[
        str,
        typer.Option(
            "--by", metavar="WHAT", help="What names a message: identity, id, or an expression of SQL."
        ),
    ] = "identity",
    sent_by: Annotated[
        str | None,
        typer.Option("--sent-by", metavar="WHAT", help="The same in SENT, where it has another form there."),
    ] = None,
    window: Annotated[
        str, typer.Option("--window", metavar="TIME", help="The length of a time window.")
    ] = "1 minute",
    start: Annotated[
        str | None, typer.Option("--start", metavar="P", help="Where to begin in SENT, if it is a topic.")
    ] = None,
    end: Annotated[
        str | None, typer.Option("--end", metavar="P", help="Where to end in SENT, if it is a topic.")
    ] = None,
    received_url: Annotated[
        str | None, typer.Option("--received-url", metavar="URL", help="The node of RECEIVED, if another.")
    ] = None,
    received_token: Annotated[
        str | None, typer.Option("--received-token", metavar="TEXT", help="The access token of that one.")
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Go on over two growing topics, until Ctrl-C.", show_default=False)
    ] = False,
    late: Annotated[
        str, typer.Option("--late", metavar="TIME", help="With --follow: how long a message is waited for.")
    ] = "1 minute",
    every: Annotated[
        str, typer.Option("--every", metavar="TIME", help="With --follow: how often it looks.")
    ] = "5 seconds",
    out: Annotated[
        Path | None, typer.Option("--out", metavar="DIR", help="Where all of it is written, with a picture.")
    ] = None,
    overwrite: Overwrite = False,
    master: JobMaster = "local[*]",
    url: Url = DEFAULT_URL,
    token: Token = None,
    as_json: AsJson = False,
) -> None:
    """Compare what was sent with what was received.

    Exits with 1 if something is missing, else with 3 if something came more than once or was never sent.
    """
    from headpond.spark.jobs.audit.audit import audit as run_audit

    whole = (("--out", out), ("--start", start), ("--end", end), ("--sent-by", sent_by))
    if sent_ledger is not None:
        if received is not None:
            raise typer.BadParameter("stands for SENT; name RECEIVED alone", param_hint="'--sent-ledger'")
        _refuse((*whole, ("--follow", follow or None)), by, "--sent-ledger")
        audit_ledger(
            sent_ledger,
            sent,
            as_json=as_json,
            url=url,
            token=token,
            received_url=received_url,
            received_token=received_token,
            master=master,
        )
        return
    if sent is None or received is None:
        raise typer.BadParameter("name what was sent and what was received", param_hint="'SENT RECEIVED'")
    if follow:
        _refuse(whole, by, "--follow")
        follow_audit(
            sent,
            received,
            as_json=as_json,
            window=window,
            late=late,
            every=every,
            url=url,
            token=token,
            received_url=received_url,
            received_token=received_token,
            master=master,
        )
        return
    with shown() as progress:
        result = run_audit(
            sent,
            received,
            by=by,
            sent_by=sent_by,
            window=window,
            url=url,
            token=token,
            received_url=received_url,
            received_token=received_token,
            start=start,
            end=end,
            out=out,
            overwrite=overwrite,
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


def _refuse(options: Iterable[tuple[str, object]], by: str, what: str) -> None:
    for option, given in options:
        if given is not None:
            raise typer.BadParameter(f"is not for {what}", param_hint=f"'{option}'")
    if by != "identity":
        raise typer.BadParameter(f"with {what} it is identity", param_hint="'--by'")


def _print(result: AuditResult) -> None:
    print_fields(
        [
            ("sent", result.sent),
            ("received", result.received),
            ("unique", result.unique),
            ("missing", result.missing),
            ("repeated", result.repeated),
            ("strangers", result.strangers),
            ("R", share_text(result.R)),
            ("UR", share_text(result.UR)),
            ("copies", _arrivals(result)),
            ("order", _order(result)),
            ("latency", _latency(result)),
        ]
    )
    for words, count in (
        ("rows sent again under the same name", result.sent_again),
        ("rows sent without a name: nothing can be said of them", result.sent_unnamed),
        ("rows received without a name", result.received_unnamed),
    ):
        if count:
            note(f"{count:,} {words}")
    for title, parts in (("PRODUCER", result.producers), ("SHARD", result.shards), ("FROM", result.windows)):
        _print_parts(title, parts)
    for title, rows, count in (
        ("MISSING", result.missing_first, result.missing),
        ("REPEATED", result.repeated_first, result.repeated),
        ("STRANGER", result.strangers_first, result.strangers),
    ):
        _print_list(title, rows, count)
    if result.out is not None:
        print(f"\n{result.out}")
    note(f"{result.sent:,} sent and {result.received:,} received, compared in {result.seconds:.1f} s")


def _print_parts(title: str, parts: list[Part]) -> None:
    """The worst first if there are many: they are what a person looks for."""
    if len(parts) < 2:
        return
    told = parts
    if len(parts) > LINES_MAX:
        worst = sorted(parts, key=lambda part: (-part.missing, -part.repeated, -part.strangers))[:LINES_MAX]
        told = [part for part in parts if part in worst]
    print()
    print_table(
        (title, "SENT", "MISSING", "REPEATED", "STRANGERS", "R", "UR", "P50", "P99"),
        [
            (
                _name(part),
                part.sent,
                part.missing,
                part.repeated,
                part.strangers,
                share_text(part.R),
                share_text(part.UR),
                _seconds(None if part.latency is None else part.latency.p50_s),
                _seconds(None if part.latency is None else part.latency.p99_s),
            )
            for part in told
        ],
    )
    if len(parts) > len(told):
        note(f"the {len(told)} worst of {len(parts):,}")


def _print_list(title: str, rows: list[dict[str, Any]], count: int) -> None:
    if not rows:
        return
    print()
    print_table(
        (title, "PRODUCER", "COPIES", "SENT AT"),
        [(_text(row["message"]), row["producer"], row["copies"], row["sent_at"]) for row in rows],
    )
    if count > len(rows):
        note(f"the first {len(rows)} of {count:,}; --out DIR writes all of them")


def _name(part: Part) -> str:
    values = part.name
    if "window" in values:
        return "-" if values["window"] is None else iso_time(values["window"])
    return "/".join("-" if value is None else str(value) for value in values.values())


def _text(value: object) -> str:
    return bytes(value).hex() if isinstance(value, bytes | bytearray) else str(value)


def _arrivals(result: AuditResult) -> str:
    return ", ".join(f"{count:,} came {times} times" for times, count in result.arrivals.items()) or "-"


def _order(result: AuditResult) -> str:
    orders = result.orders
    if orders is None:
        return "not told by these inputs"
    told = ", ".join(f"{count:,} {name}" for name, count in orders.by_order.items())
    return f"{orders.held[-1] if orders.held else 'none'} (routes: {told})"


def _latency(result: Figures) -> str:
    latency = result.latency
    if latency is None:
        return "-"
    told = [
        f"{name} {_seconds(getattr(latency, f'{name}_s'))}" for name in ("p50", "p90", "p99", "p999", "max")
    ]
    return "  ".join(told) + (f"  ({latency.negative:,} negative: clocks differ)" if latency.negative else "")


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1e3:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"
