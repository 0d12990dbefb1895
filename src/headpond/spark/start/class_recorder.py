"""Runs a session that uses a little of everything, and has Java record the classes that it loads.

class_cache.py runs it as a program: the session must be the first of its process, and Java must exit normally.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from headpond.spark.start.class_cache import CLASS_LIST, CLASS_PATH_GIVEN, CLASS_PATH_OPENED
from headpond.spark.start.session import JAVA_OPTIONS, session

FORMAT = "headpond_recorder"
SCHEMA = "id long, key string, value binary, headers map<string, string>, sent_at timestamp"
ROWS = 4
END_S_MAX = 120


class RecorderSource(DataSource):
    """The calls that ``format("headpond")`` answers, with rows made up on the spot."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: StructType) -> DataSourceReader:
        return RecorderReader()

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return RecorderStreamReader()

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        return RecorderWriter()

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return RecorderWriter()


class RecorderReader(DataSourceReader):
    """Two partitions with the same few rows."""

    def partitions(self, *_: object) -> Sequence[InputPartition]:
        return [InputPartition(0), InputPartition(1)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        numbers = range(ROWS)
        yield pa.RecordBatch.from_arrays(
            [
                pa.array(numbers, pa.int64()),
                pa.array([f"k{number % 2}" for number in numbers]),
                pa.array([b"value"] * ROWS),
                pa.array([[("a", "b")]] * ROWS, pa.map_(pa.string(), pa.string())),
                pa.array(numbers, pa.timestamp("us", "UTC")),
            ],
            names=["id", "key", "value", "headers", "sent_at"],
        )


class RecorderStreamReader(RecorderReader, DataSourceStreamReader):
    """One batch of these rows."""

    def initialOffset(self) -> dict[str, int]:
        return {"entry": 0}

    def latestOffset(self, *_: object) -> dict[str, int]:
        return {"entry": ROWS}


class RecorderWriter(DataSourceArrowWriter, DataSourceStreamArrowWriter):
    """For batches and streams; it drops all rows."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        for _ in iterator:
            pass
        return WriterCommitMessage()

    def commit(self, messages: list[WriterCommitMessage | None], *_: object) -> None:
        pass

    def abort(self, messages: list[WriterCommitMessage | None], *_: object) -> None:
        pass


# --- the session -------------------------------------------------------------------------------------


def record_classes(folder: Path) -> None:
    """Writes the class list and the two class paths to the folder."""
    listing = f'"-XX:DumpLoadedClassList={folder / CLASS_LIST}"'
    # Code that runs once need not be compiled well.
    options = f"-XX:TieredStopAtLevel=1 {listing}"
    spark = session("headpond prepare", master="local[2]", conf={JAVA_OPTIONS: options})
    gateway: Any = spark.sparkContext._gateway
    _write_class_paths(gateway.jvm, folder)
    spark.dataSource.register(RecorderSource)
    _queries(spark, folder)
    _streams(spark, folder)
    spark.stop()
    # Java writes the rest of its list when it exits, and it exits when its stdin is closed.
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait(END_S_MAX)


def _write_class_paths(jvm: Any, folder: Path) -> None:
    arguments = list(jvm.java.lang.ProcessHandle.current().info().arguments().get())
    (folder / CLASS_PATH_GIVEN).write_text(arguments[arguments.index("-cp") + 1])
    (folder / CLASS_PATH_OPENED).write_text(jvm.java.lang.System.getProperty("java.class.path"))


def _queries(spark: SparkSession, folder: Path) -> None:
    rows = spark.read.format(FORMAT).load()
    rows.createOrReplaceTempView("rows")
    spark.range(1).count()
    rows.count()
    spark.sql(
        "select key, count(*) n, max(sent_at) at from rows where id > 0 group by key order by n"
    ).toPandas()
    spark.sql("select a.id from rows a join rows b on a.id = b.id and a.key <> 'k9'").toArrow()
    spark.sql("select id, lag(id) over (partition by key order by id) before from rows").collect()
    rows.mapInArrow(_same, rows.schema).count()
    rows.withColumn("day", F.to_date("sent_at")).write.partitionBy("day").parquet(str(folder / "rows"))
    spark.read.parquet(str(folder / "rows")).where("key = 'k1'").show()
    rows.write.format(FORMAT).mode("append").save()


def _same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return batches


def _streams(spark: SparkSession, folder: Path) -> None:
    def count(batch: DataFrame, number: int) -> None:
        batch.count()

    rows = spark.readStream.format(FORMAT).load()
    known = rows.withWatermark("sent_at", "1 minute").dropDuplicates(["key", "sent_at"])
    for name, writer in (
        ("batches", rows.writeStream.foreachBatch(count)),
        ("sink", known.writeStream.format(FORMAT)),
    ):
        query = writer.option("checkpointLocation", str(folder / "streams" / name)).trigger(availableNow=True)
        query.start().awaitTermination()


if __name__ == "__main__":
    record_classes(Path(sys.argv[1]))
