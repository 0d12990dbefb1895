"""A grid is every route under every combination of rates, from every seed."""

from __future__ import annotations

import itertools

import pytest

from headpond.model.errors import BadRequest
from headpond.pipes.lab.faults import Faults
from headpond.spark.sweep.grid import RUNS_MAX, Grid, faults_of, route_text

SMALL = Grid(
    routes=("index", "resend|dedup"),
    loss=(0.0, 0.5),
    duplicate=(0.1,),
    reorder=(0.0, 0.2),
    seeds=3,
    messages=10,
)


def test_the_runs_are_all_combinations_numbered_in_their_order() -> None:
    rows = SMALL.cells().to_pylist()
    found = [(row["run"], row["route"], row["loss"], row["reorder"], row["seed"]) for row in rows]
    wanted = itertools.product(("index", "resend | dedup"), (0.0, 0.5), (0.0, 0.2), range(3))
    assert found == [(number, *point) for number, point in enumerate(wanted)]
    assert {(row["duplicate"], row["confirm_loss"], row["messages"]) for row in rows} == {(0.1, 0.2, 10)}
    assert len(SMALL) == len(rows) == 24


def test_a_cell_has_the_faults_of_its_run() -> None:
    (cell,) = (row for row in SMALL.cells().to_pylist() if row["run"] == 23)
    assert faults_of(cell) == Faults(loss=0.5, duplicate=0.1, reorder=0.2, confirm_loss=0.2)


def test_the_default_grid_is_good_and_small() -> None:
    Grid().check()
    assert len(Grid()) == 216


def test_a_route_is_named_as_its_runs_name_it() -> None:
    assert route_text("resend_many( window = 64 )|dedup->index") == "resend_many(window=64) | dedup -> index"


@pytest.mark.parametrize(
    "wrong",
    [
        {"routes": ()},
        {"routes": ("resnd",)},
        {"routes": ("resend|dedup", "resend | dedup")},
        {"loss": ()},
        {"loss": (0.1, 0.1)},
        {"reorder": (1.5,)},
        {"confirm_loss": (-0.1,)},
        {"seeds": 0},
        {"seeds": RUNS_MAX},
        {"messages": 0},
    ],
    ids=str,
)
def test_a_grid_that_cannot_be_run_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(BadRequest):
        Grid(**wrong).check()  # type: ignore[arg-type]
