"""Ten thousand idle connections, and as many that never finish their greeting: what they cost the others.

    python -m bench.connections [--connections 10000] [--sends 200]

Prints a line each: the node's memory a connection, how fast they were let in, and the time that one send to the
node takes, before and with the crowd.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import resource
import socket
import tempfile
import time
from pathlib import Path

import headpond
from bench.figure import quantile
from headpond.wire.control.codec import encode_control
from headpond.wire.control.greeting import Hello
from tests.fire.real_node import RealNode

GREETING = encode_control(Hello([1], "idle"))


def crowd(address: tuple[str, int], count: int, said: bytes) -> list[socket.socket]:
    """Opens connections that say this and nothing more."""
    opened = []
    for _ in range(count):
        connection = socket.create_connection(address, timeout=30)
        connection.sendall(said)
        opened.append(connection)
    return opened


async def send_ms(url: str, count: int) -> list[float]:
    """How long each of some sends takes, one after the other."""
    async with headpond.connect(url) as client, client.producer("crowd") as producer:
        times = []
        for _ in range(count):
            began = time.perf_counter()
            await producer.send(b"x" * 100)
            times.append((time.perf_counter() - began) * 1000)
        return times


def show(name: str, times: list[float]) -> None:
    print(f"{name:32} median {quantile(times, 0.5):8.2f} ms   p99 {quantile(times, 0.99):8.2f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--sends", type=int, default=200)
    arguments = parser.parse_args()
    count = arguments.connections
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, max(soft, 2 * count + 1000)), hard))
    config = f"[limits]\nconnections = {count + 100}\nidle_s = 3600.0\n"
    with tempfile.TemporaryDirectory() as folder, RealNode(Path(folder), config=config) as node:
        show("one client alone", asyncio.run(send_ms(node.url, arguments.sends)))
        before = node.rss_bytes
        with contextlib.ExitStack() as stack:
            began = time.perf_counter()
            for connection in crowd(node.address, count, GREETING):
                stack.enter_context(connection)
            took = time.perf_counter() - began
            print(f"{count:,} greeted and idle: let in at {count / took:,.0f} a second", flush=True)
            show("one client among them", asyncio.run(send_ms(node.url, arguments.sends)))
            print(f"{(node.rss_bytes - before) / count / 1024:.1f} KiB of memory each", flush=True)
        with contextlib.ExitStack() as stack:
            for connection in crowd(node.address, count, GREETING[:5]):
                stack.enter_context(connection)
            show(f"among {count:,} half greetings", asyncio.run(send_ms(node.url, arguments.sends)))
        print(f"the node's memory at the end: {node.rss_bytes / 1e6:,.0f} MB (before: {before / 1e6:,.0f})")


if __name__ == "__main__":
    main()
