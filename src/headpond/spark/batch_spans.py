"""Spans of the batches of streaming queries, which the driver makes from Spark's reports."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pyspark.sql.streaming.listener import (
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from headpond.client.tracing import Tracing
from headpond.spark.source.offset import progress_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_traced: WeakSet[SparkSession] = WeakSet()


def trace_batches(active: SparkSession, tracing: Tracing) -> None:
    """Makes spans of the batches of a session's queries from now on."""
    if active not in _traced:
        _traced.add(active)
        active.streams.addListener(BatchSpans(tracing))


class BatchSpans(StreamingQueryListener):
    """Spark calls it when a batch has ended; one without rows has no span."""

    def __init__(self, tracing: Tracing) -> None:
        self._tracing = tracing

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        self.take(json.loads(event.progress.json))

    def take(self, report: dict[str, Any]) -> None:
        """Makes the span of a progress report."""
        rows = int(report.get("numInputRows") or 0)
        if not rows:
            return
        self._tracing.query_batch(
            report.get("name") or str(report["id"]),
            int(report["batchId"]),
            progress_topics(report),
            rows,
            began_ms=round(datetime.fromisoformat(report["timestamp"]).timestamp() * 1000),
            took_ms=int((report.get("durationMs") or {}).get("triggerExecution") or 0),
        )

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        pass
