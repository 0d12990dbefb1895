"""The numbers of each batch of a query: rates, lag, batch time, state, late rows."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from rich.table import Table
from rich.text import Text

from headpond.model.errors import AddressInUse, SparkPackages
from headpond.spark.source.offset import progress_lag

if TYPE_CHECKING:
    from prometheus_client import Gauge


TIMES_MAX = 1_000
"""Spark keeps the last 100 reports by default."""


class BatchSample(msgspec.Struct, frozen=True, kw_only=True):
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
class QueryProgress:
    """One query's progress, batch by batch."""

    sink: str
    rows: int = 0
    late: int = 0
    _batch: int = -1
    _times: deque[str] = field(default_factory=lambda: deque(maxlen=TIMES_MAX))
    """The times of that batch's reports: an idle query reports its next batch repeatedly."""

    @property
    def began(self) -> bool:
        return self._batch >= 0

    def take(self, report: Mapping[str, Any]) -> BatchSample | None:
        """Takes a progress report of Spark; None if it was taken before."""
        batch, at = int(report["batchId"]), str(report["timestamp"])
        if batch < self._batch or (batch == self._batch and at in self._times):
            return None
        if batch > self._batch:
            self._times.clear()
        self._batch = batch
        self._times.append(at)
        rows = int(report.get("numInputRows") or 0)
        operators = report.get("stateOperators") or []
        late = sum(int(one.get("numRowsDroppedByWatermark") or 0) for one in operators)
        lags = progress_lag(report)
        self.rows += rows
        self.late += late
        return BatchSample(
            sink=self.sink,
            batch=batch,
            time=at,
            rows=rows,
            rows_all=self.rows,
            rows_per_s=_rate(report.get("inputRowsPerSecond")),
            done_per_s=_rate(report.get("processedRowsPerSecond")),
            batch_s=int((report.get("durationMs") or {}).get("triggerExecution") or 0) / 1000,
            lag=sum(lags.values()) if lags else None,
            state_rows=sum(int(one.get("numRowsTotal") or 0) for one in operators),
            state_bytes=sum(int(one.get("memoryUsedBytes") or 0) for one in operators),
            late_rows=late,
            late_rows_all=self.late,
        )


def _rate(value: Any) -> float:
    """The rate as a number; Spark reports NaN or nothing for a batch without rows or time."""
    try:
        rate = float(value)
    except (TypeError, ValueError):
        return 0.0
    return rate if 0 <= rate < float("inf") else 0.0


_GAUGES = {
    "rows_all": ("rows", "Rows read since the query was started."),
    "rows_per_s": ("rows_per_second", "Rows coming in."),
    "done_per_s": ("done_rows_per_second", "Rows worked off."),
    "lag": ("lag_entries", "Entries that topics have beyond the last batch."),
    "batch_s": ("batch_seconds", "The last batch took."),
    "batch": ("batch", "The last batch."),
    "state_rows": ("state_rows", "Rows in the state of steps."),
    "state_bytes": ("state_bytes", "Memory that the state of steps takes."),
    "late_rows_all": ("late_rows", "Rows dropped as older than the watermark."),
}


class Metrics:
    """A page at ``http://HOST:PORT/metrics`` with the last sample of every sink."""

    def __init__(self, pipeline: str, host: str, port: int) -> None:
        try:
            from prometheus_client import CollectorRegistry, Gauge, start_http_server
        except ImportError as error:
            raise SparkPackages("metrics need the package prometheus-client, which is not installed") from error
        registry = CollectorRegistry()
        labels = ("pipeline", "sink")
        self._pipeline = pipeline
        self._gauges: dict[str, Gauge] = {
            field: Gauge(f"headpond_pipeline_{name}", meaning, labels, registry=registry)
            for field, (name, meaning) in _GAUGES.items()
        }
        try:
            self._server, self._thread = start_http_server(port, host, registry)
        except OSError as error:
            raise AddressInUse(f"cannot serve metrics on {host}:{port}: {error.strerror}") from error
        self.port = int(self._server.server_port)

    def take(self, sample: BatchSample) -> None:
        for name, gauge in self._gauges.items():
            value = getattr(sample, name)
            if value is not None:
                gauge.labels(self._pipeline, sample.sink).set(value)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


_HEADINGS = ("SINK", "BATCH", "ROWS", "IN/S", "DONE/S", "LAG", "BATCH S", "STATE", "LATE", "DOING")


def table(samples: Iterable[tuple[str, BatchSample | None, str]]) -> Table:
    """The current state of the sinks: (name, last batch, activity)."""
    shown = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for heading in _HEADINGS:
        left = heading in ("SINK", "DOING")
        shown.add_column(heading, justify="left" if left else "right", no_wrap=True, overflow="ellipsis")
    for name, sample, doing in samples:
        cells = ("-",) * 8 if sample is None else _cells(sample)
        shown.add_row(name, *cells, Text(doing, style="dim"))
    return shown


def _cells(sample: BatchSample) -> tuple[str, ...]:
    return (
        f"{sample.batch:,}",
        f"{sample.rows_all:,}",
        f"{sample.rows_per_s:,.0f}",
        f"{sample.done_per_s:,.0f}",
        "-" if sample.lag is None else f"{sample.lag:,}",
        f"{sample.batch_s:.2f}",
        f"{sample.state_rows:,}" if sample.state_rows else "-",
        f"{sample.late_rows_all:,}" if sample.late_rows_all else "-",
    )


def line(sample: BatchSample) -> str:
    """One batch, for a log."""
    parts = [f"{sample.sink}: batch {sample.batch}", f"{sample.rows:,} rows in {sample.batch_s:.2f} s"]
    parts += [] if sample.lag is None else [f"lag {sample.lag:,}"]
    parts += [f"state {sample.state_rows:,} rows"] if sample.state_rows else []
    parts += [f"late {sample.late_rows_all:,}"] if sample.late_rows_all else []
    return ", ".join(parts)
