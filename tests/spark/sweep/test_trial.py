"""A run of the lab becomes a row, also where it fails."""

from __future__ import annotations

from typing import Any

import pytest

from headpond.pipes.lab.faults import Faults
from headpond.pipes.lab.run import run
from headpond.spark.sweep.grid import SCHEMA, Grid, run_cell, run_cells


def cell(route: str, **changed: Any) -> dict[str, Any]:
    grid = Grid(routes=(route,), loss=(0.2,), duplicate=(0.1,), confirm_loss=(0.1,), seeds=1, messages=400)
    (row,) = grid.cells().to_pylist()
    return {**row, **changed}


def test_a_row_has_the_measurement_and_the_prediction() -> None:
    row = run_cell(cell("resend", seed=5))
    faults = Faults(loss=0.2, duplicate=0.1, reorder=0.1, confirm_loss=0.1)
    result = run("resend", faults, 400, 5)
    predicted = result.predicted
    assert predicted is not None
    assert (row["r"], row["r_low"], row["r_high"]) == (
        result.reliability.value,
        result.reliability.low,
        result.reliability.high,
    )
    assert (row["ur"], row["ur_low"], row["ur_high"]) == (
        result.uniqueness.value,
        result.uniqueness.low,
        result.uniqueness.high,
    )
    assert (row["ur_predicted_low"], row["ur_predicted_high"]) == (
        predicted.uniqueness_low,
        predicted.uniqueness_high,
    )
    assert (row["orders"], row["retransmissions"]) == (result.orders, result.retransmissions)
    assert (row["latency_p50_s"], row["latency_max_s"]) == (result.latency.p50_s, result.latency.max_s)
    assert row["agrees"] is predicted.agrees is True
    assert row["ur_deviation"] == abs(result.uniqueness.value - predicted.uniqueness_low)


def test_all_flags_together_are_the_runs_own() -> None:
    for route in ("index", "dedup", "resend_many | continuous"):
        row = run_cell(cell(route))
        assert row["agrees"] == (row["r_agrees"] and row["ur_agrees"] and row["order_agrees"])


def test_a_route_that_promises_nothing_is_measured_without_a_prediction() -> None:
    row = run_cell(cell("continuous(gaps=false)"))
    assert (row["promised"], row.get("r_predicted_low"), row.get("agrees")) == (False, None, None)
    assert row["sent"] == 400


def test_a_run_that_was_not_finished_is_not_compared() -> None:
    row = run_cell(cell("resend_many", loss=1.0))
    assert (row["ended"], row["promised"], row.get("agrees")) == ("unfinished", False, None)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        (cell("resend_many(confirm=settled) -> index"), "bad-request: confirms cannot cascade over index"),
        (cell("index", messages=None), "TypeError: "),
    ],
)
def test_a_run_that_fails_is_a_row_with_its_error(wrong: dict[str, Any], error: str) -> None:
    row = run_cell(wrong)
    assert row.pop("error").startswith(error)
    assert row == wrong


def test_a_batch_of_cells_is_a_batch_of_rows_of_the_schema() -> None:
    (cells,) = Grid(routes=("index",), loss=(0.1,), messages=50).cells().to_batches()
    (rows,) = run_cells([cells])
    assert rows.schema == SCHEMA
    assert rows.column("run").to_pylist() == cells.column("run").to_pylist()
    assert rows.column("error").null_count == rows.num_rows == 9
