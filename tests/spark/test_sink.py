"""The sink as Spark's tasks and driver use it, without Spark: stages, repeats and refusals."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

import headpond.sync
from headpond.model.errors import (
    BadRequest,
    BatchDiffers,
    HeadpondError,
    KeyMissing,
    SchemaMismatch,
    ValueMissing,
)
from headpond.node.bootstrap import bootstrap
from headpond.spark.sink import BatchSink, Staged, StreamSink, batch_writer, stream_writer
from headpond.spark.source.schema import arrow_schema, source_schema
from tests.fire.real_node import RealNode

PLAIN = pa.schema([("value", pa.string())])


def batches(first: int, count: int) -> Iterator[pa.RecordBatch]:
    for start in range(first, first + count, 50):
        values = [f"row {number}" for number in range(start, min(start + 50, first + count))]
        yield pa.record_batch({"value": values})


def stream_sink(url: str, columns: pa.Schema = PLAIN, **options: str) -> StreamSink:
    return stream_writer(from_arrow_schema(columns), {"url": url, "sinkId": "s", **options}, False)


def task(sink: StreamSink | BatchSink, rows: Iterator[pa.RecordBatch]) -> Staged:
    """Runs a task with a copy of the sink, and sends its message to the driver, as Spark does."""
    copy = pickle.loads(pickle.dumps(sink))
    message: Staged = pickle.loads(pickle.dumps(copy.write(rows)))
    return message


def as_query(query: str, message: Staged) -> Staged:
    return replace(message, query=query)


def values(url: str, topic: str) -> Counter[Any]:
    with headpond.sync.connect(url) as client:
        count = sum(shard.entry_next for shard in client.admin.show_topic(topic).shard_list)
        with client.consumer(topic, "audit") as consumer:
            found: Counter[Any] = Counter()
            while sum(found.values()) < count:
                message = consumer.receive(20)
                assert message is not None
                found[message.value if isinstance(message.value, bytes) else str(message.value)] += 1
    return found


def rows(count: int) -> Counter[bytes]:
    return Counter(f"row {number}".encode() for number in range(count))


def test_a_batch_that_comes_again_is_dropped_whatever_its_partitions(shared_url: str, topic: str) -> None:
    sink = stream_sink(shared_url, topic=topic)
    sink.commit([task(sink, batches(0, 120)), task(sink, batches(120, 80)), None], 0)
    again = stream_sink(shared_url, topic=topic)
    sink.commit([task(again, batches(0, 10)), task(again, batches(10, 190))], 0)
    sink.commit([task(again, batches(200, 0)), task(again, batches(200, 100))], 1)
    assert values(shared_url, topic) == rows(300)


def test_an_old_checkpoint_continues_with_the_same_rows_and_ends_its_query_with_others(
    shared_url: str, topic: str
) -> None:
    sink = stream_sink(shared_url, topic=topic)
    for number in (0, 1, 2, 2, 1, 2):
        sink.commit([task(sink, batches(10 * number, 10))], number)
    for rows_now in (batches(20, 11), batches(20, 9), batches(21, 10)):
        other = task(sink, rows_now)
        with pytest.raises(BatchDiffers, match="batch 2 of writer"):
            sink.commit([other], 2)
        sink.abort([other], 2)
    assert values(shared_url, topic) == rows(30)


def test_two_queries_under_one_name_do_not_lose_a_row_unseen(shared_url: str, topic: str) -> None:
    first, second = (stream_sink(shared_url, topic=topic) for _ in range(2))
    first.commit([as_query("first", task(first, batches(0, 10)))], 0)
    with pytest.raises(BatchDiffers, match=r"from second where batch 0 was from first.*\[batch-differs\] Is a"):
        second.commit([as_query("second", task(second, batches(10, 10)))], 0)
    first.commit([as_query("first", task(first, batches(10, 10)))], 1)
    assert values(shared_url, topic) == rows(20)


def test_a_query_whose_rows_differ_each_time_may_say_so(shared_url: str, topic: str) -> None:
    sink = stream_sink(shared_url, topic=topic, onRepeat="Drop")
    sink.commit([task(sink, batches(0, 10))], 0)
    for count in (10, 11):
        sink.commit([task(sink, batches(100, count))], 0)
    assert values(shared_url, topic) == rows(10)


def test_speculative_and_late_tasks_and_aborts_add_and_take_nothing(shared_url: str, topic: str) -> None:
    sink = stream_sink(shared_url, topic=topic)
    speculative = task(sink, batches(0, 100))
    chosen = task(sink, batches(0, 100))
    sink.commit([chosen], 0)
    sink.abort([chosen, speculative], 0)
    zombie = task(sink, batches(0, 100))
    sink.abort([zombie, None], 1)
    assert values(shared_url, topic) == rows(100)
    with headpond.sync.connect(shared_url) as client:
        assert client.admin.show_writer(f"default/default/default/{topic}/s").stages == 0


def test_a_task_that_fails_leaves_nothing_behind(shared_url: str, topic: str) -> None:
    def failing() -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"value": ["x" * 100_000] * 100})
        raise RuntimeError("the task died")

    sink = stream_sink(shared_url, topic=topic)
    with pytest.raises(RuntimeError):
        sink.write(failing())
    with pytest.raises(ValueMissing):
        sink.write(iter([pa.record_batch({"value": pa.array(["a", None])})]))
    sink.commit([task(sink, batches(0, 1))], 0)
    with headpond.sync.connect(shared_url) as client:
        assert client.admin.show_writer(f"default/default/default/{topic}/s").stages == 0
    assert values(shared_url, topic) == rows(1)


def test_a_column_says_which_topic_a_row_goes_to(shared_url: str, topic: str) -> None:
    columns = pa.schema(
        [("value", pa.binary()), ("topic", pa.string()), ("key", pa.string()), ("id", pa.string())]
    )
    left, right = f"{topic}-left", f"{topic}-right"
    batch = pa.record_batch(
        {
            "value": [b"1", b"2", b"3"],
            "topic": [left, right, left],
            "key": ["a", None, "b"],
            "id": ["i", "j", None],
        }
    )
    sink = stream_sink(shared_url, columns)
    sink.commit([task(sink, iter([batch]))], 0)
    assert (values(shared_url, left), values(shared_url, right)) == (Counter([b"1", b"3"]), Counter([b"2"]))
    overriding = stream_sink(shared_url, columns, topic=topic)
    overriding.commit([task(overriding, iter([batch]))], 0)
    assert values(shared_url, topic) == Counter([b"1", b"2", b"3"])
    with pytest.raises(SchemaMismatch, match="topic"):
        sink.write(iter([batch.set_column(1, "topic", pa.array([left, None, left]))]))
    spelled = batch.set_column(1, "topic", pa.array([right, f"default/default/default/{right}", right]))
    (stage,) = task(sink, iter([spelled])).stages
    assert stage.rows == 3, "one stage: the rows keep their order"


def test_a_column_says_which_shard_a_row_goes_to(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client:
        client.admin.create_topic(topic, 4)
    columns = pa.schema([("value", pa.string()), ("shard", pa.int32())])
    sink = stream_sink(shared_url, columns, topic=topic)
    chosen = [3, 0, None, 3, None, 1]
    batch = pa.record_batch({"value": [f"{shard}" for shard in chosen], "shard": pa.array(chosen, pa.int32())})
    sink.commit([task(sink, iter([batch]))], 0)
    with headpond.sync.connect(shared_url) as client, client.consumer(topic, "s") as consumer:
        found = [consumer.receive(20) for _ in chosen]
    at = {(message.value, message.shard) for message in found if message is not None}
    assert {(b"3", 3), (b"0", 0), (b"1", 1)} <= at and len(
        {shard for value, shard in at if value == b"None"}
    ) == 1
    with pytest.raises(SchemaMismatch, match="shard 4; the topic has shards 0 to 3"):
        sink.write(iter([pa.record_batch({"value": ["a"], "shard": pa.array([4], pa.int32())})]))
    with pytest.raises(SchemaMismatch, match="whole number"):
        stream_sink(shared_url, pa.schema([("value", pa.string()), ("shard", pa.string())]), topic=topic)


def test_a_null_value_deletes_a_key_of_a_state_topic_and_is_refused_elsewhere(
    shared_url: str, topic: str
) -> None:
    with headpond.sync.connect(shared_url) as client:
        client.admin.create_topic(topic, state=True)
    columns = pa.schema([("value", pa.string()), ("key", pa.string())])
    sink = stream_sink(shared_url, columns, topic=topic)
    first = pa.record_batch({"value": ["1", "2", None], "key": ["a", "b", "c"]})
    second = pa.record_batch({"value": pa.array([None, "3"]), "key": ["a", "c"]})
    for number, batch in enumerate((first, second)):
        sink.commit([task(sink, iter([batch]))], number)
    with headpond.sync.connect(shared_url) as client, client.consumer(topic, "s", start="state") as consumer:
        assert {(m.key, m.value) for m in (consumer.receive(20) for _ in range(2)) if m is not None} == {
            (b"b", b"2"),
            (b"c", b"3"),
        }
    with pytest.raises(KeyMissing):
        sink.write(iter([pa.record_batch({"value": ["1"], "key": pa.array([None], pa.string())})]))
    with pytest.raises(KeyMissing):
        stream_sink(shared_url, PLAIN, topic=topic)
    with pytest.raises(ValueMissing):
        task(stream_sink(shared_url, columns, topic=f"{topic}-plain"), iter([first]))


def test_a_typed_topic_takes_its_columns_or_a_struct_of_them(shared_url: str, topic: str) -> None:
    schema = pa.schema(
        [pa.field("name", pa.string(), nullable=False), ("topic", pa.int64()), ("value", pa.int64())]
    )
    with headpond.sync.connect(shared_url) as client:
        client.admin.create_topic(topic, schema=schema)
    flat = pa.record_batch({"name": ["a", "b"], "topic": [1, 2], "value": [None, 3]}, schema)
    sink = stream_sink(shared_url, flat.schema, topic=topic)
    sink.commit([task(sink, iter([flat]))], 0)
    struct = pa.record_batch({"value": pa.array([{"name": "c", "topic": 3}]), "key": ["k"]})
    sink = stream_sink(shared_url, struct.schema, topic=topic)
    sink.commit([task(sink, iter([struct]))], 1)
    assert values(shared_url, topic) == Counter(
        str({"name": name, "topic": number, "value": value})
        for name, number, value in (("a", 1, None), ("b", 2, 3), ("c", 3, None))
    )
    with pytest.raises(SchemaMismatch):
        stream_sink(shared_url, pa.schema([("other", pa.string())]), topic=topic)
    with pytest.raises(SchemaMismatch):
        sink.write(iter([pa.record_batch({"name": pa.array([None], pa.string()), "topic": [1]})]))


def test_a_typed_topic_takes_the_types_that_spark_shows_for_its_own(shared_url: str, topic: str) -> None:
    own = pa.schema(
        [
            ("wide", pa.uint64()),
            ("deep", pa.struct([("bytes", pa.list_(pa.uint8())), ("at", pa.time32("s"))])),
            ("long", pa.decimal256(50, 2)),
            ("fixed", pa.binary(2)),
        ]
    )
    with headpond.sync.connect(shared_url) as client:
        client.admin.create_topic(topic, schema=own)
    shown = arrow_schema(source_schema(["value"], own)).field("value").type
    row = {"wide": 2**64 - 1, "deep": {"bytes": [255], "at": time(1, 2, 3)}, "long": "1.50", "fixed": b"ab"}
    nested = pa.record_batch({"value": pa.array([row, dict.fromkeys(row)], shown)})
    flat = pa.RecordBatch.from_struct_array(nested.column("value"))
    sink = stream_sink(shared_url, nested.schema, topic=topic)
    sink.commit([task(sink, iter([nested]))], 0)
    sink = stream_sink(shared_url, flat.schema, topic=topic)
    sink.commit([task(sink, iter([flat]))], 1)
    written = {**row, "long": Decimal("1.50")}
    assert values(shared_url, topic) == {str(written): 2, str(dict.fromkeys(row)): 2}
    for wrong in ({"wide": -1}, {"deep": {"bytes": [256], "at": None}}, {"fixed": b"abc"}, {"long": "1.234"}):
        with pytest.raises(SchemaMismatch):
            sink.write(iter([pa.RecordBatch.from_struct_array(pa.array([row | wrong], shown))]))


@pytest.mark.parametrize(
    ("columns", "options", "word"),
    [
        ([("value", pa.string())], {}, "no topic is given"),
        ([("value", pa.string()), ("topic", pa.int64())], {}, "no topic is given"),
        ([("value", pa.int64())], {"topic": "t"}, "value"),
        ([("key", pa.string())], {"topic": "t"}, "value"),
        ([("value", pa.string()), ("colour", pa.string())], {"topic": "t"}, "colour"),
        ([("value", pa.string()), ("id", pa.int64())], {"topic": "t"}, "id"),
        ([("value", pa.string())], {"topic": "t", "topics": "u"}, "topics"),
        ([("value", pa.string())], {"topic": "a b"}, "a b"),
        ([("value", pa.string())], {"topic": "t", "path": "u"}, "a topic has no path"),
        ([("value", pa.string())], {"topic": "t", "batch": "1"}, "batch"),
        ([("value", pa.string())], {"topic": "t", "timeout": "soon"}, "timeout"),
        ([("value", pa.string())], {"topic": "t", "onRepeat": "ask"}, "none of compare, drop"),
        ([("value", pa.string())], {"topic": "t", "url": "http://x"}, "http"),
        ([("value", pa.string())], {"topic": "t", "sinkId": " "}, "sinkId"),
    ],
)
def test_faults_in_columns_and_options_are_reported_before_the_first_task(
    shared_url: str, columns: Sequence[tuple[str, pa.DataType]], options: dict[str, str], word: str
) -> None:
    with pytest.raises(HeadpondError, match=word):
        stream_sink(**{"url": shared_url, **options}, columns=pa.schema(columns))


def test_a_topic_is_not_overwritten_and_a_repeatable_job_names_its_batch(shared_url: str) -> None:
    schema = from_arrow_schema(PLAIN)
    for options, overwrite in (({}, True), ({"sinkId": "s"}, False), ({"batch": "1"}, False)):
        with pytest.raises(BadRequest):
            batch_writer(schema, {"url": shared_url, "topic": "t", **options}, overwrite)


def test_a_batch_job_is_committed_once_under_its_own_name(shared_url: str, topic: str) -> None:
    schema = from_arrow_schema(PLAIN)
    for _ in range(2):
        sink = batch_writer(schema, {"url": shared_url, "topic": topic, "sinkId": topic, "batch": "4"}, False)
        sink.commit([task(sink, batches(0, 60))])
    plain = batch_writer(schema, {"url": shared_url, "topic": topic}, False)
    plain.commit([task(plain, batches(60, 40))])
    gone = batch_writer(schema, {"url": shared_url, "topic": topic}, False)
    gone.abort([task(gone, batches(0, 40))])
    assert values(shared_url, topic) == rows(100)
    with headpond.sync.connect(shared_url) as client:
        mine = [info for info in client.admin.list_writers() if topic in info.writer]
        assert [(info.writer, info.batch, info.stages) for info in mine] == [
            (f"default/default/default/{topic}/{topic}", 4, 0)
        ]


def test_a_node_that_restarts_meanwhile_is_waited_for(node: RealNode) -> None:
    def slow() -> Iterator[pa.RecordBatch]:
        yield from batches(0, 50)
        node.kill()
        node.start()
        yield from batches(50, 50)

    sink = stream_sink(node.url, topic="t")
    message = task(sink, batches(100, 20))
    staged = sink.write(slow())
    node.kill()
    node.start()
    sink.commit([message, staged], 0)
    assert values(node.url, "t") == rows(120)


def test_a_stream_waits_for_its_node_for_as_long_as_the_option_timeout_says(
    shared_url: str, topic: str, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = stream_sink(shared_url, topic=topic, timeout="7")
    stream_sink(shared_url, topic=topic)
    batch_writer(from_arrow_schema(PLAIN), {"url": shared_url, "topic": topic}, False)
    assert waits == [7.0, 120.0, 0.0], "a job that is only being planned says at once that there is no node"
    waits.clear()
    writer = headpond.sync.Client.writer

    def made(client: headpond.sync.Client, name: str, *, timeout: float) -> headpond.sync.Writer:
        waits.append(timeout)
        return writer(client, name, timeout=timeout)

    monkeypatch.setattr(headpond.sync.Client, "writer", made)
    sink.commit([task(sink, batches(0, 1))], 0)
    assert waits == [7.0, 7.0], "a task, and the commit"


def test_a_token_that_may_only_produce_writes_a_batch_once_and_without_an_error(tmp_path: Path) -> None:
    node = RealNode(tmp_path / "node")
    _, admin = bootstrap(node.data, "admin")
    with node, headpond.sync.connect(node.url, admin) as client:
        client.admin.create_topic("acme/shop/till/orders")
        token = client.admin.create_token("t", rights=["produce"], scopes=["acme/shop"]).secret
        options = {"url": node.url, "token": token, "topic": "acme/shop/till/orders"}
        sink = batch_writer(from_arrow_schema(PLAIN), options, False)
        sink.commit([task(sink, batches(0, 100))])
        (shard,) = client.admin.show_topic("acme/shop/till/orders").shard_list
        assert shard.entry_next == 100
