"""What small segments cost those who read them: the same rows, stored as segments of 1, 40 and 4,000 rows.

A program that sends one message at a time stores segments of one row. Each figure stands beside that of the
largest segments, by the same reader in the same run. The last ones are of such a topic in closed files,
in which the node has packed the segments.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable
from itertools import cycle, islice
from pathlib import Path

import uvloop

import headpond
from bench.figure import Figure
from bench.limits import Limits
from bench.node import Node, running_node
from bench.values import values_of
from headpond.client.connect import Client

SIZE = 100
ROWS = 200_000
ROWS_EACH = (4000, 40, 1)
"""Rows of a segment; the first is the limit for the others."""
UNPACKED = "[log]\npack_segments_min = 1000000000"
SMALL_FILES = "[log]\nrotate_bytes = 1048576"
Way = Callable[[Client, str, str], Awaitable[None]]
"""Reads a topic with a client, or at a URL."""
TURNS = 4
POSTED_MAX = 4000
"""Messages that are posted before the next wait for the node."""


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    limits_of: dict[str, float] = {}
    with tempfile.TemporaryDirectory(dir=folder) as place, running_node(Path(place), UNPACKED) as node:
        figures = uvloop.run(_measure(node, limits_of))
    with tempfile.TemporaryDirectory(dir=folder) as place, running_node(Path(place), SMALL_FILES) as node:
        return figures + uvloop.run(_measure_packed(node, Path(place), limits_of))


async def _measure(node: Node, limits_of: dict[str, float]) -> list[Figure]:
    """``limits_of`` gets the rate of the largest segments, by the way of reading."""
    figures: list[Figure] = []
    async with headpond.connect(node.url) as client:
        for rows_each in ROWS_EACH:
            await fill(client, topic_of(rows_each), rows_each)
        for name, run in WAYS.items():
            for rows_each in ROWS_EACH:
                rate = await _rate(client, node, run, topic_of(rows_each))
                figures.append(_figure(name, f"{rows_each:,} rows per segment", rate, limits_of))
    return figures


async def _measure_packed(node: Node, place: Path, limits_of: dict[str, float]) -> list[Figure]:
    async with headpond.connect(node.url) as client:
        topic = topic_of(1)
        await fill(client, topic, 1)
        folder = place / "data" / "topics" / (await client.admin.show_topic(topic)).uuid.hex()
        while any(len(list(shard.glob("[0-9]" * 20 + ".log"))) > 1 for shard in folder.iterdir()):  # noqa: ASYNC110
            await asyncio.sleep(0.5)  # the node packs what it closed; one file of each shard stays open
        return [
            _figure(name, "1 row per segment, packed", await _rate(client, node, run, topic), limits_of)
            for name, run in WAYS.items()
        ]


def _figure(way: str, segments: str, rate: float, limits_of: dict[str, float]) -> Figure:
    limit = limits_of.setdefault(way, rate)
    return Figure(f"{way}, {SIZE} B, {segments}", rate, "rows/s", f"{ROWS_EACH[0]:,} rows per segment", limit)


def topic_of(rows_each: int) -> str:
    return f"bench.segments.{rows_each}"


async def fill(client: Client, topic: str, rows_each: int) -> None:
    values = cycle(values_of(SIZE))
    async with client.producer(topic, batch_rows=rows_each) as producer:
        for _ in range(0, ROWS, POSTED_MAX):
            for value in islice(values, POSTED_MAX):
                producer.post(value)
            await producer.flush()


async def _rate(client: Client, node: Node, run: Way, topic: str) -> float:
    """Rows in a second of a processor, of this process or the node, whichever used more of it.

    They work at the same time; on a machine that does something else besides, the clock says less. The best of
    some turns counts: the first one loads code.
    """
    return max([await _rate_once(client, node, run, topic) for _ in range(TURNS)])


async def _rate_once(client: Client, node: Node, run: Way, topic: str) -> float:
    began, node_began = time.process_time(), node.cpu_s()
    await run(client, topic, node.url)
    return ROWS / max(time.process_time() - began, node.cpu_s() - node_began)


async def _by_reader(client: Client, topic: str, url: str) -> None:
    count = 0
    async with client.reader(topic) as reader:
        for shard, ends in enumerate(await reader.ends()):
            async for part in reader.read(shard, 0, ends.entry_next):
                count += sum(map(len, part.batches))
    assert count == ROWS, count


async def _by_message(client: Client, topic: str, url: str) -> None:
    left = ROWS
    async with client.consumer(topic, subscription="messages") as consumer:
        async for message in consumer:
            await consumer.ack(message)
            left -= 1
            if not left:
                break
        await consumer.flush()
    await client.admin.delete_subscription(topic, "messages")


async def _by_batch(client: Client, topic: str, url: str) -> None:
    left = ROWS
    async with client.consumer(topic, subscription="batches") as consumer:
        async for batch in consumer.batches():
            await consumer.ack(batch)
            left -= len(batch)
            if not left:
                break
        await consumer.flush()
    await client.admin.delete_subscription(topic, "batches")


async def _by_source(client: Client, topic: str, url: str) -> None:
    """What the Python workers of Spark do: the Arrow batches of all columns."""
    from headpond.spark.source.batch import batch_reader, schema

    def read() -> int:
        options = {"url": url, "topic": topic}
        reader = batch_reader(schema(options), options)
        return sum(len(batch) for part in reader.partitions() for batch in reader.read(part))

    assert await asyncio.to_thread(read) == ROWS


WAYS: dict[str, Way] = {
    "reader": _by_reader,
    "Spark's source": _by_source,
    "consume with individual acks": _by_message,
    "consume with batch acks": _by_batch,
}
