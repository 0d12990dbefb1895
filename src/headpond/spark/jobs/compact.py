"""``compact``: the many small files of an archive as few large ones, without a moment in which rows are missing
or there twice.

A day's files are read and written anew beside it; then the two folders are exchanged in one step of the file
system, and the old one is removed. A reader that lists the day sees the old files or the new ones. One that
listed it before the exchange and opens a file after it gets an error that the file is gone, never a wrong row.
"""

from __future__ import annotations

import ctypes
import errno
import math
import os
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from headpond.model.errors import BadRequest, NotSupported, StorageFailed
from headpond.spark.jobs.archive_folder import ArchiveFolder, sync
from headpond.spark.jobs.work import Progress, Work, run_job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TARGET_BYTES = 256 * 1024 * 1024
COMPACTING = "compacting"
_EXCHANGE = 2
_HERE = -100


class CompactResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the files."""

    folder: str
    days: int
    """Those that were written anew."""
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
    """Puts the files of each day together until they have about ``target_bytes`` each."""
    if target_bytes < 1:
        raise BadRequest(f"files of {target_bytes} bytes", hint="Take a number above 0.")
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
    """Writes one day anew; returns how many rows it has."""
    old = sorted(day.glob("*.parquet"))
    rows_before = _rows(old)
    count = _count(sum(path.stat().st_size for path in old), target_bytes)
    work = place.inside / COMPACTING / "work"
    # What is there is of one that was killed, before its exchange or right after it: of no use either way.
    shutil.rmtree(work, ignore_errors=True)
    staged = work / "staged"
    # A topic's columns may have grown from one file to the next.
    rows = spark.read.option("mergeSchema", True).parquet(*map(str, old))
    # By range, so that a file holds neighbouring entries and a reader of some of them can pass over the rest.
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
