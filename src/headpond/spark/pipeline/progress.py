"""What a query of Spark says of itself, in numbers: rates, lag, batch time, state, late rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headpond.spark.source_offset import progress_lag

TIMES_MAX = 1_000
"""Spark keeps the last 100 unless told otherwise."""


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """One batch of a sink's query, with what it had done in all by then."""

    sink: str
    batch: int
    time: str
    """When the batch began."""
    rows: int
    """That this batch read."""
    rows_all: int
    """Since the query was started."""
    rows_per_s: float
    """As they come in, as Spark sees it."""
    done_per_s: float
    """As they are worked off."""
    batch_s: float
    lag: int | None
    """Entries that topics had beyond this batch; None where no source tells."""
    state_rows: int
    state_bytes: int
    late_rows: int
    late_rows_all: int
    """Dropped by steps with state, because they were older than the watermark."""


@dataclass(slots=True)
class Following:
    """One query's progress, batch by batch."""

    sink: str
    rows: int = 0
    late: int = 0
    _batch: int = -1
    _times: deque[str] = field(default_factory=lambda: deque(maxlen=TIMES_MAX))
    """Of what was said of that batch: while nothing comes, Spark tells of the next one again and again."""

    @property
    def began(self) -> bool:
        return self._batch >= 0

    def take(self, said: Mapping[str, Any]) -> Sample | None:
        """A progress of Spark's, as its JSON says it; None where it was seen before."""
        batch, at = int(said["batchId"]), str(said["timestamp"])
        if batch < self._batch or (batch == self._batch and at in self._times):
            return None
        if batch > self._batch:
            self._times.clear()
        self._batch = batch
        self._times.append(at)
        rows = int(said.get("numInputRows") or 0)
        operators = said.get("stateOperators") or []
        late = sum(int(one.get("numRowsDroppedByWatermark") or 0) for one in operators)
        self.rows += rows
        self.late += late
        return Sample(
            sink=self.sink,
            batch=batch,
            time=at,
            rows=rows,
            rows_all=self.rows,
            rows_per_s=_rate(said.get("inputRowsPerSecond")),
            done_per_s=_rate(said.get("processedRowsPerSecond")),
            batch_s=int((said.get("durationMs") or {}).get("triggerExecution") or 0) / 1000,
            lag=_lag(said),
            state_rows=sum(int(one.get("numRowsTotal") or 0) for one in operators),
            state_bytes=sum(int(one.get("memoryUsedBytes") or 0) for one in operators),
            late_rows=late,
            late_rows_all=self.late,
        )


def _rate(value: Any) -> float:
    """Spark says NaN or nothing of a batch without rows or without time."""
    try:
        rate = float(value)
    except (TypeError, ValueError):
        return 0.0
    return rate if 0 <= rate < float("inf") else 0.0


def _lag(said: Mapping[str, Any]) -> int | None:
    lags = progress_lag(said)
    return sum(lags.values()) if lags else None
