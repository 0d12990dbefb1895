"""What a replay reads, cut into lanes: rows that keep their order, each at a position that never changes.

A lane of a topic or an archive is one shard, and positions are entries. The two are the same lane: what was
replayed from a topic is not replayed again from its archive. A folder of other Parquet files is one lane, whose
positions are its files in the order of their names.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import headpond.sync
from headpond.model.errors import BadRequest
from headpond.spark.jobs.archive_folder import ArchiveFolder, ArchiveInfo
from headpond.spark.jobs.feed import Feed, Reach, need_columns, read

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_FILE, _ROW = "_headpond_file", "_headpond_row"
Rows = Callable[[int, int], "DataFrame"]
"""The rows from one position to before another, in their order."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Rows that are written in their order, under one writer."""

    name: str
    """For a person."""
    source: str
    """What it is, wherever it is read from: a part of the writer's name."""
    first: int
    end: int
    step: int
    """How many positions make a batch."""
    rows: Rows


def topic_lanes(
    spark: SparkSession, feed: Feed, reach: Reach, start: str | None, end: str | None, step: int
) -> list[Lane]:
    """The shards of a topic, from and to where it was told, or what it holds now."""
    from headpond.spark.source_options import read_options
    from headpond.spark.source_plan import resolve, there

    told = {"topic": feed.name, "start": start, "end": end}
    options = read_options({name: value for name, value in told.items() if value is not None} | reach.options())
    with headpond.sync.connect(reach.url, token=reach.token) as client:
        (ends,) = there(client.admin.ends([feed.name]))
        starts, stops = (
            resolve(client, options, ends, places, name)
            for places, name in ((options.start, "start"), (options.end, "end"))
        )
    assert ends.uuid is not None
    uuid, count = ends.uuid.hex(), len(ends.shards)

    def lane(shard: int) -> Lane:
        def rows(first: int, stop: int) -> DataFrame:
            limits = {
                name: json.dumps({str(other): at if other == shard else "latest" for other in range(count)})
                for name, at in (("start", first), ("end", stop))
            }
            return read(spark, feed, reach, **limits)

        source = shard_key(uuid, shard, start)
        return Lane(f"shard {shard}", source, starts[shard], stops[shard], step, rows)

    return [lane(shard) for shard in range(count)]


def shard_key(uuid: str, shard: int, start: str | None = None) -> str:
    """One shard of one topic; read from elsewhere than its beginning, it is another source."""
    return f"topic {uuid} shard {shard}" + ("" if start in (None, "earliest") else f" from {start}")


def archive_lanes(spark: SparkSession, place: ArchiveFolder, info: ArchiveInfo, step: int) -> list[Lane]:
    """The shards that an archive holds."""
    from pyspark.sql import functions as F

    files = [str(path) for path in place.whole_files()]
    if not files:
        raise BadRequest(f"the archive {place.path} is empty")
    frame = spark.read.option("mergeSchema", True).parquet(*files)
    found = frame.groupBy("shard").agg(F.min("entry").alias("first"), F.max("entry").alias("last")).collect()

    def lane(shard: int, first: int, last: int) -> Lane:
        def rows(start: int, stop: int) -> DataFrame:
            mine = (F.col("shard") == shard) & (F.col("entry") >= start) & (F.col("entry") < stop)
            return frame.where(mine).orderBy("entry")

        return Lane(f"shard {shard}", shard_key(info.topic_uuid, shard), first, last + 1, step, rows)

    return [
        lane(row["shard"], row["first"], row["last"]) for row in sorted(found, key=lambda row: row["shard"])
    ]


def file_lanes(spark: SparkSession, feed: Feed, reach: Reach) -> list[Lane]:
    """All files of a folder, known by what is in them: the same files elsewhere are the same lane."""
    from pyspark.sql import functions as F

    frame = read(spark, feed, reach)
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

    return [Lane("files", f"files {print_of_all}", 0, len(files), 1, rows)]
