"""A connection between a client and its node in one process: bytes go over in memory.

The client's bytes reach the node at once. The node's bytes reach the client with the next turn of the loop, so
that neither calls the other while it is being called. Each end stops its writer as a socket does: while the
other end does not read, or while more waits than the high-water mark allows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

HIGH_BYTES = 64 * 1024


class MemoryTransport(asyncio.Transport):
    """One end. ``protocol`` is the program at this end; its writes go to the protocol at the other end."""

    other: MemoryTransport

    def __init__(self, protocol: asyncio.Protocol, *, at_once: bool) -> None:
        super().__init__()
        self._protocol = protocol
        self._at_once = at_once
        self._loop = asyncio.get_running_loop()
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._high_bytes = HIGH_BYTES
        self._reading = asyncio.Event()
        self._reading.set()
        self._paused = False
        self._scheduled = False
        self._closing = False
        self._lost = False

    # --- writing ------------------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.writelines([bytes(data)])

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        if self._closing or self.other._closing:
            return
        data = b"".join(list_of_data)
        if self._at_once and not self._waiting and self.other.is_reading():
            self.other._protocol.data_received(data)
            return
        self._waiting.append(data)
        self._waiting_bytes += len(data)
        self._schedule()
        if self._waiting_bytes > self._high_bytes and not self._paused:
            self._paused = True
            self._protocol.pause_writing()

    def _schedule(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        if self._lost or not (self._closing or self.other.is_reading()):
            return
        if self._waiting and not self.other._closing:
            data = b"".join(self._waiting)
            self._waiting.clear()
            self._waiting_bytes = 0
            self.other._protocol.data_received(data)
        if self._paused and not self._closing:
            self._paused = False
            self._protocol.resume_writing()
        if self._closing:
            self.other._end()
            self._end()

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = HIGH_BYTES if high is None else high

    # --- reading ------------------------------------------------------------------------------------

    def is_reading(self) -> bool:
        return self._reading.is_set()

    def pause_reading(self) -> None:
        self._reading.clear()

    def resume_reading(self) -> None:
        self._reading.set()
        if self.other._waiting:
            self.other._schedule()

    async def wait_reading(self) -> None:
        """Returns when this end reads, or the connection has ended."""
        await self._reading.wait()

    # --- the end ------------------------------------------------------------------------------------

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        """Ends the connection once the other end has all written bytes."""
        if not self._closing:
            self._closing = True
            self._schedule()

    def abort(self) -> None:
        self._waiting.clear()
        self._waiting_bytes = 0
        self.close()

    def _end(self) -> None:
        self._closing = True
        self._reading.set()
        if not self._lost:
            self._lost = True
            self._protocol.connection_lost(None)


def connect_in_memory(client: asyncio.Protocol, node: asyncio.Protocol) -> None:
    """Connects a client with its node; each gets its end as a transport."""
    near, far = MemoryTransport(client, at_once=True), MemoryTransport(node, at_once=False)
    near.other, far.other = far, near
    node.connection_made(far)
    client.connection_made(near)
