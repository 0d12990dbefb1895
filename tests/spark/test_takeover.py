"""A stream from a group and back to it is exactly once, though the active member is killed in the middle."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import headpond
from tests.cluster.group import RealGroup
from tests.cluster.nats import NatsCluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MESSAGES = 3000
KILLS = 2
DONE_S_MAX = 180.0


class Copy:
    """A query that copies a topic to another one, through a shuffle; it runs until it is stopped."""

    def __init__(self, spark: SparkSession, url: str, checkpoint: Path) -> None:
        self._spark = spark
        self._url = url
        self._checkpoint = checkpoint

    def start(self) -> Any:
        read = self._spark.readStream.format("headpond").options(url=self._url, topic="orders")
        rows = read.option("maxEntriesPerTrigger", 200).load().selectExpr("key", "value").repartition(3, "key")
        write = rows.writeStream.format("headpond").options(url=self._url, topic="copies")
        return write.option("checkpointLocation", str(self._checkpoint)).start()


async def count(client: headpond.Client, topic: str) -> int:
    return sum(shard.entry_next for shard in (await client.admin.show_topic(topic)).shard_list)


async def values(client: headpond.Client, topic: str) -> Counter[bytes]:
    found: Counter[bytes] = Counter()
    async with client.reader(topic) as reader:
        for shard, ends in enumerate(await reader.ends()):
            async for part in reader.read(shard, 0, ends.entry_next):
                found.update(bytes(message.value) for batch in part.batches for message in batch.messages())
    return found


async def produce(client: headpond.Client) -> None:
    async with client.producer("orders", name="till", refill=None) as producer:
        for number in range(MESSAGES):
            receipt = await producer.send(b"order %d" % number, key=b"%d" % (number % 50))
            assert receipt.stored, receipt


async def kill_active_members(group: RealGroup, client: headpond.Client) -> None:
    """Each when a part of the copies is there."""
    for kill in range(1, KILLS + 1):
        while await count(client, "copies") < kill * MESSAGES // (KILLS + 2):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
        group.kill(killed := await group.active())
        await group.active(other_than=[killed])
        group.start(killed)


async def copy_across_takeovers(spark: SparkSession, folder: Path) -> None:
    async with (
        NatsCluster(folder / "nats") as nats,
        RealGroup(folder / "nodes", nats) as group,
        headpond.connect(group.url, wait=False) as client,
    ):
        for topic, shards in (("orders", 2), ("copies", 4)):
            await client.admin.create_topic(topic, shards=shards)
        query = Copy(spark, group.url, folder / "checkpoint").start()
        try:
            async with asyncio.timeout(DONE_S_MAX):
                await asyncio.gather(produce(client), kill_active_members(group, client))
                while await count(client, "copies") < MESSAGES:
                    assert query.isActive, query.exception()
                    await asyncio.sleep(0.2)
        finally:
            query.stop()
        orders, copies = await values(client, "orders"), await values(client, "copies")
        batches = len({progress["batchId"] for progress in query.recentProgress})
        print(f"{orders.total()} orders, {copies.total()} copies, {batches} batches, {KILLS} takeovers")
        assert orders == copies == Counter(b"order %d" % number for number in range(MESSAGES))
        await group.all_alike()


@pytest.mark.timeout(300)
def test_a_stream_copies_every_row_once_across_takeovers(spark: SparkSession, tmp_path: Path) -> None:
    asyncio.run(copy_across_takeovers(spark, tmp_path))
