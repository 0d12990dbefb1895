"""What the commands that run nodes and other processes on this machine until Ctrl-C have in common."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

from headpond.broker.settings import variables


def drop_settings() -> None:
    """Removes the settings of some other node from the environment: each node here would take its addresses."""
    for name in os.environ.keys() & variables().keys():
        del os.environ[name]


async def until_stopped(start: Callable[[AsyncExitStack], Awaitable[None]]) -> None:
    """Starts something, and ends it at Ctrl-C, SIGTERM or SIGHUP, which may come while it starts.

    ``start`` registers how each part ends.
    """
    stopped = asyncio.Event()
    for ending in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(ending, stopped.set)
    async with AsyncExitStack() as stack:
        starting = asyncio.ensure_future(start(stack))
        stopping = asyncio.ensure_future(stopped.wait())
        try:
            await asyncio.wait([starting, stopping], return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
                await stopping
        finally:
            starting.cancel()
            stopping.cancel()
            await asyncio.gather(starting, stopping, return_exceptions=True)
