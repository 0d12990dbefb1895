"""A Spark driver that fails where it is asked to: ``python -m tests.torture.spark_driver FOLDER URL IN OUT``.

It copies a topic to another, through a shuffle, until it is killed. At five points of every batch it looks for
a fuse, a file ``FOLDER/fuses/POINT.FATE``; the process that removes it fails in that way at once. Its journals
have every batch that it commits.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, InputPartition, WriterCommitMessage

import headpond.spark
from headpond.sim.history import Batch
from headpond.spark.sink import Staged, StreamSink, stream_writer
from headpond.spark.source.batch import schema as source_schema
from headpond.spark.source.stream import StreamReader
from tests.spark.standalone import QUICK_JAVA
from tests.torture.cast import SPARK_PREFIX
from tests.torture.journal import Journal

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

NODE = "n7"
ZOMBIE_S_MAX = 120.0
FAILED_AGAIN_S = 0.2


class TaskFails(Exception):
    """On purpose."""


def burns(folder: Path, point: str, fate: str) -> bool:
    """Removes a fuse; returns whether there was one, and no other process was faster."""
    with contextlib.suppress(FileNotFoundError):
        (folder / "fuses" / f"{point}.{fate}").unlink()
        return True
    return False


def burn(folder: Path, point: str) -> None:
    """Fails as the fuses of this point demand."""
    if burns(folder, point, "raise"):
        raise TaskFails(f"a task fails at {point}")
    both = burns(folder, point, "both")
    if both or burns(folder, point, "node"):
        os.kill(int((folder / f"{NODE}.pid").read_text()), signal.SIGKILL)
    if both or burns(folder, point, "driver"):
        kill_driver(folder)
        os.kill(os.getpid(), signal.SIGKILL)  # the workers are a separate process group
    if burns(folder, point, "kill"):
        os.kill(os.getpid(), signal.SIGKILL)


def kill_driver(folder: Path) -> None:
    os.killpg(int((folder / "driver.pid").read_text()), signal.SIGKILL)


class BurningReader(StreamReader):
    """The source, with a fuse where a batch is planned."""

    folder: Path

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        burn(self.folder, "planning")
        return super().partitions(start, end)


@dataclass(frozen=True)
class StagedRows(Staged):
    """A task's message to the driver, with the rows that it staged."""

    values: tuple[bytes, ...]


class BurningSink(StreamSink):
    """The sink, with fuses and a journal."""

    folder: Path
    topic: str

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        held = [each for each in iterator if each.num_rows]
        if not held:
            return super().write(iter(()))
        if burns(self.folder, "in-write", "zombie"):
            self._outlive_driver(held)
        if burns(self.folder, "staged", "twice"):
            super().write(iter(held))
        staged = super().write(self._watched(held))
        burn(self.folder, "staged")
        values = tuple(value for each in held for value in each.column("value").to_pylist())
        return StagedRows(staged.writer, staged.stages, staged.query, values)

    def _watched(self, held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fails after half of the rows are sent."""
        for batch in held:
            yield batch.slice(0, 1)
            burn(self.folder, "in-write")
            yield batch.slice(1)

    def _outlive_driver(self, held: list[pa.RecordBatch]) -> None:
        """Stages its rows long after the next driver has written them: they must have no effect."""
        os.setsid()  # Spark ends its workers as a group
        kill_driver(self.folder)
        deadline = time.monotonic() + ZOMBIE_S_MAX
        while not (self.folder / "zombie.go").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        super().write(iter(held))
        (self.folder / "zombie.done").touch()
        os.kill(os.getpid(), signal.SIGKILL)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        staged = [message for message in messages if isinstance(message, StagedRows)]
        if not staged:
            super().commit(messages, batchId)
            return
        journal = Journal(self.folder / "journals" / f"spark.{time.monotonic_ns()}.jsonl")
        batch = Batch(self.topic, NODE, staged[0].writer, batchId, [[*message.values] for message in staged])
        journal.add(batch)
        burn(self.folder, "before-commit")
        super().commit(messages, batchId)
        journal.change(batch, committed=True)
        burn(self.folder, "after-commit")


class BurningSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "burning"

    def _given(self) -> tuple[dict[str, str], Path]:
        given: Mapping[str, str] = self.options
        return {name: value for name, value in given.items() if name != "folder"}, Path(given["folder"])

    def schema(self) -> StructType:
        return source_schema(self._given()[0])

    def streamReader(self, schema: StructType) -> BurningReader:
        options, folder = self._given()
        reader = BurningReader(schema, options)
        reader.folder = folder
        return reader

    def streamWriter(self, schema: StructType, overwrite: bool) -> BurningSink:
        options, folder = self._given()
        sink = BurningSink.__new__(BurningSink)
        sink.__dict__.update(stream_writer(schema, options, overwrite).__dict__)
        sink.folder, sink.topic = folder, options["topic"]
        return sink


def main(folder: Path, url: str, source: str, sink: str) -> None:
    spark = headpond.spark.session(
        "headpond torture",
        master="local[2, 8]",
        conf={
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.sql.shuffle.partitions": "3",
            "spark.task.reaper.enabled": "false",
        },
    )
    spark.dataSource.register(BurningSource)
    there = {"url": url, "folder": str(folder)}
    read = spark.readStream.format("burning").options(**there, topic=source).load()
    value = f"concat(cast('{SPARK_PREFIX.decode()}' as binary), value) as value"
    rows = read.selectExpr("key", value).repartition("key")
    while True:  # only a kill ends this
        try:
            write = rows.writeStream.format("burning").options(**there, topic=sink)
            write.option("checkpointLocation", str(folder / "checkpoint")).start().awaitTermination()
        except Exception as error:
            print(error, file=sys.stderr, flush=True)
        time.sleep(FAILED_AGAIN_S)


if __name__ == "__main__":
    from tests.torture import spark_driver  # so that Spark's workers find its classes by name

    spark_driver.main(Path(sys.argv[1]), *sys.argv[2:])
