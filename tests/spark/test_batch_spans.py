"""Batches of streaming queries as spans of the driver."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from headpond.client import tracing
from headpond.otel import HeadpondInstrumentor
from headpond.spark.batch_spans import BatchSpans
from headpond.spark.start.session import register_format
from tests.fire.real_node import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OFFSET = {"uuid": "00" * 16, "incarnations": [1], "entries": [3], "stored": [0]}


@pytest.fixture
def spans() -> Iterator[InMemorySpanExporter]:
    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    HeadpondInstrumentor().instrument(tracer_provider=provider)
    yield spans
    HeadpondInstrumentor().uninstrument()
    provider.shutdown()


def report(*topics: str, rows: int = 3, name: str | None = "shop.bills") -> dict[str, Any]:
    """A progress report of Spark, as far as it is read."""
    offset = {"version": 1, "topics": dict.fromkeys(topics, OFFSET)}
    return {
        "id": "66f8bae1-f903-40b3-bc70-5896e7078193",
        "name": name,
        "timestamp": "2026-11-18T20:00:00.250Z",
        "batchId": 7,
        "numInputRows": rows,
        "durationMs": {"triggerExecution": 1500},
        "sources": [{"endOffset": offset}, {"endOffset": '{"logOffset": 0}'}, {"endOffset": None}],
    }


def test_a_batch_with_rows_is_a_span_with_its_number_rows_and_topics(spans: InMemorySpanExporter) -> None:
    assert tracing.active is not None
    listener = BatchSpans(tracing.active)
    one, two = "default/default/default/orders", "acme/shop/till/orders"
    listener.take(report(one))
    listener.take(report(one, two))
    listener.take(report(name=None))
    listener.take(report(one, rows=0))
    first, second, third = spans.get_finished_spans()
    names = ["process orders", "process shop.bills", "process 66f8bae1-f903-40b3-bc70-5896e7078193"]
    assert [span.name for span in (first, second, third)] == names
    assert (first.start_time, first.end_time) == (1_795_032_000_250_000_000, 1_795_032_001_750_000_000)
    assert first.attributes == {
        "messaging.system": "headpond",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": one,
        "messaging.headpond.query": "shop.bills",
        "messaging.headpond.batch": 7,
        "messaging.batch.message_count": 3,
    }
    assert second.attributes is not None and second.attributes["messaging.headpond.topics"] == (two, one)
    assert third.attributes is not None and "messaging.system" not in third.attributes


def test_a_session_reports_the_batches_of_its_queries(
    spark: SparkSession, tmp_path: Path, spans: InMemorySpanExporter
) -> None:
    session = register_format(register_format(spark.newSession()))  # twice, and traced once
    rows = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 5).load()
    query = (
        rows.writeStream.format("noop").queryName("five").option("checkpointLocation", str(tmp_path)).start()
    )
    wait_until(lambda: bool(spans.get_finished_spans()), 60.0)
    query.stop()
    batches = [span for span in spans.get_finished_spans() if span.name == "process five"]
    numbers = [str((span.attributes or {})["messaging.headpond.batch"]) for span in batches]
    assert len(numbers) == len(set(numbers)), "one span each"
    assert (batches[0].attributes or {})["messaging.batch.message_count"] == 5
