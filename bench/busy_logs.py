"""Many busy shards on one node: rounds of one small segment a shard, each round acknowledged before the next.

``python -m bench.busy_logs [--folder DIR] [--seconds S]``. Frames are made by hand, so that the node is what is
measured. Beside it: the same node without its commit journal, where every log is synced by itself.
"""

from __future__ import annotations

import argparse
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from bench.figure import quantile
from penstock.wire.connection import ClientSide
from penstock.wire.control import (
    Ack,
    CreateTopic,
    Request,
    Response,
    TopicInfo,
    encode_control,
    read_result,
)
from penstock.wire.frame import FrameType, encode
from penstock.wire.segment import encode_plain, rows_to_batch
from penstock.wire.title import Title, encode_title

SHARDS = 512
POWER = SHARDS.bit_length() - 1
VALUE_BYTES = 100
_NODE = """
import sys
from penstock.node.server import run
from penstock.node.settings import Settings
settings = Settings.load(sys.argv[2] or None, {"data": sys.argv[1], "listen": "127.0.0.1:0"})
run(settings, lambda url: print(url, flush=True))
"""


@contextmanager
def running_node(folder: Path, settings: str = "") -> Iterator[tuple[int, int]]:
    """Port and process id of a node of its own."""
    config = folder / "node.toml"
    config.write_text(settings)
    command = [sys.executable, "-c", _NODE, str(folder / "data"), str(config)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline().strip().rpartition(":")[2]), process.pid
        finally:
            process.terminate()


class Sender:
    """One block on one connection, a segment a shard and round."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port))
        self._side = ClientSide(client="bench")
        self._socket.sendall(b"".join(self._side.data_to_send()))
        self._block = os.urandom(16)
        self._segments = [0] * SHARDS
        batch = rows_to_batch([os.urandom(VALUE_BYTES)], None, None, None, [time.time_ns() // 1000])
        self._body = encode_plain(batch)
        self._socket.sendall(encode_control(Request(1, CreateTopic("busy", SHARDS, exist_ok=True))))
        answer = next(event for event in self._events() if isinstance(event, Response))
        uuid = read_result(answer.result, TopicInfo).uuid
        title = Title("busy", uuid)
        self._socket.sendall(encode(FrameType.TITLE, encode_title(self._block, POWER, title)))

    def round(self, shards: int) -> None:
        frames = []
        for shard in range(shards):
            frames.append(encode(FrameType.SEGMENT, self._body, shard=shard, segment=self._segments[shard]))
            self._segments[shard] += 1
        self._socket.sendall(b"".join(frames))
        left = shards
        for event in self._events():
            if isinstance(event, Ack):
                assert all(item.outcome == "stored" for item in event.items)
                left -= len(event.items)
                if not left:
                    return

    def _events(self) -> Iterator[object]:
        while data := self._socket.recv(1 << 20):
            yield from self._side.receive(data)

    def close(self) -> None:
        self._socket.close()


def measure(folder: Path, shards: int, seconds: float, settings: str) -> list[float]:
    """Milliseconds of each round."""
    with tempfile.TemporaryDirectory(dir=folder) as place, running_node(Path(place), settings) as (port, _):
        sender = Sender(port)
        for _ in range(3):
            sender.round(shards)  # makes the files
        times, until = [], time.perf_counter() + seconds
        while (began := time.perf_counter()) < until:
            sender.round(shards)
            times.append((time.perf_counter() - began) * 1e3)
        sender.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path(), metavar="DIR", help="on the disk to measure")
    parser.add_argument("--seconds", type=float, default=3.0, metavar="S")
    asked = parser.parse_args()
    table = Table(title=f"A round of one message of {VALUE_BYTES} bytes a shard", title_justify="left")
    table.add_column("busy shards", justify="right")
    table.add_column("node")
    for name in ("rounds/s", "p50 ms", "p99 ms", "messages/s"):
        table.add_column(name, justify="right")
    for shards in (1, 4, 40, 400):
        for name, settings in (("as it is", ""), ("a sync a log", "[log]\ncommit_journal_bytes = 1\n")):
            times = measure(asked.folder, shards, asked.seconds, settings)
            rate = len(times) / sum(times) * 1e3
            figures = [rate, quantile(times, 0.5), quantile(times, 0.99), rate * shards]
            table.add_row(str(shards), name, *(f"{figure:,.1f}" for figure in figures))
        table.add_section()
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
