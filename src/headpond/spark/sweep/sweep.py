"""``sweep``: workers of Spark run the lab's grid; the results are one Parquet file and pictures.

The runs are spread evenly over many small tasks, since some routes take far longer than others. A run's result
is a row of some forty numbers, so all of them fit here: they are gathered, put in the order of the grid and
written in one step, which makes the file the same whatever the cluster.

The summary of a route says how many of its runs agree with the calculus. An interval at 0.999 misses the true
value once in a thousand times, so a large sweep has disagreeing runs even where every prediction is right. A
route stands if chance makes so many of them likely, if every promised order held, and if no run failed.
Unfinished runs do not count.
"""

from __future__ import annotations

import math
import os
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from headpond.model.errors import BadRequest
from headpond.pipes.lab.world import Ending
from headpond.spark.jobs.work import repeating, run_job
from headpond.spark.start.packages import need_plots, need_spark
from headpond.spark.sweep.grid import SCHEMA, Grid, run_cells

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUNS_FILE = "runs.parquet"
TASKS_A_CORE = 16
POLL_S = 0.25
_SUMMED = ("failed", "promised", "unfinished", "agreeing")
SURPRISE = 0.001
"""A route falls if chance alone makes so many disagreeing runs less likely than this."""

Progress = Callable[[int, int], None]
"""Called from time to time with about how many runs are done, and how many there are."""

SESSION_SETTINGS = {
    "spark.ui.showConsoleProgress": False,
    # Java only distributes work here, so CPU that it does not spend on compiling is left to the workers.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
}


class RouteSummary(msgspec.Struct, frozen=True, kw_only=True):
    """One route of a sweep."""

    route: str
    runs: int
    failed: int
    promised: int
    """Finished runs of which the calculus promised something."""
    unfinished: int
    """Runs that ended at a limit before they were finished."""
    agreeing: int
    """Promised runs that agree in R, UR and order."""
    order_broken: int
    """Runs in which a promised order did not hold."""
    r_deviation_max: float | None
    """The largest distance of a measured R from the prediction; None if nothing was promised."""
    ur_deviation_max: float | None
    stands: bool
    """Whether the runs agree with the calculus, up to chance."""
    error: str | None
    """The error of the first run that failed."""


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
    runs = run_job(
        "lab sweep", lambda work: run_grid(work.spark, grid, progress), master=master, conf=SESSION_SETTINGS
    )
    target = folder / RUNS_FILE
    _write(runs, target)
    from headpond.spark.sweep.surface import draw

    pictures = draw(runs, folder)
    routes = summarize(runs)
    return SweepResult(
        runs=runs.num_rows,
        **{name: sum(getattr(route, name) for route in routes) for name in _SUMMED},
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


def run_grid(spark: SparkSession, grid: Grid, progress: Progress | None = None) -> pa.Table:
    """All runs of the grid in this session, one row each, in the order of the grid."""
    from pyspark.sql.pandas.types import from_arrow_schema

    tasks = min(len(grid), TASKS_A_CORE * spark.sparkContext.defaultParallelism)
    cells = spark.createDataFrame(grid.cells()).repartition(tasks)
    tracker = spark.sparkContext.statusTracker()
    done = 0

    def report() -> None:
        """Counts the tasks of the stage that has the runs; the one before it only spreads the cells."""
        nonlocal done
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        mine = (stage for stage in stages if stage is not None and stage.numTasks == tasks)
        done = max((done, *(stage.numCompletedTasks for stage in mine)))
        if progress is not None:
            progress(len(grid) * done // tasks, len(grid))

    with repeating(None if progress is None else report, POLL_S):
        found = cells.mapInArrow(run_cells, from_arrow_schema(SCHEMA)).toArrow()
    if progress is not None:
        progress(len(grid), len(grid))
    return found.cast(SCHEMA).sort_by("run")


# --- the summary --------------------------------------------------------------------------------------


def summarize(runs: pa.Table) -> list[RouteSummary]:
    """The routes of a sweep, in the order of their first runs."""
    rows: dict[str, list[dict[str, Any]]] = {}
    for row in runs.to_pylist():
        rows.setdefault(row["route"], []).append(row)
    return [_summary(route, its) for route, its in rows.items()]


def _summary(route: str, rows: list[dict[str, Any]]) -> RouteSummary:
    errors = [row["error"] for row in rows if row["error"] is not None]
    promised = [row for row in rows if row["promised"] and row["agrees"] is not None]
    agreeing = sum(row["agrees"] for row in promised)
    order_broken = sum(not row["order_agrees"] for row in promised)
    misses = sum((not row["r_agrees"]) + (not row["ur_agrees"]) for row in promised)
    miss = 1 - promised[0]["confidence"] if promised else 0.0
    likely = chance_of(misses, 2 * len(promised), miss) >= SURPRISE
    return RouteSummary(
        route=route,
        runs=len(rows),
        failed=len(errors),
        promised=len(promised),
        unfinished=sum(row["ended"] == Ending.UNFINISHED for row in rows),
        agreeing=agreeing,
        order_broken=order_broken,
        r_deviation_max=max((row["r_deviation"] for row in promised), default=None),
        ur_deviation_max=max((row["ur_deviation"] for row in promised), default=None),
        stands=likely and not order_broken and not errors,
        error=errors[0] if errors else None,
    )


def chance_of(misses: int, tries: int, miss: float) -> float:
    """The probability of at least so many misses in so many tries, each a miss with probability ``miss``."""
    fewer = sum(math.comb(tries, k) * miss**k * (1 - miss) ** (tries - k) for k in range(misses))
    return max(0.0, 1.0 - fewer)
