"""stdin and stdout beside the event loop.

A read or write that blocks must delay neither the acknowledgements of the connection nor Ctrl-C, so a daemon
thread does it, in large pieces.
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
from concurrent.futures import Future
from typing import TypeVar

BLOCK_BYTES = 1024 * 1024
LINE_BYTES_MAX = 8 * 1024 * 1024 - 8192
"""A segment holds 8 MiB, the other columns of its row and its framing included."""
PIPE_BYTES_SURE = select.PIPE_BUF
"""A pipe that reports room takes so many bytes without blocking."""

Result = TypeVar("Result")


async def beside(work: Callable[[], Result]) -> Result:
    """Waits for ``work`` in a thread that does not keep the program alive."""
    done: Future[Result] = Future()
    done.set_running_or_notify_cancel()  # the thread ends it, whether or not anybody still waits

    def body() -> None:
        try:
            done.set_result(work())
        except BaseException as error:  # noqa: BLE001  # raised again where the result is awaited
            done.set_exception(error)

    threading.Thread(target=body, daemon=True).start()
    return await asyncio.wrap_future(done)


async def read_blocks(fd: int) -> AsyncIterator[bytes]:
    """Blocks from ``fd``: each is what is ready, up to ``BLOCK_BYTES``, without waiting for more."""
    _widen(fd)
    ended = False
    while not ended:
        block, ended = await beside(lambda: _read_ready(fd))
        if block:
            yield block


def _widen(fd: int) -> None:
    """Lets a pipe hold a whole block while the previous one is being sent, if the system can."""
    if hasattr(fcntl, "F_SETPIPE_SZ"):
        with contextlib.suppress(OSError):  # not a pipe, or not allowed
            fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, BLOCK_BYTES)


def _read_ready(fd: int) -> tuple[bytes, bool]:
    """At least one byte unless the input ended; and whether it ended (a terminal reports that only once)."""
    parts = [os.read(fd, BLOCK_BYTES)]
    size = len(parts[0])
    while parts[-1] and size < BLOCK_BYTES and select.select([fd], [], [], 0)[0]:
        parts.append(os.read(fd, BLOCK_BYTES - size))
        size += len(parts[-1])
    return b"".join(parts), not parts[-1]


class OutputWriter:
    """Writes to ``fd``; ``write`` returns after all bytes are written."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._never_blocks = stat.S_ISREG(os.fstat(fd).st_mode)

    async def write(self, data: bytes) -> None:
        fits = len(data) <= PIPE_BYTES_SURE and bool(select.select([], [self._fd], [], 0)[1])
        if self._never_blocks or fits:
            self._write_all(data)
        else:
            await beside(lambda: self._write_all(data))

    def _write_all(self, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(self._fd, rest) :]


class LineCutter:
    """Cuts blocks into lines without their newline; the last line may lack one, an empty line is a line.

    A line over ``bytes_max`` is dropped, and ``take_too_long`` returns its number. So memory is bounded by one
    block and one line.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._rest: list[bytes] = []
        self._rest_bytes = 0
        self._dropping = False
        self.count = 0
        """How many lines ended so far, including dropped ones."""
        self._too_long: list[int] = []

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that end in ``block``."""
        lines = block.split(b"\n")
        if len(lines) == 1:
            self._keep(block)
            return []
        lines[0] = self._take(lines[0])
        tail = lines.pop()
        kept = self._checked(lines)
        self._keep(tail)
        return kept

    def finish(self) -> list[bytes]:
        """The last line, where the input did not end with a newline."""
        if not self._rest_bytes and not self._dropping:
            return []
        return self._checked([self._take(b"")])

    def take_too_long(self) -> list[int]:
        """The numbers, from 1, of the lines dropped since the last call."""
        numbers, self._too_long = self._too_long, []
        return numbers

    def _keep(self, part: bytes) -> None:
        if not part:
            return
        self._rest_bytes += len(part)
        if self._rest_bytes > self._bytes_max:
            self._dropping = True
            self._rest.clear()
        if not self._dropping:
            self._rest.append(part)

    def _take(self, end: bytes) -> bytes:
        self._rest.append(end)
        line = b"".join(self._rest)
        self._rest.clear()
        self._rest_bytes = 0
        return line

    def _checked(self, lines: list[bytes]) -> list[bytes]:
        first = self.count + 1
        self.count += len(lines)
        dropped, self._dropping = self._dropping, False
        if not dropped and max(map(len, lines)) <= self._bytes_max:
            return lines
        bad = {at for at, line in enumerate(lines) if len(line) > self._bytes_max}
        if dropped:
            bad.add(0)
        self._too_long.extend(first + at for at in sorted(bad))
        return [line for at, line in enumerate(lines) if at not in bad]
