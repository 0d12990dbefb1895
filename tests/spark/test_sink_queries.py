"""The sink under Spark: failing tasks, batches that are replayed, a lost checkpoint. Every row once."""

from __future__ import annotations

import gc
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException

import headpond.sync
from headpond.model.errors import BatchDiffers
from headpond.spark.causes import cause_of
from tests.fire.real_node import RealNode
from tests.root import ROOT
from tests.spark.test_sink import rows, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 60
"""Rows in a file, and so in a batch."""


def fail_at_first(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first attempt at the second partition dies with half of its rows written."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    for batch in batches:
        if context.partitionId() == 1 and context.attemptNumber() == 0 and batch.num_rows > 1:
            yield batch.slice(0, batch.num_rows // 2)
            raise RuntimeError("the task dies")
        yield batch


class Query:
    """Files of rows, through a shuffle, into a topic."""

    def __init__(self, spark: SparkSession, folder: Path, **options: str) -> None:
        self.spark = spark
        self.input = folder / "input"
        self.checkpoint = folder / "checkpoint"
        self.options = options
        self.files_a_batch = 1
        self.input.mkdir()
        self.files = 0

    def add_file(self) -> None:
        first = self.files * ROWS
        lines = [json.dumps({"value": f"row {number}"}) for number in range(first, first + ROWS)]
        (self.input / f"{self.files:03}.json").write_text("\n".join(lines))
        self.files += 1

    def run(self) -> list[int]:
        """Runs until everything is written; returns the numbers of the batches."""
        read = self.spark.readStream.schema("value string").option("maxFilesPerTrigger", self.files_a_batch)
        shuffled: DataFrame = read.json(str(self.input)).repartition(3, "value")
        query = (
            shuffled.mapInArrow(fail_at_first, "value string")
            .writeStream.format("headpond")
            .options(**self.options)
            .option("checkpointLocation", str(self.checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()
        return [progress["batchId"] for progress in query.recentProgress]

    def forget_last_commit(self) -> None:
        """Removes the commit of the last batch from the checkpoint, as if the driver had died before it."""
        newest = max(
            int(path.name) for path in (self.checkpoint / "commits").iterdir() if path.name.isdecimal()
        )
        (self.checkpoint / "commits" / str(newest)).unlink()
        (self.checkpoint / "commits" / f".{newest}.crc").unlink(missing_ok=True)


@pytest.mark.timeout(300)
def test_every_row_is_written_once_over_failing_tasks_and_a_replay(
    spark: SparkSession, tmp_path: Path, shared_url: str, topic: str
) -> None:
    query = Query(spark, tmp_path, url=shared_url, topic=topic)
    query.add_file()
    query.add_file()
    query.run()
    query.forget_last_commit()
    query.add_file()
    assert query.run()[0] == 1, "the batch was replayed"
    assert values(shared_url, topic) == rows(3 * ROWS)


@pytest.mark.timeout(300)
def test_a_sink_that_has_a_name_outlives_its_checkpoint_as_long_as_its_batches_are_the_same(
    spark: SparkSession, tmp_path: Path
) -> None:
    with RealNode(tmp_path / "node", config="[staging]\nlease_s = 0.01\n") as node:
        query = Query(spark, tmp_path, url=node.url, topic="t", sinkId="s")
        query.add_file()
        query.run()
        shutil.rmtree(query.checkpoint)
        query.add_file()
        assert query.run()[0] == 0, "all batches were replayed"
        assert values(node.url, "t") == rows(2 * ROWS)
        shutil.rmtree(query.checkpoint)
        query.files_a_batch = 2
        with pytest.raises(StreamingQueryException) as ended:
            query.run()
        cause = cause_of(ended.value)
        assert isinstance(cause, BatchDiffers) and "is a repeat with 120 rows" in cause.message
        assert "onRepeat" in cause.hint
        assert values(node.url, "t") == rows(2 * ROWS)


@pytest.mark.timeout(300)
def test_a_frame_is_appended_with_its_columns_and_faults_are_reported(
    spark: SparkSession, shared_url: str, topic: str
) -> None:
    frame = spark.sql(
        "select concat('row ', id) value, cast(id as string) key, map('n', 'x') headers from range(500)"
    )
    frame.write.format("headpond").mode("append").options(url=shared_url, topic=topic).save()
    assert values(shared_url, topic) == rows(500)
    wrong: list[tuple[Any, str]] = [
        (frame.withColumnRenamed("key", "kee"), "kee"),
        (frame.selectExpr("key"), "value"),
        (frame.selectExpr("nullif(value, 'row 7') value"), "has no value"),
    ]
    for each, word in wrong:
        with pytest.raises(Exception, match=word):
            each.write.format("headpond").mode("append").options(url=shared_url, topic=topic).save()
    with pytest.raises(Exception, match="append"):
        frame.write.format("headpond").mode("overwrite").options(url=shared_url, topic=topic).save()
    assert values(shared_url, topic) == rows(500)


@pytest.mark.timeout(300)
def test_the_pages_foreach_batch_writes_each_row_once_also_when_its_batch_is_done_again(
    spark: SparkSession, tmp_path: Path, node: RealNode
) -> None:
    page = (ROOT / "docs" / "spark_sink.md").read_text()
    (program,) = re.findall(r"```python\n(def write.*?)```", page, re.DOTALL)
    program = program.replace("checkpoints/split", str(tmp_path / "checkpoint"))
    program = program.replace("options(**options)", "options(**options, url=url)")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"key": "a", "value": "99"}\n{"key": "b", "value": "100"}\n')
    stream = spark.readStream.schema("key string, value string").json(str(tmp_path / "in"))
    names: dict[str, Any] = {"stream": stream, "url": node.url}
    with headpond.sync.connect(node.url) as client:
        client.admin.create_topic("totals.all", schema=pa.schema([("other", pa.int64())]))
        with pytest.raises(StreamingQueryException, match="other"):  # the second write fails
            exec(program, names)
        info = client.admin.show_writer("default/default/default/totals.large/split")
        assert (info.batch, info.holder) == (0, str(names["query"].id))
        client.admin.delete_topic("totals.all")
    exec(program, names)
    assert values(node.url, "totals.large") == Counter([b'{"key":"b","amount":100}'])
    assert values(node.url, "totals.all") == Counter([b"99", b"100"])


def frozen(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import gc

    for batch in batches:
        yield pa.record_batch({"frozen": pa.array([gc.get_freeze_count()] * batch.num_rows, pa.int64())})


@pytest.mark.timeout(300)
def test_a_worker_excludes_its_loaded_objects_from_garbage_collection(
    spark: SparkSession, shared_url: str, topic: str
) -> None:
    frame = spark.range(8, numPartitions=2).selectExpr("concat('row ', id) value")
    frame.write.format("headpond").mode("append").options(url=shared_url, topic=topic).save()
    counts = spark.range(8, numPartitions=2).mapInArrow(frozen, "frozen long").collect()
    assert max(row.frozen for row in counts) > 10_000
    assert gc.get_freeze_count() == 0, "the process of the program is its own"
