"""A program for ``spark-submit``: a topic through a shuffle to another, and in every batch one task straggles.

The first attempt at the first partition of a batch stages some or all of its rows, and then sleeps until Spark
ends it. Every attempt writes lines to ``FOLDER/attempts``: that it began, and that it staged all of its rows.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark import TaskContext
from pyspark.sql.datasource import DataSource

import headpond.spark
from headpond.spark.sink import Staged, StreamSink, stream_writer

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

ROWS_A_BATCH = 500
SLEEP_S = 120.0


class StragglingSink(StreamSink):
    """The sink, with a task that is slow."""

    folder: Path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        assert context is not None
        batch = int(context.getLocalProperty("streaming.sql.batchId") or 0)
        slow = context.partitionId() == 0 and context.attemptNumber() == 0
        rows = self._half_slow(iterator) if slow and batch % 2 else iterator
        self._note("began", batch, context)
        staged = super().write(rows)
        self._note("staged", batch, context)
        if slow:
            time.sleep(SLEEP_S)
        return staged

    def _half_slow(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            yield batch.slice(0, batch.num_rows // 2)
            time.sleep(SLEEP_S)
            yield batch.slice(batch.num_rows // 2)

    def _note(self, what: str, batch: int, context: TaskContext) -> None:
        """Appends one whole line; other processes write to the file too."""
        with (self.folder / "attempts").open("a") as file:
            file.write(f"{what} {batch}/{context.partitionId()}\n")


class Straggling(DataSource):
    @classmethod
    def name(cls) -> str:
        return "straggling"

    def streamWriter(self, schema: StructType, overwrite: bool) -> StragglingSink:
        given: Mapping[str, str] = self.options
        options = {name: value for name, value in given.items() if name != "folder"}
        sink = StragglingSink.__new__(StragglingSink)
        sink.__dict__.update(stream_writer(schema, options, overwrite).__dict__)
        sink.folder = Path(given["folder"])
        return sink


def main(url: str, folder: str) -> None:
    spark = headpond.spark.session("straggler")  # the one that spark-submit asks for
    assert Path(str(spark.conf.get("spark.sql.warehouse.dir"))).name == "warehouse", "as spark-submit asked"
    spark.dataSource.register(Straggling)
    source = spark.readStream.format("headpond").options(url=url, topic="orders")
    rows = source.option("maxEntriesPerTrigger", str(ROWS_A_BATCH)).load()
    copies = rows.selectExpr("key", "value", "map('origin', identity) as headers").repartition(2, "key")
    sink = copies.writeStream.format("straggling").options(url=url, topic="copies", folder=folder)
    sink.option("checkpointLocation", f"{folder}/checkpoint").trigger(
        availableNow=True
    ).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
