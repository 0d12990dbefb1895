"""A port, each connection to which leads to another port."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import dataclass, field
from typing import Self

from headpond.broker.settings import Settings
from headpond.model.address import Address
from headpond.node.server import listen

CHUNK_BYTES = 64 * 1024


@dataclass(slots=True)
class Relay:
    """Listens at ``place``; a new connection leads to what ``host`` and ``port`` are then."""

    host: str
    port: int
    place: tuple[str, int] = field(default=("127.0.0.1", 0), kw_only=True)
    _listening: tuple[asyncio.Server, Address] | None = field(default=None, init=False)
    _open: set[asyncio.Task[None]] = field(default_factory=set, init=False)

    async def __aenter__(self) -> Self:
        def accept() -> asyncio.Protocol:
            return asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._connected)

        self._listening = await listen(accept, self.place, Settings(), None)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._listening is not None
        self._listening[0].close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    @property
    def address(self) -> Address:
        """Where it listens."""
        assert self._listening is not None
        return self._listening[1]

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            far_reader, far_writer = await asyncio.open_connection(self.host, self.port)
            try:
                await self._carry(reader, writer, far_reader, far_writer)
            finally:
                far_writer.transport.abort()
        except (OSError, asyncio.CancelledError):  # nothing listens there; or closed: nobody awaits this task
            pass
        finally:
            self._open.discard(task)
            writer.close()

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        """Returns when one of the two ends the connection."""
        ways = [asyncio.create_task(_copy(reader, far_writer)), asyncio.create_task(_copy(far_reader, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
