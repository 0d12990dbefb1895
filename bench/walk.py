"""Follows one operation through the real client and the real node, in one process, and prints its way.

``python -m bench.walk [send|deliver|commit|http] [--depth N]``

Every call of a Python function of Headpond counts, on every thread; resuming a coroutine counts as a call.
A line of the outline stands for equal calls in a row. Warm-up rounds come first, so that connecting and
filling caches are not part of the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import sys
import tempfile
import threading
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from types import FrameType

import httpx
import pyarrow as pa

import headpond
from headpond.broker.core import NodeCore
from headpond.broker.settings import Settings
from headpond.node.data_folder import NodeDisk
from headpond.node.http.server import HttpServer
from headpond.node.server import Server, clock_us, now_us

SOURCE = str(Path(headpond.__file__).parent) + "/"
WARM_UP = 5
SETTLE_S = 0.3
"""For what earlier rounds left to do."""
Step = Callable[[], Awaitable[object]]


class Trace:
    """The calls of our functions while it is on. Threads take it along when they start, so it is made first."""

    def __init__(self) -> None:
        self.on = False
        self.calls: list[tuple[int, str, str]] = []
        """Depth below the first function of ours on its stack, file, function."""
        threading.setprofile(self)
        sys.setprofile(self)

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if not self.on or event != "call" or not frame.f_code.co_filename.startswith(SOURCE):
            return
        depth, caller = 0, frame.f_back
        while caller is not None:
            depth += caller.f_code.co_filename.startswith(SOURCE)
            caller = caller.f_back
        self.calls.append((depth, frame.f_code.co_filename.removeprefix(SOURCE), frame.f_code.co_qualname))

    @property
    def files(self) -> set[str]:
        return {file for _, file, _ in self.calls}

    @property
    def changes(self) -> int:
        """How often the next call was in another file."""
        return sum(one[1] != two[1] for one, two in zip(self.calls, self.calls[1:], strict=False))

    def outline(self, depth_max: int) -> list[str]:
        lines: list[str] = []
        last, times = "", 0
        for depth, file, function in [*self.calls, (0, "", "")]:
            line = f"{'  ' * depth}{file}: {function}" if depth < depth_max else last
            if line == last:
                times += 1
                continue
            if last:
                lines.append(last + (f"  × {times}" if times > 1 else ""))
            last, times = line, 1
        return lines


def rows(count: int) -> pa.Table:
    return pa.table({"value": [uuid.uuid4().bytes for _ in range(count)]})


@contextlib.asynccontextmanager
async def a_node(folder: Path) -> AsyncIterator[tuple[str, str]]:
    """A node on this loop; its URL, and that of HTTP."""
    settings = Settings(data=str(folder), listen="127.0.0.1:0", http="127.0.0.1:0")
    disk = NodeDisk(folder)
    core = NodeCore(
        disk,
        settings,
        node=uuid.uuid4().hex,
        software="walk",
        now_us=now_us,
        clock_us=clock_us,
        new_uuid=lambda: uuid.uuid4().bytes,
    )
    server = Server(disk, core, settings)
    url = await server.start()
    http = HttpServer(server, settings, None)
    await http.start()
    try:
        yield url, http.url
    finally:
        await http.stop()
        await server.stop()


@contextlib.asynccontextmanager
async def send(client: headpond.Client, _http: str) -> AsyncIterator[Step]:
    """One ``send`` until its receipt."""
    async with client.producer("walk") as producer:
        yield lambda: producer.send(uuid.uuid4().bytes)


@contextlib.asynccontextmanager
async def deliver(client: headpond.Client, _http: str) -> AsyncIterator[Step]:
    """One message received, acknowledged, and the acknowledgement flushed."""
    opened = client.consumer("walk", "reader", start="latest")
    async with client.producer("walk") as producer, opened as consumer:
        await producer.send_batch(rows(100))

        async def step() -> None:
            message = await consumer.receive()
            assert message is not None
            await consumer.ack(message)
            await consumer.flush()

        yield step


@contextlib.asynccontextmanager
async def commit(client: headpond.Client, _http: str) -> AsyncIterator[Step]:
    """One batch of one row staged and committed."""
    batches = itertools.count()
    async with client.writer("walker") as writer:

        async def step() -> None:
            stage = await writer.stage("walk", rows(1))
            await writer.commit(next(batches), [stage])

        yield step


@contextlib.asynccontextmanager
async def http(_client: headpond.Client, url: str) -> AsyncIterator[Step]:
    """One message published over HTTP."""
    async with httpx.AsyncClient(base_url=url) as web:

        async def step() -> None:
            answer = await web.post(
                "/v1/topics/walk/messages",
                content=uuid.uuid4().bytes,
                headers={"Content-Type": "application/octet-stream"},
            )
            answer.raise_for_status()

        yield step


WALKS = {each.__name__: each for each in (send, deliver, commit, http)}


async def walk(names: list[str], depth: int) -> None:
    trace = Trace()
    with tempfile.TemporaryDirectory() as folder:
        async with a_node(Path(folder)) as (url, http_url), headpond.connect(url) as client:
            await client.admin.create_topic("walk")
            for name in names:
                async with WALKS[name](client, http_url) as step:
                    for _ in range(WARM_UP):
                        await step()
                    await asyncio.sleep(SETTLE_S)
                    trace.calls, trace.on = [], True
                    await step()
                    trace.on = False
                print(f"\n{name}: {WALKS[name].__doc__}")
                print(
                    f"  {len(trace.calls)} calls, {len(trace.files)} files, {trace.changes} changes of file\n"
                )
                print("\n".join("  " + line for line in trace.outline(depth)))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.walk", description=__doc__.splitlines()[0])
    parser.add_argument(
        "walks", nargs="*", metavar="WALK", help=f"{', '.join(WALKS)}; without one, all of them"
    )
    parser.add_argument("--depth", type=int, default=99, help="calls below this depth are counted, not shown")
    asked = parser.parse_args()
    if unknown := [name for name in asked.walks if name not in WALKS]:
        parser.error(f"there is no walk {unknown[0]}; choose from {', '.join(WALKS)}")
    asyncio.run(walk(asked.walks or list(WALKS), asked.depth))


if __name__ == "__main__":
    main()
