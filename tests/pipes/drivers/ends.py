"""Reading and sending, as the tests of pipes do it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from headpond.client.link.dialling import Backoff
from headpond.pipes.drivers.receiver import PipeReceiver
from headpond.pipes.drivers.sender import PipeSender

QUICK = Backoff(min_s=0.005, max_s=0.05)


@asynccontextmanager
async def reading(receiver: PipeReceiver) -> AsyncIterator[list[int]]:
    """What the receiver delivers, as numbers, growing in the background."""
    got: list[int] = []

    async def read() -> None:
        async for payload in receiver:
            got.append(int(payload))  # noqa: PERF401  # it grows while others look

    task = asyncio.create_task(read())
    try:
        yield got
    finally:
        task.cancel()
        failures = await asyncio.gather(task, return_exceptions=True)
        if isinstance(failures[0], Exception):
            raise failures[0]


async def send_in_bursts(sender: PipeSender, numbers: Sequence[int], burst: int = 3) -> None:
    """Each burst becomes one packet."""
    for at in range(0, len(numbers), burst):
        await sender.send_many([b"%d" % number for number in numbers[at : at + burst]])
        await asyncio.sleep(0.001)
