"""Messages with known losses, repeats and reorderings, as Parquet files, and the truth about them.

Routes (a producer's block and a shard of it) fare differently, so that every order occurs: some arrive as they
were sent, some with losses, with repeats, with both, and some with neighbours exchanged. The truth is counted
with numpy and pipes/calculus/orders while the rows are made; nothing of it is computed as the audit does.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from headpond.pipes.calculus.orders import OrderCheck

SEGMENT_ROWS = 500
START_US = 1_790_000_000_000_000
STRANGERS = 7
TOPIC = "default/default/default/audited"


@dataclass(slots=True)
class Truth:
    """What an audit has to find."""

    sent: int = 0
    received: int = 0
    unique: int = 0
    strangers: int = 0
    arrivals: Counter[int] = field(default_factory=Counter)
    orders: Counter[str] = field(default_factory=Counter)
    falls: int = 0
    producers: dict[str, Counter[str]] = field(default_factory=dict)
    shards: dict[int, Counter[str]] = field(default_factory=dict)
    windows: dict[int, Counter[str]] = field(default_factory=dict)
    missing: set[str] = field(default_factory=set)
    repeated: set[str] = field(default_factory=set)
    latencies_us: list[np.ndarray[Any, Any]] = field(default_factory=list)


def generate(
    folder: Path, rows: int, *, producers: int = 5, shards: int = 4, window_s: int = 60, seed: int = 1
) -> Truth:
    """Writes ``sent`` and ``received`` below the folder."""
    random = np.random.default_rng(seed)
    truth = Truth()
    for side in ("sent", "received"):
        (folder / side).mkdir(parents=True)
    each = rows // (producers * shards)
    for producer in range(producers):
        for shard in range(shards):
            _route(folder, truth, random, (producer, producers, shard, shards), each, window_s)
    _strangers(folder, truth)
    return truth


def _route(
    folder: Path, truth: Truth, random: Any, place: tuple[int, int, int, int], count: int, window_s: int
) -> None:
    producer, producers, shard, shards = place
    number = producer * shards + shard
    block = f"{number + 1:032x}"
    sent_at = START_US + np.arange(count, dtype=np.int64) * (producers * shards * 20) + number
    identities = [f"{block}/{shard}/{at // SEGMENT_ROWS}/{at % SEGMENT_ROWS}" for at in range(count)]
    index, copies = _arrivals(random, count, ("clean", "lost", "repeated", "both", "turned")[number % 5])
    again = np.concatenate([[False], index[1:] == index[:-1]])
    latency = random.lognormal(9.0, 1.0, count).astype(np.int64) + 1
    stored_at = sent_at[index] + latency[index] + again * 1_000_000
    entries = np.arange(len(index), dtype=np.int64) * producers + producer
    name = f"till-{producer}"
    ids = np.array(identities, dtype=object)
    _write(folder / "sent" / f"{number}.parquet", ids, name, shard, sent_at)
    _write(
        folder / "received" / f"{number}.parquet", ids[index], name, shard, sent_at[index], stored_at, entries
    )
    _count(truth, producer, shard, sent_at // (window_s * 1_000_000), copies)
    truth.latencies_us.append(latency[copies > 0])
    truth.missing.update(ids[copies == 0])
    truth.repeated.update(ids[copies > 1])
    check = OrderCheck()
    check.take(index.tolist())
    truth.orders[str(check.order or "none")] += 1
    truth.falls += check.falls


def _arrivals(random: Any, count: int, kind: str) -> tuple[Any, Any]:
    """The numbers of the messages as they arrive, and how often each does."""
    copies = np.ones(count, dtype=np.int64)
    if kind in ("lost", "both"):
        copies[random.random(count) < 0.001] = 0
    if kind in ("repeated", "both"):
        copies[(random.random(count) < 0.002) & (copies > 0)] = 2
        copies[count // 2] = 3
    index = np.repeat(np.arange(count), copies)
    if kind == "turned":
        at = np.flatnonzero(random.random(len(index) // 2 - 1) < 0.001) * 2
        at = np.union1d(at, [10])
        index[at], index[at + 1] = index[at + 1], index[at]
    return index, copies


def _count(truth: Truth, producer: int, shard: int, windows: Any, copies: Any) -> None:
    truth.sent += len(copies)
    truth.received += int(copies.sum())
    truth.unique += int((copies > 0).sum())
    for times, messages in zip(*np.unique(copies, return_counts=True), strict=True):
        truth.arrivals[int(times)] += int(messages)
    groups: list[tuple[dict[Any, Counter[str]], Any, Any]] = [
        (truth.producers, f"till-{producer}", slice(None)),
        (truth.shards, shard, slice(None)),
        *((truth.windows, int(window), windows == window) for window in np.unique(windows)),
    ]
    for found, name, of_it in groups:
        mine = copies[of_it]
        counter = found.setdefault(name, Counter())
        counter["sent"] += len(mine)
        counter["copies"] += int(mine.sum())
        counter["missing"] += int((mine == 0).sum())
        counter["repeated"] += int((mine > 1).sum())


def _strangers(folder: Path, truth: Truth) -> None:
    """Messages of a block that nobody sent from, at a time when others were sent."""
    ids = np.array([f"{0xABC:032x}/0/0/{row}" for row in range(STRANGERS)], dtype=object)
    times = np.full(STRANGERS, START_US, dtype=np.int64)
    entries = np.arange(STRANGERS, dtype=np.int64) + (1 << 40)
    _write(folder / "received" / "strangers.parquet", ids, "nobody", 0, times, times + 5, entries)
    truth.strangers, truth.received = STRANGERS, truth.received + STRANGERS
    truth.orders["absolute"] += 1


def _write(
    path: Path, ids: Any, producer: str, shard: int, sent_at: Any, stored_at: Any = None, entries: Any = None
) -> None:
    times = pa.timestamp("us", "UTC")
    columns = {
        "identity": pa.array(ids, pa.string()),
        "producer": pa.array([producer] * len(ids)).dictionary_encode(),
        "topic": pa.array([TOPIC] * len(ids)).dictionary_encode(),
        "shard": pa.array(np.full(len(ids), shard, dtype=np.int32)),
        "sent_at": pa.array(sent_at).cast(times),
    }
    if stored_at is not None:
        columns |= {"stored_at": pa.array(stored_at).cast(times), "entry": pa.array(entries)}
    pq.write_table(pa.table(columns), path)
