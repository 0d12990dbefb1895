"""Topics that change under queries of Spark: a change is reported exactly, or ends the query with its error."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import headpond.sync
from tests.fire.real_node import RealNode, wait_until
from tests.spark.source.test_batch import Query, post

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)
WAIT_S = 120


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealNode]:
    with RealNode(tmp_path_factory.mktemp("changing") / "node") as running:
        yield running


def numbers(rows: list[Any]) -> list[int]:
    return [int(bytes(row.value)) for row in rows if row.value is not None]


def gaps(rows: list[Any]) -> list[tuple[str, int, int]]:
    """Reason, first and end of each reported gap."""
    headers = [(row.entry, row.headers) for row in rows if row.value is None]
    return [(header["gap.reason"], entry, int(header["gap.end"])) for entry, header in headers]


def test_a_running_query_reports_every_gap_and_loses_no_stored_row(
    spark: SparkSession, node: RealNode, tmp_path: Path
) -> None:
    def expect(count: int) -> None:
        wait_until(lambda: len(query.rows) >= count or not running.isActive, WAIT_S)
        assert running.isActive, running.exception()

    with headpond.sync.connect(node.url) as client:
        post(client, "orders", *range(10))
    node.stop()
    shutil.copytree(node.data, tmp_path / "copy")
    node.start()
    query = Query(spark, node.url, tmp_path / "checkpoint", topic="orders", onGap="report", subscription="s")
    running = query.start()
    try:
        with headpond.sync.connect(node.url) as client:
            post(client, "orders", *range(10, 20))
            expect(20)
        # An old copy is restored, and grows further than the topic had been before the query looks again.
        node.kill()
        shutil.rmtree(node.data)
        shutil.copytree(tmp_path / "copy", node.data)
        node.start()
        with headpond.sync.connect(node.url) as client:
            post(client, "orders", *range(100, 130))
            expect(20 + 1 + 30)
            assert gaps(query.rows) == [("incarnation", 20, 20)]
            assert sorted(numbers(query.rows)) == [*range(20), *range(100, 130)]
            query.rows.clear()
            # Deleted and created again.
            client.admin.delete_topic("orders")
            post(client, "orders", 7, 8)
            expect(1 + 2)
            assert (gaps(query.rows), sorted(numbers(query.rows))) == ([("recreated", 40, 40)], [7, 8])
            running.processAllAvailable()  # Spark has stored that the batch is complete
    finally:
        running.stop()
    query.rows.clear()
    with headpond.sync.connect(node.url) as client:
        # Retention deletes entries that a stopped query has not read.
        post(client, "orders", *range(10))
        client.admin.set_topic("orders", hard_ttl=0.05)
        wait_until(lambda: client.admin.show_topic("orders").shard_list[0].entry_first == 12)
        client.admin.unset_topic("orders", "hard_ttl")
        post(client, "orders", 50)
    running = query.start(availableNow=True)
    assert running.awaitTermination(WAIT_S)
    assert (gaps(query.rows), numbers(query.rows)) == ([("retention", 2, 12)], [50])
    strict = Query(spark, node.url, tmp_path / "checkpoint", topic="orders", subscription="s")
    with headpond.sync.connect(node.url) as client:
        client.admin.delete_topic("orders")
        post(client, "orders", 1)
    with pytest.raises(Exception, match=r"created again while it was read.*\[topic-mismatch\]"):
        strict.start().awaitTermination(WAIT_S)


def test_a_new_schema_ends_a_query_and_its_checkpoint_continues_with_the_new_columns(
    spark: SparkSession, node: RealNode, tmp_path: Path
) -> None:
    with headpond.sync.connect(node.url) as client:
        client.admin.create_topic("typed", schema=pa.schema([("n", pa.int32())]))
        with client.producer("typed") as producer:
            producer.send({"n": 1})
            query = Query(spark, node.url, tmp_path / "checkpoint", topic="typed")
            running = query.start()
            wait_until(lambda: query.rows or not running.isActive, WAIT_S)
            client.admin.alter_topic("typed", schema=pa.schema([("n", pa.int64()), ("name", pa.string())]))
            producer.send({"n": 2})
        with pytest.raises(Exception, match=r"\(version 2\) now.*\[schema-changed\]"):
            running.awaitTermination(WAIT_S)
        with client.producer("typed") as producer:
            producer.send({"n": 3, "name": "three"})
    again = Query(spark, node.url, tmp_path / "checkpoint", topic="typed")
    assert again.start(availableNow=True).awaitTermination(WAIT_S)
    assert [row.value.asDict() for row in query.rows] == [{"n": 1}]
    assert [row.value.asDict() for row in again.rows] == [{"n": 2, "name": None}, {"n": 3, "name": "three"}]
