"""The node's shell on a disk in memory, which a test can cut and kill."""

from __future__ import annotations

import asyncio

from headpond.broker.core import NodeCore
from headpond.broker.settings import Settings
from headpond.node.memory_transport import connect_in_memory
from headpond.node.server import Server
from headpond.storage.append import Batch
from headpond.storage.memory_disk import MemoryDisk
from headpond.testing.loop_executor import LoopExecutor


class NoListener:
    """The listener of a node that clients reach in memory only."""

    def close(self) -> None: ...


class MemoryServer(Server):
    def __init__(self, disk: MemoryDisk, core: NodeCore, settings: Settings, slow_s: float) -> None:
        self.slow_s = slow_s
        """How long the disk takes for a write or a read."""
        super().__init__(disk, core, settings, threads=lambda *_, **__: LoopExecutor(lambda: self.slow_s))

    def connect(self, client: asyncio.Protocol) -> None:
        """Connects a client in this process, which sends frames as over a socket."""
        connect_in_memory(client, self.accept())

    def _may_write_here(self, write: Batch) -> bool:
        return not self.slow_s and super()._may_write_here(write)

    def cut(self) -> None:
        """Ends all connections, with the bytes that are on their way."""
        for connection in list(self._connections.values()):
            if connection.transport is not None:
                connection.transport.abort()

    def kill(self) -> None:
        """Ends the node as SIGKILL does: from now on it writes and sends nothing."""
        self._closed = True
        if self._listener is not None:
            self._listener.close()
        for executor in (self._readers, self._writers):
            executor.shutdown(cancel_futures=True)
        for task in self._tasks:
            task.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._tasks = [self._loop.create_task(self.peers.stop())]
        self.cut()
