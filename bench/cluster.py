"""A group of three nodes over three NATS servers on this machine, beside a node that is alone.

All copies of a byte, about eight, are on one disk, and all processes share its cores: on machines of their own
members are faster. Rounds alternate between the two, so that both see the same machine; values are distinct
random bytes. JetStream itself, with three replicas and through nats-py, is measured in the same run: with one
message per publish, and with large records, which is the most that a group on these servers could reach.
"""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections import deque
from pathlib import Path

import nats
import uvloop

import headpond
from bench.figure import Figure, quantile
from bench.limits import Limits
from bench.node import running_node
from bench.values import POOL, values_of
from headpond.cluster.journal import RECORD_BYTES_MAX
from headpond.cluster.local import LocalCluster

ROUNDS = 3
SIZES = (100, 1024)
IN_FLIGHT = 20_000
STREAM = "bench"
PUBLISHERS = 256
RECORD_PUBLISHERS = 16


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=folder) as place, running_node(Path(place)) as node:
        return uvloop.run(_measure(Path(place).absolute(), node.url, seconds))


async def _measure(folder: Path, alone: str, seconds: float) -> list[Figure]:
    cluster = LocalCluster(folder / "cluster", lambda line: None)
    try:
        await cluster.start()
        figures: list[Figure] = []
        for size in SIZES:
            figures += await _rates(alone, cluster, size, seconds)
        return figures + await _latencies(alone, cluster, seconds)
    finally:
        await cluster.stop()


async def _rates(alone: str, cluster: LocalCluster, size: int, seconds: float) -> list[Figure]:
    values = values_of(size)
    each = RECORD_BYTES_MAX // size
    records = [b"".join(values[at : at + each]) for at in range(0, POOL - each, each)]
    rates: dict[str, list[float]] = {"alone": [], "group": [], "messages": [], "records": []}
    for _ in range(ROUNDS):
        rates["alone"].append(await _post_rate(alone, values, seconds))
        rates["group"].append(await _post_rate(cluster.url, values, seconds))
        rates["messages"].append(await _jetstream_rate(cluster.servers_url, values, PUBLISHERS, seconds))
        rates["records"].append(
            each * await _jetstream_rate(cluster.servers_url, records, RECORD_PUBLISHERS, seconds)
        )
    alone_rate, group, messages, recorded = (statistics.median(found) for found in rates.values())
    return [
        Figure(f"a group: post, {size} B", group, "messages/s", "a node alone", alone_rate),
        Figure(f"a group: post, {size} B", group, "messages/s", "JetStream R3, one publish each", messages),
        Figure(f"a group: post, {size} B", group, "messages/s", "JetStream R3, large records", recorded),
    ]


async def _post_rate(url: str, values: list[bytes], seconds: float) -> float:
    async with headpond.connect(url, wait=False) as client, client.producer("bench", refill=None) as producer:
        await producer.send(values[0])
        promises: deque[object] = deque()
        began, until = time.perf_counter(), time.perf_counter() + seconds
        count = 0
        while time.perf_counter() < until:
            start = count % POOL
            promises.append(producer.post(values[start]))
            for value in values[start + 1 : start + 2000]:
                producer.post(value)
            count = count - start + min(start + 2000, POOL)
            while len(promises) > IN_FLIGHT // 2000:
                await promises.popleft()  # type: ignore[misc]  # a promise
            await asyncio.sleep(0)
        await producer.flush()
        return count / (time.perf_counter() - began)


async def _jetstream_rate(url: str, values: list[bytes], publishers: int, seconds: float) -> float:
    client = await nats.connect(url.removeprefix("nats://").split(","))
    try:
        stream = client.jetstream()
        await stream.add_stream(name=STREAM, subjects=[STREAM], num_replicas=3, max_bytes=4 << 30)
        counts = [0] * publishers
        began, until = time.perf_counter(), time.perf_counter() + seconds

        async def publish(number: int) -> None:
            while time.perf_counter() < until:
                await stream.publish(STREAM, values[(number * 191 + counts[number]) % len(values)])
                counts[number] += 1

        await asyncio.gather(*map(publish, range(publishers)))
        return sum(counts) / (time.perf_counter() - began)
    finally:
        await stream.delete_stream(STREAM)
        await client.close()


async def _latencies(alone: str, cluster: LocalCluster, seconds: float) -> list[Figure]:
    times: dict[str, list[float]] = {"alone": [], "group": [], "jetstream": []}
    values = values_of(100)
    client = await nats.connect(cluster.servers_url.removeprefix("nats://").split(","))
    stream = client.jetstream()
    await stream.add_stream(name=STREAM, subjects=[STREAM], num_replicas=3, max_bytes=1 << 30)
    async with (
        headpond.connect(alone, wait=False) as one,
        headpond.connect(cluster.url, wait=False) as group,
        one.producer("bench.latency", refill=None) as to_one,
        group.producer("bench.latency", refill=None) as to_group,
    ):
        until, number = time.perf_counter() + seconds * ROUNDS, 0
        while time.perf_counter() < until:
            value = values[number % POOL]
            number += 1
            for name, call in (
                ("alone", to_one.send(value)),
                ("group", to_group.send(value)),
                ("jetstream", stream.publish(STREAM, value)),
            ):
                began = time.perf_counter()
                await call
                times[name].append((time.perf_counter() - began) * 1e6)
    await stream.delete_stream(STREAM)
    await client.close()
    return [
        Figure(
            f"a group: one send, {name}",
            quantile(times["group"], share),
            "µs",
            "one publish, JetStream R3",
            quantile(times["jetstream"], share),
            note=f"a node alone: {quantile(times['alone'], share):,.0f} µs",
        )
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]
