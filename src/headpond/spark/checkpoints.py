"""A query's checkpoint before Spark reads it: its newest batch, and files of a killed driver."""

from __future__ import annotations

import logging
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("headpond.spark")

OFFSETS, COMMITS = "offsets", "commits"
_TEMPORARY = re.compile(r"\.\d+\.[^/]*\.tmp")
"""The name under which Spark writes a batch's file before it renames it."""


def newest_batch(spark: SparkSession, folder: str) -> int | None:
    """The highest number among the files of one of Spark's logs; ``9.compact`` is one of them."""
    names = [path.getName().partition(".")[0] for path in _files(spark, folder)]
    return max((int(name) for name in names if name.isdecimal()), default=None)


def unfinished_start(spark: SparkSession, checkpoint: str) -> list[str]:
    """The temporary files of a driver that was killed while it wrote the query's first offsets.

    No batch had begun. Spark takes them as a sign that the checkpoint lost its offsets, and refuses to start
    (``STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY``).
    """
    return [str(path) for path in _unfinished(spark, checkpoint)]


def clear_unfinished_start(spark: SparkSession, checkpoint: str) -> None:
    """Removes these files, so that the query starts."""
    for path in _unfinished(spark, checkpoint):
        log.warning("removing %s: a driver was killed before its first batch", path)
        _file_system(spark, path).delete(path, False)


def _unfinished(spark: SparkSession, checkpoint: str) -> list[Any]:
    folders = [f"{checkpoint.rstrip('/')}/{log}" for log in (OFFSETS, COMMITS)]
    if any(newest_batch(spark, folder) is not None for folder in folders):
        return []
    paths = [path for folder in folders for path in _files(spark, folder)]
    return [path for path in paths if _TEMPORARY.fullmatch(path.getName())]


def _files(spark: SparkSession, folder: str) -> list[Any]:
    path = spark._jvm.org.apache.hadoop.fs.Path(folder)  # type: ignore[union-attr]
    files = _file_system(spark, path)
    return [status.getPath() for status in files.listStatus(path)] if files.exists(path) else []


def _file_system(spark: SparkSession, path: Any) -> Any:
    return path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
