"""A Spark driver that is made to be killed: ``python -m tests.fire.spark_driver FOLDER URL TOPIC``.

It writes the rows of ``FOLDER/input``, a file a batch and through a shuffle, to a topic, until all are written.
At four points of every batch it looks for a fuse, a file ``FOLDER/fuses/POINT.VICTIM``; whoever removes one
kills that victim on the spot: the task's own process, the node, or the driver with its Java.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.datasource import DataSource, WriterCommitMessage

import penstock.spark
from penstock.spark.sink import Staged, StreamSink, stream_writer

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

POINTS = ("in-write", "staged", "before-commit", "after-commit")
VICTIMS = ("task", "node", "driver")
"""In this order, where several are to die at one point."""


def burn(folder: Path, point: str) -> None:
    """Kills whoever the fuses of this point are meant for."""
    for victim in VICTIMS:
        try:
            (folder / "fuses" / f"{point}.{victim}").unlink()
        except FileNotFoundError:
            continue
        if victim == "task":
            os.kill(os.getpid(), signal.SIGKILL)
        elif victim == "driver":
            os.killpg(int((folder / "driver.pid").read_text()), signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)  # the workers are a group of their own
        else:
            os.kill(int((folder / "node.pid").read_text()), signal.SIGKILL)


class BurningSink(StreamSink):
    """The sink, with fuses."""

    folder: Path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        def watched() -> Iterator[pa.RecordBatch]:
            for batch in iterator:
                yield batch.slice(0, 1)
                burn(self.folder, "in-write")
                yield batch.slice(1)

        staged = super().write(watched())
        burn(self.folder, "staged")
        return staged

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        burn(self.folder, "before-commit")
        super().commit(messages, batchId)
        burn(self.folder, "after-commit")


class BurningSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "burning"

    def streamWriter(self, schema: StructType, overwrite: bool) -> BurningSink:
        told: Mapping[str, str] = self.options
        options = {name: value for name, value in told.items() if name != "folder"}
        sink = stream_writer(schema, options, overwrite)
        burning = BurningSink.__new__(BurningSink)
        burning.__dict__.update(sink.__dict__)
        burning.folder = Path(told["folder"])
        return burning


def main(folder: Path, url: str, topic: str) -> None:
    spark = penstock.spark.session(
        "penstock torture",
        master="local[2, 8]",
        conf={"spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"},
    )
    spark.dataSource.register(BurningSource)
    read = spark.readStream.schema("value string").option("maxFilesPerTrigger", 1)
    query = (
        read.json(str(folder / "input"))
        .repartition(2, "value")
        .writeStream.format("burning")
        .options(url=url, topic=topic, folder=str(folder))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3])
