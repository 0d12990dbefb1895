"""A node's core and real clients on one virtual clock, with bytes in transit between them.

``VirtualLoop`` is an event loop whose clock jumps to the next timer as soon as nothing else is to do. The
connections that clients open on it lead to a ``VirtualNode``. Each direction of a connection is a queue: bytes
take some time and keep their order, as in TCP.
"""

from __future__ import annotations

import asyncio
import random
import selectors
from collections import deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from headpond.broker.core import NodeCore
from headpond.broker.effects import Close, Commit, Effect, Fetch, Send
from headpond.broker.settings import Settings
from headpond.storage.commit_lane import Committer, Write
from headpond.storage.disk import Disk
from headpond.wire.control.codec import encode_control
from headpond.wire.control.operation import Control

Result = TypeVar("Result")

BEGIN_S = 1000.0
UNSENT_BYTES = 64 * 1024
"""With more bytes in transit to a client its connection counts as full."""


class _JumpingSelector(selectors.SelectSelector):
    """Moves the clock forward where the loop would sleep."""

    loop: VirtualLoop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits for somebody else, for ever"
        self.loop.now_s += max(timeout, 0.0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        selector = _JumpingSelector()
        selector.loop = self
        self.now_s = BEGIN_S
        self.node: VirtualNode | None = None
        super().__init__(selector)

    def time(self) -> float:
        return self.now_s

    async def create_connection(  # type: ignore[override]
        self, protocol_factory: Callable[[], asyncio.Protocol], *args: Any, **options: Any
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        assert self.node is not None
        protocol = protocol_factory()
        return self.node.connect(protocol), protocol


def run_virtual(scenario: Callable[[VirtualLoop], Coroutine[Any, Any, Result]]) -> Result:
    loop = VirtualLoop()
    try:
        return loop.run_until_complete(scenario(loop))
    finally:
        for task in asyncio.all_tasks(loop):
            task.cancel()
            loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
        loop.close()


class _Way:
    """One direction of a connection."""

    def __init__(self, node: VirtualNode, arrive: Callable[[bytes], None]) -> None:
        self._node = node
        self._arrive = arrive
        self._under_way: deque[bytes] = deque()
        self._last_s = 0.0
        self.held_until_s = 0.0
        """Nothing arrives before."""

    @property
    def size(self) -> int:
        """Bytes in transit."""
        return sum(map(len, self._under_way))

    def send(self, data: bytes) -> None:
        loop = self._node.loop
        self._under_way.append(data)
        self._last_s = max(self._last_s, self.held_until_s, loop.time() + self._node.delay_s())
        loop.call_at(self._last_s, self._step)

    def _step(self) -> None:
        """The first bytes in transit arrive."""
        if self.held_until_s > self._node.loop.time():
            self._node.loop.call_at(self.held_until_s, self._step)
        else:
            self._arrive(self._under_way.popleft())


class VirtualConnection(asyncio.Transport):
    """The client's transport, and the bytes in transit to either side."""

    def __init__(self, node: VirtualNode, number: int, protocol: asyncio.Protocol) -> None:
        super().__init__()
        self.number = number
        self.ended = False
        self._node = node
        self.protocol = protocol
        self.to_node = _Way(node, self._at_node)
        self.to_client = _Way(node, self._at_client)

    def stall(self, seconds: float) -> None:
        """Delays the bytes of both directions."""
        until_s = self._node.loop.time() + seconds
        self.to_node.held_until_s = self.to_client.held_until_s = until_s

    def _at_node(self, data: bytes) -> None:
        if not self.ended or data == b"":
            self._node.received(self.number, data)

    def _at_client(self, data: bytes) -> None:
        if not self.ended:
            self.protocol.data_received(data)
            self._node.drained(self)

    # --- what the client does with it ---------------------------------------------------------------

    def write(self, data: Any) -> None:
        if data and not self.ended:
            self.to_node.send(bytes(data))

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def is_closing(self) -> bool:
        return self.ended

    def abort(self) -> None:
        """Bytes in transit are lost; the node notices the end later."""
        if not self.ended:
            self.ended = True
            self.to_node.send(b"")
            self._node.loop.call_soon(self.protocol.connection_lost, None)

    close = abort


class VirtualNode:
    """``delay_s_max`` bounds the transit of bytes, and a read or write of the disk."""

    def __init__(
        self, loop: VirtualLoop, disk: Disk, settings: Settings, seed: int, delay_s_max: float
    ) -> None:
        self.loop = loop
        self.random = random.Random(seed)
        self.delay_s_max = delay_s_max
        self.connections: dict[int, VirtualConnection] = {}
        self.ended = False
        self._disk = disk
        self._timer: asyncio.TimerHandle | None = None
        self._numbers = 0
        loop.node = self
        self.core = NodeCore(
            disk,
            settings,
            node="virtual",
            software="test",
            now_us=lambda: round(loop.time() * 1e6),
            new_uuid=lambda: self.random.randbytes(16),
        )
        self.drain()

    def end(self) -> None:
        """Kills it, with its connections and its disk work."""
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections.values()):
            connection.abort()

    def delay_s(self) -> float:
        return self.random.random() * self.delay_s_max

    def connect(self, protocol: asyncio.Protocol) -> VirtualConnection:
        self._numbers += 1
        connection = self.connections[self._numbers] = VirtualConnection(self, self._numbers, protocol)
        self.core.connected(self._numbers)
        self.drain()
        self.loop.call_soon(protocol.connection_made, connection)
        return connection

    def received(self, number: int, data: bytes) -> None:
        """Bytes arrived; none means the end of the connection."""
        if data:
            self.core.received(number, data)
        else:
            self.connections.pop(number, None)
            self.core.disconnected(number)
        self.drain()

    def drained(self, connection: VirtualConnection) -> None:
        if connection.to_client.size < UNSENT_BYTES // 2 and connection.number in self.connections:
            self.core.set_writable(connection.number, True)
            self.drain()

    def drain(self) -> None:
        """Carries out the effects of the core, as ``node/server.py`` does."""
        while effects := self.core.effects():
            for effect in effects:
                self._do(effect)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if (due_us := self.core.due_us) is not None:
            self._timer = self.loop.call_at(max(due_us / 1e6, self.loop.time()) + 0.001, self._on_time)

    def _on_time(self) -> None:
        self.core.on_time()
        self.drain()

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            if (connection := self.connections.get(effect.connection)) is not None:
                connection.to_client.send(b"".join(effect.parts))
                if connection.to_client.size > UNSENT_BYTES:
                    self.core.set_writable(connection.number, False)
        elif isinstance(effect, Commit):
            write = effect.lane.take()
            self._later(partial(self._write, effect.lane, write))
        elif isinstance(effect, Fetch):
            self._later(partial(self._fetch, effect))
        elif isinstance(effect, Close):
            if (connection := self.connections.get(effect.connection)) is not None:
                connection.abort()
        else:
            self._disk.remove_tree(effect.folder)

    def _write(self, lane: Committer, write: Write) -> None:
        write.run(self._disk)
        self.core.wrote(lane, write, None)

    def _fetch(self, fetch: Fetch) -> None:
        log = self.core.log_of(fetch)
        self.core.fetched(fetch, fetch.run(log) if log is not None else None)

    def _later(self, work: Callable[[], Any]) -> None:
        def done() -> None:
            if not self.ended:
                work()
                self.drain()

        self.loop.call_later(self.delay_s(), done)

    def say(self, number: int, *pieces: bytes | Control) -> None:
        """Connects a client made by hand, without transit."""
        data = b"".join(piece if isinstance(piece, bytes) else encode_control(piece) for piece in pieces)
        self.received(number, data)
