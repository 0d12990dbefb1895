"""A sweep runs the lab on Spark: the same numbers, in one Parquet file, with pictures."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from headpond.model.errors import BadRequest
from headpond.pipes.lab.run import run
from headpond.spark.sweep.grid import SCHEMA, Grid, faults_of
from headpond.spark.sweep.sweep import SweepResult, run_grid, sweep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BROKEN = "resend_many(confirm=settled) -> index"
GRID = Grid(
    routes=("dedup", "resend_many | continuous", BROKEN),
    loss=(0.0, 0.3),
    duplicate=(0.0, 0.2),
    seeds=2,
    messages=300,
)


@pytest.fixture(scope="module")
def swept(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> SweepResult:
    return sweep(GRID, tmp_path_factory.mktemp("swept") / "deep" / "out")


def test_the_parquet_file_has_the_numbers_of_the_lab(swept: SweepResult) -> None:
    table = pq.read_table(swept.files[0])
    assert table.schema.equals(SCHEMA)
    rows = [row for row in table.to_pylist() if row["error"] is None]
    assert [row["run"] for row in table.to_pylist()] == list(range(24))
    assert len(rows) == 16
    for row in rows:
        result = run(row["route"], faults_of(row), 300, row["seed"])
        assert (row["unique"], row["received"], row["transmissions"], row["retransmissions"]) == (
            result.unique,
            result.received,
            result.transmissions,
            result.retransmissions,
        )
        assert (row["r"], row["ur"]) == (result.reliability.value, result.uniqueness.value)
        assert (row["simulated_s"], row["orders"]) == (result.simulated_s, result.orders)
        assert result.predicted is not None
        assert (row["agrees"], row["r_predicted_low"]) == (
            result.predicted.agrees,
            result.predicted.reliability_low,
        )


def test_a_run_that_fails_is_a_row_and_does_not_stop_the_others(swept: SweepResult) -> None:
    failed = [row for row in pq.read_table(swept.files[0]).to_pylist() if row["error"] is not None]
    assert {row["route"] for row in failed} == {BROKEN}
    assert {row["error"] for row in failed} == {
        "bad-request: confirms cannot cascade over index, which has none"
    }
    assert {row["r"] for row in failed} == {None}
    assert (swept.runs, swept.failed, swept.stands) == (24, 8, False)


def test_the_routes_are_summed_up(swept: SweepResult) -> None:
    found = [(route.route, route.runs, route.failed, route.promised) for route in swept.routes]
    assert found == [("dedup", 8, 0, 8), ("resend_many | continuous", 8, 0, 8), (BROKEN, 8, 8, 0)]
    assert [route.stands for route in swept.routes] == [True, True, False]


def test_the_pictures_are_beside_it(swept: SweepResult) -> None:
    folder = Path(swept.files[0]).parent
    assert sorted(path.name for path in folder.iterdir()) == ["R.png", "UR.png", "runs.parquet"]
    assert [Path(file).name for file in swept.files] == ["runs.parquet", "R.png", "UR.png"]
    assert all(Path(file).read_bytes().startswith(b"\x89PNG") for file in swept.files[1:])


def test_a_session_that_was_there_is_left_running(spark: SparkSession, swept: SweepResult) -> None:
    assert swept.runs == 24
    assert spark.range(3).count() == 3


def test_results_are_not_overwritten_by_default(spark: SparkSession, tmp_path: Path) -> None:
    small = Grid(routes=("dedup",), loss=(0.1,), duplicate=(0.0,), seeds=1, messages=20)
    (tmp_path / "runs.parquet").write_text("precious")
    with pytest.raises(BadRequest, match="results of another sweep"):
        sweep(small, tmp_path)
    assert (tmp_path / "runs.parquet").read_text() == "precious"
    sweep(small, tmp_path, overwrite=True)
    assert pq.read_table(tmp_path / "runs.parquet").num_rows == 1


def test_a_folder_that_cannot_be_made_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadRequest, match="cannot make the folder"):
        sweep(GRID, tmp_path / "file" / "out")


def test_progress_counts_up_to_all_runs(spark: SparkSession) -> None:
    said: list[tuple[int, int]] = []
    run_grid(
        spark,
        Grid(routes=("dedup",), seeds=2, messages=50),
        lambda done, runs: said.append((done, runs)),
    )
    assert said == sorted(said)
    assert said[-1] == (24, 24)
    assert {runs for _, runs in said} == {24}


def test_ctrl_c_ends_a_sweep_that_runs_and_leaves_the_session_usable(
    spark: SparkSession, tmp_path: Path
) -> None:
    tracker = spark.sparkContext.statusTracker()
    interrupted = threading.Event()

    def runs_have_begun() -> bool:
        stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
        return any(stage is not None and stage.numTasks == 32 and stage.numActiveTasks for stage in stages)

    def interrupt(_done: int, _runs: int) -> None:
        if not interrupted.is_set() and runs_have_begun():
            interrupted.set()
            os.kill(os.getpid(), signal.SIGINT)

    for_hours = Grid(routes=("resend",), messages=10_000_000)
    with pytest.raises(KeyboardInterrupt):
        sweep(for_hours, tmp_path, progress=interrupt)
    assert list(tmp_path.iterdir()) == []
    assert spark.range(3).count() == 3
