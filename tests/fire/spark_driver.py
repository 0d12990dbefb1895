"""A Spark driver for kills: ``python -m tests.fire.spark_driver FOLDER URL IN OUT``.

It reads a topic, drops repeated rows (a shuffle, and state) and writes the rest to another topic until it dies.
At five points of every batch it looks for a fuse, a file ``FOLDER/fuses/POINT.FATE.NUMBER``. The process that
removes a fuse fails in that way at once. The driver writes its actions to ``FOLDER/told``, one line each.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, InputPartition, WriterCommitMessage

import headpond.spark
from headpond.spark.sink import Staged, StreamSink, stream_writer
from headpond.spark.source.batch import schema as source_schema
from headpond.spark.source.stream import StreamReader
from tests.spark.standalone import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

POINTS = ("planning", "in-write", "staged", "before-commit", "after-commit")
ZOMBIE_S_MAX = 120.0
FAILED_AGAIN_S = 0.2


class TaskFails(Exception):
    """On purpose."""


def burns(folder: Path, point: str, fate: str) -> bool:
    """Removes a fuse of this name; returns whether there was one."""
    for fuse in (folder / "fuses").glob(f"{point}.{fate}.*"):
        try:
            fuse.unlink()
        except FileNotFoundError:
            continue  # another was faster
        return True
    return False


def burn(folder: Path, point: str) -> None:
    """Fails as the fuses of this point demand."""
    if burns(folder, point, "raise"):
        raise TaskFails(f"a task fails at {point}")
    if burns(folder, point, "kill"):
        os.kill(os.getpid(), signal.SIGKILL)
    if burns(folder, point, "node"):
        kill_node(folder)
    if burns(folder, point, "driver"):
        kill_driver(folder)
        os.kill(os.getpid(), signal.SIGKILL)  # the workers are a separate process group
    if burns(folder, point, "both"):
        kill_node(folder)
        kill_driver(folder)
        os.kill(os.getpid(), signal.SIGKILL)


def kill_node(folder: Path) -> None:
    os.kill(int((folder / "node.pid").read_text()), signal.SIGKILL)


def kill_driver(folder: Path) -> None:
    os.killpg(int((folder / "driver.pid").read_text()), signal.SIGKILL)


def tell(folder: Path, *words: object) -> None:
    """Appends one whole line; other processes write to the same file."""
    line = " ".join(map(str, words)) + "\n"
    place = os.open(folder / "told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        os.write(place, line.encode())
    finally:
        os.close(place)


class BurningReader(StreamReader):
    """The source, with a fuse where a batch is planned."""

    folder: Path

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        burn(self.folder, "planning")
        return super().partitions(start, end)


class BurningSink(StreamSink):
    """The sink, with fuses."""

    folder: Path

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        assert context is not None
        batch = context.getLocalProperty("streaming.sql.batchId")
        driver = (self.folder / "driver.pid").read_text()
        tell(self.folder, "task", batch, driver, context.stageId(), context.partitionId())
        held = [each for each in iterator if each.num_rows]
        if not held:
            return super().write(iter(()))
        if burns(self.folder, "in-write", "zombie"):
            self._outlive_driver(held)
        if burns(self.folder, "staged", "twice"):
            super().write(iter(held))
        staged = super().write(self._watched(held))
        burn(self.folder, "staged")
        return staged

    def _watched(self, held: list[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fails after half of the rows are sent."""
        for batch in held:
            yield batch.slice(0, 1)
            burn(self.folder, "in-write")
            yield batch.slice(1)

    def _outlive_driver(self, held: list[pa.RecordBatch]) -> None:
        """Stages its rows long after the next driver has written them."""
        os.setsid()  # Spark ends its workers as a group
        (self.folder / "zombie.lives").touch()
        kill_driver(self.folder)
        deadline = time.monotonic() + ZOMBIE_S_MAX
        while not (self.folder / "zombie.go").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        staged = super().write(iter(held))
        (self.folder / "zombie.done").write_text(str(sum(stage.rows for stage in staged.stages)))
        os.kill(os.getpid(), signal.SIGKILL)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        burn(self.folder, "before-commit")
        super().commit(messages, batchId)
        burn(self.folder, "after-commit")


class BurningSource(DataSource):
    @classmethod
    def name(cls) -> str:
        return "burning"

    def _told(self) -> tuple[dict[str, str], Path]:
        told: Mapping[str, str] = self.options
        return {name: value for name, value in told.items() if name != "folder"}, Path(told["folder"])

    def schema(self) -> StructType:
        return source_schema(self._told()[0])

    def streamReader(self, schema: StructType) -> BurningReader:
        options, folder = self._told()
        reader = BurningReader(schema, options)
        reader.folder = folder
        return reader

    def streamWriter(self, schema: StructType, overwrite: bool) -> BurningSink:
        options, folder = self._told()
        sink = stream_writer(schema, options, overwrite)
        burning = BurningSink.__new__(BurningSink)
        burning.__dict__.update(sink.__dict__)
        burning.folder = folder
        return burning


def flow(spark: SparkSession, folder: Path, url: str, source: str) -> DataFrame:
    """Every row once, though the topic has some of them twice: a shuffle by id, with state."""
    read = spark.readStream.format("burning").options(url=url, topic=source, folder=str(folder))
    return read.load().select("id", "key", "value").dropDuplicates(["id"])


def live(start: Callable[[], Any], folder: Path) -> None:
    """Starts a failed query again; only a kill ends this."""
    while True:
        try:
            start().awaitTermination()
        except Exception as error:
            tell(folder, "query", type(error).__name__)
            print(error, file=sys.stderr, flush=True)
        time.sleep(FAILED_AGAIN_S)


def main(folder: Path, url: str, source: str, sink: str) -> None:
    spark = headpond.spark.session(
        "headpond torture",
        master="local[2, 8]",
        conf={
            "spark.driver.extraJavaOptions": QUICK_JAVA,
            "spark.sql.streaming.stateStore.maintenanceInterval": "1h",
            "spark.task.reaper.enabled": "false",
        },
    )
    spark.dataSource.register(BurningSource)
    rows = flow(spark, folder, url, source)

    def start() -> Any:
        write = rows.writeStream.format("burning").options(url=url, topic=sink, folder=str(folder))
        return write.option("checkpointLocation", str(folder / "checkpoint")).start()

    live(start, folder)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
