"""``format("headpond")`` in a real Spark, from a real node's disk to the DataFrame."""

from __future__ import annotations

import json
import runpy
from datetime import UTC, datetime, time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headpond.spark
import headpond.sync
from tests.fire import packed_topic
from tests.fire.real_node import RealNode, wait_until
from tests.root import ROOT

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def post(client: headpond.sync.Client, topic: str, *numbers: int) -> None:
    with client.producer(topic, batch_rows=5) as producer:
        for number in numbers:
            producer.post(b"%d" % number)


def read(spark: SparkSession, url: str, **options: str) -> DataFrame:
    return spark.read.format("headpond").option("url", url).options(**options).load()


def numbers(rows: list[Any]) -> list[int]:
    return sorted(int(bytes(row.value)) for row in rows)


def test_a_plain_topic_becomes_rows_with_nothing_lost_on_the_way(
    spark: SparkSession, client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    client.admin.create_topic(topic, shards=2)
    with client.producer(topic) as producer:
        producer.send(b"v", key=b"k", id="i", headers={"a": "1", "b": "2"})
        producer.send_batch(pa.table({"value": [b"w"], "key": [b"k"]}))
        producer.send(b"")
        for number in range(97):
            producer.post(b"%d" % number)
    frame = read(spark, shared_url, topic=topic, minPartitions="3")
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,id:string,headers:map<string,string>,topic:string,shard:int,entry:bigint,"
        "sent_at:timestamp,stored_at:timestamp,identity:string,producer:string,node:string>"
    )
    assert frame.rdd.getNumPartitions() >= 3
    rows = {(row.shard, row.entry): row for row in frame.collect()}
    expected = {
        (message.shard, message.entry): message
        for shard in (0, 1)
        for batch in client.admin.browse(topic, shard=shard)
        for message in batch.messages()
    }
    assert rows.keys() == expected.keys() and len(rows) == 100
    for place, message in expected.items():
        row = rows[place]
        assert (row.value, row.key, row.id) == (message.value, message.key, message.id)
        assert (row.headers or {}) == message.headers and row.topic == message.topic
        assert row.identity == str(message.identity) and row.identity.startswith(row.producer)
        assert row.sent_at.astimezone(UTC) == message.sent_at and row.node == message.node
        assert row.stored_at.astimezone(UTC) == message.stored_at
    few = read(spark, shared_url, topic=topic, columns="entry,value", filter="value in ('7', '9') or id = 'i'")
    assert few.columns == ["value", "entry"] and {row.value for row in few.collect()} == {b"v", b"7", b"9"}


def test_a_topic_in_packed_files_becomes_the_same_rows(spark: SparkSession, tmp_path: Path) -> None:
    with RealNode(tmp_path, config=packed_topic.CONFIG) as node:
        packed_topic.fill_packed(node, "t")
        rows = read(spark, node.url, topic="t", minPartitions="3").collect()
        found = sorted(
            (row.entry, bytes(row.value), row.identity.partition("/")[2], row.producer) for row in rows
        )
        assert found == [
            (entry, packed_topic.value(entry), f"0/{entry}/0", packed_topic.PRODUCER)
            for entry in range(packed_topic.COUNT)
        ]
        with headpond.sync.connect(node.url) as client:
            stored = {
                each.entry: each.stored_at for batch in client.admin.browse("t") for each in batch.messages()
            }
        times = {row.entry: row.stored_at.astimezone(UTC) for row in rows}
        assert stored and stored.items() <= times.items()
        few = read(
            spark, node.url, topic="t", columns="entry,key", filter="entry >= 700 and entry < 703"
        ).collect()
        assert sorted((row.entry, bytes(row.key)) for row in few) == [(700, b"k0"), (701, b"k1"), (702, b"k2")]


def test_a_part_of_topics_is_read_by_entry_time_and_pattern(
    spark: SparkSession, client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    one, two = f"{topic}-1", f"{topic}-2"
    post(client, one, *range(10))
    wait_until(lambda: datetime.now(UTC) > client.admin.browse(one)[-1].messages()[-1].stored_at)
    between = datetime.now(UTC).isoformat()
    post(client, one, *range(10, 20))
    post(client, two, *range(20, 30))

    def found(**options: str) -> list[int]:
        return numbers(read(spark, shared_url, **options).collect())

    assert found(topic=one, start=between) == list(range(10, 20))
    assert found(topics=f"{one},{two}", end=between) == list(range(10))
    places = {
        "start": json.dumps({one: {"0": 5}, two: {"0": "latest"}}),
        "end": json.dumps({one: {"0": 7}, two: {"0": "latest"}}),
    }
    assert found(topics=f"{one},{two}", **places) == [5, 6]
    assert found(topicPattern=f"{topic}-.", start="8") == [*range(8, 20), 28, 29]
    assert found(topic=one, start="latest") == []


def test_a_typed_topic_becomes_a_struct_whatever_its_columns_are_called(
    spark: SparkSession, client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    columns = pa.schema(
        [
            ("id", pa.uint64()),
            ("key", pa.string()),
            ("at", pa.timestamp("ns", "UTC")),
            ("half", pa.float16()),
            ("tags", pa.map_(pa.string(), pa.list_(pa.int32()))),
            ("deep", pa.struct([("x", pa.uint16()), ("wide", pa.decimal256(50, 2))])),
            ("round", pa.decimal128(5, -2)),
            ("o_clock", pa.time64("us")),
        ]
    )
    client.admin.create_topic(topic, schema=columns)
    at = datetime(2026, 1, 31, 12, 0, 0, 7, tzinfo=UTC)
    row = {
        "id": 2**64 - 1,
        "key": "k",
        "at": at,
        "half": 0.5,
        "tags": {"t": [1, None]},
        "deep": {"x": 65535, "wide": 1},
        "round": 12_300,
        "o_clock": time(12, 0, 1, 7),
    }
    with client.producer(topic) as producer:
        producer.send(row, key=b"outer", id="outer")
        producer.send(dict.fromkeys(columns.names))
    frame = read(spark, shared_url, topic=topic)
    assert frame.select("value.*").columns == columns.names
    first, second = frame.orderBy("entry").collect()
    assert (first.id, first.key, first.value.key, int(first.value.id)) == ("outer", b"outer", "k", 2**64 - 1)
    assert first.value["at"].astimezone(UTC) == at and first.value.half == 0.5
    assert first.value.tags == {"t": [1, None]} and first.value.deep.asDict() == {"x": 65535, "wide": "1.00"}
    assert first.value["round"] == 12_300 and first.value.o_clock == time(12, 0, 1, 7)
    assert second.value is not None and set(second.value) == {None}
    assert frame.count() == 2  # of which Spark is capable only with spark.sql.timeType.enabled


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"topic": "nowhere-at-all"}, "there is no topic 'nowhere-at-all' [topic-not-found] Create it with"),
        ({"topicPattern": "nothing-like-it"}, "no topic matches 'nothing-like-it' [topic-not-found]"),
        (
            {"topic": "x", "startingOffsets": "latest"},
            "option 'startingoffsets' is unknown [bad-request] There are url",
        ),
    ],
)
def test_an_unreadable_source_is_an_error_with_a_hint(
    spark: SparkSession, shared_url: str, options: dict[str, str], words: str
) -> None:
    with pytest.raises(Exception) as refused:  # noqa: PT011  Spark has classes of its own
        read(spark, shared_url, **options)
    assert words in str(refused.value)


class Query:
    """A stream that collects its rows, with a checkpoint that outlives it."""

    def __init__(self, spark: SparkSession, url: str, folder: Path, **options: str) -> None:
        self._frame = spark.readStream.format("headpond").option("url", url).options(**options).load()
        self._folder = folder
        self.rows: list[Any] = []
        self.fail = False

    def _take(self, frame: DataFrame, number: int) -> None:
        if self.fail:
            raise RuntimeError("this batch is to fail")
        self.rows += frame.collect()

    def start(self, **trigger: Any) -> StreamingQuery:
        writer = self._frame.writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(self._folder))
        return (writer.trigger(**trigger) if trigger else writer).start()


def test_a_stream_continues_from_its_checkpoint_and_after_a_node_is_killed(
    spark: SparkSession, node: RealNode, tmp_path: Path, topic: str
) -> None:
    with headpond.sync.connect(node.url) as client:
        post(client, topic, *range(10))
        options = {"topic": topic, "start": "latest", "subscription": "spark", "minEntriesPerTrigger": "2"}
        query = Query(spark, node.url, tmp_path / "checkpoint", **options)
        query.fail = True
        failed = query.start()
        wait_until(lambda: client.admin.list_subscriptions(topic), 60)
        post(client, topic, *range(10, 20))
        with pytest.raises(Exception, match="to fail"):
            failed.awaitTermination(60)
        post(client, topic, *range(20, 30))
        query.fail = False
        ended = query.start(availableNow=True)  # the place of the start was kept, though no batch ended
        assert ended.awaitTermination(60)
        assert numbers(query.rows) == list(range(10, 30))
        going = query.start()
        try:
            post(client, topic, *range(30, 40))
            wait_until(lambda: len(query.rows) == 30, 60)
            node.kill()
            node.start()
            with headpond.sync.connect(node.url) as fresh:
                post(fresh, topic, *range(40, 50))
            wait_until(lambda: len(query.rows) >= 40 or not going.isActive, 60)
            assert numbers(query.rows) == list(range(10, 50))
            wait_until(lambda: client.admin.show_subscription(topic, "spark").unsettled == 0, 60)
            assert headpond.spark.lag(going) == {f"default/default/default/{topic}": 0}
            source = going.lastProgress["sources"][0]  # type: ignore[index]
            assert json.loads(source["latestOffset"])["backlog"] == headpond.spark.lag(going)
            client.admin.delete_topic(topic)
            with pytest.raises(Exception, match=r"was deleted while it was read.*\[topic-not-found\]"):
                going.awaitTermination(60)
        finally:
            going.stop()


def test_the_example_reads_a_table_and_a_stream(
    spark: SparkSession, shared_url: str, capfd: pytest.CaptureFixture[str]
) -> None:
    example = ROOT / "examples" / "spark_source.py"
    runpy.run_path(str(example))["main"](shared_url)
    said = capfd.readouterr().out
    assert "|page 0|  143|" in said and "batch 1 has 500 rows" in said
    assert said.splitlines()[-1].endswith("and 0 behind")
