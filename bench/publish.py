"""Durable publishing: every message counted here was on a disk before its receipt.

On the node's; and, with the node away, on the client's own, in the refill.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections import deque
from itertools import cycle
from pathlib import Path

import pyarrow as pa
import uvloop

import headpond
from bench.figure import Figure, quantile
from bench.limits import Limits
from bench.node import running_node
from bench.values import POOL, values_of
from headpond.client.options import DEFAULT_REFILL
from headpond.client.produce.producer import Producer
from headpond.client.produce.promise import Promise
from headpond.model.errors import BufferFull
from headpond.storage.os_disk import CALL_BYTES_MAX

POSTS_BETWEEN_LOOKS = 2000
"""A program that posts lets its event loop run now and then; so does this one."""
SENDERS = 1000
TABLE_BYTES = 16 * 1024 * 1024
NOBODY = "headpond://127.0.0.1:9"
"""A port where no node is."""


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    with tempfile.TemporaryDirectory(dir=folder) as place, running_node(Path(place)) as node:
        figures = uvloop.run(_measure(node.url, limits, seconds))
    with tempfile.TemporaryDirectory(dir=folder) as place:
        return figures + uvloop.run(_spilled(Path(place), seconds))


async def _measure(url: str, limits: Limits, seconds: float) -> list[Figure]:
    figures: list[Figure] = []
    async with headpond.connect(url) as client:
        for size in (100, 1024):
            for how, run in (("send_batch", _batches), ("post", _posts), ("concurrent send", _sends)):
                async with client.producer(f"bench.{how.replace(' ', '-')}.{size}") as producer:
                    await run(producer, size, min(seconds / 4, 0.5))  # warms up code, file and connection
                    began, before = time.perf_counter(), producer.stats.stored
                    await run(producer, size, seconds)
                    await producer.flush()
                    rate = (producer.stats.stored - before) / (time.perf_counter() - began)
                figures += _rate_figures(f"{how}, {size} B", rate, size, limits)
        async with client.producer("bench.latency") as producer:
            figures += await _latency(producer, limits, seconds)
        figures += await _without_refill(client, seconds)
    return figures


async def _without_refill(client: headpond.Client, seconds: float) -> list[Figure]:
    """That there is a refill costs nothing while the node is there: on and off in turns, so that both see the
    same machine."""
    rates: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(4):
        on = turn % 2 == 0
        async with client.producer("bench.refill", refill=DEFAULT_REFILL if on else None) as producer:
            await _posts(producer, 100, min(seconds / 4, 0.5))
            began, before = time.perf_counter(), producer.stats.stored
            await _posts(producer, 100, seconds / 2)
            rates[on].append((producer.stats.stored - before) / (time.perf_counter() - began))
    on_rate, off_rate = (sum(rates[on]) / len(rates[on]) for on in (True, False))
    return [Figure("publish by post, 100 B, refill on", on_rate, "messages/s", "refill off", off_rate)]


async def _spilled(folder: Path, seconds: float) -> list[Figure]:
    """The node is away: tables go to the refill, and the same bytes to a plain file with a sync each."""
    figures: list[Figure] = []
    async with headpond.connect(NOBODY, wait=False) as client:
        for size in (100, 1024):
            async with client.producer(f"bench.spill.{size}", refill=folder / "refill") as producer:
                await _batches(producer, size, min(seconds / 4, 0.5))
                began, before = time.perf_counter(), producer.stats
                await _batches(producer, size, seconds)
                spent, after = time.perf_counter() - began, producer.stats
                rate = (after.spilled - before.spilled) / spent
                bytes_per_s = (after.refill_bytes - before.refill_bytes) / spent
            plain = _plain_file(folder, min(seconds, 2.0))
            name = f"spill by send_batch, {size} B"
            figures += [
                Figure(name, rate, "messages/s"),
                Figure(name, bytes_per_s / 1e6, "MB/s", "the same bytes to a plain file, synced", plain / 1e6),
            ]
    return figures


def _plain_file(folder: Path, seconds: float) -> float:
    """Bytes a second, a table's worth to a write and a sync, as a spill does it."""
    data = os.urandom(TABLE_BYTES)
    path = folder / "plain"
    with path.open("wb", buffering=0) as file:
        written, began = 0, time.perf_counter()
        while (spent := time.perf_counter() - began) < seconds:
            for at in range(0, TABLE_BYTES, CALL_BYTES_MAX):
                written += file.write(data[at : at + CALL_BYTES_MAX])
            os.fdatasync(file.fileno())
    path.unlink()
    return written / spent


def _rate_figures(name: str, rate: float, size: int, limits: Limits) -> list[Figure]:
    return [
        Figure(f"publish by {name}", rate, "messages/s", "disk or loopback", limits.pipe_mb_per_s * 1e6 / size),
        Figure(f"publish by {name}", rate * size / 1e6, "MB/s", "disk or loopback", limits.pipe_mb_per_s),
    ]


async def _posts(producer: Producer, size: int, seconds: float) -> None:
    """One call a message from one loop; the oldest promise is awaited when the producer's memory is full."""
    values, start = values_of(size), 0
    post, until = producer.post, time.perf_counter() + seconds
    promises: deque[Promise] = deque()
    while time.perf_counter() < until:
        try:
            promises.append(post(values[start]))
            for value in values[start + 1 : start + POSTS_BETWEEN_LOOKS]:
                post(value)
            start = (start + POSTS_BETWEEN_LOOKS) % POOL
        except BufferFull:
            await promises.popleft()
            continue
        await asyncio.sleep(0)
    await producer.flush()


async def _sends(producer: Producer, size: int, seconds: float) -> None:
    """Many tasks that each send one message after the other."""
    values, until = cycle(values_of(size)), time.perf_counter() + seconds

    async def sender() -> None:
        while time.perf_counter() < until:
            await producer.send(next(values))

    await asyncio.gather(*(sender() for _ in range(SENDERS)))


async def _batches(producer: Producer, size: int, seconds: float) -> None:
    """One table again and again, two on their way at a time.

    No value repeats in a segment, which is all that LZ4 sees: new tables would only cost the time to make them.
    """
    table, until = table_of(size), time.perf_counter() + seconds

    async def sender() -> None:
        while time.perf_counter() < until:
            await producer.send_batch(table)

    await asyncio.gather(sender(), sender())


async def _latency(producer: Producer, limits: Limits, seconds: float) -> list[Figure]:
    """One message at a time: from the call to the receipt."""
    values, until = cycle(values_of(100)), time.perf_counter() + seconds
    times: list[float] = []
    while (began := time.perf_counter()) < until:
        await producer.send(next(values))
        times.append((time.perf_counter() - began) * 1e6)
    sync_us = 1e6 / limits.small_syncs_per_s
    return [
        Figure(f"latency of one send, {name}", quantile(times, share), "µs", "one fdatasync, 4 KiB", sync_us)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    ]


def table_of(size: int) -> pa.Table:
    """Random values of ``size`` bytes, 16 MiB in all."""
    rows = TABLE_BYTES // size
    values = pa.FixedSizeBinaryArray.from_buffers(
        pa.binary(size), rows, [None, pa.py_buffer(os.urandom(rows * size))]
    )
    return pa.table({"value": values.cast(pa.binary())})
