"""Metrics rolled up: samples of a typed topic in, one typed row per host, metric and minute out.

headpond node &
python examples/spark/metrics.py
"""

from __future__ import annotations

import math
import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa

import headpond.spark
import headpond.sync
from headpond.spark.pipeline import Pipeline

HERE = Path(__file__).parent
URL = os.environ.get("HEADPOND_URL", "headpond://127.0.0.1:7411")
HOSTS, METRICS, MINUTES = ("a", "b", "c"), ("cpu", "memory"), 10
BEGIN = datetime(2026, 1, 1, 12, tzinfo=UTC)
TIME = pa.timestamp("us", tz="UTC")
SAMPLES = pa.schema([("host", pa.string()), ("metric", pa.string()), ("at", TIME), ("reading", pa.float64())])
MINUTE = pa.schema(
    [
        ("minute", TIME),
        ("host", pa.string()),
        ("metric", pa.string()),
        ("low", pa.float64()),
        ("mean", pa.float64()),
        ("high", pa.float64()),
        ("samples", pa.int64()),
    ]
)


def samples() -> pa.Table:
    """One sample per second of every metric of every host."""
    rows = [
        {
            "host": host,
            "metric": metric,
            "at": BEGIN + timedelta(seconds=second),
            "reading": math.sin(second / 30),
        }
        for second in range(60 * MINUTES)
        for host in HOSTS
        for metric in METRICS
    ]
    return pa.Table.from_pylist(rows, SAMPLES)


def main() -> None:
    shutil.rmtree(HERE / "made", ignore_errors=True)
    with headpond.sync.connect(URL) as client:
        client.admin.create_topic("metrics", schema=SAMPLES, exist_ok=True)
        client.admin.create_topic("metrics.minute", schema=MINUTE, exist_ok=True)
        with client.producer("metrics", name="agent") as producer:
            producer.send_batch(samples())
    spark = headpond.spark.session("metrics example")
    pipeline = Pipeline.load(HERE / "metrics.toml")
    pipeline.set_trigger(available_now=True)
    pipeline.start(spark).wait()
    minutes = spark.read.format("headpond").option("url", URL).option("topic", "metrics.minute").load()
    print(f"metrics.minute: {minutes.count():,} rows, of minutes that are over")
    minutes.select("value.*").orderBy("minute", "host", "metric").show(6)


if __name__ == "__main__":
    main()
