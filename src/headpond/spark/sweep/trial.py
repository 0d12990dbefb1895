"""One run of the lab as a row: the question, the measurement, the prediction, and whether they agree.

This is what Spark's workers do. Columns of the prediction are null where nothing was promised, those of the
comparison also where the run was not finished, and all but the first are null in a run that failed, whose
``error`` says why.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa

from headpond.model.errors import HeadpondError
from headpond.pipes.calculus.interval import Interval
from headpond.pipes.lab.measure import Predicted
from headpond.pipes.lab.run import LabResult, run
from headpond.spark.sweep.grid import CELL_FIELDS, faults_of

_WHOLE = ("sent", "unique", "received", "transmissions", "retransmissions")
_SHARES = ("r", "r_low", "r_high", "ur", "ur_low", "ur_high", "confidence")
_PREDICTED = ("r_predicted_low", "r_predicted_high", "ur_predicted_low", "ur_predicted_high")
_AGREEMENT = ("r_agrees", "ur_agrees", "order_agrees", "agrees")
_DEVIATION = ("r_deviation", "ur_deviation")
_LATENCY = ("p50_s", "p90_s", "p99_s", "p999_s", "max_s")

SCHEMA = pa.schema(
    [
        *CELL_FIELDS,
        pa.field("error", pa.string()),
        pa.field("ended", pa.string()),
        pa.field("simulated_s", pa.float64()),
        *(pa.field(name, pa.int64()) for name in _WHOLE),
        *(pa.field(name, pa.float64()) for name in _SHARES),
        pa.field("orders", pa.list_(pa.string())),
        pa.field("promised", pa.bool_()),
        *(pa.field(name, pa.float64()) for name in _PREDICTED),
        pa.field("order_predicted", pa.string()),
        *(pa.field(name, pa.bool_()) for name in _AGREEMENT),
        *(pa.field(name, pa.float64()) for name in _DEVIATION),
        *(pa.field(f"latency_{name}", pa.float64()) for name in _LATENCY),
    ]
)
_DDL = {
    pa.int64(): "bigint",
    pa.float64(): "double",
    pa.string(): "string",
    pa.bool_(): "boolean",
    pa.list_(pa.string()): "array<string>",
}
SPARK_SCHEMA = ", ".join(f"{field.name} {_DDL[field.type]}" for field in SCHEMA)


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
    return cell | _measured_columns(result) | _predicted_columns(result)


def _measured_columns(result: LabResult) -> dict[str, Any]:
    reliability, uniqueness, latency = result.reliability, result.uniqueness, result.latency
    return {
        "ended": result.ended,
        "simulated_s": result.simulated_s,
        **{name: getattr(result, name) for name in _WHOLE},
        "r": reliability.value,
        "r_low": reliability.low,
        "r_high": reliability.high,
        "ur": uniqueness.value,
        "ur_low": uniqueness.low,
        "ur_high": uniqueness.high,
        "confidence": reliability.confidence,
        "orders": result.orders,
        **{f"latency_{name}": getattr(latency, name) for name in _LATENCY},
    }


def _predicted_columns(result: LabResult) -> dict[str, Any]:
    predicted = result.predicted
    if predicted is None or not predicted.holds:
        return {"promised": False}
    return {
        "promised": True,
        "r_predicted_low": predicted.reliability_low,
        "r_predicted_high": predicted.reliability_high,
        "ur_predicted_low": predicted.uniqueness_low,
        "ur_predicted_high": predicted.uniqueness_high,
        "order_predicted": predicted.order,
        **(_comparison(result, predicted) if predicted.agrees is not None else {}),
    }


def _comparison(result: LabResult, predicted: Predicted) -> dict[str, Any]:
    reliability = (result.reliability, predicted.reliability_low, predicted.reliability_high)
    uniqueness = (result.uniqueness, predicted.uniqueness_low, predicted.uniqueness_high)
    return {
        "agrees": predicted.agrees,
        "r_agrees": _overlaps(*reliability),
        "ur_agrees": _overlaps(*uniqueness),
        "order_agrees": predicted.order is None or predicted.order in result.orders,
        "r_deviation": _distance(*reliability),
        "ur_deviation": _distance(*uniqueness),
    }


def _overlaps(measured: Interval, low: float, high: float) -> bool:
    """Whether the measured interval and a prediction from ``low`` to ``high`` overlap."""
    return low <= measured.high and high >= measured.low


def _distance(measured: Interval, low: float, high: float) -> float:
    """How far the measured value lies outside of the prediction."""
    return max(low - measured.value, measured.value - high, 0.0)
