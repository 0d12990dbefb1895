"""A queue of waiters: woken one at a time, in the order they came."""

from __future__ import annotations

import asyncio
from collections import deque


class Queue:
    """Who is woken uses its turn, and wakes the next if there is more; one that was given up passes it on."""

    def __init__(self) -> None:
        self._waiters: deque[asyncio.Future[None]] = deque()

    def __bool__(self) -> bool:
        return bool(self._waiters)

    async def wait(self) -> None:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.wake_one()
            raise

    def wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return
