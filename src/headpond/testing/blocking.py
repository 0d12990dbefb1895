"""A node for blocking tests: it runs in a thread and listens on a real socket of the loopback address."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, TypeVar

from headpond.client.arguments import checked
from headpond.client.connect import Tokens
from headpond.client.link.link import REQUEST_TIMEOUT_S
from headpond.storage.memory_disk import MemoryDisk
from headpond.sync.background import Background, Mirror, ScopeTwin, Twin, blocking, mirrored
from headpond.sync.client import Client, connect
from headpond.testing.clock import Clock
from headpond.testing.memory_client import BACKOFF
from headpond.testing.memory_node import Node, node

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")
Original = TypeVar("Original")


def on_loop(
    method: Callable[Concatenate[Original, Parameters], Result],
) -> Callable[Concatenate[Twin[Original], Parameters], Result]:
    """A method as a method of the twin, which calls it on the node's loop."""

    @wraps(method)
    def call(twin: Twin[Original], /, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Result:
        async def run() -> Result:
            return method(twin._twin, *args, **kwargs)

        return twin._background.run(run())

    return call


class BlockingClock(Twin[Clock]):
    """The clock of a node in a thread."""

    advance = on_loop(Clock.advance)
    now = on_loop(Clock.now)


class BlockingNode(ScopeTwin[Node]):
    """A running node. ``blocking_node`` makes one; close it, best by ``with``."""

    def __init__(self) -> None:
        super().__init__(node(listen=True), Background())
        self._background.run(self._twin.open())

    def close(self) -> None:
        """Ends the node; nothing of it is left."""
        self._background.run(self._twin.close())
        self._background.stop()

    def __exit__(self, *_: object) -> None:
        self.close()

    @checked
    def connect(
        self,
        token: Tokens = None,
        *,
        name: str | None = None,
        request_timeout: float = REQUEST_TIMEOUT_S,
        wait: bool = True,
    ) -> Client:
        """A blocking client of this node; ``headpond.connect`` describes the arguments."""
        return connect(self.url, token, name=name, request_timeout=request_timeout, backoff=BACKOFF, wait=wait)

    url: Mirror[str] = mirrored(Node.url)

    @property
    def clock(self) -> BlockingClock:
        """The node's clock; ``advance`` makes deadlines, delays and retention due."""
        return BlockingClock(self._twin.clock, self._background)

    @property
    def disk(self) -> MemoryDisk:
        """The node's disk, which survives ``kill``."""
        return self._twin.disk

    restart = blocking(Node.restart)
    cut = on_loop(Node.cut)
    kill = on_loop(Node.kill)
    slow_disk = on_loop(Node.slow_disk)
    full_disk = on_loop(Node.full_disk)


def blocking_node() -> BlockingNode:
    """A running node for one blocking test: ``with testing.blocking_node() as node``."""
    return BlockingNode()
