"""Typed topics from a program's side, against a real node."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

import headpond
import headpond.sync
from headpond.client.options import KindName
from headpond.model.errors import SchemaMismatch, TopicExists, TopicNotFound
from headpond.wire.typed.schema import decode_schema, encode_schema
from tests.fire.real_node import RealNode
from tests.fire.typed_writer import TypedWriter

SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), False),
        ("value", pa.int32()),
        ("labels", pa.map_(pa.string(), pa.string())),
        ("raw", pa.binary()),
    ]
)
WIDER = pa.schema([*SCHEMA.set(1, pa.field("value", pa.int64())), ("unit", pa.string())])
AT = datetime(2026, 1, 31, 12, tzinfo=UTC)


def row(number: int) -> dict[str, object]:
    return {"at": AT, "value": number, "labels": {"host": "a", "zone": "b"}, "raw": b"\xff"}


def lines(count: int) -> list[dict[str, object]]:
    return [{**row(number), "labels": [("host", "a"), ("zone", "b")]} for number in range(count)]


def address(url: str) -> tuple[str, int]:
    host, _, port = url.removeprefix("headpond://").rpartition(":")
    return host, int(port)


async def next_value(consumer: headpond.Consumer) -> Any:
    return (await anext(consumer)).value


async def test_a_message_of_a_typed_topic_is_a_row(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        info = await client.admin.create_topic(topic, schema=SCHEMA)
        assert info.schema is not None
        assert decode_schema(info.schema).equals(SCHEMA)
        with TypedWriter(address(shared_url), topic, SCHEMA) as writer:
            await asyncio.to_thread(writer.send, lines(2), key=b"k", id="i", headers=[("h", "t")])
        async with client.consumer(topic, "s") as consumer:
            first: headpond.Message[Any] = await anext(consumer)
            assert first.value == row(0)
            assert (first.key, first.id, first.headers) == (b"k", "i", {"h": "t"})
            assert first.sent_at.year == 2023
            second: headpond.Message[Any] = await anext(consumer)
            assert (second.value, second.entry) == (row(1), 1)
            assert second.identity == (writer.block, 0, 0, 1)
            await consumer.ack(first)
            await consumer.ack(second)


async def test_a_batch_has_the_rows_as_a_struct_column(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, schema=SCHEMA)
        with TypedWriter(address(shared_url), topic, SCHEMA) as writer:
            await asyncio.to_thread(writer.send, lines(3))
        async with client.consumer(topic, "s") as consumer:
            batch = await anext(consumer.batches())
            assert batch.arrow.schema.field("value").type == pa.struct(list(SCHEMA))
            assert batch.arrow.column("value").field("value").to_pylist() == [0, 1, 2]
            assert set(batch.arrow.schema.names) == {"value", "key", "id", "headers", "sent_at"}
            assert batch.arrow.column("key").null_count == 3
            await consumer.ack(batch, rows=[0, 2])
        async with client.consumer(topic, "s") as consumer:
            assert await next_value(consumer) == row(1), "a row that was not settled comes alone"


async def test_a_consumer_that_is_open_while_the_schema_evolves_reads_on_in_the_new_one(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, schema=SCHEMA)
        async with client.consumer(topic, "s") as consumer:
            with TypedWriter(address(shared_url), topic, SCHEMA) as old:
                await asyncio.to_thread(old.send, lines(1))
                assert await next_value(consumer) == row(0)
                info = await client.admin.alter_topic(topic, schema=WIDER)
                assert (info.schema_version, len(info.schemas)) == (2, 2)
                await asyncio.to_thread(old.send, lines(1))
                assert await next_value(consumer) == {**row(0), "unit": None}
            with TypedWriter(address(shared_url), topic, WIDER) as new:
                await asyncio.to_thread(new.send, [{**lines(1)[0], "value": 2**40, "unit": "s"}])
            assert await next_value(consumer) == {**row(2**40), "unit": "s"}
        async with client.consumer(topic, "t") as consumer:
            batches = [await anext(consumer.batches()) for _ in range(3)]
            assert {str(batch.arrow.schema) for batch in batches} == {str(batches[0].arrow.schema)}
            values = pa.concat_batches([batch.arrow for batch in batches]).column("value")
            assert values.field("unit").to_pylist() == [None, None, "s"]


@pytest.mark.parametrize("kind", ["shared", "key_shared"])
async def test_rows_that_follow_their_record_come_in_the_new_schema(
    shared_url: str, topic: str, kind: KindName
) -> None:
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, schema=SCHEMA)
        with TypedWriter(address(shared_url), topic, SCHEMA) as writer:
            await asyncio.to_thread(writer.send, lines(3), key=b"k")
        async with client.consumer(topic, "s", kind=kind, mode="resilient") as consumer:
            first: headpond.Message[Any] = await anext(consumer)
            assert first.value == row(0)
            await client.admin.alter_topic(topic, schema=WIDER)
            for number in (1, 2):
                await consumer.ack(first)
                first = await anext(consumer)
                assert first.value == {**row(number), "unit": None}


async def test_a_change_that_is_not_compatible_is_refused_and_the_column_named(
    shared_url: str, topic: str
) -> None:
    async with headpond.connect(shared_url) as client:
        admin = client.admin
        await admin.create_topic(topic, schema=SCHEMA)
        with pytest.raises(SchemaMismatch, match="column 'raw'"):
            await admin.alter_topic(topic, schema=SCHEMA.remove(3))
        with pytest.raises(SchemaMismatch, match="column 'x' is null"):
            await admin.alter_topic(topic, schema=SCHEMA.append(pa.field("x", pa.null())))
        assert (await admin.alter_topic(topic, schema=SCHEMA)).schema_version == 1, "nothing changed"
        await admin.create_topic(f"{topic}-plain")
        with pytest.raises(SchemaMismatch, match="is plain"):
            await admin.alter_topic(f"{topic}-plain", schema=SCHEMA)
        with pytest.raises(TopicNotFound):
            await admin.alter_topic(f"{topic}-none", schema=SCHEMA)


async def test_changes_asked_for_at_once_are_made_one_after_the_other(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        await client.admin.create_topic(topic, schema=SCHEMA)
        one, two = WIDER, pa.schema([*WIDER, ("more", pa.int8())])
        results = await asyncio.gather(
            *(client.admin.alter_topic(topic, schema=each) for each in (one, two, one)),
            return_exceptions=True,
        )
        assert [getattr(each, "schema_version", None) for each in results] == [2, 3, None]
        assert isinstance(results[2], SchemaMismatch), "it would take back what the second one added"


async def test_a_topic_that_exists_is_taken_if_rows_of_the_schema_fit_it(shared_url: str, topic: str) -> None:
    async with headpond.connect(shared_url) as client:
        admin = client.admin
        made = await admin.create_topic(topic, schema=SCHEMA)
        await admin.alter_topic(topic, schema=WIDER)
        again = await admin.create_topic(topic, schema=SCHEMA, exist_ok=True)
        assert (again.uuid, again.schema) == (made.uuid, encode_schema(WIDER))
        for schema in (None, SCHEMA.set(3, pa.field("raw", pa.string()))):
            with pytest.raises(TopicExists):
                await admin.create_topic(topic, schema=schema, exist_ok=True)
        with pytest.raises(TopicExists, match="schema version 2"):
            await admin.create_topic(topic, schema=SCHEMA)
        listed = {info.topic: info for info in await admin.list_topics()}[made.topic]
        assert (listed.schema, listed.schema_version) == (encode_schema(WIDER), 2)


def test_the_blocking_twin_does_the_same(shared_url: str, topic: str) -> None:
    with headpond.sync.connect(shared_url) as client:
        client.admin.create_topic(topic, schema=SCHEMA)
        with TypedWriter(address(shared_url), topic, SCHEMA) as writer:
            writer.send(lines(1))
        assert client.admin.alter_topic(topic, schema=WIDER).schema_version == 2
        with client.consumer(topic, "s") as consumer:
            message: headpond.Message[Any] | None = consumer.receive(timeout=20.0)
            assert message is not None
            assert message.value == {**row(0), "unit": None}


def test_rows_and_schemas_survive_a_kill(node: RealNode) -> None:
    async def read(count: int) -> list[object]:
        async with (
            headpond.connect(node.url) as client,
            client.consumer("m", "s", start="earliest") as consumer,
        ):
            return [(await anext(consumer)).value for _ in range(count)]

    with headpond.sync.connect(node.url) as client:
        client.admin.create_topic("m", schema=SCHEMA)
        writer = TypedWriter(node.address, "m", SCHEMA)
        assert writer.send(lines(2)).outcome == "stored"
        client.admin.alter_topic("m", schema=WIDER)
        assert writer.send(lines(1)).outcome == "stored"
    writer.client.close()
    node.restart()
    writer.connect()
    writer.ship(writer.encode(lines(1)))
    (answer,) = writer.answers(1)
    assert answer.code == "snapshot"
    writer.ship_snapshot(1)
    writer.ship(1)
    writer.ship(2)
    assert [answer.outcome for answer in writer.answers(2)] == ["duplicate", "stored"]
    writer.client.close()
    values = asyncio.run(read(4))
    assert values == [{**row(number), "unit": None} for number in (0, 1, 0, 0)]
    with headpond.sync.connect(node.url) as client:
        assert client.admin.show_topic("m").schema_version == 2
        with pytest.raises(SchemaMismatch):
            client.admin.alter_topic("m", schema=SCHEMA)
