"""``audit``: compares the messages sent with those received, one by one.

Each side is a topic, a folder of Parquet files or a DataFrame. The audit reads topics once, to the end that
they have when it begins, and caches them on Spark's disks, so that all figures are about the same messages.
"""

from __future__ import annotations

import os
import re
import shutil
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headpond.model.errors import BadRequest
from headpond.spark.jobs.audit import figures as sums
from headpond.spark.jobs.audit import orders as ordering
from headpond.spark.jobs.audit.figures import IDENTITY, MISSING, REPEATED, STRANGER, AuditPart, Figures
from headpond.spark.jobs.audit.orders import Orders
from headpond.spark.jobs.feed import Feed, FeedKind, Source, feed_of, read
from headpond.spark.jobs.work import Progress, Work, check_free, results_folder, run_job
from headpond.spark.start.packages import need_plots

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pyspark.sql import DataFrame

ORIGIN_HEADER = "headpond-origin"
"""The header in which a replayed message keeps the identity that it had."""
_WINDOW = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|second|minute|hour|day|m|h|d)s?\s*")
_PLACED = ("topic", "shard", "entry", "sent_at", "stored_at", "identity", "producer")
_GIVEN = ("key", "value", "id", "headers")
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}
_TABLES = {"all": "summary", "producer": "producers", "shard": "shards", "window": "windows"}
FATES = {"missing": MISSING, "repeated": REPEATED, "strangers": STRANGER}
FIRST_MAX = 10
WHOLE = "#1f77b4"
SHARE = "#ff7f0e"
WRONG = "#d62728"
QUIET = "#c9d3dd"
STEPS_MARKED_MAX = 120
"""More windows than this are drawn as a line without a mark each."""


class AuditResult(Figures, frozen=True, kw_only=True):
    """The result of an audit; its own figures are those of all messages."""

    sent_from: str
    received_from: str
    by: str
    arrivals: dict[str, int]
    """How many of the messages sent came ``0``, ``1``, ``2``, … times."""
    orders: Orders | None
    """None if an input has no positions."""
    producers: list[AuditPart]
    shards: list[AuditPart]
    windows: list[AuditPart]
    """By when a message was sent; ``name["window"]`` is the start in microseconds since 1970."""
    window_s: float
    missing_first: list[dict[str, Any]]
    repeated_first: list[dict[str, Any]]
    strangers_first: list[dict[str, Any]]
    """The first few of each, by when they were sent; all of them are in the folder of results."""
    out: str | None
    seconds: float

    @property
    def complete(self) -> bool:
        """Whether no message is missing and every message sent has a name."""
        return not self.missing and not self.sent_unnamed

    @property
    def clean(self) -> bool:
        """Whether it is complete, and no message came twice or was never sent."""
        return self.complete and not (self.repeated or self.strangers or self.received_unnamed)


def audit(
    sent: Source | DataFrame,
    received: Source | DataFrame,
    *,
    by: str = IDENTITY,
    sent_by: str | None = None,
    window: str = "1 minute",
    url: str | None = None,
    token: str | None = None,
    received_url: str | None = None,
    received_token: str | None = None,
    start: str | None = None,
    end: str | None = None,
    out: str | os.PathLike[str] | None = None,
    overwrite: bool = False,
    master: str | None = None,
    progress: Progress | None = None,
) -> AuditResult:
    """Compares the two sides and, with ``out``, writes a folder of results.

    ``by`` names a message in both: ``identity``, ``id``, or an expression of SQL. ``sent_by`` is another one
    for the sent side, where the name of a message has another form; with
    ``by="headers['headpond-origin']"`` its default is ``identity``. ``start`` and ``end`` limit the sent topic.
    ``received_url`` is the node of the received topic, if it is another one.
    """
    there = (received_url, received_token) if received_url else (url, token)
    feeds = feed_of(sent, "the sent side", url, token), feed_of(received, "the received side", *there)
    by_sent, by_received = keys_of(by, sent_by)
    window_s = seconds_of(window)
    folder = None if out is None else Path(out)
    if by_sent == by_received and feeds[0] == feeds[1]:
        raise BadRequest(f"both sides are {feeds[0]}", hint="Compare two topics, or a topic and a folder.")
    if folder is not None:
        need_plots()
        check_free(folder, overwrite=overwrite)
    for feed in feeds:
        feed.check()
    limits = {"start": start, "end": end}
    return run_job(
        "audit",
        lambda work: compare(work, feeds, (by_sent, by_received), limits, window_s, folder),
        master=master,
        progress=progress,
    )


def keys_of(by: str, sent_by: str | None) -> tuple[str, str]:
    """The expressions that name a message on the sent and on the received side."""
    if not by.strip() or (sent_by is not None and not sent_by.strip()):
        raise BadRequest("the name of a message is empty", hint="Use identity, id, or an expression of SQL.")
    if sent_by is not None:
        return sent_by, by
    return (IDENTITY if ORIGIN_HEADER in by else by), by


def seconds_of(window: str) -> float:
    """``1 minute``, ``30 seconds``, ``10s`` as seconds."""
    found = _WINDOW.fullmatch(window)
    if found is None or float(found[1]) == 0:
        raise BadRequest(
            f"{window!r} is not a length of time", hint="Write one like '30 seconds' or '1 minute'."
        )
    return float(found[1]) * _UNIT_S[found[2] if found[2] == "ms" else found[2][0]]


# --- the work -----------------------------------------------------------------------------------------


def compare(
    work: Work,
    feeds: tuple[Feed, Feed],
    by: tuple[str, str],
    limits: dict[str, str | None],
    window_s: float,
    folder: Path | None = None,
) -> AuditResult:
    """The audit itself, in a session that runs."""
    from pyspark import StorageLevel

    began = time.monotonic()
    cached: list[DataFrame] = []

    def cache(rows: DataFrame, level: StorageLevel = StorageLevel.DISK_ONLY) -> DataFrame:
        cached.append(rows.persist(level))
        return cached[-1]

    try:
        frames = [
            read(work.spark, feeds[0], columns=_columns(by[0]), **limits),
            read(work.spark, feeds[1], columns=_columns(by[1])),
        ]
        sent = sums.side(frames[0], by[0], "the sent side")
        received = sums.side(frames[1], by[1], "the received side")
        by_text = " = ".join(dict.fromkeys(by))
        sums.same_kind(sent, received, by_text)
        if feeds[0].kind is FeedKind.TOPIC:
            sent = cache(sent)
        if feeds[1].kind is FeedKind.TOPIC:
            received = cache(received)
        work.say("matching")
        matched = cache(sums.match(sent, received))
        names = cache(sums.parts(sent, received), StorageLevel.MEMORY_AND_DISK)
        groups = sums.groups_of(sums.cells_of(matched, window_s), names)
        found = _figures(groups, feeds[0], window_s)
        work.say("checking the order")
        # The order is a producer's own where both sides know the identity of its messages.
        order_by = IDENTITY if by == (IDENTITY, IDENTITY) else ""
        routes = None
        if ordering.can_tell(order_by, (frames[0].columns, frames[1].columns)):
            found_routes = ordering.routes_of(received, matched, names, order_by)
            routes = cache(found_routes, StorageLevel.MEMORY_AND_DISK)
        orders = None if routes is None else ordering.sum_up(routes)
        work.say("listing")
        odd = _not_exactly_once(matched, names)
        first = _first_of(odd) if found.unique != found.received or found.missing else {}
        result = AuditResult(
            **msgspec.structs.asdict(found),
            sent_from=str(feeds[0]),
            received_from=str(feeds[1]),
            by=by_text,
            arrivals=sums.arrivals_of(groups),
            orders=orders,
            producers=sums.parts_of(groups, "producer"),
            shards=sums.parts_of(groups, "shard"),
            windows=sums.parts_of(groups, "window"),
            window_s=window_s,
            missing_first=first.get("missing", []),
            repeated_first=first.get("repeated", []),
            strangers_first=first.get("strangers", []),
            out=None if folder is None else str(folder),
            seconds=round(time.monotonic() - began, 3),
        )
        if folder is not None:
            work.say("writing")
            with results_folder(folder) as place:
                _write_tables(place, groups, odd, routes)
                (place / "audit.json").write_bytes(msgspec.json.encode(result))
                _draw(result, place / "audit.png")
        return result
    finally:
        for rows in cached:
            rows.unpersist()


def _columns(by: str) -> str:
    """The columns to read of a topic: values are most of its bytes, and seldom name a message."""
    return ",".join([*_PLACED, *(name for name in _GIVEN if re.search(rf"\b{name}\b", by, re.IGNORECASE))])


def _figures(groups: pa.Table, sent: Feed, window_s: float) -> Figures:
    if groups.num_rows > sums.GROUPS_MAX:  # some groups were cut off, maybe that of all messages
        raise BadRequest(
            f"there are more than {sums.GROUPS_MAX:,} producers, shards and windows of {window_s:g} s",
            hint="Take a longer --window, or a part of the topic.",
        )
    found = sums.figures_of(groups) if groups.num_rows else None
    if found is None or (not found.sent and not found.sent_unnamed):
        raise BadRequest(f"{sent} holds no messages", hint="Name the sent side first, then the received side.")
    return found


def _not_exactly_once(matched: DataFrame, names: DataFrame) -> DataFrame:
    """One row per message that did not arrive exactly once; ``fate`` is one of ``FATES``."""
    from pyspark.sql import functions as F

    fate = " ".join(f"when {condition} then '{name}'" for name, condition in FATES.items())
    odd = matched.selectExpr("*", f"case {fate} end as fate").where("fate is not null")
    return odd.join(F.broadcast(names), "part", "left").selectExpr(
        "fate",
        "k as message",
        *("producer", "topic", "shard", "copies"),
        "timestamp_micros(at) as sent_at",
        "timestamp_micros(stored_us) as first_stored_at",
    )


def _first_of(odd: DataFrame) -> dict[str, list[dict[str, Any]]]:
    """The first few of each fate, by when they were sent."""
    number = "row_number() over (partition by fate order by sent_at, message) as number"
    rows = odd.selectExpr("*", number).where(f"number <= {FIRST_MAX}").toArrow()
    found: dict[str, list[dict[str, Any]]] = {}
    for row in (
        rows.sort_by([("fate", "ascending"), ("number", "ascending")]).drop_columns("number").to_pylist()
    ):
        found.setdefault(row.pop("fate"), []).append(row)
    return found


# --- the folder of results ----------------------------------------------------------------------------


def _write_tables(folder: Path, groups: pa.Table, odd: DataFrame, routes: DataFrame | None) -> None:
    """Writes the figures, the lists of messages and the orders as Parquet files.

    Each fate is a folder of Parquet files; an empty one has a file without rows.
    """
    from headpond.spark.source.schema import arrow_schema

    for kind, name in _TABLES.items():
        pq.write_table(sums.of_kind(groups, kind), folder / f"{name}.parquet")
    if routes is not None:
        pq.write_table(routes.toArrow(), folder / "orders.parquet")
    place = folder / "odd"
    odd.write.partitionBy("fate").parquet(str(place))
    for fate in FATES:
        written = place / f"fate={fate}"
        if written.exists():
            written.rename(folder / fate)
        else:
            (folder / fate).mkdir()
            no_rows = arrow_schema(odd.drop("fate").schema).empty_table()
            pq.write_table(no_rows, folder / fate / "none.parquet")
    shutil.rmtree(place)


def _draw(result: AuditResult, path: Path) -> None:
    """The picture: R and UR over time, and below them the messages sent and missing.

    Windows without a time are left out.
    """
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
    from matplotlib.figure import Figure

    timed = [part for part in result.windows if part.name["window"] is not None]
    figure = Figure(figsize=(11, 6.5), layout="constrained")
    shares, counts = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    figure.suptitle(f"{result.sent_from} → {result.received_from}")
    _draw_shares(shares, timed)
    _draw_counts(counts, timed, result.window_s)
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    counts.xaxis.set_major_locator(locator)
    counts.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    figure.savefig(path, dpi=120)


def _draw_shares(axes: Axes, windows: list[AuditPart]) -> None:
    marker = "o" if len(windows) <= STEPS_MARKED_MAX else ""
    times: Any = [_time(part) for part in windows]
    for name, colour, words in (
        ("R", WHOLE, "R: of the messages sent, the share that arrived"),
        ("UR", SHARE, "UR: of the copies received, the share that was no repeat"),
    ):
        values = [float("nan") if (value := getattr(part, name)) is None else value for part in windows]
        axes.plot(times, values, color=colour, marker=marker, markersize=4, label=words)
    low = min((value for part in windows for value in (part.R, part.UR) if value is not None), default=0.0)
    # From the lowest to one, so that the smallest loss can be seen.
    span = (1 - low) or 0.1
    axes.set_ylim(low - 0.1 * span, 1 + 0.05 * span)
    axes.ticklabel_format(axis="y", useOffset=False)
    axes.grid(alpha=0.3)
    axes.legend(loc="best")


def _draw_counts(axes: Axes, windows: list[AuditPart], window_s: float) -> None:
    times: Any = [_time(part) for part in windows]
    width: Any = timedelta(seconds=window_s * 0.9)
    axes.bar(times, [part.sent for part in windows], width=width, color=QUIET, label="sent")
    lost = [part.missing for part in windows]
    if any(lost):
        axes.bar(times, lost, width=width, color=WRONG, label="missing")
    most = max((part.sent for part in windows), default=0)
    axes.set_ylim(0, 1.35 * max(most, 1))  # with room for the legend
    axes.set_ylabel(f"messages per window of {window_s:g} s")
    axes.set_xlabel("sent at (UTC)")
    axes.grid(alpha=0.3, axis="y")
    axes.legend(loc="upper left", ncols=2)


def _time(part: AuditPart) -> datetime:
    return datetime.fromtimestamp(part.name["window"] / 1e6, UTC)
