"""Who runs the client's event loop, and what makes a blocking method of an async one."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from time import monotonic
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast

import uvloop

from headpond.client.scope import AsyncScope, PublicNames
from headpond.model.errors import Closed

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Async = TypeVar("Async")
Twinned = TypeVar("Twinned", covariant=True)
Shown = TypeVar("Shown", covariant=True)
Scope = TypeVar("Scope", bound=AsyncScope, covariant=True)

LEND_S = 0.005
LEND_DIRECTLY_S = 0.2
HAND_OVER_S = 0.001
REST_S_MAX = 0.1


class Background:
    """The client's event loop: a thread runs it, or a calling thread while it waits for something.

    A call that hands its work to another thread costs two changes of threads, each tens of microseconds. So
    when calls follow each other closely the thread *rests*, and the caller runs the loop until its own work is
    done. The thread continues when no caller has run the loop for ``LEND_S``, or when somebody cannot wait.

    In the main thread uvloop prepares for signals each time that the loop begins to run, which takes tens of
    microseconds. So a caller that only waits for an answer may act in place of the loop, and take the bytes of
    the answer from the socket (``begin``, ``end``), if the loop has run within ``LEND_DIRECTLY_S``.
    """

    def __init__(self) -> None:
        self.loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._turn = threading.Lock()
        """Who holds it runs the loop."""
        self._wanted = threading.Event()
        """The thread shall run the loop."""
        self._running = self._lending = self._resting = self._hurried = self._ended = False
        """Of the thread: it runs the loop; it is about to rest; it rests; it may not rest; it shall end."""
        self._callers: set[int] = set()
        """Threads that wait for another one to run the loop."""
        self._used_s = 0.0
        """When the last call ended."""
        self._looped_s = 0.0
        """When the loop ran last, except in the thread."""
        self._thread = threading.Thread(target=self._run, name="headpond", daemon=True)
        self._thread.start()

    # --- the thread ---------------------------------------------------------------------------------

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        while not self._ended:
            with self._turn:
                self._lending = self._resting = self._hurried = False
                self._running = True
                self.loop.run_forever()
            self._rest()
        with self._turn:
            self.loop.run_until_complete(self.loop.shutdown_asyncgens())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()

    def _rest(self) -> None:
        self._resting = True  # before the look at those who may have seen that it was not
        if self._callers or self._hurried:
            return
        wait_s = LEND_S
        while not self._wanted.wait(wait_s) and not self._ended:
            if self._turn.locked():  # a caller waits for something
                wait_s = min(2 * wait_s, REST_S_MAX)
            elif monotonic() - self._used_s > LEND_S:
                break
        self._wanted.clear()

    # --- callers ------------------------------------------------------------------------------------

    @property
    def shared(self) -> bool:
        """Whether other threads wait for the loop too."""
        return bool(self._callers)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Runs a coroutine on the loop and waits for it; an interrupt of the wait cancels the coroutine."""
        if self.loop.is_closed():
            return self._run_without(work)
        if asyncio._get_running_loop() is None and self._take_turn():
            return self._run_here(work)
        self._callers.add(threading.get_ident())
        follows = monotonic() - self._used_s < LEND_S
        future = asyncio.run_coroutine_threadsafe(self._then_lend(work) if follows else work, self.loop)
        if self._resting:
            self._wanted.set()
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise
        finally:
            self._callers.discard(threading.get_ident())
            self._used_s = monotonic()

    def _run_without(self, work: Coroutine[Any, Any, Result]) -> Result:
        """After the end of the loop: what is closed says so, or has nothing left to do."""
        try:
            work.send(None)
        except StopIteration as done:
            result: Result = done.value
            return result
        except RuntimeError:  # it looks for the loop
            pass
        work.close()
        raise Closed("the client was closed", hint="Make a new one by headpond.sync.connect(...).")

    def _take_turn(self) -> bool:
        """Whether the calling thread may run the loop now."""
        return self._turn.acquire(blocking=False) or (self._lending and self._turn.acquire(timeout=HAND_OVER_S))

    async def _then_lend(self, work: Coroutine[Any, Any, Result]) -> Result:
        """When it is done, the caller may run the loop itself for its next call, if no other thread waits."""
        try:
            return await work
        finally:
            callers = list(self._callers)
            if len(callers) == 1 and threading.get_ident() == self._thread.ident:
                self._callers.discard(callers[0])  # it is done, and may notice that late
                self._lending = True
                self.loop.call_soon(self.loop.call_soon, self._pause)  # when the caller has the result

    def _pause(self) -> None:
        """On the loop: the thread lets go of it."""
        if self._running:
            self._running = False  # a second stop would end the next run
            self.loop.stop()

    def _run_here(self, work: Coroutine[Any, Any, Result]) -> Result:
        began_s, done = monotonic(), False
        try:
            task = self.loop.create_task(work)
            try:
                result = self.loop.run_until_complete(task)
            except BaseException:
                task.cancel()
                raise
            done = True
            return result
        finally:
            self._used_s = self._looped_s = monotonic()
            self._turn.release()
            if self._callers or not done or self._used_s - began_s > LEND_S:
                self._wanted.set()

    def begin(self) -> bool:
        """Whether the calling thread may act in place of the loop now; ``end`` follows."""
        if monotonic() - self._looped_s > LEND_DIRECTLY_S or asyncio._get_running_loop() is not None:
            return False
        if not self._turn.acquire(blocking=False):
            return False
        asyncio._set_running_loop(self.loop)
        return True

    def end(self) -> None:
        asyncio._set_running_loop(None)
        self._used_s = monotonic()
        self._turn.release()
        if self._callers:
            self._wanted.set()

    def soon(self, act: Callable[[], object], *, hurry: bool = True) -> None:
        """Calls ``act`` on the loop; does nothing once the loop has ended. Without ``hurry``, in ``LEND_S``."""
        try:
            self.loop.call_soon_threadsafe(act)
        except RuntimeError:
            if not self.loop.is_closed():
                raise
        if hurry:
            self._hurried = True
            if self._resting:
                self._wanted.set()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._ended = True
            self.loop.call_soon_threadsafe(self._pause)
            self._wanted.set()
            self._thread.join()


class Twin(PublicNames, Generic[Twinned]):
    """The blocking twin of an async object that lives on the background's loop."""

    def __init__(self, twin: Twinned, background: Background) -> None:
        self._twin = twin
        self._background = background


class ScopeTwin(Twin[Scope]):
    """The blocking twin of an object that ``async with`` opens and closes; ``with`` closes it."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._background.run(self._twin.__aexit__(kind, error, trace))


def blocking(
    method: Callable[Concatenate[Async, Parameters], Coroutine[Any, Any, Result]],
) -> Callable[Concatenate[Twin[Async], Parameters], Result]:
    """An async method as a method of the twin, with its signature and docstring, that waits for the result."""

    @wraps(method)
    def call(twin: Twin[Async], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        return twin._background.run(method(twin._twin, *args, **kwargs))

    return call


class Mirror(Protocol[Shown]):
    """The type of a twin's property."""

    def __get__(self, twin: Any, kind: type) -> Shown: ...


def mirrored(prop: Callable[[Async], Result]) -> Mirror[Result]:
    """A property of the async object as a property of the twin, with its docstring."""
    get = cast(property, prop).fget
    assert get is not None
    return cast(Mirror[Result], property(lambda twin: get(twin._twin), doc=get.__doc__))


def collected(
    method: Callable[Concatenate[Async, Parameters], AsyncIterator[Result]],
) -> Callable[Concatenate[Twin[Async], Parameters], list[Result]]:
    """An async iterator's method as a method of the twin that returns all items as a list."""

    @wraps(method)
    def call(twin: Twin[Async], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> list[Result]:
        async def items() -> list[Result]:
            return [item async for item in method(twin._twin, *args, **kwargs)]

        return twin._background.run(items())

    signature = inspect.signature(method)
    returns = str(signature.return_annotation).replace("AsyncIterator", "list", 1)
    call.__dict__["__signature__"] = signature.replace(return_annotation=returns)
    return call
