"""An event loop without a machine: its clock jumps to the next timer, and every callback belongs to a process.

Client and node code runs on it unchanged. A callback that is scheduled while a process runs belongs to that
process. A killed process runs no further callback; a stopped one runs them when it is resumed.
"""

from __future__ import annotations

import asyncio
import heapq
import signal
from asyncio import events
from collections import Counter, deque
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Executor
from contextlib import contextmanager, suppress
from contextvars import Context
from types import FrameType
from typing import Any, Protocol, TypeVar

Result = TypeVar("Result")

BEGIN_S = 1_000.0
"""The monotonic clock when a run begins."""
CALLBACKS_MAX = 1_000_000
"""In a run."""
CALLBACKS_AT_ONCE_MAX = 10_000
"""While the clock stands still."""
CALLBACK_S_MAX = 10.0
"""How long a callback may run, by the processor's time."""


class Owner(Protocol):
    """What the loop and the network know of a process."""

    place: str
    """The machine's name, which is its network address."""
    killed: bool

    def may_run(self, handle: asyncio.Handle) -> bool: ...

    def work(self, executor: Executor | None, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]: ...

    async def dial(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[asyncio.Transport, asyncio.Protocol]: ...

    def listen(self, factory: Callable[[], asyncio.Protocol], host: str, port: int) -> Any: ...


class Deadlock(Exception):
    """Nothing is ready and no timer is set: what the world waits for cannot come."""


class Livelock(BaseException):
    """A callback, or one after another, runs without an end."""


class SimLoop(asyncio.AbstractEventLoop):
    def __init__(self) -> None:
        self.process: Owner | None = None
        """Whose callback runs now; None: the world's own."""
        self.faults: list[str] = []
        """Exceptions that no one handled, which asyncio would log."""
        self._now_s = BEGIN_S
        self._ready: deque[tuple[Owner | None, asyncio.Handle]] = deque()
        self._timers: list[tuple[float, int, Owner | None, asyncio.TimerHandle]] = []
        self._numbers = 0
        self._tasks: list[asyncio.Task[Any]] = []
        """All of them: collecting one of a killed process would run its ``finally`` blocks."""
        self._closed = False
        self._callbacks = 0
        self._callbacks_before = 0
        """When the clock last moved."""
        self._endless = ""
        """A function that ran until its callback had used up its time."""

    # --- running ------------------------------------------------------------------------------------

    def run_until_complete(self, future: Coroutine[Any, Any, Result]) -> Result:  # type: ignore[override]
        events._set_running_loop(self)
        try:
            with self._limited_callbacks():
                task = self.create_task(future)
                while not task.done():
                    self._step()
                    self._callbacks += 1
                    if self._callbacks > min(CALLBACKS_MAX, self._callbacks_before + CALLBACKS_AT_ONCE_MAX):
                        raise Livelock(f"{self._repeating()} runs again and again")
                    if self._endless:
                        raise Livelock(f"{self._endless} does not return")
                return task.result()
        finally:
            events._set_running_loop(None)

    @contextmanager
    def _limited_callbacks(self) -> Iterator[None]:
        """Inside, a callback that does not return gets an exception."""
        callbacks = -1

        def look(signum: int, frame: FrameType | None) -> None:
            nonlocal callbacks
            if callbacks == self._callbacks and frame is not None:
                self._endless = frame.f_code.co_qualname
                raise Livelock
            callbacks = self._callbacks

        before = signal.signal(signal.SIGVTALRM, look)
        signal.setitimer(signal.ITIMER_VIRTUAL, CALLBACK_S_MAX, CALLBACK_S_MAX)
        try:
            yield
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0.0)
            signal.signal(signal.SIGVTALRM, before)

    def _step(self) -> asyncio.Handle:
        """Runs one callback; the clock jumps if none is ready."""
        if not self._ready:
            self._jump()
        owner, handle = self._ready.popleft()
        if not handle.cancelled() and (owner is None or owner.may_run(handle)):
            self.process = owner
            handle._run()
            self.process = None
        return handle

    def _repeating(self) -> str:
        """The callback that runs most often."""
        ((name, _),) = Counter(_name_of(self._step()) for _ in range(1000)).most_common(1)
        return name

    def _jump(self) -> None:
        while self._timers:
            when, _, owner, handle = heapq.heappop(self._timers)
            if not handle.cancelled():
                if when > self._now_s:
                    self._now_s = when
                    self._callbacks_before = self._callbacks
                self._ready.append((owner, handle))
                return
        raise Deadlock

    def close(self) -> None:
        """Ends what still waits; nothing that it does now has an effect."""
        for task in self._tasks:
            if not task.done():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                with suppress(BaseException):
                    task.get_coro().close()
        self._closed = True
        self._ready.clear()
        self._timers.clear()

    def is_running(self) -> bool:
        return not self._closed

    def is_closed(self) -> bool:
        return self._closed

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if self.process is None or not self.process.killed:
            self.faults.append(f"{context.get('message')}: {error!r}")

    # --- scheduling ---------------------------------------------------------------------------------

    def time(self) -> float:
        return self._now_s

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append((self.process, handle))
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._numbers += 1
        heapq.heappush(self._timers, (when, self._numbers, self.process, handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def call_in(
        self, owner: Owner | None, delay_s: float, callback: Callable[..., object], *args: Any
    ) -> asyncio.TimerHandle:
        """Schedules a callback of another process."""
        before, self.process = self.process, owner
        try:
            return self.call_later(delay_s, callback, *args)
        finally:
            self.process = before

    def hold(self, owner: Owner, handles: list[asyncio.Handle]) -> None:
        """Runs the callbacks that a resumed process has missed."""
        self._ready.extend((owner, handle) for handle in handles)

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, Result], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[Result]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        self._tasks.append(task)
        return task

    # --- what a process asks its machine for --------------------------------------------------------

    @property
    def _caller(self) -> Owner:
        assert self.process is not None, "only a process uses its machine"
        return self.process

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Result], *args: Any
    ) -> asyncio.Future[Result]:
        return self._caller.work(executor, func, *args)

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        return await self._caller.dial(protocol_factory, host, port)

    async def create_server(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], host: str, port: int, **options: Any
    ) -> Any:
        return self._caller.listen(protocol_factory, host, port)


def _name_of(handle: asyncio.Handle) -> str:
    """Which callback it runs; for a task, its coroutine."""
    callback: Any = handle._callback  # type: ignore[attr-defined]
    owner = getattr(callback, "__self__", None)
    code = owner.get_coro() if isinstance(owner, asyncio.Task) else callback
    return getattr(code, "__qualname__", repr(code))
