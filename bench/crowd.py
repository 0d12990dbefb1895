"""A crowd on one node: the memory of 1,000 subscriptions and 1,000 connections over 1 M stored messages.

The clients are in a process of their own, a connection and a subscription each. They read from the first
message on: first as far as a credit of ``CREDIT_BYTES`` goes, without acknowledging any of it; then they grant
a credit for everything and stop reading their sockets, so that the node buffers for them all that it ever does.
With one shard, and with four, of which the node reads side by side.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.figure import Figure
from bench.limits import Limits
from bench.node import Node, raise_file_limit, running_node
from bench.sender import VALUE_BYTES, Sender
from headpond.wire.control.consuming import Credit, Settle, Settled, Subscribe, Subscribed
from tests.fire.raw_client import RawClient

MESSAGES = 1_000_000
CLIENTS = 1000
ROWS = 1000
"""Messages in a segment."""
EACH = 10
"""Segments a shard and round."""
CREDIT_BYTES = 256 * 1024
BOUND_BYTES = 1024 * 1024 * 1024
SETTLES_S_MAX = 60.0


def crowd(host: str, port: str) -> None:
    """The clients' process: says when they are connected, when they have read, and when the node is stuck."""
    raise_file_limit()
    clients = [RawClient((host, int(port))) for _ in range(CLIENTS)]
    for number, client in enumerate(clients):
        client.send(Subscribe(1, "full", f"s-{number}", "unique", "non_resilient", "earliest", CREDIT_BYTES))
    for client in clients:
        client.until(Subscribed)
    _say("connected")
    for client in clients:
        client.send(Settle(1, 1, 0))
        client.until(Settled)
    _say("read")
    for client in clients:
        client.send(Credit(1, 1 << 30))
    _say("stuck")


def _say(word: str) -> None:
    print(word, flush=True)
    sys.stdin.readline()


class Crowd:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def until(self, word: str) -> None:
        assert self._process.stdout is not None
        said = self._process.stdout.readline().strip()
        assert said == word, f"the clients said {said!r} and not {word!r}"

    def go_on(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()


@contextmanager
def gathered(node: Node) -> Iterator[Crowd]:
    host, port = node.address
    command = [sys.executable, "-c", "import sys; from bench.crowd import crowd; crowd(*sys.argv[1:])"]
    process = subprocess.Popen(
        [*command, host, str(port)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        yield Crowd(process)
    finally:
        process.kill()
        process.communicate()


def settled(node: Node) -> int:
    """Its memory, once that does not grow any more."""
    found, until = node.resident_bytes(), time.monotonic() + SETTLES_S_MAX
    while time.monotonic() < until:
        time.sleep(2.0)
        before, found = found, node.resident_bytes()
        if found <= before + (1 << 20):
            break
    return found


def measure(folder: Path, limits: Limits, seconds: float) -> list[Figure]:
    return [figure for shards in (1, 4) for figure in _measure(folder, shards)]


def _measure(folder: Path, shards: int) -> list[Figure]:
    figures: list[Figure] = []

    def note(name: str, size: int) -> None:
        text = f"node's memory, {shards} shard{'s' * (shards > 1)}, {name}"
        figures.append(Figure(text, size / 1e6, "MB", "1 GiB", BOUND_BYTES / 1e6))

    with tempfile.TemporaryDirectory(dir=folder) as place, running_node(Path(place)) as node:
        note("started", node.resident_bytes())
        sender = Sender(node.address, "full", shards=shards, rows=ROWS)
        for _ in range(MESSAGES // ROWS // EACH // shards):
            sender.round(shards, each=EACH)
        note(f"{MESSAGES:,} messages of {VALUE_BYTES} B stored", node.resident_bytes())
        with gathered(node) as crowd:
            crowd.until("connected")
            note(f"{CLIENTS:,} subscriptions and connections", settled(node))
            crowd.go_on()
            crowd.until("read")
            note(f"each holds {CREDIT_BYTES // 1024} KiB unacknowledged", settled(node))
            crowd.go_on()
            crowd.until("stuck")
            sender.round()
            note("each has credit and does not read", settled(node))
        note("the most it ever had", node.resident_bytes_max())
        sender.close()
    return figures
