"""The node's threads for reads and writes, without threads: jobs run on the loop, one behind the other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Any


class LoopExecutor(Executor):
    """``delay_s`` says how long a job takes that begins now."""

    def __init__(self, delay_s: Callable[[], float]) -> None:
        self._delay_s = delay_s
        self._loop = asyncio.get_running_loop()
        self._jobs: dict[Callable[[], None], asyncio.Handle] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()

        def run() -> None:
            self._jobs.pop(run).cancel()
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(fn(*args, **kwargs))
            except Exception as error:  # noqa: BLE001  # the waiter gets it
                future.set_exception(error)

        delay_s = self._delay_s()
        self._jobs[run] = self._loop.call_later(delay_s, run) if delay_s else self._loop.call_soon(run)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Runs the jobs that are left, or with ``cancel_futures`` drops them."""
        for run, handle in list(self._jobs.items()):
            if cancel_futures:
                handle.cancel()
            else:
                run()
        self._jobs.clear()
