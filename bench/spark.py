"""Spark's source beside its limits, in one run of one Spark; each figure is the median of nine turns in turn.

Rows a second of a batch read, beside a data source that yields the same Arrow batches from memory, in workers
of its own and in those of the source, and Spark's own Parquet reader on the same rows; and what a micro-batch
takes, beside that of a Python source that does nothing.

``python -m bench.spark [--rows N] [--columns a,b] [--repeat N] [--conf NAME=VALUE …] [--folder DIR]`` compares
the reads alone, with the CPU time of Java, the workers and the node, for other columns and settings of Spark.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import uvloop
from pyspark import cloudpickle
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

import headpond
import headpond.spark
import headpond.sync
from bench import segments
from bench.figure import Figure, quantile
from bench.limits import Limits
from bench.node import Node, running_node
from bench.publish import table_of
from bench.spark_cpu import SparkCpu, median_cpu, spark_cpu
from bench.spark_workers import workers_apart
from headpond.spark.source.batch import batch_reader
from headpond.spark.source.schema import arrow_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SIZE = 100
ROWS = 1_000_000
WARM_UP, TURNS = 2, 9
SHARDS = 4
BATCHES = 20


class MemoryReader(DataSourceReader):
    """Yields the batches of a file that is mapped, a file a partition: as near to memory as a task can get."""

    def __init__(self, files: list[str]) -> None:
        self._files = files

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(file) for file in self._files]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        with pa.memory_map(partition.value) as file:
            reader = pa.ipc.open_file(file)
            for number in range(reader.num_record_batches):
                yield reader.get_batch(number)


class MemorySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bench_memory"

    def schema(self) -> StructType:
        return StructType.fromJson(json.loads(self.options["json"]))

    def reader(self, schema: StructType) -> DataSourceReader:
        return MemoryReader(self.options["files"].split(","))


class EmptyStream(DataSourceStreamReader):
    """A batch of one row whenever it is asked: what Spark itself takes for one."""

    def initialOffset(self) -> dict[str, int]:
        return {"n": 0}

    def latestOffset(self, start: dict[str, int], limit: Any) -> dict[str, int]:
        return {"n": start["n"] + 1}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[InputPartition]:
        return [InputPartition(None)]

    def read(self, partition: InputPartition) -> Iterator[tuple[bytes]]:
        yield (b"x",)


class EmptySource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "bench_empty"

    def schema(self) -> str:
        return "value binary"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return EmptyStream()


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=folder) as place, running_node(Path(place)) as node:
        spark = headpond.spark.session("headpond bench", master="local[2]")
        try:
            return _measure(spark, node, Path(place))
        finally:
            spark.stop()


def _measure(spark: SparkSession, node: Node, folder: Path) -> list[Figure]:
    count, taken = _compare_reads(spark, node, folder)
    rates = {way: count / quantile([each_s for each_s, _ in turns], 0.5) for way, turns in taken.items()}
    limits = {
        "apart": "same batches from memory, in workers of its own",
        "beside": "same batches from memory, in the source's workers",
        "parquet": "Parquet",
    }
    figures = [
        Figure(f"Spark read, {SIZE} B", rates["headpond"], "rows/s", text, rates[way])
        for way, text in limits.items()
    ]
    return figures + _by_segment(spark, node.url) + _micro_batches(spark, node.url, folder)


def _compare_reads(
    spark: SparkSession, node: Node, folder: Path, *, rows: int = ROWS, columns: str = "", turns: int = TURNS
) -> tuple[int, dict[str, list[tuple[float, SparkCpu]]]]:
    """How many rows there are, and for each way the seconds and the CPU time of each turn."""
    by_value: Callable[[Any], None] = cloudpickle.register_pickle_by_value
    by_value(sys.modules[__name__])  # the workers do not have this file
    spark.dataSource.register(MemorySource)
    spark.dataSource.register(EmptySource)
    count = _fill(node.url, rows)
    options = {"url": node.url, "topic": "bench.spark"} | ({"columns": columns} if columns else {})
    source = spark.read.format("headpond").options(**options).load()
    memory = _memory_of(spark, source, options, folder)
    parquet = _parquet_of(spark, source, folder)
    ways = {"headpond": source, "apart": memory, "beside": memory, "parquet": parquet}
    taken: dict[str, list[tuple[float, SparkCpu]]] = {way: [] for way in ways}
    for _ in range(WARM_UP + turns):
        for way, frame in ways.items():
            with workers_apart(spark) if way == "apart" else nullcontext():
                before = spark_cpu(node)
                taken_s = _seconds(frame)
                taken[way].append((taken_s, spark_cpu(node).since(before)))
    return count, {way: each[WARM_UP:] for way, each in taken.items()}


def _by_segment(spark: SparkSession, url: str) -> list[Figure]:
    """The same rows in segments of different sizes; a message that is sent by itself is a segment."""
    frames: dict[int, DataFrame] = {}
    for rows_each in segments.ROWS_EACH:
        uvloop.run(_fill_segments(url, rows_each))
        options = {"url": url, "topic": segments.topic_of(rows_each)}
        frames[rows_each] = spark.read.format("headpond").options(**options).load()
    taken: dict[int, list[float]] = {rows_each: [] for rows_each in frames}
    for _ in range(WARM_UP + TURNS):
        for rows_each, frame in frames.items():
            taken[rows_each].append(_seconds(frame))
    rates = {each: segments.ROWS / quantile(times[WARM_UP:], 0.5) for each, times in taken.items()}
    most = segments.ROWS_EACH[0]
    return [
        Figure(
            f"Spark read, {each:,} rows per segment", rate, "rows/s", f"{most:,} rows per segment", rates[most]
        )
        for each, rate in rates.items()
    ]


async def _fill_segments(url: str, rows_each: int) -> None:
    async with headpond.connect(url) as client:
        await segments.fill(client, segments.topic_of(rows_each), rows_each)


def _fill(url: str, rows: int) -> int:
    table = table_of(SIZE)
    stored = 0
    with headpond.sync.connect(url) as client:
        client.admin.create_topic("bench.spark", shards=SHARDS)
        with client.producer("bench.spark") as producer:
            while stored < rows:
                stored += producer.send_batch(table).stored
    return stored


def _memory_of(spark: SparkSession, source: DataFrame, options: dict[str, str], folder: Path) -> DataFrame:
    """The batches that the source's tasks yield, written down task by task."""
    reader = batch_reader(source.schema, options)
    files = []
    for number, part in enumerate(reader.partitions()):
        files.append(str(folder / f"{number}.arrow"))
        with pa.OSFile(files[-1], "wb") as file, pa.ipc.new_file(file, arrow_schema(source.schema)) as writer:
            for batch in reader.read(part):
                writer.write_batch(batch)
    told = {"files": ",".join(files), "json": source.schema.json()}
    return spark.read.format("bench_memory").options(**told).load()


def _parquet_of(spark: SparkSession, source: DataFrame, folder: Path) -> DataFrame:
    place = folder / "parquet"
    place.mkdir()
    for number, file in enumerate(sorted(folder.glob("*.arrow"))):
        with pa.memory_map(str(file)) as mapped:
            table = pa.ipc.open_file(mapped).read_all()
            pq.write_table(table, place / f"{number}.parquet")
    return spark.read.schema(source.schema).parquet(str(place))


def _seconds(frame: DataFrame) -> float:
    """How long it takes to make every column of every row, and throw it away."""
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def _micro_batches(spark: SparkSession, url: str, folder: Path) -> list[Figure]:
    times: dict[str, float] = {}
    with headpond.sync.connect(url) as client, client.producer("bench.small") as producer:
        producer.send(b"x")
        for name in ("bench_empty", "headpond"):
            reader = spark.readStream.format(name)
            if name == "headpond":
                reader = (
                    reader.option("url", url).option("topic", "bench.small").option("subscription", "bench")
                )
            query = (
                reader.load()
                .writeStream.format("noop")
                .option("checkpointLocation", str(folder / name))
                .start()
            )
            seen: dict[int, float] = {}
            while len(seen) < BATCHES and query.isActive:
                if name == "headpond":
                    producer.send(b"x")
                for progress in query.recentProgress:
                    if progress["numInputRows"]:
                        seen[progress["batchId"]] = progress["durationMs"]["triggerExecution"]
                time.sleep(0.05)
            query.stop()
            times[name] = statistics.median(list(seen.values())[3:])
    text = "a micro-batch of a message or two, median"
    return [Figure(text, times["headpond"], "ms", "an empty Python source", times["bench_empty"])]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--columns", default="", help="of the source; without it, all")
    parser.add_argument("--repeat", type=int, default=TURNS)
    parser.add_argument("--conf", nargs="*", default=[], metavar="NAME=VALUE", help="settings of Spark")
    parser.add_argument("--folder", type=Path)
    asked = parser.parse_args()
    conf = {"spark.driver.memory": "2g"} | dict(each.split("=", 1) for each in asked.conf)
    with tempfile.TemporaryDirectory(dir=asked.folder) as place, running_node(Path(place)) as node:
        spark = headpond.spark.session("headpond bench", master="local[2]", conf=conf)
        try:
            count, taken = _compare_reads(
                spark, node, Path(place), rows=asked.rows, columns=asked.columns, turns=asked.repeat
            )
        finally:
            spark.stop()
    wall_s = {way: quantile([each_s for each_s, _ in turns], 0.5) for way, turns in taken.items()}
    cpu = {way: median_cpu([used for _, used in turns]) for way, turns in taken.items()}
    for way, (java, workers, node_s) in cpu.items():
        print(
            f"{way}: {count / wall_s[way]:,.0f} rows/s, {wall_s['parquet'] / wall_s[way]:.2f} of Parquet; "
            f"CPU seconds: Java {java:.2f}, workers {workers:.2f}, node {node_s:.2f}, "
            f"{cpu['parquet'].all / cpu[way].all:.2f} of Parquet"
        )


if __name__ == "__main__":
    main()
