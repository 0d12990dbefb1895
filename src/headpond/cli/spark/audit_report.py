"""The results of an audit, printed for a person."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headpond.cli.output import iso_time, note, print_fields, print_table

if TYPE_CHECKING:
    from headpond.spark.jobs.audit.audit import AuditResult
    from headpond.spark.jobs.audit.figures import AuditPart, Figures
    from headpond.spark.jobs.audit.follow import FollowedAudit
    from headpond.spark.jobs.audit.ledger import LedgerAudit

LINES_MAX = 20
_WINDOW = "{:<24}  {:>10}  {:>10}  {:>10}  {:>10}  {:>8}  {:>8}"


def print_audit(result: AuditResult) -> None:
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
            for part in shown
        ],
    )
    if len(parts) > len(shown):
        note(f"the {len(shown)} worst of {len(parts):,}")


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


def _name(part: AuditPart) -> str:
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


def print_ledger_audit(result: LedgerAudit) -> None:
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
            note(f"and {left:,} more ranges; --json lists the first 1,000")
    note(f"{result.ledger_of} against {result.received_from}, compared in {result.seconds:.1f} s")


# --- following ----------------------------------------------------------------------------------------


class WindowPrinter:
    """Prints each closed window once, under one heading."""

    def __init__(self) -> None:
        self._next_us = 0

    def print_new(self, found: FollowedAudit) -> None:
        if not self._next_us and found.windows:
            print(_WINDOW.format("FROM", "SENT", "MISSING", "REPEATED", "STRANGERS", "OPEN", "LATE"))
        for window in found.windows:
            if window.start_us >= self._next_us:
                self._next_us = window.start_us + 1
                missing = window.sent - window.unique
                row = (iso_time(window.start_us), window.sent, missing, window.repeated, window.strangers)
                print(_WINDOW.format(*row, found.open, found.late), flush=True)


def note_totals(found: FollowedAudit) -> None:
    note(
        f"{found.sent:,} sent, {found.missing:,} missing, {found.repeated:,} repeated; "
        f"R {share_text(found.R)}, UR {share_text(found.UR)}; {found.open:,} open, {found.late:,} late"
    )


def share_text(value: float | None) -> str:
    """A share as text; only an exact 1 or 0 is printed as such."""
    if value is None:
        return "-"
    return f"{value:g}" if value in (0.0, 1.0) else f"{value:.6f}"
