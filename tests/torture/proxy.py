"""A connection between two processes that can be cut, and stalled in both directions or in one."""

from __future__ import annotations

import asyncio
import contextlib

CHUNK_BYTES = 64 * 1024


class Proxy:
    """Listens on its own port; each connection to it leads to ``address``."""

    def __init__(self, user: str, address: tuple[str, int]) -> None:
        self.user = user
        self._address = address
        self._there, self._back = asyncio.Event(), asyncio.Event()
        self._open: set[asyncio.StreamWriter] = set()
        self._server: asyncio.Server | None = None
        self.release()

    async def start(self) -> str:
        """Returns the HOST:PORT to use instead of the address."""
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        return f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def cut(self) -> None:
        """Cuts all connections, with everything on its way."""
        for writer in list(self._open):
            writer.transport.abort()

    def close(self) -> None:
        if self._server is not None:
            self._server.close()
        self.cut()

    def hold(self, *, there: bool, back: bool) -> None:
        """Bytes to the node, or back from it, wait from now on."""
        for gate, held in ((self._there, there), (self._back, back)):
            if held:
                gate.clear()

    def release(self) -> None:
        self._there.set()
        self._back.set()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        with contextlib.suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection(*self._address)
            self._open.add(far_writer)
            ways = [
                asyncio.create_task(_pass_on(reader, far_writer, self._there)),
                asyncio.create_task(self._pass_back(far_reader, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
            for way in ways:
                way.cancel()
            self._open.discard(far_writer)
            far_writer.transport.abort()
        self._open.discard(writer)
        writer.transport.abort()

    async def _pass_back(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await _pass_on(reader, writer, self._back)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, gate: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(CHUNK_BYTES):
            await gate.wait()
            writer.write(data)
            await writer.drain()
