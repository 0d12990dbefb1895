"""The grid of a sweep: every route under every combination of faults, from several seeds; and one run as a row.

A run is a point of the grid and a seed. Runs are numbered in the order of the grid, and the same grid has the
same runs with the same seeds, so that any of them can be repeated alone with ``headpond lab run``.

Spark's workers make a row of a run: the question, the measurement, the prediction, and whether they agree.
Columns of the prediction are null where nothing was promised, those of the comparison also where the run was
not finished, and all but the first are null in a run that failed, whose ``error`` says why.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from headpond.model.errors import BadRequest, HeadpondError
from headpond.pipes.calculus.route import parse_chain
from headpond.pipes.lab.faults import Faults
from headpond.pipes.lab.run import MESSAGES_MAX, LabResult, run

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
                raise BadRequest(
                    f"{name.replace('_', ' ')} of the grid must have at least one value, and none twice"
                )
        for axis in AXES:
            for rate in getattr(self, axis):
                Faults(**{axis: rate}).check()
        if self.seeds < 1 or not 1 <= self.messages <= MESSAGES_MAX:
            raise BadRequest(f"a grid has at least 1 seed, and from 1 to {MESSAGES_MAX:,} messages per run")
        if len(self) > RUNS_MAX:
            raise BadRequest(f"the grid has {len(self):,} runs; at most {RUNS_MAX:,} are allowed")

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


# --- one run as a row ---------------------------------------------------------------------------------

_WHOLE = ("sent", "unique", "received", "transmissions", "retransmissions")
_SHARES = {"r": "reliability", "ur": "uniqueness"}
_LATENCY = ("p50_s", "p90_s", "p99_s", "p999_s", "max_s")

SCHEMA = pa.schema(
    [
        *CELL_FIELDS,
        pa.field("error", pa.string()),
        pa.field("ended", pa.string()),
        pa.field("simulated_s", pa.float64()),
        *(pa.field(name, pa.int64()) for name in _WHOLE),
        *(pa.field(f"{share}{end}", pa.float64()) for share in _SHARES for end in ("", "_low", "_high")),
        pa.field("confidence", pa.float64()),
        pa.field("orders", pa.list_(pa.string())),
        pa.field("promised", pa.bool_()),
        *(pa.field(f"{share}_predicted_{end}", pa.float64()) for share in _SHARES for end in ("low", "high")),
        pa.field("order_predicted", pa.string()),
        *(pa.field(name, pa.bool_()) for name in ("r_agrees", "ur_agrees", "order_agrees", "agrees")),
        *(pa.field(f"{share}_deviation", pa.float64()) for share in _SHARES),
        *(pa.field(f"latency_{name}", pa.float64()) for name in _LATENCY),
    ]
)


def run_cells(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Runs every cell; ``mapInArrow`` calls it in a worker."""
    for batch in batches:
        yield pa.RecordBatch.from_pylist([run_cell(cell) for cell in batch.to_pylist()], schema=SCHEMA)


def run_cell(cell: dict[str, Any]) -> dict[str, Any]:
    """The row of one cell. A run that fails is a row too and does not stop the others."""
    try:
        result = run(cell["route"], faults_of(cell), cell["messages"], cell["seed"])
    except HeadpondError as error:
        return cell | {"error": f"{error.code}: {error.message}"}
    except Exception as error:  # noqa: BLE001  # whatever it is, it belongs to this run alone
        return cell | {"error": f"{type(error).__name__}: {error}"}
    row = cell | {
        "ended": result.ended,
        "simulated_s": result.simulated_s,
        **{name: getattr(result, name) for name in _WHOLE},
        "confidence": result.reliability.confidence,
        "orders": result.orders,
        **{f"latency_{name}": getattr(result.latency, name) for name in _LATENCY},
    }
    for share, name in _SHARES.items():
        measured = getattr(result, name)
        row |= {share: measured.value, f"{share}_low": measured.low, f"{share}_high": measured.high}
    return row | _prediction(result)


def _prediction(result: LabResult) -> dict[str, Any]:
    predicted = result.predicted
    if predicted is None or not predicted.holds:
        return {"promised": False}
    row: dict[str, Any] = {"promised": True, "order_predicted": predicted.order}
    compared = predicted.agrees is not None
    for share, name in _SHARES.items():
        low, high = getattr(predicted, f"{name}_low"), getattr(predicted, f"{name}_high")
        row |= {f"{share}_predicted_low": low, f"{share}_predicted_high": high}
        if compared:
            measured = getattr(result, name)
            row[f"{share}_agrees"] = low <= measured.high and high >= measured.low
            row[f"{share}_deviation"] = max(low - measured.value, measured.value - high, 0.0)
    if compared:
        row["agrees"] = predicted.agrees
        row["order_agrees"] = predicted.order is None or predicted.order in result.orders
    return row
