"""Starts an end of a pipe as a process (``process.py``), reads its output, and kills it."""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import Self

from tests.root import ROOT


class Child:
    """``async with Child(...) as child``: leaving the block ends the process, whatever happened."""

    def __init__(self, *arguments: object) -> None:
        self.lines: list[str] = []
        self._arguments = [str(each) for each in arguments]
        self._process: asyncio.subprocess.Process
        self._reading: asyncio.Task[None]

    async def __aenter__(self) -> Self:
        self._process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "tests.pipes.drivers.process", *self._arguments),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
        )
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.kill()

    async def kill(self) -> None:
        """Ends it at once, in whatever it is doing."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()
        await self._reading

    @property
    def numbers(self) -> list[int]:
        return [int(line) for line in self.lines if line.isdecimal()]

    async def _read(self) -> None:
        assert self._process.stdout is not None
        async for line in self._process.stdout:
            if line.endswith(b"\n"):  # of a line cut short by the kill nothing is known
                self.lines.append(line.decode().strip())
