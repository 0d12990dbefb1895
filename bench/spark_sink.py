"""Spark's sink: ``python -m bench.spark_sink [--rows N] [--bytes N] [--random] [--repeat N] [--shards N]
[--folder DIR]``.

The same DataFrame is written to a node in another process, and by a writer that takes the same Arrow batches
and discards them, in turn. What a job costs besides its rows (planning, starting tasks) is in both. The CPU
time of Spark with its workers, and of the node, is told too: on a busy machine it says more than seconds.

Discarding is measured twice: in workers of its own, as it is without Headpond, and in those of the sink, which
have become lighter by it.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import headpond.spark
import headpond.sync
from bench.figure import quantile
from bench.node import running_node
from bench.spark_cpu import SparkCpu, median_cpu, spark_cpu
from bench.spark_workers import workers_apart

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


TOPIC = "bench"
WARM_UP = 3
"""Turns that do not count: workers start, and Java compiles what is used much."""
APART = "discarded in workers of its own"
BESIDE = "discarded in the sink's workers"
SINK = "headpond"


class Discard(DataSource):
    """The least that a sink can do."""

    @classmethod
    def name(cls) -> str:
        return "discard"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        class Writer(DataSourceArrowWriter):
            def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
                for _ in iterator:
                    pass
                return WriterCommitMessage()

        return Writer()


def write_s(frame: DataFrame, way: str, url: str) -> float:
    options = {"url": url, "topic": TOPIC} if way == SINK else {}
    writer = frame.write.format(way if way == SINK else "discard").mode("append").options(**options)
    with workers_apart(frame.sparkSession) if way == APART else contextlib.nullcontext():
        started = time.perf_counter()
        writer.save()
        return time.perf_counter() - started


@contextlib.contextmanager
def _topic(url: str, shards: int, rows: int) -> Iterator[None]:
    """A topic for one turn, which must have so many rows in the end.

    It is deleted then, and what the system kept of it in memory is free for the next: a virtual machine may
    take ten times as long to write to memory that it has never touched, which a node soon has no more of.
    """
    with headpond.sync.connect(url) as client:
        client.admin.create_topic(TOPIC, shards)
        yield
        stored = sum(shard.entry_next for shard in client.admin.show_topic(TOPIC).shard_list)
        assert stored == rows, f"{stored:,} rows are stored, not {rows:,}"
        client.admin.delete_topic(TOPIC)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100, help="of a value")
    parser.add_argument("--random", action="store_true", help="values that nothing makes smaller")
    parser.add_argument("--repeat", type=int, default=9)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    spark = headpond.spark.session("headpond bench", conf={"spark.driver.memory": "2g"})
    spark.dataSource.register(Discard)
    noise = ", ".join(f"unhex(sha2(concat(id, '/{at}'), 512))" for at in range(0, asked.bytes, 64))
    value = f"substring(concat({noise}), 1, {asked.bytes})" if asked.random else f"rpad(id, {asked.bytes}, 'x')"
    text = f"select {value} value, cast(id % 1000 as string) key from range(0, {asked.rows}, 1, 4)"
    frame = spark.sql(text).cache()
    frame.count()
    ways = (SINK, APART, BESIDE)
    times: dict[str, list[float]] = {way: [] for way in ways}
    cpu: dict[str, list[SparkCpu]] = {way: [] for way in ways}
    with tempfile.TemporaryDirectory(dir=asked.folder) as place, running_node(Path(place)) as node:
        for number in range(WARM_UP + asked.repeat):
            for way in ways:
                with _topic(node.url, asked.shards, asked.rows if way == SINK else 0):
                    before = spark_cpu(node)
                    taken_s = write_s(frame, way, node.url)
                    if number >= WARM_UP:
                        times[way].append(taken_s)
                        cpu[way].append(spark_cpu(node).since(before))
    spark.stop()
    _show(asked.rows, times, cpu)


def _show(rows: int, times: dict[str, list[float]], cpu: dict[str, list[SparkCpu]]) -> None:
    print(f"sink: {rows / quantile(times[SINK], 0.5):,.0f} rows/s")
    for way in (APART, BESIDE):
        limit = rows / quantile(times[way], 0.5)
        ratio = quantile(times[way], 0.5) / quantile(times[SINK], 0.5)
        best = min(times[way]) / min(times[SINK])
        print(f"{way}: {limit:,.0f} rows/s; ratio of the medians {ratio:.2f}, of the best {best:.2f}")
    used = {way: median_cpu(turns) for way, turns in cpu.items()}
    for way, (java, workers, node) in used.items():
        print(f"CPU seconds, median, {way}: Java {java:.2f}, workers {workers:.2f}, node {node:.2f}")
    for way in (APART, BESIDE):
        ratio, with_node = used[way].spark / used[SINK].spark, used[way].spark / used[SINK].all
        print(f"{way}: ratio by CPU time {ratio:.2f}, with the node's {with_node:.2f}")
    print("seconds:", {way: [round(one, 2) for one in taken] for way, taken in times.items()})


if __name__ == "__main__":
    main()
