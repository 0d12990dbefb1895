"""The thread that runs the client's event loop, and what makes a blocking method of an async one."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import wraps
from types import TracebackType
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Self, TypeVar, cast

import uvloop

from headpond.client.scope import AsyncScope

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Async = TypeVar("Async")
Twinned = TypeVar("Twinned", covariant=True)
Shown = TypeVar("Shown", covariant=True)
Scope = TypeVar("Scope", bound=AsyncScope, covariant=True)


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
        """Runs a coroutine on the loop and waits for it; an interrupt of the wait cancels the coroutine."""
        future = asyncio.run_coroutine_threadsafe(work, self.loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def soon(self, act: Callable[[], object]) -> None:
        """Calls ``act`` on the loop; does nothing once the loop has ended."""
        try:
            self.loop.call_soon_threadsafe(act)
        except RuntimeError:
            if not self.loop.is_closed():
                raise

    def stop(self) -> None:
        if self._thread.is_alive():
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join()


class Twin(Generic[Twinned]):
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
