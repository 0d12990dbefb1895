"""Typed ingest: what a node takes in of a topic with a schema.

One block of metrics (a time, a number, 10 labels; 2,000 series) is encoded ahead and sent to a node in another
process over one connection, many segments under way, until all are acknowledged as synced. That is what the
node takes in: decoding, checking, storing and syncing; the encoder's time is not in it.
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from bench.figure import Figure
from bench.limits import Limits
from bench.node import running_node
from headpond.wire.control.catalog import CreateTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.producing import Ack
from headpond.wire.frame import FrameType, encode
from headpond.wire.typed.codec import RowEncoder
from headpond.wire.typed.rows import messages_of, row_schema, to_rows
from headpond.wire.typed.schema import encode_schema
from tests.fire.raw_client import RawClient, title_frame

SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), False),
        ("value", pa.float64()),
        ("labels", pa.map_(pa.string(), pa.string())),
    ]
)
SERIES = 2000
SEGMENTS_MAX = 1000
UNDER_WAY_BYTES = 8 * 1024 * 1024
START_US = 1_700_000_000_000_000


def segments(rows: int, count: int) -> list[bytes]:
    """The frames of a block's segments."""
    chance = random.Random(1)
    labels = [
        [(f"label_{place}", f"value-{chance.randrange(50) if place < 9 else number}") for place in range(10)]
        for number in range(SERIES)
    ]
    known = pa.array(labels, SCHEMA.field("labels").type)
    encoder = RowEncoder(row_schema(SCHEMA), 0)
    frames = []
    for number in range(count):
        places = pa.array([(number * rows + place) % SERIES for place in range(rows)])
        columns = [
            pa.array([START_US + number] * rows, SCHEMA.field("at").type),
            pa.array([chance.random() for _ in range(rows)]),
            known.take(places),
        ]
        (messages,) = messages_of(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), SCHEMA, START_US)
        segment, _ = encoder.encode(to_rows(messages, SCHEMA))
        frames.append(encode(FrameType.SEGMENT, segment.body, segment=number))
    return frames


def ingest(address: tuple[str, int], rows: int, frames: list[bytes]) -> float:
    """Rows a second from the first byte to the last acknowledgement."""
    client, schema = RawClient(address), encode_schema(SCHEMA)
    info = read_result(client.request(CreateTopic(f"metrics-{rows}", schema=schema)), TopicInfo)
    client.send(title_frame(os.urandom(16), info.uuid, topic=info.topic, producer="bench", schema=schema))
    started = time.perf_counter()
    sent = stored = under_way = 0
    while stored < len(frames):
        batch = []
        while sent < len(frames) and (under_way < UNDER_WAY_BYTES or sent == stored):
            batch.append(frames[sent])
            under_way += len(frames[sent])
            sent += 1
        client.send(*batch)
        for item in client.until(Ack).items:
            assert item.outcome == "stored", item
            under_way -= len(frames[item.segment])
            stored += 1
    seconds = time.perf_counter() - started
    client.close()
    return rows * len(frames) / seconds


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(dir=folder) as place, running_node(Path(place)) as node:
        for rows in (1, 100, 1000, 10_000):
            frames = segments(rows, max(20, min(SEGMENTS_MAX, 1_000_000 // rows)))
            size = sum(map(len, frames)) / (rows * len(frames))
            speed, possible = ingest(node.address, rows, frames), limits.pipe_mb_per_s * 1e6 / size
            name = f"typed ingest, {rows:,} rows a segment"
            figures += [
                Figure(name, speed, "rows/s", "disk or loopback", possible),
                Figure(name, size, "bytes a row"),
            ]
    return figures
