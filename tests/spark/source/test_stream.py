"""A stream's offsets and ranges, requested as Spark does, against a real node without Spark."""

from __future__ import annotations

import json
import pickle
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
)

import headpond.sync
from headpond.model.bounds import ENTRY_MAX
from headpond.model.errors import (
    BadRequest,
    EntriesMissing,
    HeadpondError,
    IncarnationChanged,
    NotAllowed,
    SchemaChanged,
    SchemaMismatch,
    SubscriptionNotFound,
    TimedOut,
    TopicMismatch,
    TopicNotFound,
    Unavailable,
)
from headpond.spark.connection import NodeConnection
from headpond.spark.source.batch import batch_reader, schema
from headpond.spark.source.offset import read_offset
from headpond.spark.source.plan import ReadTask, Span
from headpond.spark.source.stream import StreamReader
from tests.fire.real_node import RealNode, wait_until
from tests.spark.source.test_batch import post

Json = dict[str, Any]


class Stream:
    """Goes from batch to batch as Spark does."""

    def __init__(self, url: str, offset: Json | None = None, **options: str) -> None:
        given = {"url": url, **options}
        self.reader = StreamReader(schema(given), given)
        self.offset: Json = {} if offset is None else offset

    def next(self, limit: ReadLimit | None = None) -> list[Json]:
        """The rows of the next batch."""
        end = self.reader.latestOffset(self.offset, limit or self.reader.getDefaultReadLimit())
        rows = self.between(self.offset, end)
        self.offset = end
        return rows

    def between(self, start: Json, end: Json) -> list[Json]:
        partitions = [] if start == end else self.reader.partitions(start, end)
        task: Any = pickle.loads(pickle.dumps(self.reader))
        return [row for part in partitions for batch in task.read(part) for row in batch.to_pylist()]


@contextmanager
def stream(url: str, offset: Json | None = None, **options: str) -> Iterator[Stream]:
    made = Stream(url, offset, **options)
    try:
        if offset is None:
            made.offset = made.reader.initialOffset()
        yield made
    finally:
        made.reader.stop()


def places(offset: Json) -> dict[str, list[int]]:
    return {topic: each["entries"] for topic, each in offset["topics"].items()}


def numbers(rows: list[Json]) -> list[int]:
    return sorted(int(row["value"]) for row in rows)


def test_each_entry_comes_once_whatever_the_limit(
    client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    client.admin.create_topic(topic, shards=2)
    post(client, topic, *range(50))
    with stream(shared_url, topic=topic, maxEntriesPerTrigger="20", minPartitions="4") as read:
        assert read.reader.getDefaultReadLimit() == ReadMaxRows(20)
        begin = read.offset
        batches = [read.next() for _ in range(3)]
        assert [len(batch) for batch in batches] == [20, 20, 10]
        assert numbers([row for batch in batches for row in batch]) == list(range(50))
        assert read.next() == []
        assert len(read.reader.partitions(begin, read.offset)) == 4
        again = read.between(begin, read.offset)  # the same offsets bring the same rows, however cut
        assert [(row["shard"], row["entry"]) for row in again] == sorted(
            (row["shard"], row["entry"]) for row in again
        )
        assert numbers(again) == list(range(50))
        post(client, topic, *range(50, 90))
        assert numbers(read.next(ReadAllAvailable())) == list(range(50, 90))
        post(client, topic, *range(90, 100))
        assert 0 < len(read.next(ReadMaxBytes(1))) < 10
        latest = read.reader.reportLatestOffset()
        assert latest is not None and sum(next(iter(latest["topics"].values()))["entries"]) == 100


@pytest.fixture
def questions(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, float]]:
    """The requests of an idle stream to its node: (known, wait)."""
    asked: list[tuple[Any, float]] = []
    ends = headpond.sync.admin.Admin.ends

    def ask(admin: Any, topics: Any, known: Any = None, *, wait: float = 0.0, subscription: str) -> Any:
        asked.append((known, wait))
        return ends(admin, topics, known)

    monkeypatch.setattr(headpond.sync.admin.Admin, "ends", ask)
    monkeypatch.setattr("headpond.spark.source.offset.IDLE_SHARE", 1e9)
    return asked


def test_an_idle_source_answers_at_once_after_a_batch_of_its_query_and_waits_while_that_is_idle(
    client: headpond.sync.Client,
    shared_url: str,
    topic: str,
    questions: list[tuple[Any, float]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headpond.spark.source.offset.IDLE_WAIT_S_MAX", 30.0)
    client.admin.create_topic(topic)
    with stream(shared_url, topic=topic) as read:
        read.next()
        read.next()
        assert questions[-1][1] > 0.0
        read.reader.commit(read.offset)
        questions.clear()
        read.next()
        assert {wait for _, wait in questions} == {0.0}


def test_an_idle_source_is_not_woken_by_shards_that_it_does_not_read(
    client: headpond.sync.Client, shared_url: str, topic: str, questions: list[tuple[Any, float]]
) -> None:
    client.admin.create_topic(topic, shards=2)
    with stream(shared_url, assign=json.dumps({topic: [1]})) as read:
        read.next()
        read.next()
    assert questions[-1][0] == [[ENTRY_MAX, 0]]


def test_tasks_reach_the_node_of_the_driver(
    client: headpond.sync.Client, shared_url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(client, topic, 1)
    monkeypatch.setenv("HEADPOND_URL", shared_url)
    reader = StreamReader(schema({"topic": topic}), {"topic": topic})
    start = reader.initialOffset()
    (part,) = reader.partitions(start, reader.latestOffset(start, ReadAllAvailable()))
    sent = pickle.dumps((reader, part))
    reader.stop()
    monkeypatch.setenv("HEADPOND_URL", "headpond://127.0.0.1:1")  # as on another machine
    task, part = pickle.loads(sent)
    assert [batch.num_rows for batch in task.read(part)] == [1]


def test_available_now_reads_the_messages_stored_when_it_began(
    client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    post(client, topic, *range(10))
    with stream(shared_url, topicPattern=f"{topic}(-new)?", maxEntriesPerTrigger="6") as read:
        read.reader.prepareForTriggerAvailableNow()
        post(client, topic, *range(10, 20))
        post(client, f"{topic}-new", 99)
        assert numbers(read.next() + read.next()) == list(range(10))
        before = read.offset
        assert read.next() == [] and read.offset == before


def test_ranges_of_several_topics_that_share_a_task_come_as_if_each_had_its_own(
    client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    kinds = {f"{topic}-a": pa.int64(), f"{topic}-b": pa.uint32(), f"{topic}-c": pa.int64()}  # one to Spark
    for name, kind in kinds.items():
        client.admin.create_topic(name, 2, schema=pa.schema([("n", kind)]))
        with client.producer(name) as producer:
            for number in range(10):
                producer.post({"n": number}, key=b"%d" % number)

    names = ",".join(kinds)
    with (
        stream(shared_url, topics=names, onGap="report") as read,
        stream(shared_url, topics=names, onGap="report", taskPerShard="true") as apart,
    ):
        begin, rows = read.offset, read.next()
        assert rows == apart.next()
        places = [(row["topic"], row["shard"], row["entry"]) for row in rows]
        assert len(places) == 30 and places == sorted(places)
        assert sorted(row["value"]["n"] for row in rows) == sorted([*range(10)] * 3)
        assert len(read.reader.partitions(begin, read.offset)) == 1
        assert len(apart.reader.partitions(begin, read.offset)) == 6
        client.admin.delete_topic(f"{topic}-b")  # the one in the middle, and the batch is tried again
        again = read.between(begin, read.offset)
        assert again == apart.between(begin, read.offset)
        assert [(row["shard"], row["entry"], row["value"]) for row in again if row["topic"].endswith("-b")] == [
            (0, 0, None),
            (1, 0, None),
        ]
        assert [row for row in again if row["value"]] == [row for row in rows if row["topic"][-1] != "b"]


def test_topics_that_a_pattern_finds_later_are_read_from_their_first_entry(
    client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    post(client, f"{topic}-a", 1)
    with stream(shared_url, topicPattern=f"{topic}-.*", start="latest", subscription="s") as read:
        assert read.next() == []
        post(client, f"{topic}-b", 2, 3)
        post(client, f"{topic}-a", 4)
        found = read.next()
        assert numbers(found) == [2, 3, 4]
        assert {row["topic"].rpartition("/")[2] for row in found} == {f"{topic}-a", f"{topic}-b"}
        assert client.admin.show_subscription(f"{topic}-b", "s").unsettled == 2
        assert read.next() == [] and client.admin.show_subscription(f"{topic}-b", "s").unsettled == 0


def test_a_topic_with_other_columns_that_a_pattern_finds_later_is_skipped_and_reported(
    client: headpond.sync.Client, shared_url: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    plain, other = f"{topic}-a", f"{topic}-0"  # in order of their names the skipped one comes first
    pattern = f"{topic}-.*"
    post(client, plain, 1)
    with stream(shared_url, topicPattern=pattern) as read:
        assert numbers(read.next()) == [1]
        client.admin.create_topic(other, schema=pa.schema([("n", pa.int64())]))
        post(client, plain, 2)
        assert numbers(read.next()) == [2] and read.next() == read.next() == []
        latest = read.reader.reportLatestOffset()
        assert latest is not None and latest["skipped"] == [f"default/default/default/{other}"]
        offset = read.offset
    assert caplog.text.count(f"topic {other} matches the pattern and is skipped: it has (n: int64)") == 1
    post(client, plain, 3)
    with stream(shared_url, offset, topicPattern=pattern) as read:  # started again from its checkpoint
        assert numbers(read.next()) == [3]
        client.admin.delete_topic(other)
        read.next()
        latest = read.reader.reportLatestOffset()
        assert latest is not None and "skipped" not in latest
        post(client, other, 4)
        assert numbers(read.next()) == [4]  # it has the columns now
        offset = read.offset
        client.admin.delete_topic(other)
        client.admin.create_topic(other, schema=pa.schema([("n", pa.int64())]))
        with pytest.raises(TopicNotFound, match=f"topic {other} was deleted while it was read"):
            read.next()
    with stream(shared_url, offset, topicPattern=pattern, onGap="report") as read:
        assert read.next() == read.next() == [] and read.offset == offset
        post(client, plain, 5)
        assert numbers(read.next()) == [5]
    with (  # nothing is skipped at the first start
        pytest.raises(SchemaMismatch, match=f"topics {other} and {plain} differ: .* against no schema"),
        stream(shared_url, topicPattern=pattern),
    ):
        pass


@pytest.mark.parametrize("ends", [False, True])
def test_a_topic_that_a_pattern_found_later_and_that_was_deleted_brings_nothing(
    client: headpond.sync.Client, shared_url: str, topic: str, ends: bool
) -> None:
    post(client, f"{topic}-a", 1)
    with stream(shared_url, topicPattern=f"{topic}-.*", onGap="report") as read:
        assert numbers(read.next()) == [1]
        post(client, f"{topic}-b", 2, 3)
        assert numbers(read.next()) == [2, 3]
        client.admin.delete_topic(f"{topic}-b")
        offset = read.offset
        if ends:
            read.reader.prepareForTriggerAvailableNow()
        assert read.next() == [] and read.offset == offset
        post(client, f"{topic}-a", 4)
        assert numbers(read.next()) == ([] if ends else [4])
        offset = read.offset
        post(client, f"{topic}-b", 5)  # created again, which the next run of the query reports
        rows = read.next()
        assert [row["value"] for row in rows] == ([] if ends else [None, b"5"])
        assert (read.offset == offset) is ends


def test_a_subscription_keeps_where_a_stream_from_latest_began(
    client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    post(client, topic, 1, 2)
    with stream(shared_url, topic=topic, start="latest", subscription="kept") as read:
        first = read.offset
    post(client, topic, 3)  # while the query is away, before it had a batch
    with stream(shared_url, topic=topic, start="latest", subscription="kept") as read:
        assert places(read.offset) == places(first)
        assert numbers(read.next()) == [3]
        assert client.admin.show_subscription(topic, "kept").unsettled == 1
        read.next()  # a request for more means that the batch before is complete
        assert client.admin.show_subscription(topic, "kept").unsettled == 0
        checkpoint = read.offset
    client.admin.delete_subscription(topic, "kept")
    post(client, topic, 4)
    with stream(shared_url, checkpoint, topic=topic, start="latest", subscription="kept") as read:
        assert numbers(read.next()) == [4]
        assert client.admin.show_subscription(topic, "kept").unsettled == 1


def test_a_query_says_where_it_starts_if_its_subscription_exists(
    client: headpond.sync.Client, shared_url: str, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    post(client, topic, *range(10))
    client.admin.create_subscription(topic, "s", start=4)
    with stream(shared_url, topic=topic, subscription="s", start="7") as read:
        assert read.reader.initialOffset() == read.offset  # Spark asks until the first batch has ended
        assert numbers(read.next()) == list(range(4, 10))
    warning = f"topic {topic} is read from entries [4], where subscription s stands; start would be [7]"
    assert caplog.messages == [warning]
    with stream(shared_url, read.offset, topic=topic, subscription="s", start="7") as read:
        read.next()  # a checkpoint names the position, without a log line
    with stream(shared_url, topic=topic, subscription="new", start="7"):
        pass
    assert caplog.messages == [warning]


def test_a_start_time_behind_the_last_entry_is_the_end_or_an_error(
    client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    client.admin.create_topic(topic, shards=2)
    with client.producer(topic) as producer:
        producer.send(b"1", key=b"k")
    now = datetime.now(UTC) + timedelta(milliseconds=1)
    wait_until(lambda: datetime.now(UTC) > now)
    start = f"{int(now.timestamp() * 1000)}ms"
    with stream(shared_url, topic=topic, start=start) as read:
        assert sorted(*places(read.offset).values()) == [0, 1]
        post(client, topic, 2)
        assert numbers(read.next()) == [2]
    with (
        pytest.raises(BadRequest, match=rf"nothing was stored in shard . of topic {topic} at 20.* or later"),
        stream(shared_url, topic=topic, start=start, startBeyondEnd="error"),
    ):
        pass


def test_shards_that_are_not_assigned_are_left_alone_until_they_are(
    client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    client.admin.create_topic(topic, shards=2)
    keys: dict[int, bytes] = {}
    with client.producer(topic) as producer:
        for number in range(20):
            keys[producer.send(b"%d" % number, key=b"%d" % number).shard] = b"%d" % number
        one, both = (json.dumps({topic: shards}) for shards in ([1], [0, 1]))
        with stream(shared_url, assign=one, start='{"1": 2}', subscription="s") as read:
            begin = read.offset
            rows = read.next()
            assert {row["shard"] for row in rows} == {1} and rows[0]["entry"] == 2
            offset = read.offset
            producer.send(b"20", key=keys[0])  # of the other shard
            assert read.next() == [] and read.offset == offset
            latest = read.reader.reportLatestOffset()
            assert latest is not None and set(latest["backlog"].values()) == {0}
            positions = client.admin.show_subscription(topic, "s").positions
            assert positions[0] == 0 and positions[1] == places(offset)[f"default/default/default/{topic}"][1]
        with stream(shared_url, offset, assign=both) as read:
            rows = read.next()
            assert {row["shard"] for row in rows} == {0}
            assert [row["entry"] for row in rows] == list(range(len(rows))) and rows[-1]["value"] == b"20"
            again = read.between(begin, read.offset)
            assert len(again) == 19
    assert len(batch(shared_url, assign=one)) + len(batch(shared_url, assign=json.dumps({topic: [0]}))) == 21
    beyond, words = json.dumps({topic: [1, 2]}), r"assign names shards \[2\] of topic .*; it has 0 to 1"
    with pytest.raises(BadRequest, match=words):
        batch(shared_url, assign=beyond)
    with stream(shared_url, offset, assign=beyond) as read, pytest.raises(BadRequest, match=words):
        read.next()


def batch(url: str, **options: str) -> list[Json]:
    """The rows of a DataFrame that is not a stream."""
    given = {"url": url, **options}
    reader = batch_reader(schema(given), given)
    tables: Any = [each for part in reader.partitions() for each in reader.read(part)]
    return [row for each in tables for row in each.to_pylist()]


def test_a_batch_waits_for_enough_entries_unless_the_query_is_to_end(
    client: headpond.sync.Client, shared_url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    post(client, topic, 0, 1)
    options = {"topic": topic, "minEntriesPerTrigger": "5"}
    with stream(shared_url, None, **options) as read:
        assert read.reader.getDefaultReadLimit() == ReadMinRows(5)
        begin = read.offset
        assert read.next() == read.next() == [] and read.offset == begin
        latest = read.reader.reportLatestOffset()
        assert latest is not None and list(latest["backlog"].values()) == [2]
        post(client, topic, 2, 3, 4)
        assert numbers(read.next()) == [0, 1, 2, 3, 4]
        post(client, topic, 5)
        assert read.next() == []
        assert numbers(read.next(ReadAllAvailable())) == [5]  # as with Trigger.Once
        post(client, topic, 6)
        assert read.next() == []
        read.reader.prepareForTriggerAvailableNow()
        assert numbers(read.next()) == [6]
    with stream(shared_url, None, **options, maxTriggerDelay="0") as read:
        read.offset = begin
        post(client, topic, 7)
        assert numbers(read.next()) == list(range(8))


@pytest.fixture(scope="module")
def short_lived(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Json, int, int]]:
    """A topic whose first entries retention deleted: url, an earlier offset, the kept rows, and the end."""
    with RealNode(tmp_path_factory.mktemp("short") / "node") as node, headpond.sync.connect(node.url) as client:
        client.admin.create_topic("short", settings={"hard_ttl": 1.0})
        with stream(node.url, topic="short") as read:
            offset = read.offset
        post(client, "short", *range(10))

        def shard() -> Any:
            return client.admin.show_topic("short").shard_list[0]

        def deleted() -> bool:
            post(client, "short", 7)
            return int(shard().entry_first) > 0

        wait_until(deleted)
        client.admin.unset_topic("short", "hard_ttl")
        yield node.url, offset, shard().entry_first, shard().entry_next


def test_entries_deleted_by_retention_fail_a_stream_unless_on_gap_allows_them(
    short_lived: tuple[str, Json, int, int],
) -> None:
    url, offset, kept, end = short_lived
    message = rf"entries 0 to {kept - 1} are missing: retention \[entries-missing\]"
    with stream(url, offset, topic="short") as read, pytest.raises(EntriesMissing, match=message):
        read.next()
    with stream(url, offset, topic="short", onGap="skip") as read:
        assert [row["entry"] for row in read.next()] == list(range(kept, end))
    with stream(url, offset, topic="short", onGap="report") as read:
        gap, *rows = read.next()
        assert [row["entry"] for row in rows] == list(range(kept, end))
    assert (gap["entry"], gap["value"], gap["identity"], gap["shard"]) == (0, None, None, 0)
    assert dict(gap["headers"]) == {"gap.reason": "retention", "gap.end": str(kept)}
    with stream(url, offset, topic="short", onGap="report", maxEntriesPerTrigger="1") as read:
        gap, row = read.next()  # what is gone takes nothing of a limit
        assert (dict(gap["headers"])["gap.end"], row["entry"]) == (str(kept), kept)


def test_a_deleted_or_recreated_topic_is_never_read_as_the_same(
    client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    post(client, topic, 1, 2, 3)
    with (
        stream(shared_url, topic=topic) as strict,
        stream(shared_url, topic=topic, onGap="skip") as loose,
        stream(shared_url, topic=topic, onGap="report") as reporting,
    ):
        begin = reporting.offset
        assert numbers(strict.next()) == numbers(loose.next()) == numbers(reporting.next()) == [1, 2, 3]
        middle = reporting.offset
        client.admin.delete_topic(topic)
        with pytest.raises(TopicNotFound, match=r"deleted while it was read; it was read up to \[3\]"):
            strict.next()
        assert loose.next() == loose.next() == reporting.next() == []
        post(client, topic, *range(10, 16))
        with pytest.raises(TopicMismatch, match="created again"):
            strict.next()
        assert numbers(loose.next()) == list(range(10, 16))
        gap, *rows = reporting.next()
        assert numbers(rows) == list(range(10, 16)) and gap["entry"] == 3
        assert dict(gap["headers"])["gap.reason"] == "recreated"
        (lost,) = reporting.between(begin, middle)  # a batch of the old topic that is tried again
        assert dict(lost["headers"]) == {"gap.reason": "topic-mismatch", "gap.end": "3"}
        with pytest.raises(TopicMismatch):
            strict.between(begin, middle)


@pytest.fixture(scope="module")
def restored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Json, Json, Json]]:
    """A topic of which an old copy was restored, and grew further than before.

    It had 30 entries, the copy had ten, and 40 came since. Returns the offsets at entries 0, 20 and 30.
    """
    with RealNode(tmp_path_factory.mktemp("restored") / "node") as node:
        with headpond.sync.connect(node.url) as client:
            post(client, "orders", *range(10))
        node.stop()
        shutil.copytree(node.data, node.data.with_name("copy"))
        node.start()
        with stream(node.url, topic="orders") as read:
            offsets = [read.offset]
            for first in (10, 20):
                with headpond.sync.connect(node.url) as client:
                    post(client, "orders", *range(first, first + 10))
                read.next()
                offsets.append(read.offset)
        node.kill()
        shutil.rmtree(node.data)
        node.data.with_name("copy").rename(node.data)
        node.start()
        with headpond.sync.connect(node.url) as client:
            post(client, "orders", *range(100, 140))
        begin, middle, end = offsets
        yield node.url, begin, middle, end


def test_an_old_copy_is_recognised_however_far_it_has_grown(restored: tuple[str, Json, Json, Json]) -> None:
    url, begin, middle, end = restored
    message = r"an old copy of topic orders was restored: it was read up to \[30\], and continues at \[10\]"
    with stream(url, end, topic="orders") as read, pytest.raises(IncarnationChanged, match=message):
        read.next()
    with stream(url, topic="orders") as read, pytest.raises(IncarnationChanged, match=message):
        read.between(middle, end)  # a batch that is tried again
    with stream(url, end, topic="orders", onGap="skip", subscription="late") as read:
        assert numbers(read.next()) == list(range(100, 140)) and read.next() == []
        assert lag(url, "late") == 0
    with stream(url, end, topic="orders", onGap="report", maxEntriesPerTrigger="15") as read:
        gap, *rows = read.next()
        assert (gap["entry"], dict(gap["headers"])) == (30, {"gap.reason": "incarnation", "gap.end": "30"})
        assert numbers(rows) == list(range(100, 115))
        assert numbers(read.next() + read.next()) == list(range(115, 140)) and read.next() == []
    with stream(url, end, topic="orders", onGap="report", minEntriesPerTrigger="1000") as read:
        assert len(read.next()) == 1 + 40  # the gap and all behind it wait for nothing
    with stream(url, topic="orders", onGap="report") as read:
        (lost,) = read.between(middle, end)
        assert (lost["entry"], dict(lost["headers"])["gap.end"]) == (20, "30")
        gap, *rows = read.between(begin, end)
        assert numbers(rows) == list(range(10)) and (gap["entry"], dict(gap["headers"])["gap.end"]) == (
            10,
            "30",
        )


def test_an_offset_of_before_settles_and_reads_nothing_of_an_old_copy(
    restored: tuple[str, Json, Json, Json],
) -> None:
    url, _, _, end = restored
    (offset,) = read_offset(end).items()
    name, place = offset
    with headpond.sync.connect(url) as client:
        client.admin.create_subscription("orders", "kept")
        for subscription in ("kept", "never-made"):
            with stream(url, end, topic="orders", subscription=subscription) as read:
                read.reader.commit(end)
        assert lag(url, "kept") == 50
        with pytest.raises(SubscriptionNotFound):
            client.admin.show_subscription("orders", "never-made")
    # A task that was planned before.
    span = Span(name, place.uuid, None, 0, place.incarnations[0], 20, place.entries[0])
    with stream(url, end, topic="orders") as read, pytest.raises(IncarnationChanged):
        list(read.reader.read(ReadTask((span,))))


def test_a_topic_of_many_shards_is_known_again_without_a_search_through_all_for_each(
    client: headpond.sync.Client, shared_url: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.admin.create_topic(topic, shards=16)
    with client.producer(topic) as producer, stream(shared_url, topic=topic) as read:
        for number in range(32):
            producer.send(b"%d" % number, key=b"%d" % number)
        read.next()
        for number in range(32, 64):
            producer.send(b"%d" % number, key=b"%d" % number)
    with stream(shared_url, read.offset, topic=topic) as again:
        monkeypatch.setattr(headpond.sync.Reader, "entries_at", lambda *_: pytest.fail("a search"))
        assert numbers(again.next()) == list(range(32, 64))


def test_a_compacted_topic_is_not_taken_for_an_old_copy(
    client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    client.admin.create_topic(topic, state=True)
    with client.producer(topic) as producer:
        for number in range(10):
            producer.send(b"%d" % number, key=b"k")
        with stream(shared_url, topic=topic) as read:
            read.next()
            offset = read.offset
        for number in range(10, 30):
            producer.send(b"%d" % number, key=b"k")
    client.admin.compact_topic(topic)
    with stream(shared_url, offset, topic=topic) as read:
        assert numbers(read.next()) == [29]


def lag(url: str, subscription: str) -> int:
    with headpond.sync.connect(url) as client:
        return client.admin.show_subscription("orders", subscription).unsettled


def test_a_new_schema_stops_a_stream_and_is_read_by_the_next(
    client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    client.admin.create_topic(topic, schema=pa.schema([("id", pa.int32())]))
    with client.producer(topic) as producer:
        producer.send({"id": 1})
        with stream(shared_url, topic=topic) as read:
            assert [row["value"] for row in read.next()] == [{"id": 1}]
            offset = read.offset
            producer.send({"id": 2})
            client.admin.alter_topic(topic, schema=pa.schema([("id", pa.int64()), ("key", pa.string())]))
            with pytest.raises(
                SchemaChanged,
                match=r"key: string\) \(version 2\) now; the query reads values as struct<id:int>",
            ):
                read.next()
    with client.producer(topic) as producer:
        producer.send({"id": 3, "key": "k"})
    with stream(shared_url, offset, topic=topic) as read:
        assert [row["value"] for row in read.next()] == [{"id": 2, "key": None}, {"id": 3, "key": "k"}]


def test_a_query_lives_through_a_restart_of_its_node_and_waits_for_it_as_long_as_timeout_says(
    node: RealNode, topic: str
) -> None:
    with headpond.sync.connect(node.url) as client:
        post(client, topic, 1)
    with stream(node.url, topic=topic, subscription="s") as read:
        assert numbers(read.next()) == [1]
        node.kill()
        node.start()
        with headpond.sync.connect(node.url) as client:
            post(client, topic, 2)
        assert numbers(read.next()) == [2]
    with stream(node.url, topic=topic, timeout="0.2") as read:
        node.kill()
        with pytest.raises(TimedOut, match=r"not answered within 0\.2 s"):
            read.next()
        with pytest.raises(Unavailable):
            NodeConnection(node.url, timeout_s=0.2).open(wait_s=0.2)


def test_driver_and_tasks_wait_for_their_node_as_long_as_timeout_says(
    client: headpond.sync.Client, shared_url: str, topic: str, waits: list[float]
) -> None:
    post(client, topic, 1)
    with stream(shared_url, topic=topic, timeout="7") as read:
        assert numbers(read.next()) == [1]
    assert waits == [0.0, 7.0, 7.0], "a question for the columns fails at once without a node"


def test_a_token_that_is_bound_to_a_subscription_reads_with_that_subscription(node: RealNode) -> None:
    with headpond.sync.connect(node.url) as client:
        post(client, "orders", 1, 2)
        admin = client.admin.create_token("admin", rights=["admin"], scopes=["*"]).secret
    with headpond.sync.connect(node.url, admin) as client:
        bound = client.admin.create_token("s", rights=["consume"], scopes=["default"], subscription="s").secret
        with stream(node.url, topic="orders", token=bound, start="2026-01-01", subscription="s") as read:
            assert numbers(read.next()) == [1, 2] and read.next() == []
            assert client.admin.show_subscription("orders", "s").unsettled == 0
        with (
            pytest.raises(NotAllowed, match="only as subscription 's'"),
            stream(node.url, topic="orders", token=bound),
        ):
            pass


def test_a_checkpoint_is_not_read_on_without_one_of_its_topics_and_takes_another_in(
    client: headpond.sync.Client, shared_url: str, topic: str
) -> None:
    one, two = f"{topic}-1", f"{topic}-2"
    post(client, one, 1)
    post(client, two, 2, 3)
    with stream(shared_url, topic=one) as read:
        begin = read.offset
        assert numbers(read.next()) == [1]
        offset = read.offset
    with stream(shared_url, offset, topic=two) as read:
        with pytest.raises(BadRequest, match=f"reads topic {one}, and"):
            read.next()
        with pytest.raises(BadRequest, match=f"reads topic {one}, and"):
            read.between(begin, offset)  # a batch that had not ended
    with stream(shared_url, offset, topics=f"{one},{two}") as read:
        assert numbers(read.next()) == [2, 3]


def test_options_that_contradict_are_refused_when_the_reader_is_used(shared_url: str, topic: str) -> None:
    reader = StreamReader(None, {"topic": topic, "end": "latest"})  # type: ignore[arg-type]
    with pytest.raises(HeadpondError, match="end is for batches"):
        reader.initialOffset()
