"""What is measured. Values are distinct random bytes, and each is sent once.

Each function measures one broker and returns its figures by the names of ``METRICS``. Everything that it sent
is received again (but for ``fill``), and the first ``MARK_BYTES`` of all values are compared: a message that
is missing, altered or there twice ends the benchmark.
"""

from __future__ import annotations

import asyncio
import secrets
import struct
import time
from bisect import bisect_right
from collections.abc import Callable, Coroutine, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import uvloop

from bench.figure import quantile
from bench.peers.crew import Start, run_together
from bench.peers.peer import Peer, PeerProducer
from bench.peers.server import free_port
from bench.values import values_of

SMALL, LARGE = 100, 1024
BATCH = 10_000
"""Messages in a batch, as the documentation of Redis advises for pipelines."""
FIRST = 200
"""Messages of the first, shortest run; each run is longer than the one before, until one is long enough."""
GROWTH_MAX = 10
MESSAGES_MAX = 4_000_000
"""Fewer would end a batch run of Headpond after a tenth of a second, which is a burst and no rate."""
MARK_BYTES = 8
PRODUCERS = 4
SUBSCRIPTIONS = 16
SHARED_FIRST, SHARED_MAX = 20_000, 600_000
"""Messages that each of the subscriptions reads, at first and at most."""
SHARED_SECONDS = 4
"""How many times longer than other measurements: this one starts sixteen processes."""
STEADY_PER_S = 1000
FILL_S_MAX = 60.0
QUIET_S = 0.2
"""So long nothing more may come after the last message."""
SUB = "s"


class Metric(NamedTuple):
    title: str
    unit: str
    less_is_better: bool = False


METRICS = {
    "publish_100": Metric("publish, one call per message, 100 B", "messages/s"),
    "publish_1024": Metric("publish, one call per message, 1 KiB", "messages/s"),
    "batch_100": Metric("publish by batch, 100 B", "messages/s"),
    "batch_1024": Metric("publish by batch, 1 KiB", "messages/s"),
    "producers": Metric(f"publish from {PRODUCERS} processes, 100 B", "messages/s"),
    "end_to_end": Metric("end to end, one ack per message, 100 B", "messages/s"),
    "blocking_p50": Metric("one blocking send, p50", "µs", less_is_better=True),
    "blocking_p99": Metric("one blocking send, p99", "µs", less_is_better=True),
    "async_p50": Metric("one async send, p50", "µs", less_is_better=True),
    "async_p99": Metric("one async send, p99", "µs", less_is_better=True),
    "steady_p50": Metric(f"send to receive at {STEADY_PER_S:,}/s, p50", "µs", less_is_better=True),
    "steady_p99": Metric(f"send to receive at {STEADY_PER_S:,}/s, p99", "µs", less_is_better=True),
    "subscriptions": Metric(f"{SUBSCRIPTIONS} subscriptions, total", "messages/s"),
    "share_min": Metric(f"{SUBSCRIPTIONS} subscriptions, smallest of fair share", "share"),
    "memory": Metric("memory after the fill", "MiB", less_is_better=True),
    "disk": Metric("disk, 100 B of value", "bytes/message", less_is_better=True),
    "filled": Metric("messages of the fill", "messages"),
}


@dataclass(frozen=True, slots=True)
class Effort:
    seconds: float = 1.0
    """How long one measurement lasts, about."""
    fill_messages: int = 1_000_000


Figures = dict[str, float]


class Marks:
    """The first bytes of values, which tell one random value from another."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, value: bytes) -> None:
        self._bytes += value[:MARK_BYTES]

    def add_all(self, values: Iterable[bytes]) -> None:
        for value in values:
            self.add(value)

    def sorted(self) -> Any:
        return np.sort(np.frombuffer(self._bytes, np.uint64))

    def __len__(self) -> int:
        return len(self._bytes) // MARK_BYTES


def check_arrived(name: str, sent: Marks, received: Marks) -> None:
    """R = 1 and UR = 1: as many as were sent, and each of them."""
    expected, found = sent.sorted(), received.sorted()
    assert len(found) == len(expected), f"{name}: {len(expected):,} sent, {len(found):,} received"
    distinct = len(np.unique(found))
    assert distinct == len(expected), f"{name}: {len(expected):,} sent, {distinct:,} distinct values received"
    assert np.array_equal(expected, found), f"{name}: values were received that nobody sent"


async def receive_all(peer: Peer, topic: str, subscription: str, sent: Marks) -> None:
    received = Marks()
    async with peer.consumer(topic, subscription) as consumer:
        await consumer.consume(len(sent), received.add)
        try:
            async with asyncio.timeout(QUIET_S):
                await consumer.consume(1, received.add)
        except TimeoutError:
            pass
    check_arrived(f"{peer.name}, {topic}", sent, received)


def batches_of(values: list[bytes]) -> list[list[bytes]]:
    return [values[start : start + BATCH] for start in range(0, len(values), BATCH)]


async def _per_message(producer: PeerProducer, values: list[bytes]) -> None:
    await producer.publish(values)


async def _by_batch(producer: PeerProducer, values: list[bytes]) -> None:
    await producer.publish_batch(batches_of(values))


How = Callable[[PeerProducer, list[bytes]], Coroutine[Any, Any, None]]


async def _rate(producer: PeerProducer, how: How, size: int, seconds: float, sent: Marks) -> float:
    """Of the first run that lasts for half of ``seconds``; those before it warm up the code and the files.

    The first of all never counts: it opens connections and files.
    """
    await _send_new(producer, how, size, FIRST, sent)
    count = FIRST
    while True:
        spent = await _send_new(producer, how, size, count, sent)
        if spent >= seconds / 2 or count == MESSAGES_MAX:
            return count / spent
        count = min(MESSAGES_MAX, int(count * min(GROWTH_MAX, max(1.5, seconds / spent))))


async def _send_new(producer: PeerProducer, how: How, size: int, count: int, sent: Marks) -> float:
    """Seconds from the first call to the last confirm."""
    values = values_of(size, count)
    sent.add_all(values)
    began = time.perf_counter()
    await how(producer, values)
    return time.perf_counter() - began


async def _published(peer: Peer, how: How, size: int, seconds: float) -> float:
    topic, sent = new_topic(), Marks()
    await peer.create(topic, [SUB])
    async with peer.producer(topic) as producer:
        rate = await _rate(producer, how, size, seconds, sent)
    await receive_all(peer, topic, SUB, sent)
    await peer.delete(topic, [SUB])
    return rate


def publish(peer: Peer, effort: Effort) -> Figures:
    return {
        f"publish_{size}": uvloop.run(_published(peer, _per_message, size, effort.seconds))
        for size in (SMALL, LARGE)
    }


def batch(peer: Peer, effort: Effort) -> Figures:
    return {
        f"batch_{size}": uvloop.run(_published(peer, _by_batch, size, effort.seconds))
        for size in (SMALL, LARGE)
    }


def producers(peer: Peer, effort: Effort) -> Figures:
    """Every producer is a process; the time is from the first call to the last confirm of all."""
    topic = new_topic()
    alone = uvloop.run(_published(peer, _per_message, SMALL, effort.seconds / 4))
    count = max(FIRST, int(alone * effort.seconds / PRODUCERS))
    uvloop.run(peer.create(topic, [SUB]))
    spans = run_together([(_produce, (peer, topic, count))] * PRODUCERS)
    sent = Marks()
    for _, _, marks in spans:
        sent.add_all(marks)
    uvloop.run(receive_all(peer, topic, SUB, sent))
    uvloop.run(peer.delete(topic, [SUB]))
    return {"producers": PRODUCERS * count / _spent(spans)}


async def _produce(start: Start, peer: Peer, topic: str, count: int) -> tuple[float, float, list[bytes]]:
    warm, values = values_of(SMALL, FIRST), values_of(SMALL, count)
    async with peer.producer(topic) as producer:
        await producer.publish(warm)
        await start()
        began = time.monotonic()
        await producer.publish(values)
        return began, time.monotonic(), [value[:MARK_BYTES] for value in warm + values]


def end_to_end(peer: Peer, effort: Effort) -> Figures:
    """From the first call of a producer by batch to the last acknowledgement in another process."""
    topic = new_topic()
    alone = uvloop.run(_published(peer, _by_batch, SMALL, effort.seconds / 4))
    count = max(FIRST, int(alone * effort.seconds / 2))
    uvloop.run(peer.create(topic, [SUB]))
    received_count = FIRST + count
    spans = run_together(
        [(_produce_batches, (peer, topic, count)), (_consume, (peer, topic, SUB, received_count))]
    )
    sent, received = Marks(), Marks()
    sent.add_all(spans[0][2])
    received.add_all(spans[1][2])
    check_arrived(f"{peer.name}, end to end", sent, received)
    uvloop.run(peer.delete(topic, [SUB]))
    return {"end_to_end": count / _spent(spans)}


async def _produce_batches(
    start: Start, peer: Peer, topic: str, count: int
) -> tuple[float, float, list[bytes]]:
    warm, values = values_of(SMALL, FIRST), values_of(SMALL, count)
    async with peer.producer(topic) as producer:
        await producer.publish(warm)
        await start()
        began = time.monotonic()
        await producer.publish_batch(batches_of(values))
        return began, time.monotonic(), [value[:MARK_BYTES] for value in warm + values]


async def _consume(
    start: Start, peer: Peer, topic: str, subscription: str, count: int
) -> tuple[float, float, list[bytes]]:
    received: list[bytes] = []
    async with peer.consumer(topic, subscription) as consumer:
        await start()
        began = time.monotonic()
        await consumer.consume(count, received.append)
        return began, time.monotonic(), [value[:MARK_BYTES] for value in received]


def _spent(spans: list[tuple[float, float, list[bytes]]]) -> float:
    return max(ended for _, ended, _ in spans) - min(began for began, _, _ in spans)


def blocking(peer: Peer, effort: Effort) -> Figures:
    """One blocking send after the other."""
    topic, sent, times = new_topic(), Marks(), []
    uvloop.run(peer.create(topic, [SUB]))
    with peer.blocking_sender(topic) as send:
        first, *values = values_of(SMALL)
        send(first)  # which opens connections and files
        sent.add(first)
        until = time.perf_counter() + effort.seconds
        for value in values:
            began = time.perf_counter()
            send(value)
            times.append((time.perf_counter() - began) * 1e6)
            sent.add(value)
            if began > until:
                break
    uvloop.run(receive_all(peer, topic, SUB, sent))
    uvloop.run(peer.delete(topic, [SUB]))
    return _quantiles("blocking", times)


def async_send(peer: Peer, effort: Effort) -> Figures:
    """One awaited send after the other."""
    return uvloop.run(_async_send(peer, effort))


async def _async_send(peer: Peer, effort: Effort) -> Figures:
    topic, sent, times = new_topic(), Marks(), []
    await peer.create(topic, [SUB])
    async with peer.producer(topic) as producer:
        first, *values = values_of(SMALL)
        await producer.send(first)  # which opens connections and files
        sent.add(first)
        until = time.perf_counter() + effort.seconds
        for value in values:
            began = time.perf_counter()
            await producer.send(value)
            times.append((time.perf_counter() - began) * 1e6)
            sent.add(value)
            if began > until:
                break
    await receive_all(peer, topic, SUB, sent)
    await peer.delete(topic, [SUB])
    return _quantiles("async", times)


def steady(peer: Peer, effort: Effort) -> Figures:
    """From the call of ``send`` to the consumer in another process, at a rate that all brokers can keep."""
    topic, count = new_topic(), int(STEADY_PER_S * max(2.0, effort.seconds))
    uvloop.run(peer.create(topic, [SUB]))
    _, times = run_together([(_send_steadily, (peer, topic, count)), (_time_arrivals, (peer, topic, count))])
    uvloop.run(peer.delete(topic, [SUB]))
    return _quantiles("steady", times)


async def _send_steadily(start: Start, peer: Peer, topic: str, count: int) -> None:
    rests = values_of(SMALL - MARK_BYTES, count)
    async with peer.producer(topic) as producer:
        await start()
        began = time.monotonic()
        async with asyncio.TaskGroup() as sends:
            for number, rest in enumerate(rests):
                early_s = began + number / STEADY_PER_S - time.monotonic()
                await asyncio.sleep(max(0.0, early_s))
                sends.create_task(producer.send(struct.pack("<Q", time.monotonic_ns()) + rest))


async def _time_arrivals(start: Start, peer: Peer, topic: str, count: int) -> list[float]:
    times: list[float] = []
    sent_at = set()

    def arrived(value: bytes) -> None:
        now = time.monotonic_ns()
        (sent,) = struct.unpack_from("<Q", value)
        sent_at.add(sent)
        times.append((now - sent) / 1e3)

    async with peer.consumer(topic, SUB) as consumer:
        await start()
        await consumer.consume(count, arrived)
    assert len(sent_at) == count, f"{peer.name}: {count:,} sent, {len(sent_at):,} distinct values received"
    return times


def subscriptions(peer: Peer, effort: Effort) -> Figures:
    """All read the same messages at once, a process each; who has how many when the first one has all?

    The first run that lasts long enough counts: in a short one the first process to start has everything.
    """
    count, seconds = SHARED_FIRST, effort.seconds * SHARED_SECONDS
    while True:
        found, spent = _shared(peer, count)
        if spent >= seconds / 2 or count == SHARED_MAX:
            return found
        count = min(SHARED_MAX, int(count * min(GROWTH_MAX, max(1.5, seconds / spent))))


def _shared(peer: Peer, count: int) -> tuple[Figures, float]:
    """The figures, and the seconds until the first one had all."""
    names = [f"{SUB}{number}" for number in range(SUBSCRIPTIONS)]
    topic, sent = new_topic(), Marks()
    uvloop.run(peer.create(topic, names))
    uvloop.run(_fill_topic(peer, topic, count, sent))
    readers = run_together([(_time_reads, (peer, topic, name, count)) for name in names])
    for _, _, marks in readers:
        received = Marks()
        received.add_all(marks)
        check_arrived(f"{peer.name}, {SUBSCRIPTIONS} subscriptions", sent, received)
    uvloop.run(peer.delete(topic, names))
    first_done = min(times[-1] for _, times, _ in readers)
    counts = [bisect_right(times, first_done) for _, times, _ in readers]
    began = min(began for began, _, _ in readers)
    total_s = max(times[-1] for _, times, _ in readers) - began
    found = {
        "subscriptions": SUBSCRIPTIONS * count / total_s,
        "share_min": min(counts) * len(counts) / sum(counts),
    }
    return found, first_done - began


async def _fill_topic(peer: Peer, topic: str, count: int, sent: Marks) -> None:
    values = values_of(SMALL, count)
    sent.add_all(values)
    async with peer.producer(topic) as producer:
        await producer.publish_batch(batches_of(values))


async def _time_reads(
    start: Start, peer: Peer, topic: str, subscription: str, count: int
) -> tuple[float, list[float], list[bytes]]:
    times: list[float] = []
    marks: list[bytes] = []

    def arrived(value: bytes) -> None:
        times.append(time.monotonic())
        marks.append(value[:MARK_BYTES])

    async with peer.consumer(topic, subscription) as consumer:
        await start()
        began = time.monotonic()
        await consumer.consume(count, arrived)
    return began, times, marks


def fill(peer: Peer, effort: Effort) -> Figures:
    """A server of its own, as large as the messages make it; a slow one gets what it takes in a minute."""
    other = type(peer)(peer.folder.with_name(f"{peer.folder.name}-filled"), free_port())
    server = other.start()
    try:
        count = uvloop.run(_fill(other, effort.fill_messages))
        return {
            "memory": server.resident_bytes() / 2**20,
            "disk": server.disk_bytes() / count,
            "filled": count,
        }
    finally:
        server.stop()


async def _fill(peer: Peer, count: int) -> int:
    topic, stored, until = new_topic(), 0, time.monotonic() + FILL_S_MAX
    await peer.create(topic, [SUB])
    async with peer.producer(topic) as producer:
        while stored < count and time.monotonic() < until:
            values = values_of(SMALL, min(BATCH, count - stored))
            await producer.publish_batch([values[: len(values) // 2], values[len(values) // 2 :]])
            stored += len(values)
    return stored


def _quantiles(name: str, times: list[float]) -> Figures:
    settled = times[len(times) // 10 :]  # the first tenth warms up
    return {f"{name}_p50": quantile(settled, 0.5), f"{name}_p99": quantile(settled, 0.99)}


def new_topic() -> str:
    return f"bench-{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Workload:
    run: Callable[[Peer, Effort], Figures]
    beside_file: bool = False
    """Whether a plain file is measured, too."""
    once: bool = False
    """Whether one round is enough: it takes long, and does not vary."""


WORKLOADS = {
    "publish": Workload(publish, beside_file=True),
    "batch": Workload(batch, beside_file=True),
    "producers": Workload(producers),
    "end_to_end": Workload(end_to_end),
    "blocking": Workload(blocking, beside_file=True),
    "async": Workload(async_send),
    "steady": Workload(steady),
    "subscriptions": Workload(subscriptions),
    "fill": Workload(fill, once=True),
}
