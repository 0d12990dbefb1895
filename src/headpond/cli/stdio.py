"""stdin and stdout beside the event loop.

A read or write that blocks must not stop the connection's acknowledgements, and Ctrl-C must not wait for it:
so it is done in a daemon thread, in large pieces.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import select
import stat
import threading
from collections.abc import AsyncIterator, Callable
from typing import TypeVar

BLOCK_BYTES = 1024 * 1024
PIPE_BYTES_SURE = select.PIPE_BUF
"""What a pipe that reports room takes without blocking."""

Result = TypeVar("Result")


async def beside(work: Callable[[], Result]) -> Result:
    """Waits for ``work`` in a thread that does not keep the program alive."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # without an error there is a result

    def body() -> None:
        result: Result | None = None
        error: BaseException | None = None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001  # it belongs to the one who waits
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended, so nobody waits
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=body, daemon=True).start()
    return await done


async def read_blocks(fd: int) -> AsyncIterator[bytes]:
    """What comes from ``fd`` as it comes: all that is ready, up to a block, without waiting for more."""
    _widen(fd)
    ended = False
    while not ended:
        block, ended = await beside(lambda: _read_ready(fd))
        if block:
            yield block


def _widen(fd: int) -> None:
    """Lets a pipe hold a whole block while the last one is under way, where the system can."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # not a pipe, or not allowed
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, BLOCK_BYTES)


def _read_ready(fd: int) -> tuple[bytes, bool]:
    """At least one byte unless the input ended; and whether it did (a terminal says so only once)."""
    parts = [os.read(fd, BLOCK_BYTES)]
    size = len(parts[0])
    while parts[-1] and size < BLOCK_BYTES and select.select([fd], [], [], 0)[0]:
        parts.append(os.read(fd, BLOCK_BYTES - size))
        size += len(parts[-1])
    return b"".join(parts), not parts[-1]


class Writer:
    """Writes all of its bytes to ``fd`` before ``write`` returns."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._never_blocks = stat.S_ISREG(os.fstat(fd).st_mode)

    async def write(self, data: bytes) -> None:
        if self._takes_at_once(len(data)):
            self._write_all(data)
        else:
            await beside(lambda: self._write_all(data))

    def _takes_at_once(self, size: int) -> bool:
        if self._never_blocks:
            return True
        return size <= PIPE_BYTES_SURE and bool(select.select([], [self._fd], [], 0)[1])

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]
