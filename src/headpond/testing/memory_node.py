"""A node in the test's process and on its event loop, with its disk and its connections in memory."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from typing import Self

from headpond.broker.settings import Settings
from headpond.client.arguments import checked
from headpond.client.connect import Client, Tokens
from headpond.client.link.connection import dial_tcp
from headpond.client.link.link import REQUEST_TIMEOUT_S
from headpond.client.scope import AsyncScope
from headpond.model.address import Address, parse_addresses
from headpond.model.errors import BadRequest
from headpond.node.process import open_core
from headpond.storage.memory_disk import MemoryDisk
from headpond.testing.clock import Clock
from headpond.testing.memory_client import MemoryClient
from headpond.testing.server import MemoryServer, NoListener

IN_MEMORY = Address("memory")


class Node(AsyncScope):
    """A node for tests. ``node`` makes one; it starts with ``async with``, or with its first client."""

    def __init__(self, *, listen: bool) -> None:
        self.clock = Clock(self._on_advance)
        """The node's clock; ``advance`` makes deadlines, delays and retention due."""
        self.disk = MemoryDisk()
        """The node's disk, which survives ``kill``; it can also rot and fail (storage/memory_disk.py)."""
        self._listen = listen
        self._port = 0
        """The node listens there again after a restart."""
        self._slow_s = 0.0
        self._server: MemoryServer | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        """The loop that the node belongs to since its first start."""
        self._down = False
        """Whether the node was killed or closed, so that no client starts it."""

    # --- life ---------------------------------------------------------------------------------------

    async def open(self) -> Self:
        """Starts the node."""
        await self._started()
        return self

    async def close(self) -> None:
        """Ends the node without waiting for anything: nothing of it is left."""
        self._down = True
        if self._server is not None:
            self._server.kill()
            self._server = None
            await asyncio.sleep(0)  # connections end with the next turn of the loop

    @property
    def shown(self) -> str:
        return "the node"

    @property
    def url(self) -> str:
        """The URL of a node that listens on a socket, for programs that connect themselves."""
        if not self._port:
            raise BadRequest(
                "this node has no URL: it is in memory only",
                hint="Use node.connect(), or make the node with listen=True and start it.",
            )
        return Address("127.0.0.1", self._port).url

    @checked
    def connect(
        self,
        token: Tokens = None,
        *,
        name: str | None = None,
        request_timeout: float = REQUEST_TIMEOUT_S,
        wait: bool = True,
    ) -> Client:
        """A client of this node, over memory; ``headpond.connect`` describes the arguments.

        Its producers have no refill unless ``refill`` names a folder. After a loss it reconnects within
        milliseconds.
        """
        return MemoryClient(
            IN_MEMORY.url, self._dial, token, name or "test", request_timeout=request_timeout, wait=wait
        )

    async def _dial(self, client: asyncio.Protocol, address: Address, tls: ssl.SSLContext | None) -> None:
        if address != IN_MEMORY:  # a copy
            await dial_tcp(client, address, tls)
        elif self._down:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        else:
            (await self._started()).connect(client)

    async def _started(self) -> MemoryServer:
        loop = asyncio.get_running_loop()
        if self._loop not in (None, loop):
            raise BadRequest("this node runs on another event loop", hint="Make one node per test.")
        self._loop = loop
        if self._server is None:
            self._down = False
            settings = Settings(data="memory", listen=f"127.0.0.1:{self._port}", create_on_first_use=True)
            core = open_core(self.disk, settings, now_us=self.clock.now_us, clock_us=self.clock.clock_us)
            self._server = MemoryServer(self.disk, core, settings, self._slow_s)
            url = await self._server.start(None if self._listen else (NoListener(), IN_MEMORY))
            if self._listen:
                self._port = parse_addresses(url)[0].port
        return self._server

    def _on_advance(self) -> None:
        if self._server is not None:
            self._server.on_time()

    # --- faults -------------------------------------------------------------------------------------

    def cut(self) -> None:
        """Ends all connections, with the bytes that are on their way; clients reconnect."""
        if self._server is not None:
            self._server.cut()

    def kill(self) -> None:
        """Ends the node like a power cut: its disk loses everything that was not synced.

        Clients cannot connect until ``restart``.
        """
        self._down = True
        if self._server is not None:
            self._server.kill()
            self._server = None
            self.disk.crash()

    async def restart(self) -> None:
        """Starts the node on the data of its disk, after a clean stop if it runs."""
        if self._server is not None:
            self._down = True
            await self._server.stop()
            self._server = None
        await self._started()

    def slow_disk(self, seconds: float) -> None:
        """Every write and read of the disk takes so long from now on; 0 ends it."""
        self._slow_s = seconds
        if self._server is not None:
            self._server.slow_s = seconds

    def full_disk(self, full: bool = True) -> None:
        """The disk has no room from now on, or has room again."""
        self.disk.capacity_bytes = self.disk.used_bytes() if full else None
        if self._server is not None:
            self._server.core.watermark.look()
            self._server.drain()


def node(*, listen: bool = False) -> Node:
    """A node for one test: ``async with testing.node() as node``.

    With ``listen`` it also listens on a free port of the loopback address, at ``node.url``.
    """
    return Node(listen=listen)
