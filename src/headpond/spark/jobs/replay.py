"""``replay``: writes the messages of an archive, other Parquet files or a topic to a topic, once in all runs.

The source is divided into lanes. Each lane is written under its own writer, whose name is made from the source
and the target topic, in batches numbered by the position they end at. The node records the newest batch
together with its rows, so the next run writes only the rest. There is no state on this side: run twice, after a
kill, or on a topic that grew, ``replay`` writes each message once.

Each message gets the header ``headpond-origin`` with the identity that it had.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from headpond.model.errors import BadRequest
from headpond.model.ranges import RangeSet
from headpond.spark.jobs.archive_folder import INSIDE, ArchiveFolder, ArchiveInfo
from headpond.spark.jobs.audit.audit import ORIGIN_HEADER
from headpond.spark.jobs.feed import (
    FORMAT,
    Feed,
    FeedKind,
    Source,
    counted,
    feed_of,
    need_columns,
    read,
    summed,
    topic_of,
)
from headpond.spark.jobs.work import Progress, Work, run_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


BATCH_ENTRIES = 500_000
LANES_AT_ONCE = 4
COLUMNS_WRITTEN = "value,key,id,headers,identity"
"""What a replay writes. Spark does not tell a Python source which columns a query uses."""
_FILE, _ROW = "_headpond_file", "_headpond_row"
Rows = Callable[[int, int], "DataFrame"]
"""The rows from one position to before another, in their order."""


@dataclass(frozen=True, slots=True)
class ReplayLane:
    """Rows that keep their order, each at a position that never changes; written under one writer.

    A lane of a topic or an archive is one shard, and positions are entries. Both are the same lane: a replay
    from the archive skips entries that a replay from the topic wrote. A folder of other Parquet files is one
    lane, whose positions are its files in the order of their names.
    """

    name: str
    """For a person."""
    source: str
    """Identifies the rows, wherever they are read from: a part of the writer's name."""
    first: int
    end: int
    step: int
    """How many positions make a batch."""
    rows: Rows


def topic_lanes(
    spark: SparkSession,
    feed: Feed,
    start: str | None,
    end: str | None,
    step: int,
    columns: str | None = COLUMNS_WRITTEN,
) -> list[ReplayLane]:
    """The shards of a topic, between ``start`` and ``end``; by default all entries that it has now.

    ``columns``: those to read, None for all.
    """
    from headpond.spark.options import read_source_options
    from headpond.spark.source.plan import resolve, there

    chosen = {name: place for name, place in (("start", start), ("end", end)) if place is not None}
    options = read_source_options(chosen | feed.options())
    with feed.connect() as client:
        (ends,) = there(client.admin.ends([feed.name]))
        starts, stops = (
            resolve(client, options, ends, places, name)
            for places, name in ((options.start, "start"), (options.end, "end"))
        )
    assert ends.uuid is not None
    uuid, count = ends.uuid.hex(), len(ends.shards)

    def lane(shard: int) -> ReplayLane:
        def rows(first: int, stop: int) -> DataFrame:
            limits = {
                name: json.dumps({str(other): at if other == shard else "latest" for other in range(count)})
                for name, at in (("start", first), ("end", stop))
            }
            return read(spark, feed, columns=columns, **limits)

        source = shard_key(uuid, shard, start)
        return ReplayLane(f"shard {shard}", source, starts[shard], stops[shard], step, rows)

    return [lane(shard) for shard in range(count)]


def shard_key(uuid: str, shard: int, start: str | None = None) -> str:
    """One shard of one topic; read from elsewhere than its beginning, it is another source."""
    return f"topic {uuid} shard {shard}" + ("" if start in (None, "earliest") else f" from {start}")


def archive_lanes(spark: SparkSession, place: ArchiveFolder, info: ArchiveInfo, step: int) -> list[ReplayLane]:
    """The shards that an archive holds."""
    files = [str(path) for path in place.whole_files()]
    if not files:
        raise BadRequest(f"the archive {place.path} is empty")
    frame = spark.read.option("mergeSchema", True).parquet(*files)
    found = summed(frame, ("shard",), "min(entry) as first", "max(entry) as last").collect()

    def lane(shard: int, first: int, last: int) -> ReplayLane:
        def rows(start: int, stop: int) -> DataFrame:
            mine = f"shard = {shard} and entry >= {start} and entry < {stop}"
            return frame.where(mine).orderBy("entry")

        return ReplayLane(f"shard {shard}", shard_key(info.topic_uuid, shard), first, last + 1, step, rows)

    return [lane(*row) for row in sorted(found)]


def file_lanes(spark: SparkSession, feed: Feed) -> list[ReplayLane]:
    """All files of a folder, identified by their content: the same files elsewhere are the same lane."""
    from pyspark.sql import functions as F

    frame = read(spark, feed)
    need_columns(frame, ("value",), str(feed))
    placed = frame.select(
        "*", F.col("_metadata.file_path").alias(_FILE), F.col("_metadata.row_index").alias(_ROW)
    )
    content = F.xxhash64(F.to_json(F.struct(*frame.columns)), _ROW)
    sums = placed.groupBy(_FILE).agg(F.count("*"), F.bit_xor(content), F.sum(content % (1 << 32)))
    found = sorted(tuple(row) for row in sums.collect())
    if not found:
        raise BadRequest(f"{feed} holds no rows")
    print_of_all = hashlib.sha256(repr([row[1:] for row in found]).encode()).hexdigest()
    files = [row[0] for row in found]

    def rows(start: int, stop: int) -> DataFrame:
        mine = placed.where(F.col(_FILE).isin(files[start:stop]))
        return mine.orderBy(_FILE, _ROW).drop(_FILE, _ROW)

    return [ReplayLane("files", f"files {print_of_all}", 0, len(files), 1, rows)]


class ReplayPiece(NamedTuple):
    """Positions that are still to be written, under the writer that began at ``writer``.

    A writer's newest batch says where it ended and its name where it began, so each stands for one unbroken
    range of positions. Most lanes have one writer. A lane has more if the topic's beginning was gone when it
    was replayed: a later replay from the archive writes those entries under a second writer, and no others.
    """

    first: int
    end: int
    writer: int


def left_of(first: int, end: int, written: Mapping[int, int]) -> list[ReplayPiece]:
    """The unwritten pieces of a range; ``written`` maps where each writer began to where it ended."""
    there = RangeSet((began, reached) for began, reached in written.items() if began < reached)
    began_of = {reached: began for began, reached in written.items()}
    return [ReplayPiece(start, stop, began_of.get(start, start)) for start, stop in there.missing(first, end)]


def writer_name(base: str, began: int) -> str:
    """The name of a lane's writer; one that began at 0 has the plain name."""
    return base if began == 0 else f"{base}-{began}"


def began_at(base: str, name: str) -> int | None:
    """Where a writer of this lane began; None if it is another's."""
    if name == base:
        return 0
    head, dash, number = name.rpartition("-")
    return int(number) if dash and head == base and number.isdecimal() else None


class ReplayResult(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that a run wrote."""

    source: str
    target: str
    rows: int
    """Written by this run."""
    there: int
    """Positions that earlier runs wrote: entries, or files."""
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
    url: str | None = None,
    token: str | None = None,
    to_url: str | None = None,
    to_token: str | None = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> ReplayResult:
    """Writes the messages that are not written yet; ``start`` and ``end`` are a topic's, ``where`` is SQL.

    ``to_url`` is another node to write to. The target topic has to be there.
    """
    feed = feed_of(source, "the source", url, token)
    to = (to_url, to_token) if to_url else (url, token)
    goal = topic_of(target, "the target", "A replay goes to a topic; name it as topic:NAME.", *to)
    if feed.kind is FeedKind.FRAME:
        raise BadRequest(
            "a DataFrame has no positions that stay the same", hint="Write it with format('headpond')."
        )
    if feed.kind is FeedKind.PARQUET and (start or end):
        raise BadRequest("start and end are a topic's", hint="Take a part of files with `where`.")
    if batch_entries < 1:
        raise BadRequest(f"the entries of a batch must be above 0, not {batch_entries}")
    if feed == goal:
        raise BadRequest(f"{goal} would be written to itself", hint="Name another target.")
    feed.check()
    uuid = goal.show().uuid.hex()
    began = time.monotonic()

    def body(work: Work) -> ReplayResult:
        work.say("looking for earlier runs")
        # A condition may name any column.
        columns = COLUMNS_WRITTEN if where is None else None
        lanes = _lanes(work, feed, start, end, batch_entries, columns)
        return run_lanes(work, feed, lanes, ReplayTarget(goal, uuid), where, began)

    return run_job("replay", body, master=master, progress=progress)


def _lanes(
    work: Work, feed: Feed, start: str | None, end: str | None, step: int, columns: str | None
) -> list[ReplayLane]:
    if feed.kind is FeedKind.TOPIC:
        return topic_lanes(work.spark, feed, start, end, step, columns)
    if "://" not in feed.name and (Path(feed.name).expanduser() / INSIDE / "archive.json").exists():
        place = ArchiveFolder(feed.name)
        return archive_lanes(work.spark, place, place.info(), step)
    return file_lanes(work.spark, feed)


class ReplayTarget(msgspec.Struct, frozen=True):
    """The topic that is written to."""

    feed: Feed
    uuid: str

    def writer(self, lane: ReplayLane, where: str | None) -> str:
        """The name under which this lane is written, the same in every run."""
        key = "\n".join([lane.source, self.uuid, where or ""])
        return f"replay-{hashlib.sha256(key.encode()).hexdigest()[:32]}"

    def written(self, writer: str) -> dict[int, int]:
        """Where the writers of a lane began, and where the newest batch of each ended."""
        with self.feed.connect() as client:
            known = client.admin.list_writers()
        found: dict[int, int] = {}
        for each in known:
            # The sink adds the topic: two topics written under one id do not count each other's batches.
            began = began_at(f"{self.feed.name}/{writer}", each.writer)
            if began is not None and each.batch:
                found[began] = each.batch
        return found

    def write(self, rows: DataFrame, writer: str, batch: int) -> None:
        options = self.feed.options() | {"sinkId": writer, "batch": str(batch)}
        rows.write.format(FORMAT).options(**options).mode("append").save()


def run_lanes(
    work: Work, feed: Feed, lanes: list[ReplayLane], target: ReplayTarget, where: str | None, began: float
) -> ReplayResult:
    """Writes all lanes, some at once; each continues where its writer ended."""
    positions = sum(lane.end - lane.first for lane in lanes)
    written = there = batches = done = 0
    lock = Lock()

    def run(lane: ReplayLane) -> None:
        nonlocal written, there, batches, done
        base = target.writer(lane, where)
        left = left_of(lane.first, lane.end, target.written(base))
        found = lane.end - lane.first - sum(piece.end - piece.first for piece in left)
        with lock:
            there += found
            done += found
        for piece in left:
            at = piece.first
            while at < piece.end and not work.stopping.is_set():
                stop = min(at + lane.step, piece.end)
                rows, count = counted(outgoing(lane.rows(at, stop), where))
                target.write(rows, writer_name(base, piece.writer), stop)
                number = count()
                with lock:
                    written += number
                    batches += 1
                    done += stop - at
                    work.say(f"{written:,} messages written, {100 * done // max(1, positions)} %")
                at = stop

    work.each(run, lanes, LANES_AT_ONCE)
    return ReplayResult(
        source=str(feed),
        target=target.feed.name,
        rows=written,
        there=there,
        batches=batches,
        seconds=round(time.monotonic() - began, 3),
    )


def outgoing(rows: DataFrame, where: str | None) -> DataFrame:
    """The columns to write: those that the producer gave, and the origin as a header."""
    from pyspark.errors import AnalysisException

    need_columns(rows, ("value",), "the source")
    if where is not None:
        try:
            rows = rows.where(where)
        except AnalysisException as error:
            raise BadRequest(
                f"{where!r} is not a condition over {', '.join(rows.columns)}",
                hint="Write one like \"producer = 'till-1'\".",
            ) from error
    headers = "cast(map() as map<string, string>)"
    if "headers" in rows.columns:
        headers = f"coalesce(headers, {headers})"
    if "identity" in rows.columns:
        others = f"map_filter({headers}, (name, text) -> name <> '{ORIGIN_HEADER}')"
        with_origin = f"map_concat({others}, map('{ORIGIN_HEADER}', identity))"
        headers = f"if(identity is not null, {with_origin}, {headers})"
    given = [name for name in ("key", "id") if name in rows.columns]
    return rows.selectExpr("value", *given, f"{headers} as headers")
