"""An audit counts every missing, repeated and unknown message exactly."""

from __future__ import annotations

import json
import os
import signal
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.audit import differences
from bench.audit_truth import generate
from headpond.model.errors import BadRequest
from headpond.spark.jobs.audit import figures, orders
from headpond.spark.jobs.audit.audit import AuditResult, _figures, audit
from headpond.spark.jobs.feed import feed_of
from tests.cli.contract import check

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)
T0 = datetime(2026, 1, 31, 12, tzinfo=UTC)
COLUMNS = (
    "id string, topic string, shard int, entry bigint, identity string, sent_at timestamp, stored_at timestamp"
)


def rows(spark: SparkSession, topic: str, *messages: tuple[str | None, int, int, str]) -> DataFrame:
    """Messages as (id, shard, entry, identity), sent a second apart and stored 2 s later."""
    return spark.createDataFrame(
        [
            (name, topic, shard, entry, identity, T0 + timedelta(seconds=at), T0 + timedelta(seconds=at + 2))
            for at, (name, shard, entry, identity) in enumerate(messages)
        ],
        COLUMNS,
    )


def test_an_audit_counts_the_known_faults_of_a_hundred_thousand_messages(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "CHUNK_BITS", 8)  # steps from one chunk to the next, as in a large topic
    truth = generate(tmp_path, 100_000)
    result = audit(tmp_path / "sent", tmp_path / "received", out=tmp_path / "out")
    assert differences(truth, msgspec.to_builtins(result), tmp_path / "out") == []
    check("spark audit", msgspec.json.encode(result) + b"\n")
    assert (result.complete, result.clean) == (False, False)
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        *("audit.json", "audit.png", "orders.parquet", "summary.parquet", "producers.parquet"),
        *("shards.parquet", "windows.parquet", "missing", "repeated", "strangers"),
    }
    assert json.loads((tmp_path / "out" / "audit.json").read_bytes())["missing"] == len(truth.missing)
    routes = pq.read_table(tmp_path / "out" / "orders.parquet").to_pylist()
    assert sum(route["received"] for route in routes) == truth.received
    with pytest.raises(BadRequest, match="is not empty"):
        audit(tmp_path / "sent", tmp_path / "received", out=tmp_path / "out")


def by_origin(spark: SparkSession, *arrivals: tuple[int, int, int]) -> AuditResult:
    """Ten messages of two shards, and (shard, entry, number sent) of their arrival in another topic."""
    sent = rows(spark, "a", *((f"m-{n}", n % 2, n // 2, f"aa/{n % 2}/{n // 2}/0") for n in range(10)))
    received = rows(spark, "b", *((f"m-{n}", shard, entry, f"bb/{entry}") for shard, entry, n in arrivals))
    return audit(sent, received, by="id")


def test_by_an_id_the_order_is_that_of_the_sent_entries(spark: SparkSession) -> None:
    found = by_origin(spark, *((0, n, n) for n in range(10)))
    assert (found.sent, found.unique, found.R, found.UR, found.clean) == (10, 10, 1.0, 1.0, True)
    assert found.orders is not None
    assert (found.orders.held[-1], found.orders.routes) == ("absolute", 2)
    assert found.latency is not None
    assert (found.latency.min_s, found.latency.max_s) == (2.0, 2.0)

    turned = by_origin(spark, (0, 0, 2), (0, 1, 0), (0, 2, 1), (0, 3, 1), (0, 4, 9))
    assert turned.orders is not None
    assert (turned.missing, turned.repeated, turned.arrivals) == (6, 1, {"0": 6, "1": 3, "2": 1})
    assert turned.orders.held == []
    assert turned.orders.by_order == {"monotonic": 1, "none": 1}
    assert (turned.orders.falls, turned.orders.repeats, turned.orders.skipped) == (1, 1, 3)
    assert [row["message"] for row in turned.missing_first] == ["m-3", "m-4", "m-5", "m-6", "m-7", "m-8"]


def test_an_audit_counts_messages_without_a_name_or_sent_twice(spark: SparkSession) -> None:
    sent = rows(spark, "a", ("x", 0, 0, "i"), ("x", 0, 1, "j"), (None, 0, 2, "k"), ("y", 0, 3, "l"))
    received = rows(spark, "b", ("x", 0, 0, "m"), (None, 0, 1, "n"), (None, 0, 2, "o"), ("z", 0, 3, "p"))
    found = audit(sent, received.drop("entry"), by="id", window="1 second")
    assert (found.sent, found.sent_again, found.sent_unnamed, found.received_unnamed) == (2, 1, 1, 2)
    assert (found.received, found.copies, found.unique, found.missing, found.strangers) == (4, 1, 1, 1, 1)
    assert (found.R, found.UR, found.orders) == (0.5, 1.0, None)
    assert sum(part.sent for part in found.windows) == 2
    assert [row["message"] for row in found.strangers_first] == ["z"]


def test_a_message_sent_from_two_shards_has_no_position_and_breaks_no_order(spark: SparkSession) -> None:
    messages = [(f"{name}-{n}", shard, n, "") for shard, name in enumerate("ab") for n in range(4)]
    again = [("a-3", 1, 0, ""), ("b-3", 0, 0, ""), ("a-2", 0, 9, "")]
    found = audit(rows(spark, "sent", *messages, *again), rows(spark, "received", *messages), by="id")
    assert found.sent_again == 3 and found.orders is not None
    assert (found.orders.held[-1], found.orders.routes, found.orders.falls) == ("absolute", 2, 0)


def test_figures_of_nothing_or_of_too_many_windows_are_an_error_in_words() -> None:
    groups = pa.table({"kind": ["window"] * (figures.GROUPS_MAX + 1)})
    for some, message in ((groups, "more than 50,000 producers"), (groups.slice(0, 0), "holds no messages")):
        with pytest.raises(BadRequest, match=message):
            _figures(some, feed_of("orders", "the sent side"), 1.0)


def test_an_audit_refuses_wrong_inputs(spark: SparkSession, tmp_path: Path) -> None:
    some = rows(spark, "a", ("x", 0, 0, "i"))
    (tmp_path / "empty").mkdir()
    wrong: list[tuple[Any, Any, dict[str, Any], str]] = [
        (tmp_path / "nowhere", some, {}, "there is no"),
        (tmp_path / "empty", some, {}, "holds no Parquet files"),
        (some.drop("identity"), some, {}, "the sent side has no column identity"),
        (some, some, {"by": "no_such + 1"}, "is not an expression over"),
        (some, some, {"by": "struct(id)"}, "named by text, bytes or a number"),
        (some, some, {"by": "entry", "sent_by": "id"}, "string on the sent side and bigint on"),
        (some, some, {"by": ""}, "is empty"),
        (some, some, {"window": "a while"}, "is not a length of time"),
        (some.limit(0), some, {}, "holds no messages"),
        ("orders", "topic:orders", {}, "both sides are topic:default/default/default/orders"),
        ("topic:", some, {}, "without a name"),
    ]
    for sent, received, options, message in wrong:
        with pytest.raises(BadRequest, match=message):
            audit(sent, received, **options)


def test_ctrl_c_ends_an_audit_that_runs_and_leaves_the_session_usable(spark: SparkSession) -> None:
    interrupted = threading.Event()

    def interrupt(said: str) -> None:
        if said.startswith("matching: ") and not interrupted.is_set():
            interrupted.set()
            os.kill(os.getpid(), signal.SIGINT)

    for_hours = spark.range(10**11).selectExpr("cast(id as string) as id")
    with pytest.raises(KeyboardInterrupt):
        audit(for_hours, for_hours, by="id", progress=interrupt)
    assert spark.range(3).count() == 3
