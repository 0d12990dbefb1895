"""Those who wait until their settlements are on the node's disk, by the number of the last one."""

from __future__ import annotations

import asyncio

from headpond.model.errors import HeadpondError


class Flushes:
    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def wait(self, number: int) -> asyncio.Future[None]:
        """Done when everything up to and with ``number`` is confirmed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, done))
        return done

    def confirm(self, number: int) -> None:
        waiting, self._waiting = self._waiting, []
        for wanted, done in waiting:
            if wanted > number:
                self._waiting.append((wanted, done))
            elif not done.done():
                done.set_result(None)

    def fail(self, error: HeadpondError) -> None:
        """They will not be confirmed any more."""
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            if not done.done():
                done.set_exception(error.again())
