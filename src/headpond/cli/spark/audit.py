"""``headpond spark audit``: compares the messages sent with those received, one by one."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headpond.cli.command import Node, command
from headpond.cli.options import argument, flag, option, wrong_use
from headpond.cli.output import (
    EXIT_ERROR,
    iso_time,
    json_text,
    note,
    picked,
    print_fields,
    print_objects,
    print_table,
    progress_line,
)

if TYPE_CHECKING:
    from headpond.spark.jobs.audit.audit import AuditResult
    from headpond.spark.jobs.audit.figures import AuditPart, Figures
    from headpond.spark.jobs.audit.follow import FollowedAudit
    from headpond.spark.jobs.audit.ledger import LedgerAudit

EXIT_NOT_ONCE = 3
"""Every message arrived, but some more than once, or some arrived that nobody sent."""
STARTING = "starting Spark"
LINES_MAX = 20
_WINDOW = "{:<24}  {:>10}  {:>10}  {:>10}  {:>10}  {:>8}  {:>8}"

JobMaster = Annotated[str, option("--master", "MASTER", "The Spark master that runs it.")]
LEDGER_HELP = "Instead of SENT: the segments that producers announced, from that topic's ledger."
BY_HELP = "What names a message: identity, id, or an expression of SQL."
SENT_BY_HELP = "The same for SENT, if it differs there."
RECEIVED_TOKEN_HELP = "The access token of that node."


@command()
def audit(
    node: Node,
    sent: Annotated[str | None, argument("SENT", "A topic, or a folder of Parquet files.")] = None,
    received: Annotated[str | None, argument("RECEIVED", "A topic, or a folder, to compare with it.")] = None,
    sent_ledger: Annotated[str | None, option("--sent-ledger", "TOPIC[@PRODUCER]", LEDGER_HELP)] = None,
    by: Annotated[str, option("--by", "WHAT", BY_HELP)] = "identity",
    sent_by: Annotated[str | None, option("--sent-by", "WHAT", SENT_BY_HELP)] = None,
    window: Annotated[str, option("--window", "TIME", "The length of a time window.")] = "1 minute",
    start: Annotated[str | None, option("--start", "P", "Where to begin in SENT, if it is a topic.")] = None,
    end: Annotated[str | None, option("--end", "P", "Where to end in SENT, if it is a topic.")] = None,
    received_url: Annotated[
        str | None, option("--received-url", "URL", "The node of RECEIVED, if another.")
    ] = None,
    received_token: Annotated[str | None, option("--received-token", "TEXT", RECEIVED_TOKEN_HELP)] = None,
    follow: Annotated[bool, flag("--follow", "Continue over two growing topics, until Ctrl-C.")] = False,
    late: Annotated[
        str, option("--late", "TIME", "With --follow: how long to wait for a message.")
    ] = "1 minute",
    every: Annotated[
        str, option("--every", "TIME", "With --follow: the interval between reads.")
    ] = "5 seconds",
    out: Annotated[Path | None, option("--out", "DIR", "Where to write all results, with a picture.")] = None,
    overwrite: Annotated[bool, flag("--overwrite", "Replace the files in --out.")] = False,
    master: JobMaster = "local[*]",
) -> None:
    """Compare the messages sent with those received.

    Exits with 1 if a message is missing, else with 3 if one arrived more than once or was never sent.
    """
    where = {
        "url": node.url,
        "token": node.token,
        "received_url": received_url,
        "received_token": received_token,
        "master": master,
    }
    whole = {"by": by, "sent_by": sent_by, "start": start, "end": end, "out": out}
    result: AuditResult | FollowedAudit | LedgerAudit
    if sent_ledger is not None:
        if received is not None:
            raise wrong_use("--sent-ledger", "stands for SENT; name RECEIVED alone")
        _refuse_options("--sent-ledger", whole, follow=follow)
        result = _audit_ledger(node, sent_ledger, sent, where)
    elif sent is None or received is None:
        raise wrong_use("SENT RECEIVED", "name the sent and the received side")
    elif follow:
        _refuse_options("--follow", whole)
        result = _follow(node, sent, received, {**where, "window": window, "late": late, "every": every})
    else:
        options = {**where, **whole, "window": window, "overwrite": overwrite}
        result = _audit_once(node, sent, received, options)
    if not result.complete:
        raise typer.Exit(EXIT_ERROR)
    if not result.clean:
        raise typer.Exit(EXIT_NOT_ONCE)


def _refuse_options(way: str, whole: dict[str, Any], *, follow: bool = False) -> None:
    """Refuses the options that only an audit of two whole sides has."""
    given = {"--out": whole["out"], "--start": whole["start"], "--end": whole["end"]}
    for name, value in (given | {"--sent-by": whole["sent_by"], "--follow": follow or None}).items():
        if value is not None:
            raise wrong_use(name, f"is not for {way}")
    if whole["by"] != "identity":
        raise wrong_use("--by", f"with {way} it is identity")


def _audit_once(node: Node, sent: str, received: str, options: dict[str, Any]) -> AuditResult:
    from headpond.spark.jobs.audit.audit import audit as run_audit

    with progress_line(STARTING) as progress:
        result = run_audit(sent, received, **options, progress=progress)
    node.show(result, partial(_print, result))
    return result


def _audit_ledger(node: Node, sent: str, received: str | None, where: dict[str, Any]) -> LedgerAudit:
    from headpond.spark.jobs.audit.ledger import audit_ledger, parse_sent

    topic, producer = parse_sent(sent)
    with progress_line(STARTING) as progress:
        result = audit_ledger(topic, received, producer=producer, **where, progress=progress)
    node.show(result, partial(_print_ledger_audit, result))
    return result


def _follow(node: Node, sent: str, received: str, options: dict[str, Any]) -> FollowedAudit:
    """Prints each batch until Ctrl-C, then the totals."""
    from headpond.spark.jobs.audit.follow import FollowedAudit, follow

    found = FollowedAudit()
    next_us = 0

    def update(now: FollowedAudit) -> None:
        nonlocal found, next_us
        found = now
        if node.as_json:
            print(json_text(now))
        else:
            next_us = _print_windows(now, next_us)

    with contextlib.suppress(KeyboardInterrupt):
        follow(sent, received, update=update, **options)
    if not node.as_json:
        note(
            f"{found.sent:,} sent, {found.missing:,} missing, {found.repeated:,} repeated; "
            f"R {_share(found.R)}, UR {_share(found.UR)}; {found.open:,} open, {found.late:,} late"
        )
    return found


def _print_windows(found: FollowedAudit, next_us: int) -> int:
    """Prints the windows that closed since, under one heading; returns where the next ones start."""
    if not next_us and found.windows:
        print(_WINDOW.format("FROM", "SENT", "MISSING", "REPEATED", "STRANGERS", "OPEN", "LATE"))
    for window in found.windows:
        if window.start_us >= next_us:
            next_us = window.start_us + 1
            missing = window.sent - window.unique
            row = (iso_time(window.start_us), window.sent, missing, window.repeated, window.strangers)
            print(_WINDOW.format(*row, found.open, found.late), flush=True)
    return next_us


# --- two whole sides ----------------------------------------------------------------------------------


def _print(result: AuditResult) -> None:
    values = {
        **msgspec.structs.asdict(result),
        "R": _share(result.R),
        "UR": _share(result.UR),
        "copies": ", ".join(f"{count:,} came {times} times" for times, count in result.arrivals.items()) or "-",
        "order": _order(result),
        "latency": _latency(result),
    }
    print_fields(picked(values, "sent received unique missing repeated strangers R UR copies order latency"))
    for words, count in (
        ("rows sent again under the same name", result.sent_again),
        ("rows sent without a name: not compared", result.sent_unnamed),
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


def _print_parts(title: str, parts: list[AuditPart]) -> None:
    """Prints the figures of each part; of many parts the worst."""
    if len(parts) < 2:
        return
    shown = parts
    if len(parts) > LINES_MAX:
        worst = sorted(parts, key=lambda part: (-part.missing, -part.repeated, -part.strangers))[:LINES_MAX]
        shown = [part for part in parts if part in worst]
    print()
    rows = [
        (
            *(_name(part), part.sent, part.missing, part.repeated, part.strangers),
            *(_share(part.R), _share(part.UR)),
            *(_seconds(getattr(part.latency, name, None)) for name in ("p50_s", "p99_s")),
        )
        for part in shown
    ]
    print_table((title, "SENT", "MISSING", "REPEATED", "STRANGERS", "R", "UR", "P50", "P99"), rows)
    if len(parts) > len(shown):
        note(f"the {len(shown)} worst of {len(parts):,}")


def _print_list(title: str, rows: list[dict[str, Any]], count: int) -> None:
    if not rows:
        return
    print()
    named = [{**row, "message": _text(row["message"])} for row in rows]
    print_objects(named, f"{title}=message producer copies sent_at")
    if count > len(rows):
        note(f"the first {len(rows)} of {count:,}; --out DIR writes all of them")


def _name(part: AuditPart) -> str:
    values = part.name
    if "window" in values:
        return "-" if values["window"] is None else iso_time(values["window"])
    return "/".join("-" if value is None else str(value) for value in values.values())


def _text(value: object) -> str:
    return bytes(value).hex() if isinstance(value, bytes | bytearray) else str(value)


def _order(result: AuditResult) -> str:
    orders = result.orders
    if orders is None:
        return "unknown: an input has no positions"
    shown = ", ".join(f"{count:,} {name}" for name, count in orders.by_order.items())
    return f"{orders.held[-1] if orders.held else 'none'} (routes: {shown})"


def _latency(result: Figures) -> str:
    latency = result.latency
    if latency is None:
        return "-"
    shown = [
        f"{name} {_seconds(getattr(latency, f'{name}_s'))}" for name in ("p50", "p90", "p99", "p999", "max")
    ]
    return "  ".join(shown) + (f"  ({latency.negative:,} negative: clocks differ)" if latency.negative else "")


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1e3:.3g} ms" if abs(value) < 1 else f"{value:.3g} s"


# --- against a ledger ---------------------------------------------------------------------------------


def _print_ledger_audit(result: LedgerAudit) -> None:
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
            ("R", at_most + _share(result.R)),
        ]
    )
    for count, words in (
        (result.short_messages, "messages, at least, are missing from segments that were received in part"),
        (result.unclosed, "blocks never ended: their producer may have had more segments in memory"),
        (result.forgotten, "segments of forgotten blocks, of which the ledger keeps only a sum: not compared"),
        (result.blocks_left_out, "blocks are beyond the limit of one answer: not compared"),
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
                    *(each.refused, each.pending, each.holes, _share(each.R)),
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
                    *(each.block, each.shard, f"{each.first}-{each.end - 1}"),
                    *(each.there, each.producer or "(unnamed)"),
                )
                for each in result.ranges[:LINES_MAX]
            ],
        )
        left = len(result.ranges) + result.ranges_left_out - LINES_MAX
        if left > 0:
            note(f"and {left:,} more ranges; --json lists the first 1,000")
    note(f"{result.ledger_of} against {result.received_from}, compared in {result.seconds:.1f} s")


def _share(value: float | None) -> str:
    """A share as text; only an exact 1 or 0 is printed as such."""
    if value is None:
        return "-"
    return f"{value:g}" if value in (0.0, 1.0) else f"{value:.6f}"
