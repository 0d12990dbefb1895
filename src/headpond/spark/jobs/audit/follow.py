"""``follow``: audits two topics while they grow.

It reads both topics as streams and counts messages in windows of the time they were sent. A window is
**closed** once both topics have shown messages sent later than its end by ``late``. A message that has not come
by then is missing; a copy that comes later counts as late and changes no closed window. Messages of other
windows are
**open** and not reported yet. Only they are in Spark's state; if one topic stands still, no window closes and
the state grows, up to a limit.

Identity and time of sending together name a message: both stay with it on every path.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from headpond.model.errors import BadRequest, LimitReached
from headpond.spark.jobs.audit.audit import seconds_of
from headpond.spark.jobs.feed import read_stream, summed, topic_of
from headpond.spark.jobs.work import Progress, Work, run_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.query import StreamingQuery

OPEN_MAX = 5_000_000
WINDOWS_KEPT = 1_000
COLUMNS = "topic,shard,entry,sent_at,stored_at,identity"


class ClosedWindow(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of the messages sent in one closed window."""

    start_us: int
    sent: int
    unique: int
    copies: int
    repeated: int
    strangers: int


class FollowedAudit(msgspec.Struct, kw_only=True):
    """The counts of all closed windows so far."""

    sent: int = 0
    """In closed windows, as the next ones."""
    unique: int = 0
    copies: int = 0
    missing: int = 0
    repeated: int = 0
    strangers: int = 0
    R: float | None = None
    UR: float | None = None
    open: int = 0
    """Messages of open windows."""
    late: int = 0
    """Rows that came after their window was closed; messages counted as missing may be among them."""
    closed_to_us: int | None = None
    """The end of the newest closed window."""
    windows: list[ClosedWindow] = []
    """The newest of them."""

    @property
    def complete(self) -> bool:
        return not self.missing

    @property
    def clean(self) -> bool:
        return self.complete and not (self.repeated or self.strangers)

    def add(self, window: ClosedWindow, end_us: int) -> None:
        self.sent += window.sent
        self.unique += window.unique
        self.copies += window.copies
        self.missing = self.sent - self.unique
        self.repeated += window.repeated
        self.strangers += window.strangers
        self.R = self.unique / self.sent if self.sent else None
        self.UR = self.unique / self.copies if self.copies else None
        self.closed_to_us = max(self.closed_to_us or 0, end_us)
        self.windows = [*self.windows, window][-WINDOWS_KEPT:]


def follow(
    sent: str,
    received: str,
    *,
    window: str = "1 minute",
    late: str = "1 minute",
    every: str = "5 seconds",
    url: str | None = None,
    token: str | None = None,
    received_url: str | None = None,
    received_token: str | None = None,
    caught_up: bool = False,
    update: Callable[[FollowedAudit], None] | None = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> FollowedAudit:
    """Runs until it is interrupted; with ``caught_up``, until it has read all messages that are there now.

    It calls ``update`` after every batch that closed a window or added to one.
    """
    there = (received_url, received_token) if received_url else (url, token)
    hint = "Only topics can be followed; audit it without --follow."
    feeds = (
        topic_of(sent, "the sent side", hint, url, token),
        topic_of(received, "the received side", hint, *there),
    )
    if feeds[0] == feeds[1]:
        raise BadRequest(f"both sides are {feeds[0]}", hint="Follow two topics, or one on two nodes.")
    window_s, late_s = seconds_of(window), seconds_of(late)
    for feed in feeds:
        feed.check()
    found = FollowedAudit()

    def take(batch: DataFrame, _number: int) -> None:
        for row in _windows(batch).collect():
            counts = row.asDict()
            found.add(ClosedWindow(**counts), counts["start_us"] + round(window_s * 1_000_000))

    def body(work: Work) -> FollowedAudit:
        sides = [
            read_stream(work.spark, feed, columns=COLUMNS)
            .selectExpr("sent_at", "identity as k", f"cast({tag} as bigint) as side")
            .withWatermark("sent_at", f"{round(late_s * 1000)} milliseconds")
            for feed, tag in zip(feeds, (1, 0), strict=True)
        ]
        closed = _closed(sides[0].union(sides[1]), window_s)
        trigger: dict[str, Any] = {"availableNow": True} if caught_up else {"processingTime": every}
        with tempfile.TemporaryDirectory(prefix="headpond-follow-", ignore_cleanup_errors=True) as checkpoint:
            writer = closed.writeStream.outputMode("append").foreachBatch(take)
            query = writer.option("checkpointLocation", checkpoint).trigger(**trigger).start()
            work.say("following")
            _watch(work, query, found, update)
        return found

    return run_job("audit", body, master=master, progress=progress)


def _closed(rows: DataFrame, window_s: float) -> DataFrame:
    """One row per message, once its window is closed."""
    from pyspark.sql import functions as F

    length = f"{round(window_s * 1000)} milliseconds"
    return rows.groupBy(F.window("sent_at", length).alias("span"), "k").agg(
        F.sum("side").alias("sent"), F.sum(1 - F.col("side")).alias("copies")
    )


def _windows(messages: DataFrame) -> DataFrame:
    """The counts of each window, by its start."""
    counts = summed(
        messages.selectExpr("*", "unix_micros(span.start) as start_us"),
        ("start_us",),
        "count_if(sent > 0) as sent",
        "count_if(sent > 0 and copies > 0) as `unique`",
        "sum(if(sent > 0, copies, 0)) as copies",
        "count_if(sent > 0 and copies > 1) as repeated",
        "count_if(sent = 0) as strangers",
    )
    return counts.orderBy("start_us")


def _watch(
    work: Work, query: StreamingQuery, found: FollowedAudit, update: Callable[[FollowedAudit], None] | None
) -> None:
    """Adds the open and late rows that Spark reports after each batch, until the end."""
    # An idle query also reports its next batch before there is one.
    seen: set[tuple[int, str]] = set()
    try:
        while True:
            ended = query.awaitTermination(1)
            recent = {(each.batchId, each.timestamp): each for each in query.recentProgress}
            new = [each for key, each in recent.items() if key not in seen]
            seen = set(recent)
            if new:
                found.open = sum(operator.numRowsTotal for operator in new[-1].stateOperators)
                found.late += sum(o.numRowsDroppedByWatermark for each in new for o in each.stateOperators)
                if update is not None:
                    update(found)
                if found.open > OPEN_MAX:
                    raise LimitReached(
                        f"{found.open:,} messages are open; at most {OPEN_MAX:,} are allowed",
                        hint="One of the topics stands still, or --window and --late are too long.",
                    )
            if ended or work.stopping.is_set():
                return
    finally:
        query.stop()
