"""Producing to typed topics: over reconnects, from the refill, to a node that lost its decoder."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pyarrow as pa
import pytest

import headpond
import headpond.sync
from headpond.client.link.dialling import Backoff
from headpond.model.errors import SchemaMismatch
from tests.client.reading import read_all
from tests.fire.real_node import RealNode

SCHEMA = pa.schema([pa.field("number", pa.int64(), False), ("word", pa.string())])
QUICK = Backoff(0.01, 0.05)


def row(number: int) -> dict[str, object]:
    return {"number": number, "word": f"word {number * 7919 % 31}"}


def rows(first: int, end: int) -> pa.Table:
    return pa.Table.from_pylist([row(number) for number in range(first, end)], SCHEMA)


def files(folder: Path) -> int:
    return len(list(folder.glob("**/*.refill")))


async def stored(client: headpond.Client, topic: str, count: int) -> list[object]:
    return [message.value for message in await read_all(client, topic, count)]


async def create(url: str, topic: str, shards: int = 1) -> None:
    async with headpond.connect(url) as client:
        await client.admin.create_topic(topic, shards=shards, schema=SCHEMA)


async def test_rows_and_tables_over_kills_of_the_node_arrive_once_and_in_order(
    node: RealNode, topic: str
) -> None:
    await create(node.url, topic)
    async with headpond.connect(node.url, backoff=QUICK) as client:
        async with client.producer(topic, batch_rows=7, spill_after=0.2) as producer:
            for start in range(0, 300, 100):
                for number in range(start, start + 50):
                    producer.post(row(number))
                await producer.send_batch(rows(start + 50, start + 100))
                await producer.flush()
                await asyncio.to_thread(node.restart)
            await producer.reached()
            await producer.send(row(300))
            assert producer.stats.holes == ()
        assert await stored(client, topic, 301) == [row(number) for number in range(301)]


async def test_messages_spilled_with_the_node_away_are_decoded_with_their_own_dictionary(
    node: RealNode, topic: str, state_folder: Path
) -> None:
    await create(node.url, topic)
    async with headpond.connect(node.url) as client, client.producer(topic, "p") as producer:
        for number in range(30):
            await producer.send(row(number))
    node.kill()
    for start in (30, 60, 90):  # three runs, each continues the block of the one before
        away = headpond.connect(node.url, backoff=QUICK, wait=False)
        async with away as client, client.producer(topic, "p", batch_rows=3) as producer:
            for number in range(start, start + 30):
                assert (await producer.send(row(number))).outcome == "spilled"
    assert files(state_folder) == 1
    node.start()
    async with headpond.connect(node.url, backoff=QUICK) as client:
        async with client.producer(topic, "p") as producer:
            await producer.send(row(120))
        assert await stored(client, topic, 121) == [row(number) for number in range(121)]
    assert files(state_folder) == 0


async def test_a_copy_that_was_away_is_restored_from_the_refill_and_made_with_the_schema(
    tmp_path: Path, topic: str
) -> None:
    with RealNode(tmp_path / "one") as one, RealNode(tmp_path / "two") as two:
        await create(one.url, topic, shards=2)
        two.kill()
        async with headpond.connect(one.url, backoff=QUICK) as client:
            async with client.producer(topic, copies=[two.url], batch_rows=5) as producer:
                for number in range(40):
                    await producer.send(row(number), key=b"k")
                await asyncio.to_thread(two.start)
                await producer.reached()
                receipt = await producer.send(row(40), key=b"k")
                assert {str(copy.outcome) for copy in receipt.copies} <= {"stored", "spilled"}
            assert await stored(client, topic, 41) == [row(number) for number in range(41)]
        async with headpond.connect(two.url) as client:
            assert await stored(client, topic, 41) == [row(number) for number in range(41)]


async def test_segments_that_a_node_lost_with_its_disk_are_named(tmp_path: Path, topic: str) -> None:
    with RealNode(tmp_path / "one") as node, RealNode(tmp_path / "empty") as other:
        await create(node.url, topic)
        async with headpond.connect(node.url, backoff=QUICK) as client:
            async with client.producer(topic, batch_rows=1) as producer:
                for number in range(5):
                    await producer.send(row(number))
                node.kill()
                other.kill()
                node.data = other.data
                await asyncio.to_thread(node.start)
                await producer.send(row(5))
                await producer.reached()
                await producer.send(row(6))
            (hole,) = producer.stats.holes
            assert "shard 0, segments 0–4" in hole
            assert await stored(client, topic, 2) == [row(5), row(6)]


async def test_rows_that_do_not_fit_are_refused_at_once_and_the_others_arrive(
    shared_url: str, topic: str
) -> None:
    await create(shared_url, topic)
    async with headpond.connect(shared_url) as client, client.producer(topic) as producer:
        for bad in (b"bytes", {"number": "text"}, {"word": "no number"}, {"number": 1, "more": 2}):
            with pytest.raises(SchemaMismatch):
                producer.post(bad)
        producer.post(row(0))
        with pytest.raises(SchemaMismatch):
            await producer.send_batch(pa.table({"number": ["text"]}))
        await producer.flush()
        assert await stored(client, topic, 1) == [row(0)]


def test_the_blocking_twin_posts_rows(shared_url: str, topic: str) -> None:
    asyncio.run(create(shared_url, topic))
    with headpond.sync.connect(shared_url) as client, client.producer(topic, batch_rows=10) as producer:
        promises = [producer.post(row(number)) for number in range(200)]
        assert [promise.result(20).entry for promise in promises] == list(range(200))
        with pytest.raises(SchemaMismatch):
            producer.post({"number": None})

    async def scenario() -> None:
        async with headpond.connect(shared_url) as client:
            assert await stored(client, topic, 200) == [row(number) for number in range(200)]

    asyncio.run(scenario())
