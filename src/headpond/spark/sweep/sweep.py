"""``sweep``: workers of Spark run the lab's grid; the results are one Parquet file and pictures.

The runs are spread evenly over many small tasks, since some routes take far longer than others. A run's result
is a row of some forty numbers, so all of them fit here: they are gathered, put in the order of the grid and
written in one step, which makes the file the same whatever the cluster.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headpond.model.errors import BadRequest
from headpond.spark.jobs.work import Work, run_job
from headpond.spark.start.packages import need_plots, need_spark
from headpond.spark.sweep.grid import Grid
from headpond.spark.sweep.summary import RouteSummary, summarize
from headpond.spark.sweep.trial import SCHEMA, SPARK_SCHEMA, run_cells

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS_FILE = "runs.parquet"
TASKS_A_CORE = 16
POLL_S = 0.25

Progress = Callable[[int, int], None]
"""Called from time to time with about how many runs are done, and how many there are."""

SESSION_SETTINGS = {
    "spark.ui.showConsoleProgress": False,
    # Java only distributes work here, so CPU that it does not spend on compiling is left to the workers.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


class SweepResult(msgspec.Struct, frozen=True, kw_only=True):
    """The files of a sweep, and the summary of each route."""

    runs: int
    failed: int
    promised: int
    unfinished: int
    agreeing: int
    seconds: float
    stands: bool
    """Whether every route agrees with the calculus, up to chance."""
    routes: list[RouteSummary]
    files: list[str]
    """The Parquet file first, then the pictures."""


def sweep(
    grid: Grid,
    out: str | os.PathLike[str],
    *,
    master: str | None = None,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> SweepResult:
    """Runs the grid in the session of this process, or in a new one that it stops afterwards."""
    grid.check()
    need_spark()
    need_plots()
    folder = _folder(Path(out), overwrite=overwrite)
    began = time.monotonic()
    runs = _run(grid, master, progress)
    target = folder / RUNS_FILE
    _write(runs, target)
    from headpond.spark.sweep.surface import draw

    pictures = draw(runs, folder)
    routes = summarize(runs)
    return SweepResult(
        runs=runs.num_rows,
        failed=sum(route.failed for route in routes),
        promised=sum(route.promised for route in routes),
        unfinished=sum(route.unfinished for route in routes),
        agreeing=sum(route.agreeing for route in routes),
        seconds=round(time.monotonic() - began, 3),
        stands=all(route.stands for route in routes),
        routes=routes,
        files=[str(target), *map(str, pictures)],
    )


def _folder(folder: Path, *, overwrite: bool) -> Path:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BadRequest(f"cannot make the folder {folder}: {error.strerror}") from error
    if (folder / RUNS_FILE).exists() and not overwrite:
        raise BadRequest(
            f"{folder} holds the results of another sweep", hint="Name another folder, or add --overwrite."
        )
    return folder


def _write(runs: pa.Table, target: Path) -> None:
    """Writes the file atomically."""
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
    try:
        pq.write_table(runs, beside)
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise BadRequest(f"cannot write {target}: {error.strerror or error}") from error


def _run(grid: Grid, master: str | None, progress: Progress | None) -> pa.Table:
    def body(work: Work) -> pa.Table:
        return run_grid(work.spark, grid, progress)

    return run_job("lab sweep", body, master=master, conf=SESSION_SETTINGS)


def run_grid(spark: SparkSession, grid: Grid, progress: Progress | None = None) -> pa.Table:
    """All runs of the grid in this session, one row each, in the order of the grid."""
    tasks = min(len(grid), TASKS_A_CORE * spark.sparkContext.defaultParallelism)
    cells = spark.createDataFrame(grid.cells()).repartition(tasks)
    watch = None if progress is None else _Watch(spark, tasks, len(grid), progress)
    try:
        found = cells.mapInArrow(run_cells, SPARK_SCHEMA).toArrow()
    finally:
        if watch is not None:
            watch.stop()
    if progress is not None:
        progress(len(grid), len(grid))
    return found.cast(SCHEMA).sort_by("run")


class _Watch:
    """Reports the progress of the runs from a separate thread."""

    def __init__(self, spark: SparkSession, tasks: int, runs: int, progress: Progress) -> None:
        self._tracker = spark.sparkContext.statusTracker()
        self._tasks, self._runs, self._progress = tasks, runs, progress
        self._ended = Event()
        self._thread = Thread(target=self._body, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _body(self) -> None:
        done = 0
        while not self._ended.wait(POLL_S):
            done = max(done, self._tasks_done())
            self._progress(self._runs * done // self._tasks, self._runs)

    def _tasks_done(self) -> int:
        """Of the stage that has the runs; the one before it only spreads the cells."""
        stages = map(self._tracker.getStageInfo, self._tracker.getActiveStageIds())
        mine = (stage for stage in stages if stage is not None and stage.numTasks == self._tasks)
        return max((stage.numCompletedTasks for stage in mine), default=0)
