"""The pictures of a sweep show each route's numbers, predicted beside measured, and mark disagreeing runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from headpond.spark.sweep.grid import SCHEMA, Grid, run_cell
from headpond.spark.sweep.surface import NOTHING, PICTURES_MAX, WRONG, draw, pictures_of

GRID = Grid(
    routes=("dedup", "resend"),
    loss=(0.0, 0.4),
    duplicate=(0.0, 0.1, 0.3),
    reorder=(0.0,),
    seeds=2,
    messages=200,
)


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    return pa.Table.from_pylist(list(map(run_cell, GRID.cells().to_pylist())), schema=SCHEMA).to_pylist()  # type: ignore[no-any-return]


def colours(path: Path) -> dict[str, int]:
    """How many points of a picture have each colour."""
    from matplotlib.image import imread

    points = (imread(path)[:, :, :3] * 255).round().astype(np.uint8).reshape(-1, 3)
    kinds, counts = np.unique(points, axis=0, return_counts=True)
    return {"#{:02x}{:02x}{:02x}".format(*kind): int(count) for kind, count in zip(kinds, counts, strict=True)}


def test_the_axes_with_the_most_values_span_the_surface(rows: list[dict[str, Any]]) -> None:
    found = list(pictures_of(rows))
    assert [picture.file_name for picture in found] == ["R", "UR"]
    assert {(picture.across, picture.up) for picture in found} == {("duplicate", "loss")}
    assert found[0].fixed == {"reorder": 0.0, "confirm_loss": 0.2}


def test_a_cell_pools_the_runs_of_its_point(rows: list[dict[str, Any]]) -> None:
    picture = next(pictures_of(rows))
    cell = picture.cells["dedup"][(0.1, 0.4)]
    mine = [row for row in rows if (row["route"], row["duplicate"], row["loss"]) == ("dedup", 0.1, 0.4)]
    assert len(mine) == 2
    assert cell.measured == sum(row["unique"] for row in mine) / 400
    assert (cell.low, cell.high, cell.failed) == (0.6, 0.6, 0)


def test_a_run_that_was_not_finished_is_not_pooled(rows: list[dict[str, Any]]) -> None:
    changed = [{**row, "ended": "unfinished"} if row["seed"] == 0 else row for row in rows]
    cell = next(pictures_of(changed)).cells["dedup"][(0.1, 0.4)]
    (mine,) = [
        row
        for row in rows
        if (row["route"], row["duplicate"], row["loss"], row["seed"]) == ("dedup", 0.1, 0.4, 1)
    ]
    assert (cell.measured, cell.unfinished) == (mine["unique"] / 200, 1)


def test_further_axes_that_vary_have_a_picture_for_each_combination() -> None:
    grid = Grid(
        routes=("dedup",), duplicate=(0.0, 0.1), reorder=(0.0, 0.1), confirm_loss=(0.0,), seeds=1, messages=20
    )
    names = [picture.file_name for picture in pictures_of(list(map(whole, grid.cells().to_pylist())))]
    assert names == ["R-reorder-0", "UR-reorder-0", "R-reorder-0.1", "UR-reorder-0.1"]


def test_there_are_not_more_pictures_than_one_can_look_at() -> None:
    many = tuple(number / 100 for number in range(30))
    grid = Grid(routes=("dedup",), loss=many, duplicate=many, reorder=many, seeds=1, messages=1)
    cells = [cell for cell in grid.cells().to_pylist() if cell["loss"] == cell["duplicate"]]
    blank = dict.fromkeys(SCHEMA.names) | {"error": "not run"}
    assert len(list(pictures_of([blank | cell for cell in cells]))) == 2 * PICTURES_MAX


def whole(cell: dict[str, Any]) -> dict[str, Any]:
    return {**dict.fromkeys(SCHEMA.names), **run_cell(cell)}


def test_the_files_are_pictures_of_some_size_with_many_colours(
    rows: list[dict[str, Any]], tmp_path: Path
) -> None:
    paths = draw(pa.Table.from_pylist(rows, schema=SCHEMA), tmp_path)
    assert [path.name for path in paths] == ["R.png", "UR.png"]
    for path in paths:
        found = colours(path)
        assert sum(found.values()) > 300_000
        assert len(found) > 100
        assert WRONG not in found


def test_a_run_that_disagrees_is_framed_in_red(rows: list[dict[str, Any]], tmp_path: Path) -> None:
    changed = [{**row, "r_agrees": row["run"] != 3} for row in rows]
    reliability, uniqueness = draw(pa.Table.from_pylist(changed, schema=SCHEMA), tmp_path)
    assert colours(reliability)[WRONG] > 100
    assert WRONG not in colours(uniqueness)


def test_a_cell_without_a_promise_or_whose_runs_failed_is_grey(tmp_path: Path) -> None:
    route = "continuous(gaps=false)"
    grid = Grid(routes=(route,), loss=(0.2,), duplicate=(0.0, 0.1), seeds=1, messages=20)
    rows = list(map(run_cell, grid.cells().to_pylist()))
    failed = [{name: row[name] for name in grid.cells().column_names} | {"error": "no"} for row in rows]
    greys = []
    for name, these in (("unpromised", rows), ("failed", failed)):
        folder = tmp_path / name
        folder.mkdir()
        path, _ = draw(pa.Table.from_pylist(these, schema=SCHEMA), folder)
        greys.append(colours(path)[NOTHING])
    assert 5_000 < greys[0] < greys[1]
