"""``audit``: compares the messages sent with those received, one by one.

Each side is a topic, a folder of Parquet files or a DataFrame. The audit reads topics once, to the end that
they have when it begins, and caches them on Spark's disks, so that all figures are about the same messages.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from headpond.model.address import DEFAULT_URL
from headpond.model.errors import BadRequest
from headpond.spark.jobs.audit import figures as sums
from headpond.spark.jobs.audit import orders as ordering
from headpond.spark.jobs.audit.figures import AuditPart, Figures
from headpond.spark.jobs.audit.orders import Orders
from headpond.spark.jobs.audit.results import draw, first_of, not_exactly_once, write_tables
from headpond.spark.jobs.audit.sides import IDENTITY, match, parts, same_kind, side
from headpond.spark.jobs.feed import Feed, FeedKind, Reach, Source, check_feed, check_topics, feed_of, read
from headpond.spark.jobs.work import Progress, Work, check_free, results_folder, run_job
from headpond.spark.start.packages import need_plots

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ORIGIN_HEADER = "headpond-origin"
"""The header in which a replayed message keeps the identity that it had."""
_WINDOW = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(ms|s|second|minute|hour|day|m|h|d)s?\s*")
_PLACED = ("topic", "shard", "entry", "sent_at", "stored_at", "identity", "producer")
_GIVEN = ("key", "value", "id", "headers")
_UNIT_S = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400}


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
    url: str = DEFAULT_URL,
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
    feeds = feed_of(sent, "the sent side"), feed_of(received, "the received side")
    by_sent, by_received = keys_of(by, sent_by)
    window_s = seconds_of(window)
    folder = None if out is None else Path(out)
    reaches = Reach(url, token), Reach(received_url or url, received_token if received_url else token)
    for feed in feeds:
        check_feed(feed)
    if by_sent == by_received and same_place(feeds, reaches):
        raise BadRequest(f"both sides are {feeds[0]}", hint="Compare two topics, or a topic and a folder.")
    if folder is not None:
        need_plots()
        check_free(folder, overwrite=overwrite)
    check_topics(feeds, reaches)
    limits = {"start": start, "end": end}

    def body(work: Work) -> AuditResult:
        return compare(work, feeds, reaches, (by_sent, by_received), limits, window_s, folder)

    return run_job("audit", body, master=master, progress=progress)


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
        raise BadRequest(f"{window!r} is no length of time", hint="Write one like '30 seconds' or '1 minute'.")
    return float(found[1]) * _UNIT_S[found[2] if found[2] == "ms" else found[2][0]]


def same_place(feeds: tuple[Feed, Feed], reaches: tuple[Reach, Reach]) -> bool:
    """Whether both sides are the same rows; a topic on two nodes is not."""
    if feeds[0].kind is FeedKind.FRAME or feeds[0] != feeds[1]:
        return False
    return feeds[0].kind is not FeedKind.TOPIC or reaches[0].url == reaches[1].url


# --- the work -----------------------------------------------------------------------------------------


class _Inputs:
    """Both sides, read once."""

    def __init__(
        self,
        work: Work,
        feeds: tuple[Feed, Feed],
        reaches: tuple[Reach, Reach],
        by: tuple[str, str],
        limits: dict[str, str | None],
    ) -> None:
        from pyspark import StorageLevel

        self.feeds, self.by = feeds, by
        names = ("the sent side", "the received side")
        frames = [
            read(work.spark, feeds[0], reaches[0], columns=_columns(by[0]), **limits),
            read(work.spark, feeds[1], reaches[1], columns=_columns(by[1])),
        ]
        self.columns = frames[0].columns, frames[1].columns
        self._kept: list[DataFrame] = []
        rows = [side(frame, key, what) for frame, key, what in zip(frames, by, names, strict=True)]
        same_kind(rows[0], rows[1], " = ".join(dict.fromkeys(by)))
        for at, feed in enumerate(feeds):
            if feed.kind is FeedKind.TOPIC:
                rows[at] = self.keep(rows[at], StorageLevel.DISK_ONLY)
        self.sent, self.received = rows

    def keep(self, rows: DataFrame, level: Any) -> DataFrame:
        self._kept.append(rows.persist(level))
        return self._kept[-1]

    def release(self) -> None:
        for rows in self._kept:
            rows.unpersist()


def _columns(by: str) -> str:
    """The columns to read of a topic: values are most of its bytes, and seldom name a message."""
    return ",".join([*_PLACED, *(name for name in _GIVEN if re.search(rf"\b{name}\b", by, re.IGNORECASE))])


def compare(
    work: Work,
    feeds: tuple[Feed, Feed],
    reaches: tuple[Reach, Reach],
    by: tuple[str, str],
    limits: dict[str, str | None],
    window_s: float,
    folder: Path | None = None,
) -> AuditResult:
    """The audit itself, in a session that runs."""
    began = time.monotonic()
    inputs = _Inputs(work, feeds, reaches, by, limits)
    try:
        return _compare(work, inputs, window_s, folder, began)
    finally:
        inputs.release()


def _compare(work: Work, inputs: _Inputs, window_s: float, folder: Path | None, began: float) -> AuditResult:
    from pyspark import StorageLevel

    work.say("matching")
    matched = inputs.keep(match(inputs.sent, inputs.received), StorageLevel.DISK_ONLY)
    names = inputs.keep(parts(inputs.sent, inputs.received), StorageLevel.MEMORY_AND_DISK)
    groups = sums.groups_of(sums.cells_of(matched, window_s), names)
    found = _figures(groups, inputs.feeds[0], window_s)
    work.say("checking the order")
    routes = _routes(inputs, matched, names)
    orders = None if routes is None else ordering.sum_up(routes)
    work.say("listing")
    odd = not_exactly_once(matched, names)
    first = first_of(odd) if found.unique != found.received or found.missing else {}
    result = AuditResult(
        **msgspec.structs.asdict(found),
        sent_from=str(inputs.feeds[0]),
        received_from=str(inputs.feeds[1]),
        by=" = ".join(dict.fromkeys(inputs.by)),
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
            write_tables(place, groups, odd, routes)
            (place / "audit.json").write_bytes(msgspec.json.encode(result))
            title = f"{result.sent_from} → {result.received_from}"
            draw(result.windows, result.window_s, title, place / "audit.png")
    return result


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


def _routes(inputs: _Inputs, matched: DataFrame, names: DataFrame) -> DataFrame | None:
    from pyspark import StorageLevel

    # The order is a producer's own where both sides know the identity of its messages.
    by = IDENTITY if inputs.by == (IDENTITY, IDENTITY) else ""
    if not ordering.can_tell(by, inputs.columns):
        return None
    found = ordering.routes_of(inputs.received, matched, names, by)
    return inputs.keep(found, StorageLevel.MEMORY_AND_DISK)
