"""A shell around the node's core with no thread and no socket: the test says what happens, and when.

What is to be sent arrives at once. Writes and reads of the disk wait in ``pending`` until one is chosen, so
that any order in which worker threads could have done them can be tried.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

from headpond.broker.core import NodeCore
from headpond.broker.effects import Close, Commit, Fetch, RemoveTree, Send
from headpond.broker.settings import LogSettings, Settings
from headpond.storage.disk import Disk
from headpond.storage.log.read import ReadResult
from headpond.wire.connection import ClientSide, ConnectionFault, Event
from headpond.wire.control.codec import Operation, Request, Response, encode_control
from headpond.wire.control.greeting import Control, Error

Kind = TypeVar("Kind", bound=Event)

SMALL_FILES = Settings(
    data="memory",
    journal_compact_bytes=2048,
    log=LogSettings(rotate_bytes=4096, preallocate_bytes=1024, index_every_bytes=512),
)
"""So that a short run rotates and compacts."""


class CoreShell:
    def __init__(
        self,
        disk: Disk,
        *,
        seed: int,
        settings: Settings = SMALL_FILES,
        now_us: int = 1,
        node: str = "twin",
    ) -> None:
        self.disk = disk
        self.now_us = now_us
        self._random = random.Random(seed)
        self.clients: dict[int, CoreClient] = {}
        self.pending: list[Callable[[], None]] = []
        """Work for the disk that was asked for and is not done."""
        self.core = NodeCore(
            disk,
            settings,
            node=node,
            software="test",
            now_us=lambda: self.now_us,
            new_uuid=lambda: self._random.randbytes(16),
        )
        self.drain()

    def connect(self, token: str | None = None, *, name: str = "twin") -> CoreClient:
        number = len(self.clients) + 1
        client = self.clients[number] = CoreClient(self, number, token, name)
        self.core.connected(number)
        client.greet()
        return client

    def received(self, number: int, data: bytes) -> None:
        self.core.received(number, data)
        self.drain()

    def drain(self) -> None:
        """Carries out what the core asks for, as ``node/server.py`` does."""
        while effects := self.core.effects():
            for effect in effects:
                if isinstance(effect, Send):
                    self.clients[effect.connection].receive(b"".join(effect.parts))
                elif isinstance(effect, Commit):
                    self._take(effect)
                elif isinstance(effect, Fetch):
                    self.pending.append(lambda fetch=effect: self._fetch(fetch))  # type: ignore[misc]
                elif isinstance(effect, Close):
                    self.clients[effect.connection].closed = True
                else:
                    assert isinstance(effect, RemoveTree)
                    self.disk.remove_tree(effect.folder)

    def _take(self, commit: Commit) -> None:
        lane = commit.lane
        write = lane.take()

        def run() -> None:
            error: OSError | None = None
            try:
                write.run(self.disk)
            except OSError as failure:
                error = failure
            self.core.wrote(lane, write, error)

        self.pending.append(run)

    def _fetch(self, fetch: Fetch) -> None:
        log = self.core.log_of(fetch)
        run: ReadResult | None = None
        if log is not None:
            try:
                run = fetch.run(log)
            except OSError:
                run = None
        self.core.fetched(fetch, run)

    def work(self, index: int = 0) -> None:
        """Does one of the pending things."""
        self.pending.pop(index)()
        self.drain()

    def work_all(self) -> None:
        """Does everything that is pending, and what comes of it."""
        while self.pending:
            self.work()

    def wait(self, us: int) -> None:
        """Lets time pass."""
        self.now_us += us
        self.core.on_time()
        self.drain()


class CoreClient:
    """The client's half of a conversation with the core."""

    def __init__(self, shell: CoreShell, number: int, token: str | None, name: str) -> None:
        self._shell = shell
        self._side = ClientSide(client=name, token=token)
        self._number = number
        self._requests = 0
        self.events: list[Event] = []
        self.closed = False

    def greet(self) -> None:
        self.send(*self._side.data_to_send())

    def send(self, *pieces: bytes | Control) -> None:
        data = b"".join(piece if isinstance(piece, bytes) else encode_control(piece) for piece in pieces)
        self._shell.received(self._number, data)

    def receive(self, data: bytes) -> None:
        self.events += self._side.receive(data)

    def take(self, kind: type[Kind]) -> list[Kind]:
        """The events of a kind that came; they are taken out."""
        found: list[Kind] = [event for event in self.events if isinstance(event, kind)]
        self.events = [event for event in self.events if not isinstance(event, kind)]
        return found

    def request(self, operation: Operation) -> Any:
        """A request's result, with all pending work done for it; a refusal is raised."""
        self._requests += 1
        self.send(Request(self._requests, operation))
        self._shell.work_all()
        for response in self.take(Response):
            return response.result
        for refusal in self.take(Error):
            raise refusal.as_exception()
        (fault,) = self.take(ConnectionFault)
        raise fault.error
