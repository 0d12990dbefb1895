"""An archive holds every message of its topic once, whenever the process that wrote it was killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

import headpond.sync
from headpond.model.errors import BadRequest, TopicNotFound
from headpond.spark.jobs.archive import archive, compact, write_batch
from headpond.spark.jobs.archive_folder import ArchiveFolder, ArchiveInfo
from tests.cli.conftest import HEADPOND, clean_environment
from tests.cli.contract import check
from tests.fire.real_node import RealNode
from tests.spark.standalone import QUICK_JAVA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)
WAIT_S = 250


def send(node: RealNode, topic: str, numbers: range) -> None:
    with headpond.sync.connect(node.url) as client:
        client.admin.create_topic(topic, 2, exist_ok=True)
        with client.producer(topic, name="till-1") as producer:
            for n in numbers:
                producer.post(b"v%d" % n, key=b"k%d" % (n % 7), id=f"m-{n}", headers={"n": str(n)})
            producer.flush()


def archived(folder: Path) -> pa.Table:
    """The rows that a plain Parquet reader sees."""
    return ds.dataset(folder, format="parquet", partitioning="hive").to_table()


def ids(folder: Path) -> Counter[str]:
    return Counter(archived(folder)["id"].to_pylist())


def wanted(count: int) -> Counter[str]:
    return Counter(f"m-{n}" for n in range(count))


def test_a_followed_topic_is_archived_until_ctrl_c_and_the_next_run_continues(
    spark: SparkSession, node: RealNode, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    send(node, "followed-archive", range(50))

    def interrupt(said: str) -> None:
        if said == "archived 50 messages":
            send(node, "followed-archive", range(50, 90))
        if said == "archived 90 messages":
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        archive(
            "followed-archive", folder, url=node.url, follow=True, every="100 milliseconds", progress=interrupt
        )
    assert spark.streams.active == [] and ids(folder) == wanted(90)
    send(node, "followed-archive", range(90, 100))
    assert archive("followed-archive", folder, url=node.url).rows == 10
    assert ids(folder) == wanted(100)


def test_each_run_adds_the_new_messages_and_compaction_changes_no_row(
    spark: SparkSession, node: RealNode, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    send(node, "archived", range(300))
    first = archive("archived", folder, url=node.url, batch_bytes=4_000)
    assert (first.rows, first.batches > 1) == (300, True)
    send(node, "archived", range(300, 400))
    assert archive("archived", folder, url=node.url).rows == 100

    before = archived(folder)
    assert ids(folder) == wanted(400)
    assert set(before.column_names) == {
        *("key", "value", "id", "headers", "topic", "shard", "entry"),
        *("sent_at", "stored_at", "identity", "producer", "node", "date"),
    }
    row = before.filter(pa.compute.equal(before["id"], "m-5")).to_pylist()[0]
    assert (row["value"], row["key"], row["headers"]) == (b"v5", b"k5", [("n", "5")])
    assert str(row["date"]) == row["stored_at"].date().isoformat()

    result = compact(folder)
    assert (result.files_before > 2, result.files_after, result.rows) == (True, 1, 400)
    by_entry = [("shard", "ascending"), ("entry", "ascending")]
    assert archived(folder).sort_by(by_entry).equals(before.sort_by(by_entry))
    assert compact(folder).days == 0
    check("spark archive", msgspec.json.encode(first) + b"\n")
    check("spark compact", msgspec.json.encode(result) + b"\n")


def batch_of(spark: SparkSession, *numbers: int) -> DataFrame:
    columns = "id string, shard int, entry bigint, stored_at timestamp"
    return (
        spark.range(1)
        .selectExpr(f"inline(array({','.join(f'struct({n!r})' for n in numbers)}))")
        .selectExpr(
            "concat('m-', col1) id",
            "0 shard",
            "cast(col1 as bigint) entry",
            "timestamp'2026-01-31 23:59:59' + make_dt_interval(0, 0, 0, col1) stored_at",
        )
        .select(*(part.split()[0] for part in columns.split(", ")))
    )


def test_a_batch_that_comes_again_counts_once_wherever_its_first_try_was_killed(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = ArchiveFolder(tmp_path / "archive")
    place.claim(ArchiveInfo(topic="t", topic_uuid="u"))
    assert write_batch(place, batch_of(spark, 0, 1, 2), 0, "q", "0") == 3
    assert [day.name for day in place.days()] == ["date=2026-01-31", "date=2026-02-01"]

    # Killed while it wrote: its files do not count, and the next run writes them again.
    left = place.stage(1) / "date=2026-02-01"
    left.mkdir(parents=True)
    shutil.copy(place.files()[0], left)
    place.recover()
    assert ids(place.path) == wanted(3)

    # Killed after the record, with one of two files moved: the rest is moved, nothing is written again.
    spark_files = _killed_while_moving(place, batch_of(spark, 3, -1), spark)
    assert spark_files == 2
    assert sum(ids(place.path).values()) == 4
    again = ArchiveFolder(place.path)
    again.recover()
    assert ids(place.path) == wanted(4) + Counter(["m--1"])
    assert write_batch(again, batch_of(spark, 3, -1), 1, "q", "1") is None
    assert ids(place.path) == wanted(4) + Counter(["m--1"])
    with pytest.raises(BadRequest, match="another stream"):
        write_batch(again, batch_of(spark, 9), 2, "other", "2")
    with pytest.raises(BadRequest, match=r"checkpoint of .* is gone"):
        again.check_stream()


def test_a_reader_of_whole_files_sees_no_part_of_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    place = ArchiveFolder(tmp_path / "archive")
    place.claim(ArchiveInfo(topic="t", topic_uuid="u"))
    write_batch(place, batch_of(spark, 0), 0, "q", "0")
    assert _killed_while_moving(place, batch_of(spark, 3, -1), spark) == 2
    assert len(place.files()) == 2, "of three"
    assert len(ArchiveFolder(place.path).whole_files()) == len(place.files()) == 3


def test_a_checkpoint_of_another_moment_than_the_archive_loses_nothing_unseen(
    spark: SparkSession, tmp_path: Path
) -> None:
    place = ArchiveFolder(tmp_path / "archive")
    place.claim(ArchiveInfo(topic="t", topic_uuid="u"))
    rows = batch_of(spark, 0)
    with pytest.raises(BadRequest, match="with batch 1, and the archive's newest is none"):
        write_batch(place, rows, 1, "q", "cut")
    assert write_batch(place, rows, 0, "q", "0") == 1
    assert write_batch(place, rows, 1, "q", "1") == 1
    assert write_batch(place, rows, 1, "q", "1") is None
    # Restored as it was before batch 1: Spark gives that number to more rows now.
    for number, cut in ((1, "1 and more"), (0, "0"), (3, "3")):
        with pytest.raises(BadRequest, match=f"with batch {number}, and the archive's newest is batch 1"):
            write_batch(place, rows, number, "q", cut)


def _killed_while_moving(place: ArchiveFolder, batch: DataFrame, spark: SparkSession) -> int:
    """Leaves the folder as a process that died after it had moved the first file of batch 1."""
    write_batch(place, batch, 1, "q", "1")
    record = place.newest()
    assert record is not None
    last = record.files[-1]
    (place.staging / last.staged).parent.mkdir(parents=True, exist_ok=True)
    os.replace(place.path / last.place, place.staging / last.staged)
    return len(record.files)


def test_an_archiver_that_is_killed_is_carried_on_without_loss_or_repeat(
    spark: SparkSession, node: RealNode, tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    send(node, "killed", range(400))
    command = [*HEADPOND, "spark", "archive", "killed", str(folder), "--batch-bytes", "2000", "--url", node.url]
    process = subprocess.Popen(
        [*command, "--master", "local[1]"],
        env=clean_environment() | {"JAVA_TOOL_OPTIONS": QUICK_JAVA},
        start_new_session=True,
    )
    try:
        until(
            lambda: (
                len(list((folder / "_headpond" / "batches").glob("*.json"))) >= 2 or process.poll() is not None
            )
        )
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    assert 0 < sum(ids(folder).values()) < 400
    archive("killed", folder, url=node.url)
    assert ids(folder) == wanted(400)


def until(true: Any) -> None:
    end = time.monotonic() + WAIT_S
    while not true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_archive_and_compact_refuse_wrong_inputs(node: RealNode, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").write_text("")
    send(node, "orders", range(1))
    with pytest.raises(BadRequest, match="is not empty, and not an archive"):
        archive("orders", tmp_path / "other", url=node.url)
    ArchiveFolder(tmp_path / "taken").claim(ArchiveInfo(topic="another", topic_uuid="00"))
    with pytest.raises(BadRequest, match="is an archive of another"):
        archive("orders", tmp_path / "taken", url=node.url)
    with pytest.raises(TopicNotFound):
        archive("no-such", tmp_path / "new", url=node.url)
    with pytest.raises(BadRequest, match="is not a topic"):
        archive("./folder", tmp_path / "new", url=node.url)
    with pytest.raises(BadRequest, match="renames in one step"):
        archive("orders", "s3a://bucket/archive", url=node.url)
    with pytest.raises(BadRequest, match="is not an archive"):
        compact(tmp_path / "other")
