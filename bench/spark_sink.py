"""Spark's sink: ``python -m bench.spark_sink [--rows N] [--bytes N] [--random] [--repeat N] [--shards N]
[--folder DIR]``.

The same DataFrame is written to a node in another process, and by a writer that takes the same Arrow batches
and discards them, in turn. What a job costs besides its rows (planning, starting tasks) is in both. The CPU
time of Spark with its workers, and of the node, is told too: on a busy machine it says more than seconds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource, DataSourceArrowWriter, WriterCommitMessage

import penstock.spark
import penstock.sync
from bench.figure import Figure, quantile
from bench.node import running_node

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


TOPIC = "bench"


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


def write_s(frame: DataFrame, name: str, **options: str) -> float:
    started = time.perf_counter()
    frame.write.format(name).mode("append").options(**options).save()
    return time.perf_counter() - started


def family_cpu_s() -> float:
    """What this process, Java and the workers that live now have used, and those of them that ended."""
    ticks: dict[int, float] = {}
    parents: dict[int, int] = {}
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            with contextlib.suppress(OSError):
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                parents[int(place.name)] = int(fields[1])
                ticks[int(place.name)] = sum(map(int, fields[11:15]))
    family = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= more
    return sum(ticks.get(pid, 0) for pid in family) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _topic(url: str, shards: int, rows: int) -> Iterator[None]:
    """A topic for one turn, which must have so many rows in the end.

    It is deleted then, and what the system kept of it in memory is free for the next: a virtual machine may
    take ten times as long to write to memory that it has never touched, which a node soon has no more of.
    """
    with penstock.sync.connect(url) as client:
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
    spark = penstock.spark.session("penstock bench", conf={"spark.driver.memory": "2g"})
    spark.dataSource.register(Discard)
    noise = ", ".join(f"unhex(sha2(concat(id, '/{at}'), 512))" for at in range(0, asked.bytes, 64))
    value = f"substring(concat({noise}), 1, {asked.bytes})" if asked.random else f"rpad(id, {asked.bytes}, 'x')"
    text = f"select {value} value, cast(id % 1000 as string) key from range(0, {asked.rows}, 1, 4)"
    frame = spark.sql(text).cache()
    frame.count()
    times: dict[str, list[float]] = {"discard": [], "penstock": []}
    cpu: dict[str, list[float]] = {"discard": [], "penstock": [], "node": []}
    with tempfile.TemporaryDirectory(dir=asked.folder) as place, running_node(Path(place)) as node:
        for number in range(asked.repeat + 1):
            for name in times:
                with _topic(node.url, asked.shards, asked.rows if name == "penstock" else 0):
                    options = {"url": node.url, "topic": TOPIC} if name == "penstock" else {}
                    before_s, node_s = family_cpu_s() - node.cpu_s(), node.cpu_s()
                    taken_s = write_s(frame, name, **options)
                    if number:  # the first of each starts the workers
                        times[name].append(taken_s)
                        cpu[name].append(family_cpu_s() - node.cpu_s() - before_s)
                        cpu["node"] += [node.cpu_s() - node_s] if name == "penstock" else []
    spark.stop()
    rates = {name: asked.rows / quantile(taken, 0.5) for name, taken in times.items()}
    figure = Figure("sink", rates["penstock"], "rows/s", "the same batches discarded", rates["discard"])
    print(f"{figure.name}: {figure.value:,.0f} {figure.unit}; {figure.limit_name}: {figure.limit:,.0f}")
    best = min(times["discard"]) / min(times["penstock"])
    print(f"ratio of the medians: {figure.ratio:.2f}; of the best: {best:.2f}")
    spent = {name: quantile(each, 0.5) for name, each in cpu.items()}
    print("CPU seconds, median:", {name: round(each, 2) for name, each in spent.items()})
    print("seconds:", {name: [round(one, 2) for one in taken] for name, taken in times.items()})


if __name__ == "__main__":
    main()
