"""Consuming: from a topic that is full, and end to end beside a producer."""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

import uvloop

import penstock
from bench.figure import Figure, quantile
from bench.limits import Limits
from bench.node import running_node
from bench.publish import table_of
from penstock.client.connect import Client
from penstock.client.consumer import Consumer

SIZE = 100
TABLES = 6
"""Of 16 MiB each: about a million messages."""
CELLS = [
    (kind, mode)
    for mode in ("non_resilient", "resilient")
    for kind in ("unique", "failover", "shared", "key_shared")
]
ONE_BY_ONE = 2000
"""Messages of the cells in which each one waits for the node."""


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=folder) as place, running_node(Path(place)) as node:
        return uvloop.run(_measure(node.url, limits, seconds))


async def _measure(url: str, limits: Limits, seconds: float) -> list[Figure]:
    async with penstock.connect(url) as client:
        messages = await _fill(client, "bench.full")
        figures = []
        for how, run in (("individual acks", _by_message), ("batch acks", _by_batch)):
            async with client.consumer("bench.full", subscription=how.replace(" ", "-")) as consumer:
                began = time.perf_counter()
                await run(consumer, messages)
                await consumer.flush()
                rate = messages / (time.perf_counter() - began)
            figures += _figures(f"consume with {how}, {SIZE} B", rate, limits)
        figures += await _resilient(client, messages)
        for how, run in (("individual acks", _by_message), ("batch acks", _by_batch)):
            rate = await _end_to_end(client, url, f"bench.live.{how.replace(' ', '-')}", run)
            figures += _figures(f"end to end with {how}, {SIZE} B", rate, limits)
        figures += await _latency(client, limits, seconds)
    return figures


async def _resilient(client: Client, messages: int) -> list[Figure]:
    """Each kind and mode in the same run, message by message, beside unique and non-resilient."""
    figures: list[Figure] = []
    base = 0.0
    for kind, mode in CELLS:
        count = messages if mode == "non_resilient" or kind in ("unique", "failover") else ONE_BY_ONE
        name = f"{kind}-{mode}".replace("_", "-")
        async with client.consumer("bench.full", subscription=name, kind=kind, mode=mode) as consumer:
            began = time.perf_counter()
            await _by_message(consumer, count)
            await consumer.flush()
            rate = count / (time.perf_counter() - began)
        base = base or rate
        text = f"consume {kind}, {mode}, individual acks, {SIZE} B"
        figures.append(Figure(text, rate, "messages/s", "unique, non_resilient", base))
    return figures


def _figures(name: str, rate: float, limits: Limits) -> list[Figure]:
    loopback = limits.loopback_mb_per_s
    return [
        Figure(name, rate, "messages/s", "loopback", loopback * 1e6 / SIZE),
        Figure(name, rate * SIZE / 1e6, "MB/s", "loopback", loopback),
    ]


async def _fill(client: Client, topic: str) -> int:
    table = table_of(SIZE)
    async with client.producer(topic) as producer:
        for _ in range(TABLES):
            receipt = await producer.send_batch(table)
            assert receipt.stored == table.num_rows
    return TABLES * int(table.num_rows)


async def _by_message(consumer: Consumer, count: int) -> None:
    ack = consumer.ack
    async for message in consumer:
        await ack(message)
        count -= 1
        if not count:
            return


async def _by_batch(consumer: Consumer, count: int) -> None:
    async for batch in consumer.batches():
        await consumer.ack(batch)
        count -= len(batch)
        if not count:
            return


async def _end_to_end(client: Client, url: str, topic: str, run: object) -> float:
    """A producer and a consumer at the same time, over two connections of one process."""
    async with penstock.connect(url) as other, other.consumer(topic, subscription="live") as consumer:
        began = time.perf_counter()
        assert callable(run)
        count = TABLES * int(table_of(SIZE).num_rows)
        consuming = asyncio.create_task(run(consumer, count))
        await _fill(client, topic)
        await consuming
        await consumer.flush()
        return count / (time.perf_counter() - began)


async def _latency(client: Client, limits: Limits, seconds: float) -> list[Figure]:
    """One message at a time: from the call of ``send`` to the consumer's hands."""
    value, times = os.urandom(SIZE), []
    async with (
        client.consumer("bench.delay", subscription="delay") as consumer,
        client.producer("bench.delay") as producer,
    ):
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            promise = producer.post(value)
            message = await consumer.receive()
            times.append((time.perf_counter() - began) * 1e6)
            assert message is not None
            await consumer.ack(message)
            await promise
    sync_us = 1e6 / limits.small_syncs_per_s
    return [
        Figure(f"end to end latency, {name}", quantile(times, share), "µs", "one fdatasync, 4 KiB", sync_us)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]
