"""A route stands if its runs agree with the calculus, up to chance."""

from __future__ import annotations

import functools
from math import comb
from typing import Any

import pyarrow as pa
import pytest

from headpond.spark.sweep.grid import SCHEMA, Grid, run_cell
from headpond.spark.sweep.sweep import RouteSummary, chance_of, summarize


@functools.cache
def run_that_agrees() -> dict[str, Any]:
    (cell,) = Grid(routes=("dedup",), loss=(0.2,), duplicate=(0.0,), seeds=1, messages=500).cells().to_pylist()
    return run_cell(cell)


def runs(count: int, **changed: Any) -> list[dict[str, Any]]:
    """Rows of one real run that agrees, with changes."""
    return [{**run_that_agrees(), **changed}] * count


def summary(*rows: dict[str, Any]) -> RouteSummary:
    (found,) = summarize(pa.Table.from_pylist(list(rows), schema=SCHEMA))
    return found


def miss(**flags: bool) -> dict[str, Any]:
    return {"agrees": False, **flags}


def test_runs_that_agree_let_the_route_stand() -> None:
    found = summary(*runs(10))
    assert (found.runs, found.failed, found.promised, found.agreeing, found.stands) == (10, 0, 10, 10, True)


def test_one_miss_among_many_is_chance_and_many_are_not() -> None:
    one = summary(*runs(99), *runs(1, **miss(r_agrees=False), r_deviation=0.125))
    assert (one.agreeing, one.stands, one.r_deviation_max) == (99, True, 0.125)
    many = summary(*runs(90), *runs(10, **miss(ur_agrees=False), ur_deviation=0.25))
    assert (many.agreeing, many.stands, many.ur_deviation_max) == (90, False, 0.25)


def test_an_order_that_was_promised_and_did_not_hold_is_never_chance() -> None:
    found = summary(*runs(999), *runs(1, **miss(order_agrees=False)))
    assert (found.order_broken, found.stands) == (1, False)


def test_a_failed_run_fells_the_route_and_is_reported() -> None:
    bad = {name: runs(1)[0][name] for name in ("run", "route", "seed")} | {"error": "bad-request: no"}
    found = summary(*runs(3), bad)
    assert (found.runs, found.failed, found.promised, found.stands, found.error) == (
        4,
        1,
        3,
        False,
        "bad-request: no",
    )


def test_a_route_without_a_promise_has_nothing_to_deviate_from() -> None:
    (cell,) = (
        Grid(routes=("continuous(gaps=false)",), loss=(0.2,), duplicate=(0.0,), seeds=1, messages=50)
        .cells()
        .to_pylist()
    )
    found = summary(run_cell(cell))
    assert (found.promised, found.r_deviation_max, found.stands) == (0, None, True)


def test_a_run_that_was_not_finished_has_no_say_and_is_counted() -> None:
    given_up = dict.fromkeys(("agrees", "r_agrees", "ur_agrees", "order_agrees", "r_deviation"))
    found = summary(*runs(3), *runs(2, ended="unfinished", ur_deviation=None, **given_up))
    assert (found.promised, found.agreeing, found.unfinished, found.stands) == (3, 3, 2, True)
    assert found.r_deviation_max == run_that_agrees()["r_deviation"]


def test_routes_keep_the_order_of_the_grid() -> None:
    grid = Grid(routes=("index", "dedup"), loss=(0.1,), duplicate=(0.0,), seeds=2, messages=50)
    rows = [run_cell(cell) for cell in grid.cells().to_pylist()]
    found = summarize(pa.Table.from_pylist(rows, schema=SCHEMA))
    assert [(each.route, each.runs) for each in found] == [("index", 2), ("dedup", 2)]


def test_the_chance_of_misses_is_the_binomial_tail() -> None:
    assert chance_of(0, 10, 0.001) == 1.0
    wanted = sum(comb(20, k) * 0.1**k * 0.9 ** (20 - k) for k in range(3, 21))
    assert chance_of(3, 20, 0.1) == pytest.approx(wanted)
