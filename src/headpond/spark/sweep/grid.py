"""The grid of a sweep: every route under every combination of faults, from several seeds.

A run is a point of the grid and a seed. Runs are numbered in the order of the grid, and the same grid has the
same runs with the same seeds, so that any of them can be repeated alone with ``headpond lab run``.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pyarrow as pa

from headpond.model.errors import BadRequest
from headpond.pipes.calculus.route import parse_chain
from headpond.pipes.lab.faults import Faults
from headpond.pipes.lab.run import MESSAGES_MAX

AXES = ("loss", "duplicate", "reorder", "confirm_loss")
RUNS_MAX = 200_000

ROUTES = ("index", "dedup", "resend", "resend_many", "resend_many | dedup", "resend_many | index")

CELL_FIELDS = [
    pa.field("run", pa.int64()),
    pa.field("route", pa.string()),
    *(pa.field(axis, pa.float64()) for axis in AXES),
    pa.field("seed", pa.int64()),
    pa.field("messages", pa.int64()),
]
CELL_SCHEMA = pa.schema(CELL_FIELDS)


class Grid(msgspec.Struct, frozen=True, kw_only=True):
    """Routes by rates by seeds."""

    routes: tuple[str, ...] = ROUTES
    loss: tuple[float, ...] = (0.0, 0.1, 0.2, 0.4)
    duplicate: tuple[float, ...] = (0.0, 0.1, 0.3)
    reorder: tuple[float, ...] = (0.1,)
    confirm_loss: tuple[float, ...] = (0.2,)
    seeds: int = 3
    """Runs of each point, with the seeds 0, 1, 2, …."""
    messages: int = 5_000

    def check(self) -> None:
        """Raises if the grid cannot run."""
        routes = tuple(map(route_text, self.routes))
        for name, values in (("routes", routes), *((axis, getattr(self, axis)) for axis in AXES)):
            if not values or len(set(values)) < len(values):
                raise BadRequest(f"{name.replace('_', ' ')} of the grid: none, or one of them twice")
        for axis in AXES:
            for rate in getattr(self, axis):
                Faults(**{axis: rate}).check()
        if self.seeds < 1 or not 1 <= self.messages <= MESSAGES_MAX:
            raise BadRequest(f"a grid has at least 1 seed, and 1 to {MESSAGES_MAX:,} messages a run")
        if len(self) > RUNS_MAX:
            raise BadRequest(f"the grid has {len(self):,} runs, and {RUNS_MAX:,} are allowed")

    def __len__(self) -> int:
        """The number of runs."""
        count = len(self.routes) * self.seeds
        for axis in AXES:
            count *= len(getattr(self, axis))
        return count

    def cells(self) -> pa.Table:
        """One row per run."""
        points = itertools.product(
            map(route_text, self.routes), *(getattr(self, axis) for axis in AXES), range(self.seeds)
        )
        rows = [(number, *point, self.messages) for number, point in enumerate(points)]
        columns = zip(*rows, strict=True)
        return pa.table(list(map(list, columns)), schema=CELL_SCHEMA)


def route_text(route: str) -> str:
    """The canonical text of a route: the same pipes give the same text."""
    return " -> ".join(map(str, parse_chain(route)))


def faults_of(cell: dict[str, Any]) -> Faults:
    return Faults(**{axis: cell[axis] for axis in AXES})
