"""``archive`` and ``compact``: a topic as Parquet files, every message once, even if the process is killed.

Spark's own file sink is exactly once only for readers that know its ``_spark_metadata``; others see the files
of failed attempts too. Here each batch of the stream goes through the archive's folder (archive_folder), where
one record decides whether it counts, so any reader of Parquet sees each message once.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import math
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from headpond.model.errors import BadRequest, EntriesMissing, HeadpondError, NotSupported, StorageFailed
from headpond.spark.jobs.archive_folder import ArchiveFolder, ArchiveInfo, sync
from headpond.spark.jobs.feed import counted, read_stream, topic_of
from headpond.spark.jobs.work import Progress, Work, run_job

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


BATCH_BYTES = 256 * 1024 * 1024
FOLLOW_EVERY = "10 seconds"
TARGET_BYTES = 256 * 1024 * 1024
COMPACTING = "compacting"
_EXCHANGE = 2
_HERE = -100


class ArchiveResult(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that a run added."""

    topic: str
    folder: str
    rows: int
    batches: int
    files: int
    """Of the whole archive."""
    seconds: float


def archive(
    topic: str,
    folder: str | os.PathLike[str],
    *,
    follow: bool = False,
    every: str = FOLLOW_EVERY,
    batch_bytes: int = BATCH_BYTES,
    url: str | None = None,
    token: str | None = None,
    master: str | None = None,
    progress: Progress | None = None,
) -> ArchiveResult:
    """Adds the messages that the archive lacks; with ``follow`` also new ones, until interrupted."""
    feed = topic_of(topic, "the topic", "A topic is archived; name it as topic:NAME.", url, token)
    if batch_bytes < 1:
        raise BadRequest(f"the bytes of a batch must be above 0, not {batch_bytes}")
    place = ArchiveFolder(folder)
    info = feed.show()
    place.claim(ArchiveInfo(topic=info.topic, topic_uuid=info.uuid.hex()))
    began = time.monotonic()
    rows = batches = 0
    failure: HeadpondError | None = None

    def body(work: Work) -> ArchiveResult:
        def add(batch: DataFrame, number: int) -> None:
            nonlocal rows, batches, failure
            # Spark writes the end of a batch once, before it begins the batch.
            cut = hashlib.sha256((place.checkpoint / "offsets" / str(number)).read_bytes()).hexdigest()
            query_id = str(msgspec.json.decode((place.checkpoint / "metadata").read_bytes())["id"])
            try:
                added = write_batch(place, batch, number, query_id, cut)
            except HeadpondError as error:
                failure = error  # Spark passes on only the text of an error
                raise
            if added is not None:
                rows += added
                batches += 1
                work.say(f"archived {rows:,} messages")

        stream = read_stream(work.spark, feed, maxBytesPerTrigger=str(batch_bytes))
        writer = stream.writeStream.option("checkpointLocation", str(place.checkpoint)).foreachBatch(add)
        work.say(f"archiving {feed.name}")
        writer = writer.trigger(processingTime=every) if follow else writer.trigger(availableNow=True)
        try:
            work.await_stream(writer.start())
        except Exception:
            if failure is not None:
                raise failure from None
            raise
        return ArchiveResult(
            topic=feed.name,
            folder=str(place.path),
            rows=rows,
            batches=batches,
            files=len(place.files()),
            seconds=round(time.monotonic() - began, 3),
        )

    with place.held("archiving"):
        place.check_stream()
        place.recover()
        try:
            return run_job("archive", body, master=master, progress=progress)
        except EntriesMissing as error:
            hint = "Archive into a new folder: it begins with what the topic holds. Or let the topic keep more."
            raise EntriesMissing(error.message, hint=hint) from error


def write_batch(place: ArchiveFolder, batch: DataFrame, number: int, query: str, cut: str) -> int | None:
    """Adds one batch; None if it is there already. The same batch may come again, and is added once.

    ``cut`` identifies its rows. A checkpoint that is older or newer than the archive (one of them was restored
    from a copy) brings other rows under a known number, or skips some: that is an error.
    """
    newest = place.newest()
    if newest is not None and newest.query != query:
        raise BadRequest(f"another stream writes to {place.path}")
    if newest is not None and number == newest.batch and newest.cut == cut:
        place.finish(newest)
        return None
    if number != (0 if newest is None else newest.batch + 1):
        there = "none" if newest is None else f"batch {newest.batch}"
        there += ", of other rows" if newest is not None and number == newest.batch else ""
        raise BadRequest(
            f"the checkpoint of {place.path} does not match the archive: it continues with batch {number}, "
            f"and the archive's newest is {there}",
            hint="Restore the whole folder _headpond from one backup, or archive into a new folder.",
        )
    staged = place.stage(number)
    rows, count = counted(batch)
    # The day in UTC, whatever the session's time zone is.
    day = "date_format(to_utc_timestamp(stored_at, current_timezone()), 'yyyy-MM-dd') as date"
    days = rows.selectExpr("*", day).sortWithinPartitions("date", "shard", "entry")
    days.write.partitionBy("date").parquet(str(staged))
    place.commit(number, query, staged, count(), cut)
    return count()


# --- compact ------------------------------------------------------------------------------------------


class CompactResult(msgspec.Struct, frozen=True, kw_only=True):
    """The files of an archive before and after."""

    folder: str
    days: int
    """The days whose files were rewritten."""
    rows: int
    files_before: int
    files_after: int
    """Of the whole archive, as the next ones."""
    bytes_before: int
    bytes_after: int
    seconds: float


def compact(
    folder: str | os.PathLike[str],
    *,
    target_bytes: int = TARGET_BYTES,
    master: str | None = None,
    progress: Progress | None = None,
) -> CompactResult:
    """Joins the files of each day into files of about ``target_bytes``.

    It writes them into a new folder; then one step of the file system exchanges that with the day's. A reader
    that lists the day sees the old files or the new ones. A reader that listed it before the exchange and opens
    a file after it gets an error that the file is gone, never a wrong row.
    """
    if target_bytes < 1:
        raise BadRequest(f"the bytes of a file must be above 0, not {target_bytes}")
    place = ArchiveFolder(folder)
    place.info()
    began = time.monotonic()
    before = place.files()
    bytes_before = sum(path.stat().st_size for path in before)
    days = [day for day in place.days() if _wanted(day, target_bytes)]

    def body(work: Work) -> int:
        rows = 0
        for number, day in enumerate(days, 1):
            work.say(f"{day.name} ({number} of {len(days)})")
            rows += compact_day(work.spark, place, day, target_bytes)
        return rows

    with place.held(COMPACTING):
        rows = run_job("compact", body, master=master, progress=progress) if days else 0
    after = place.files()
    return CompactResult(
        folder=str(place.path),
        days=len(days),
        rows=rows,
        files_before=len(before),
        files_after=len(after),
        bytes_before=bytes_before,
        bytes_after=sum(path.stat().st_size for path in after),
        seconds=round(time.monotonic() - began, 3),
    )


def _wanted(day: Path, target_bytes: int) -> bool:
    sizes = [path.stat().st_size for path in day.glob("*.parquet")]
    return len(sizes) > _count(sum(sizes), target_bytes)


def _count(total_bytes: int, target_bytes: int) -> int:
    return max(1, math.ceil(total_bytes / target_bytes))


def compact_day(spark: SparkSession, place: ArchiveFolder, day: Path, target_bytes: int) -> int:
    """Rewrites one day; returns how many rows it has."""
    old = sorted(day.glob("*.parquet"))
    rows_before = _rows(old)
    count = _count(sum(path.stat().st_size for path in old), target_bytes)
    work = place.inside / COMPACTING / "work"
    # Files left here are of a compaction that was killed before or right after its exchange: not needed.
    shutil.rmtree(work, ignore_errors=True)
    staged = work / "staged"
    # A topic may have gained columns from one file to the next.
    rows = spark.read.option("mergeSchema", True).parquet(*map(str, old))
    # By range, so that a file has neighbouring entries and a reader of some of them can skip the others.
    spread = rows.repartitionByRange(count, "shard", "entry").sortWithinPartitions("shard", "entry")
    spread.write.parquet(str(staged))
    new = work / day.name
    new.mkdir()
    stamp = time.time_ns()
    for number, path in enumerate(sorted(staged.glob("*.parquet"))):
        os.replace(path, new / f"compact-{stamp}-{number:04}.parquet")
    rows_after = _rows(new.glob("*.parquet"))
    if rows_after != rows_before:
        raise StorageFailed(
            f"{day.name}: {rows_after:,} rows were written and {rows_before:,} read; nothing was changed"
        )
    _put_in_place(place, day, new, {path.name for path in old})
    shutil.rmtree(work, ignore_errors=True)
    return rows_after


def _rows(paths: Iterable[Path]) -> int:
    return sum(pq.read_metadata(path).num_rows for path in paths)


def _put_in_place(place: ArchiveFolder, day: Path, new: Path, compacted: set[str]) -> None:
    with place.publishing():
        for path in day.glob("*.parquet"):
            if path.name not in compacted:  # it was added while the others were read
                os.link(path, new / path.name)
        sync([*new.iterdir(), new])
        exchange(new, day)
        sync([day.parent, new.parent])


def exchange(one: Path, other: Path) -> None:
    """Exchanges two folders in one step."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except AttributeError:
        code = errno.ENOSYS
    else:
        done = call(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE)
        code = ctypes.get_errno() if done else 0
    if code in (errno.ENOSYS, errno.EINVAL, errno.ENOTSUP):
        raise NotSupported(
            f"the file system of {other} cannot exchange two folders in one step; nothing was changed",
            hint="Move the archive to a local file system of Linux (ext4, xfs, btrfs).",
        )
    if code:
        raise StorageFailed(f"cannot exchange {one} and {other}: {os.strerror(code)}")
