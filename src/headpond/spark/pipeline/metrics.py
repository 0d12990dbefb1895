"""The same numbers for a monitor, as Prometheus reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headpond.model.errors import AddressInUse, SparkPackages
from headpond.spark.pipeline.progress import Sample

if TYPE_CHECKING:
    from prometheus_client import Gauge

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

    def take(self, sample: Sample) -> None:
        for field, gauge in self._gauges.items():
            value = getattr(sample, field)
            if value is not None:
                gauge.labels(self._pipeline, sample.sink).set(value)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
