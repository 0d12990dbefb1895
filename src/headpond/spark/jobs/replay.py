"""``replay``: what an archive, other Parquet files or a topic hold, written to a topic, once in all runs.

What is read is cut into lanes (lanes.py). A lane is written under a writer of its own, whose name is made from
what is read and the topic that it goes to, in batches numbered by where they end. The node records the newest
batch with the rows, in one step, so the next run writes what is not there (coverage.py). Nothing is kept on
this side: run twice, after a kill, or on a topic that grew meanwhile, each message is written once.

Each message gets the header ``headpond-origin`` with the identity that it had.
"""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

import headpond.sync
from headpond.model.address import DEFAULT_URL
from headpond.model.errors import BadRequest
from headpond.spark.jobs.archive_folder import INSIDE, ArchiveFolder
from headpond.spark.jobs.audit import ORIGIN_HEADER
from headpond.spark.jobs.coverage import began_at, left_of, writer_name
from headpond.spark.jobs.feed import FORMAT, Feed, Kind, Reach, Source, check_feed, feed_of, need_columns
from headpond.spark.jobs.lanes import Lane, archive_lanes, file_lanes, topic_lanes
from headpond.spark.jobs.work import Progress, Work, run_job

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BATCH_ENTRIES = 500_000
LANES_AT_ONCE = 4


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run wrote."""

    source: str
    target: str
    rows: int
    """Written by this run."""
    there: int
    """Positions that earlier runs had dealt with: entries, or files."""
    batches: int
    seconds: float


def replay(
    source: Source,
    target: str,
    *,
    start: str | None = None,
    end: str | None = None,
    where: str | None = None,
    batch_entries: int = BATCH_ENTRIES,
    url: str = DEFAULT_URL,
    token: str | None = None,
    to_url: str | None = None,
    to_token: str | None = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """Writes what is not there yet; ``start`` and ``end`` are a topic's, ``where`` is an expression of SQL.

    ``to_url`` is another node to write to. The target topic has to be there.
    """
    feed, goal = feed_of(source, "what is replayed"), feed_of(target, "the target")
    if goal.kind is not Kind.TOPIC:
        raise BadRequest(f"{goal} is no topic", hint="A replay goes to a topic; name it as topic:NAME.")
    if feed.kind is Kind.FRAME:
        raise BadRequest(
            "a DataFrame has no place that is known again", hint="Write it with format('headpond')."
        )
    if feed.kind is Kind.PARQUET and (start or end):
        raise BadRequest("start and end are a topic's", hint="Take a part of files with `where`.")
    if batch_entries < 1:
        raise BadRequest(f"batches of {batch_entries} entries", hint="Take a number above 0.")
    reach = Reach(url, token)
    to = Reach(to_url or url, to_token if to_url else token)
    if feed == goal and reach.url == to.url:
        raise BadRequest(f"{goal} would be written to itself", hint="Name another target.")
    check_feed(feed)
    uuid = topic_uuid(goal, to)
    began = time.monotonic()

    def body(work: Work) -> ReplayResult:
        work.say("looking at what is there")
        lanes = _lanes(work, feed, reach, start, end, batch_entries)
        return run_lanes(work, feed, lanes, Target(goal, to, uuid), where, began)

    return run_job("replay", body, master=master, progress=progress)


def topic_uuid(feed: Feed, reach: Reach) -> str:
    """Raises if there is no such topic."""
    with headpond.sync.connect(reach.url, token=reach.token) as client:
        return client.admin.show_topic(feed.name).uuid.hex()


def _lanes(work: Work, feed: Feed, reach: Reach, start: str | None, end: str | None, step: int) -> list[Lane]:
    if feed.kind is Kind.TOPIC:
        return topic_lanes(work.spark, feed, reach, start, end, step)
    if "://" not in feed.name and (Path(feed.name).expanduser() / INSIDE / "archive.json").exists():
        place = ArchiveFolder(feed.name)
        return archive_lanes(work.spark, place, place.info(), step)
    return file_lanes(work.spark, feed, reach)


class Target(msgspec.Struct, frozen=True):
    """The topic that is written to."""

    feed: Feed
    reach: Reach
    uuid: str

    def writer(self, lane: Lane, where: str | None) -> str:
        """The name under which this lane is written, the same in every run."""
        key = "\n".join([lane.source, self.uuid, where or ""])
        return f"replay-{hashlib.sha256(key.encode()).hexdigest()[:32]}"

    def written(self, writer: str) -> dict[int, int]:
        """Where the writers of a lane began, and where the newest batch of each ended."""
        with headpond.sync.connect(self.reach.url, token=self.reach.token) as client:
            known = client.admin.list_writers()
        found: dict[int, int] = {}
        for each in known:
            # The sink adds the topic: two topics written under one id do not count each other's batches.
            began = began_at(f"{self.feed.name}/{writer}", each.writer)
            if began is not None and each.batch:
                found[began] = each.batch
        return found

    def write(self, rows: DataFrame, writer: str, batch: int) -> None:
        options = {"topic": self.feed.name, "sinkId": writer, "batch": str(batch)}
        rows.write.format(FORMAT).options(**self.reach.options(), **options).mode("append").save()


def run_lanes(
    work: Work, feed: Feed, lanes: list[Lane], target: Target, where: str | None, began: float
) -> ReplayResult:
    """Writes all lanes, some at once; each goes on by itself from where it is."""
    counts = _Counts(work, sum(lane.end - lane.first for lane in lanes))
    work.each(lambda lane: _run_lane(work, lane, target, where, counts), lanes, LANES_AT_ONCE)
    return ReplayResult(
        source=str(feed),
        target=target.feed.name,
        rows=counts.rows,
        there=counts.there,
        batches=counts.batches,
        seconds=round(time.monotonic() - began, 3),
    )


class _Counts:
    def __init__(self, work: Work, positions: int) -> None:
        self.rows = self.there = self.batches = self._done = 0
        self._work, self._positions = work, positions
        self._lock = Lock()

    def found(self, positions: int) -> None:
        with self._lock:
            self.there += positions
            self._done += positions

    def wrote(self, rows: int, positions: int) -> None:
        with self._lock:
            self.rows += rows
            self.batches += 1
            self._done += positions
            share = 100 * self._done // max(1, self._positions)
            self._work.say(f"{self.rows:,} messages written, {share} %")


def _run_lane(work: Work, lane: Lane, target: Target, where: str | None, counts: _Counts) -> None:
    from pyspark.sql import Observation
    from pyspark.sql import functions as F

    base = target.writer(lane, where)
    left = left_of(lane.first, lane.end, target.written(base))
    counts.found(lane.end - lane.first - sum(piece.end - piece.first for piece in left))
    for piece in left:
        at = piece.first
        while at < piece.end and not work.stopping.is_set():
            stop = min(at + lane.step, piece.end)
            seen = Observation()
            rows = outgoing(lane.rows(at, stop), where).observe(seen, F.count("*").alias("rows"))
            target.write(rows, writer_name(base, piece.writer), stop)
            counts.wrote(int(seen.get["rows"]), stop - at)
            at = stop


def outgoing(rows: DataFrame, where: str | None) -> DataFrame:
    """What is written of each row: what its producer gave it, and where it came from."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F

    need_columns(rows, ("value",), "what is replayed")
    if where is not None:
        try:
            rows = rows.where(where)
        except AnalysisException as error:
            raise BadRequest(
                f"{where!r} is no condition over {', '.join(rows.columns)}",
                hint="Write one like \"producer = 'till-1'\".",
            ) from error
    columns: list[Column | str] = ["value", *(name for name in ("key", "id") if name in rows.columns)]
    empty = F.create_map().cast("map<string,string>")
    headers = F.coalesce(F.col("headers"), empty) if "headers" in rows.columns else empty
    if "identity" in rows.columns:
        others = F.map_filter(headers, lambda name, _: name != ORIGIN_HEADER)
        origin = F.create_map(F.lit(ORIGIN_HEADER), F.col("identity"))
        headers = F.when(F.col("identity").isNotNull(), F.map_concat(others, origin)).otherwise(headers)
    return rows.select(*columns, headers.alias("headers"))
