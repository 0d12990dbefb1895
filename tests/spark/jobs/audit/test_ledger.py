"""The ledger against the received messages: every missing segment is listed, also one never stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from typer.testing import CliRunner

import headpond.sync
from headpond.cli.app import app
from headpond.model.errors import BadRequest, ProducerNotFound
from headpond.spark.jobs.audit import ledger as jobs
from headpond.spark.jobs.audit.ledger import audit_ledger, compare, parse_sent
from headpond.wire.control.codec import read_result
from headpond.wire.control.ledger import LedgerInfo, ShowLedger
from tests.broker.ledger.ledger_world import LedgerWorld
from tests.broker.ledger.test_ledger import sending
from tests.cli.contract import check
from tests.fire.real_node import RealNode
from tests.spark.conftest import MASTER

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RUN = pa.schema(
    [
        ("block", pa.string()),
        ("shard", pa.int32()),
        ("first", pa.int64()),
        ("end", pa.int64()),
        ("messages", pa.int64()),
        ("repeated", pa.int64()),
        ("short", pa.int64()),
    ]
)


def test_holes_and_pending_segments_are_missing_though_no_node_has_them() -> None:
    world = LedgerWorld(1)
    sender = sending(world, 3)  # segments 0, 1, 2
    sender.next, world.senders = 5, [sender]
    world.declare_a_hole()  # nothing of 3 and 4 will come
    world.transmit(sender, 5, world.body(5))
    world.transmit(sender, 8, world.body(8))  # too early: it shows that 6, 7 and 8 exist
    ledger = read_result(world.client.request(ShowLedger("t", segments=True)), LedgerInfo)
    block = sender.block.hex()
    runs = [
        {"block": block, "shard": 0, "first": 0, "end": 1, "messages": 4, "repeated": 0, "short": 0},
        {"block": block, "shard": 0, "first": 5, "end": 6, "messages": 4, "repeated": 2, "short": 3},
        {"block": block, "shard": 0, "first": 9, "end": 10, "messages": 1, "repeated": 0, "short": 0},
        {"block": "ff" * 16, "shard": 0, "first": 0, "end": 3, "messages": 7, "repeated": 0, "short": 0},
    ]
    found = compare(ledger, pa.Table.from_pylist(runs, RUN), None)
    assert (found.sent, found.stored, found.holes, found.pending) == (9, 4, 2, 3)
    assert (found.received, found.missing, found.missing_stored, found.ahead) == (2, 7, 2, 1)
    assert (found.received_messages, found.repeated_messages, found.other_messages) == (9, 2, 7)
    assert [(each.first, each.end, each.there) for each in found.ranges] == [
        (1, 3, "stored"),
        (3, 5, "not-stored"),
        (6, 9, "not-stored"),
    ]
    assert found.R == 2 / 9 and not found.complete and found.short_messages == 3


def test_segments_missing_from_an_archive_are_listed_by_producer_and_range(
    spark: SparkSession, node: RealNode, topic: str
) -> None:
    with headpond.sync.connect(node.url) as client:
        client.admin.create_topic(topic, shards=2)
        for name, count in (("till-1", 60), ("till-2", 30)):
            with client.producer(topic, name=name) as producer:
                for number in range(count):
                    producer.send(b"%d" % number, key=b"%d" % number)
        accounts = {each.producer: each for each in client.admin.ledger(topic).producers}
    whole = audit_ledger(topic, url=node.url)
    assert (whole.sent, whole.received, whole.received_messages, whole.clean) == (90, 90, 90, True)
    assert [each.producer for each in whole.producers] == ["till-1", "till-2"] and not whole.unclosed

    rows = spark.read.format("headpond").options(url=node.url, topic=topic).load()
    assert {row.producer for row in rows.select("producer").distinct().collect()} == {"till-1", "till-2"}
    segment = "cast(split(identity, '/')[2] as int)"
    lacking = rows.where(f"not (producer = 'till-1' and shard = 1 and {segment} between 3 and 7)")
    received = lacking.union(rows.where(f"producer = 'till-1' and shard = 0 and {segment} = 0"))
    found = audit_ledger(topic, received, producer="till-1", url=node.url)
    assert (
        (found.sent, found.messages) == (accounts["till-1"].announced, accounts["till-1"].messages) == (60, 60)
    )
    assert (found.missing, found.missing_stored, found.received, found.repeated_messages) == (5, 5, 55, 1)
    assert [(each.shard, each.first, each.end, each.there) for each in found.ranges] == [(1, 3, 8, "stored")]
    assert (found.other_messages, found.ledger_of) == (30, f"{topic}@till-1")

    result = CliRunner().invoke(
        app,
        ["spark", "audit", "--sent-ledger", f"{topic}@till-2", "--url", node.url, "--master", MASTER, "--json"],
    )
    assert result.exit_code == 0, result.output
    found_there = check("spark audit --sent-ledger", result.stdout.encode())
    assert found_there["received_messages"] == 30
    with pytest.raises(ProducerNotFound, match="'nobody'"):
        audit_ledger(topic, producer="nobody", url=node.url)


def test_half_a_segment_is_incomplete_and_segments_that_arrive_meanwhile_are_not_missing(
    spark: SparkSession, node: RealNode, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with headpond.sync.connect(node.url) as client, client.producer(topic) as producer:
        for number in range(40):
            producer.post(b"%d" % number)
        producer.flush()
        rows = spark.read.format("headpond").options(url=node.url, topic=topic, end="40").load()
        for half in ("entry < 30", "entry >= 10"):
            found = audit_ledger(topic, rows.where(half), url=node.url)
            assert (found.received, found.missing, found.received_messages) == (found.sent, 0, 30)
            assert (found.short_messages, found.complete) == (10, False)

        def ledger(*asked: Any) -> LedgerInfo:
            producer.send(b"right before")
            try:
                return real(*asked)
            finally:
                producer.send(b"right behind")

        real = jobs._ledger
        monkeypatch.setattr(jobs, "_ledger", ledger)
        live = audit_ledger(topic, url=node.url)
    assert (live.missing, live.short_messages, live.ahead, live.received_messages) == (0, 0, 1, 42)
    assert live.clean


def test_a_topic_and_a_producer_are_parsed() -> None:
    assert parse_sent("orders") == ("orders", None)
    assert parse_sent("a/b/c/orders@till@2") == ("a/b/c/orders", "till@2")
    for wrong in ("@till", "orders@", ""):
        with pytest.raises(BadRequest, match="TOPIC@PRODUCER"):
            parse_sent(wrong)
