"""A replay or reshard writes each message once and in order, however often it runs, from topic or archive."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import headpond.sync
from headpond.model.errors import BadRequest, TopicMismatch, TopicNotFound
from headpond.spark.jobs.archive import archive
from headpond.spark.jobs.replay import began_at, left_of, replay
from headpond.spark.jobs.reshard import reshard
from tests.cli.contract import check
from tests.fire.real_node import RealNode, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


def send(node: RealNode, topic: str, numbers: range, shards: int = 2) -> None:
    with headpond.sync.connect(node.url) as client:
        client.admin.create_topic(topic, shards, exist_ok=True)
        with client.producer(topic, name="till-1") as producer:
            for n in numbers:
                producer.post(b"%d" % n, key=b"k%d" % (n % 5), id=f"m-{n}", headers={"headpond-origin": "old"})
            producer.flush()


def create(node: RealNode, topic: str, **options: Any) -> None:
    with headpond.sync.connect(node.url) as client:
        client.admin.create_topic(topic, **options)


def stored(spark: SparkSession, node: RealNode, topic: str) -> list[Any]:
    frame = spark.read.format("headpond").options(url=node.url, topic=topic).load()
    return sorted(frame.collect(), key=lambda row: (row.shard, row.entry))


def numbers_by_key(rows: list[Any]) -> dict[bytes, list[int]]:
    found: dict[bytes, list[int]] = {}
    for row in rows:
        found.setdefault(bytes(row.key), []).append(int(bytes(row.value)))
    return found


def test_run_twice_on_a_topic_that_grows_or_its_archive_a_replay_writes_once(
    spark: SparkSession, node: RealNode, tmp_path: Path
) -> None:
    send(node, "source", range(60))
    create(node, "copy", shards=4)
    first = replay("source", "copy", url=node.url, batch_entries=20)
    assert (first.rows, first.there) == (60, 0)
    check("spark replay", msgspec.json.encode(first) + b"\n")
    send(node, "source", range(60, 80))
    again = replay("source", "copy", url=node.url)
    assert (again.rows, again.there) == (20, 60)
    archive("source", tmp_path / "archive", url=node.url)
    assert replay(tmp_path / "archive", "copy", url=node.url).rows == 0

    copied = stored(spark, node, "copy")
    assert numbers_by_key(copied) == {b"k%d" % k: list(range(k, 80, 5)) for k in range(5)}
    origins = {row.headers["headpond-origin"] for row in copied}
    source = stored(spark, node, "source")
    assert origins == {row.identity for row in source}
    assert Counter(row.id for row in copied) == Counter(row.id for row in source)

    create(node, "part")
    part = replay("source", "part", url=node.url, where="producer = 'till-1' and shard = 1")
    assert part.rows == sum(row.shard == 1 for row in source) > 0

    create(node, "restored")
    kept = replay(tmp_path / "archive", "restored", url=node.url, where="id != 'm-3'")
    assert kept.rows == 79
    assert Counter(row.id for row in stored(spark, node, "restored")) == Counter(
        f"m-{n}" for n in range(80) if n != 3
    )


def test_a_beginning_that_only_the_archive_has_is_written_from_there_and_the_rest_not_again(
    spark: SparkSession, node: RealNode, tmp_path: Path
) -> None:
    with headpond.sync.connect(node.url) as client:
        client.admin.create_topic("ageing")
        with client.producer("ageing", batch_rows=10) as producer:
            for n in range(30):
                producer.post(b"%d" % n)
            producer.flush()
            archive("ageing", tmp_path / "archive", url=node.url)
            client.admin.set_topic("ageing", hard_ttl=0.05)
            wait_until(lambda: client.admin.show_topic("ageing").shard_list[0].entry_first == 30)
            client.admin.unset_topic("ageing", "hard_ttl")
            for n in range(30, 50):
                producer.post(b"%d" % n)
    create(node, "whole")
    assert replay("ageing", "whole", url=node.url).rows == 20
    archive("ageing", tmp_path / "archive", url=node.url)
    older = replay(tmp_path / "archive", "whole", url=node.url, batch_entries=20)
    assert (older.rows, older.there, older.batches) == (30, 20, 2)
    assert replay("ageing", "whole", url=node.url).rows == 0
    assert sorted(int(bytes(row.value)) for row in stored(spark, node, "whole")) == list(range(50))


def test_each_unwritten_piece_continues_where_a_writer_stopped() -> None:
    assert left_of(0, 50, {}) == [(0, 50, 0)]
    assert left_of(30, 50, {0: 30}) == [(30, 50, 0)]
    assert left_of(0, 70, {0: 10, 30: 50}) == [(10, 30, 0), (50, 70, 30)]
    assert left_of(20, 40, {0: 100}) == []
    assert [began_at("t/replay-a", name) for name in ("t/replay-a", "t/replay-a-30", "t/replay-b-30")] == [
        *(0, 30, None)
    ]


def test_other_parquet_files_are_identified_by_their_content(
    spark: SparkSession, node: RealNode, tmp_path: Path
) -> None:
    create(node, "from-files")
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        for part in range(3):
            values = [b"%d" % n for n in range(part * 10, part * 10 + 10)]
            more = {"key": [b"k"] * 10, "row": range(10), "file": range(10)} if part == 2 else {}
            table = pa.table({"value": values, **more})
            pq.write_table(table, tmp_path / folder / f"{folder}-{part}.parquet")
    assert replay(tmp_path / "one", "from-files", url=node.url).rows == 30
    assert replay(tmp_path / "two", "from-files", url=node.url).rows == 0
    copied = stored(spark, node, "from-files")
    assert [int(bytes(row.value)) for row in copied] == list(range(30))
    assert [row.key for row in copied] == [None] * 20 + [b"k"] * 10, "what only the last file has"


def test_a_reshard_keeps_every_message_and_the_order_of_its_key(spark: SparkSession, node: RealNode) -> None:
    schema = pa.schema([("n", pa.int64()), ("name", pa.string())])
    create(node, "narrow", shards=2, schema=schema, settings={"durability": "os"})
    with headpond.sync.connect(node.url) as client, client.producer("narrow") as producer:
        for n in range(50):
            producer.post({"n": n, "name": f"name-{n}"}, key=b"k%d" % (n % 5))
        producer.flush()
    first = reshard("narrow", "wide", 8, url=node.url, batch_entries=10)
    assert (first.rows, first.sent, first.verified, first.in_order) == (50, 50, True, True)
    check("spark reshard", msgspec.json.encode(first) + b"\n")
    assert (reshard("narrow", "wide", 8, url=node.url).rows, first.shards_before) == (0, 2)
    found: dict[bytes, list[int]] = {}
    for row in stored(spark, node, "wide"):
        found.setdefault(bytes(row.key), []).append(row.value.n)
        assert row.value.name == f"name-{row.value.n}"
    assert found == {b"k%d" % k: list(range(k, 50, 5)) for k in range(5)}
    with headpond.sync.connect(node.url) as client:
        assert client.admin.show_topic("wide").durability == "os"
    with pytest.raises(TopicMismatch, match="with 8 shards"):
        reshard("narrow", "wide", 4, url=node.url)


def test_a_replay_refuses_wrong_inputs(spark: SparkSession, node: RealNode, tmp_path: Path) -> None:
    send(node, "here", range(1))
    create(node, "empty")
    (tmp_path / "files").mkdir()
    pq.write_table(pa.table({"other": [1]}), tmp_path / "files" / "a.parquet")
    wrong: list[tuple[Any, Any, dict[str, Any], str]] = [
        ("here", "here", {}, "written to itself"),
        ("here", "./folder", {}, "is not a topic"),
        (tmp_path / "nothing", "empty", {}, "there is no"),
        (tmp_path / "files", "empty", {}, "no column value"),
        (tmp_path / "files", "empty", {"start": "5"}, "start and end are a topic's"),
        ("here", "empty", {"where": "no_such = 1"}, "is not a condition over"),
        ("here", "empty", {"start": "9"}, "is not there yet"),
        ("here", "empty", {"batch_entries": 0}, "must be above 0, not 0"),
    ]
    for source, target, options, message in wrong:
        with pytest.raises(BadRequest, match=message):
            replay(source, target, url=node.url, **options)
    with pytest.raises(TopicNotFound):
        replay("here", "no-such", url=node.url)
    with pytest.raises(TopicNotFound):
        reshard("no-such", "other", 2, url=node.url)
    with pytest.raises(BadRequest, match="is empty"):
        reshard("empty", "other", 2, url=node.url)
    with pytest.raises(BadRequest, match="cannot become itself"):
        reshard("here", "here", 2, url=node.url)
