"""A queue of waiters: woken one at a time, in the order they came."""

from __future__ import annotations

import asyncio
from bisect import insort
from itertools import count


class Queue:
    """Who is woken uses its turn, and wakes the next if there is more; one that was given up passes it on.

    One that was woken for nothing waits again under the turn that it had, before those who came later.
    """

    def __init__(self) -> None:
        self._turns = count()
        self._waiting: list[int] = []
        """Turns, in order."""
        self._waiters: dict[int, asyncio.Future[None]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    async def wait(self, turn: int | None = None) -> int:
        """Returns when it is woken: its turn, to wait again with."""
        turn = next(self._turns) if turn is None else turn
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters[turn] = waiter
        insort(self._waiting, turn)
        try:
            await waiter
        except asyncio.CancelledError:
            if waiter.done() and not waiter.cancelled():
                self.wake_one()
            raise
        return turn

    def wake_one(self) -> None:
        while self._waiting:
            waiter = self._waiters.pop(self._waiting.pop(0))
            if not waiter.done():
                waiter.set_result(None)
                return
