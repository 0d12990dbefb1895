"""Consuming: from a topic that is full, and end to end beside a producer."""

from __future__ import annotations

import asyncio
import tempfile
import time
from itertools import cycle
from pathlib import Path
from typing import Any

import pyarrow as pa
import uvloop

import headpond
from bench.figure import Figure, quantile
from bench.limits import Limits
from bench.node import Node, running_node
from bench.publish import table_of
from bench.values import values_of
from headpond.broker.subscriptions.unacked_log import DUE_STEP_US
from headpond.client.connect import Client
from headpond.client.consume.consumer import Consumer
from headpond.wire.control.greeting import Ping, Pong
from tests.fire.raw_client import RawClient

SIZE = 100
TABLES = 6
"""Of 16 MiB each: about a million messages."""
CELLS = [
    (kind, mode)
    for mode in ("non_resilient", "resilient")
    for kind in ("unique", "failover", "shared", "key_shared")
    if (kind, mode) != ("shared", "resilient")  # beside a round trip, below
]
ONE_BY_ONE = 2000
"""Messages of the cells in which each one waits for the node."""
KEYS = 1000
KEYED = 20_000
"""Messages of a resilient key_shared subscription: those of one key wait for each other."""
REFUSED = 100


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=folder) as place, running_node(Path(place)) as node:
        trips_per_s = _round_trips_per_s(node)
        return uvloop.run(_measure(node.url, limits, seconds, trips_per_s))


def _round_trips_per_s(node: Node) -> float:
    """Of PING and PONG, one at a time: a message that waits for the one before it cannot be faster."""
    client = RawClient(node.address)
    began = time.perf_counter()
    for number in range(ONE_BY_ONE):
        client.send(Ping(number))
        client.until(Pong)
    rate = ONE_BY_ONE / (time.perf_counter() - began)
    client.socket.close()
    return rate


async def _measure(url: str, limits: Limits, seconds: float, trips_per_s: float) -> list[Figure]:
    async with headpond.connect(url) as client:
        messages = await _fill(client, "bench.full")
        figures = []
        for how, run in (("individual acks", _by_message), ("batch acks", _by_batch)):
            async with client.consumer("bench.full", subscription=how.replace(" ", "-")) as consumer:
                began = time.perf_counter()
                await run(consumer, messages)
                await consumer.flush()
                rate = messages / (time.perf_counter() - began)
            figures += _figures(f"consume with {how}, {SIZE} B", rate, limits)
        figures += await _kinds(client, messages)
        figures += await _one_by_one(client, trips_per_s)
        figures += await _refused(client)
        for how, run in (("individual acks", _by_message), ("batch acks", _by_batch)):
            rate = await _end_to_end(client, url, f"bench.live.{how.replace(' ', '-')}", run)
            figures += _figures(f"end to end with {how}, {SIZE} B", rate, limits)
        figures += await _latency(client, limits, seconds)
    return figures


async def _kinds(client: Client, messages: int) -> list[Figure]:
    """Each kind and mode in the same run, message by message, beside unique and non-resilient."""
    figures: list[Figure] = []
    base = 0.0
    keyed = await _fill_keyed(client, "bench.keyed", KEYS)
    for kind, mode in CELLS:
        topic, count, note = "bench.full", messages, ""
        if kind == "key_shared":
            topic, count = "bench.keyed", keyed if mode == "non_resilient" else KEYED
            note = f", {KEYS:,} keys"
        rate = await _rate(client, topic, kind, mode, count)
        base = base or rate
        text = f"consume {kind}, {mode}, individual acks, {SIZE} B{note}"
        figures.append(Figure(text, rate, "messages/s", "unique, non_resilient", base))
    return figures


async def _one_by_one(client: Client, trips_per_s: float) -> list[Figure]:
    """Where each message waits for the one before it at the node: a round trip a message, and its work."""
    await _fill_keyed(client, "bench.key", 1)
    cells = {"shared": ("bench.full", ""), "key_shared": ("bench.key", ", one key")}
    return [
        Figure(
            f"consume {kind}, resilient, individual acks, {SIZE} B{note}",
            await _rate(client, topic, kind, "resilient", ONE_BY_ONE),
            "messages/s",
            "PING and PONG",
            trips_per_s,
        )
        for kind, (topic, note) in cells.items()
    ]


async def _rate(client: Client, topic: str, kind: Any, mode: Any, count: int) -> float:
    name = f"{kind}-{mode}".replace("_", "-")
    async with client.consumer(topic, subscription=name, kind=kind, mode=mode) as consumer:
        began = time.perf_counter()
        await _by_message(consumer, count)
        await consumer.flush()
        return count / (time.perf_counter() - began)


async def _refused(client: Client) -> list[Figure]:
    """From a refusal without delay to the same message once more; they come in steps."""
    figures: list[Figure] = []
    step_us = float(DUE_STEP_US)
    for kind in ("unique", "shared"):
        times = []
        async with client.consumer("bench.keyed", f"refused-{kind}", kind=kind, mode="resilient") as consumer:
            for _ in range(REFUSED):
                message = await consumer.receive()
                assert message is not None
                began = time.perf_counter()
                await consumer.nack(message, delay=0.0)
                again = await consumer.receive()
                times.append((time.perf_counter() - began) * 1e6)
                assert again is not None and again.entry == message.entry
                await consumer.ack(again)
        figures += [
            Figure(
                f"{kind}, resilient: refused and back, {name}", quantile(times, share), "µs", "step", step_us
            )
            for name, share in (("p50", 0.5), ("p99", 0.99))
        ]
    return figures


def _figures(name: str, rate: float, limits: Limits) -> list[Figure]:
    loopback = limits.loopback_mb_per_s
    return [
        Figure(name, rate, "messages/s", "loopback", loopback * 1e6 / SIZE),
        Figure(name, rate * SIZE / 1e6, "MB/s", "loopback", loopback),
    ]


async def _fill(client: Client, topic: str) -> int:
    return await _send_tables(client, topic, [table_of(SIZE) for _ in range(TABLES)])


async def _send_tables(client: Client, topic: str, tables: list[pa.Table]) -> int:
    async with client.producer(topic) as producer:
        for table in tables:
            receipt = await producer.send_batch(table)
            assert receipt.stored == table.num_rows
    return sum(int(table.num_rows) for table in tables)


async def _fill_keyed(client: Client, topic: str, keys: int) -> int:
    """One table, in which all keys take turns."""
    table = table_of(SIZE)
    column = pa.array([b"%d" % (row % keys) for row in range(table.num_rows)], pa.binary())
    async with client.producer(topic) as producer:
        receipt = await producer.send_batch(table.append_column("key", column))
        assert receipt.stored == table.num_rows
    return int(table.num_rows)


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
    tables = [table_of(SIZE) for _ in range(TABLES)]
    async with headpond.connect(url) as other, other.consumer(topic, subscription="live") as consumer:
        began = time.perf_counter()
        assert callable(run)
        count = sum(int(table.num_rows) for table in tables)
        consuming = asyncio.create_task(run(consumer, count))
        await _send_tables(client, topic, tables)
        await consuming
        await consumer.flush()
        return count / (time.perf_counter() - began)


async def _latency(client: Client, limits: Limits, seconds: float) -> list[Figure]:
    """One message at a time: from the call of ``send`` to the consumer's hands."""
    values, times = cycle(values_of(SIZE)), []
    async with (
        client.consumer("bench.delay", subscription="delay") as consumer,
        client.producer("bench.delay") as producer,
    ):
        until = time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            promise = producer.post(next(values))
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
