"""Typed ingest: ``python -m bench.typed [--rows N …] [--count N] [--folder DIR]``.

One block of metrics (a time, a number, 10 labels; 2,000 series) is encoded ahead and sent to a node in another
process over one connection, many segments under way, until all are acknowledged as synced. What it prints is
what the node takes in: decoding, checking, storing and syncing; the encoder's time is not in it.
"""

from __future__ import annotations

import argparse
import os
import random
import socket
import tempfile
import time
from pathlib import Path

import pyarrow as pa

from bench.run import running_node
from penstock.wire.connection import ClientSide
from penstock.wire.control import Ack, CreateTopic, Request, Response, TopicInfo, encode_control, read_result
from penstock.wire.frame import FrameType, encode
from penstock.wire.schema import encode_schema
from penstock.wire.title import Title, encode_title
from penstock.wire.typed import Encoder
from penstock.wire.typed_rows import messages_of, row_schema, to_rows

SCHEMA = pa.schema(
    [
        pa.field("at", pa.timestamp("us", "UTC"), False),
        ("value", pa.float64()),
        ("labels", pa.map_(pa.string(), pa.string())),
    ]
)
SERIES = 2000
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
    encoder = Encoder(row_schema(SCHEMA), 0)
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


class Line:
    """A blocking connection to the node."""

    def __init__(self, url: str) -> None:
        host, _, port = url.removeprefix("penstock://").rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self._side = ClientSide(client="bench")
        self.socket.sendall(b"".join(self._side.data_to_send()))

    def events(self) -> list[object]:
        return list(self._side.receive(self.socket.recv(1 << 20)))

    def create(self, topic: str) -> TopicInfo:
        self.socket.sendall(encode_control(Request(1, CreateTopic(topic, schema=encode_schema(SCHEMA)))))
        while True:
            for event in self.events():
                if isinstance(event, Response):
                    return read_result(event.result, TopicInfo)


def ingest(url: str, rows: int, frames: list[bytes]) -> float:
    """Rows a second from the first byte to the last acknowledgement."""
    line = Line(url)
    info = line.create(f"metrics-{rows}")
    title = Title(info.topic, info.uuid, "bench", schema=encode_schema(SCHEMA))
    line.socket.sendall(encode(FrameType.TITLE, encode_title(os.urandom(16), 0, title)))
    started = time.perf_counter()
    sent = stored = under_way = 0
    while stored < len(frames):
        batch = []
        while sent < len(frames) and (under_way < UNDER_WAY_BYTES or sent == stored):
            batch.append(frames[sent])
            under_way += len(frames[sent])
            sent += 1
        line.socket.sendall(b"".join(batch))
        for event in line.events():
            for item in event.items if isinstance(event, Ack) else ():
                assert item.outcome == "stored", item
                under_way -= len(frames[item.segment])
                stored += 1
    seconds = time.perf_counter() - started
    line.socket.close()
    return rows * len(frames) / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, nargs="*", default=[1, 100, 1000, 10_000], help="rows a segment")
    parser.add_argument("--count", type=int, default=1000, help="segments, fewer where they are large")
    parser.add_argument("--folder", type=Path, default=None, help="on the disk that is meant")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as place, running_node(Path(place)) as url:
        for rows in options.rows:
            frames = segments(rows, max(20, min(options.count, 1_000_000 // rows)))
            size = sum(map(len, frames)) / (rows * len(frames))
            speed = ingest(url, rows, frames)
            print(f"{rows:>6,} rows a segment: {speed:>10,.0f} rows/s, {size:.1f} bytes a row on the wire")


if __name__ == "__main__":
    main()
