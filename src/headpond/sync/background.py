"""The thread that runs the client's loop, and the way to it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import uvloop

Result = TypeVar("Result")


class Background:
    """A thread that runs an event loop until it is stopped."""

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="headpond", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine there and waits for it; an interrupt here cancels it there."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, act: Callable[[], object]) -> None:
        """Has ``act`` called there; after the end of the loop there is nothing left that it could do."""
        try:
            self.loop.call_soon_threadsafe(act)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()
