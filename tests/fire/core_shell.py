"""A shell around the node's core without threads and sockets: the test decides what happens, and when.

Frames arrive at once. Disk reads and writes wait in ``pending`` until the test chooses one, so that a test can
try every order in which worker threads could run them.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeVar

from headpond.broker.backup import FolderCut
from headpond.broker.core import NodeCore
from headpond.broker.effects import Close, Commit, Fetch, RemoveTree, Send
from headpond.broker.session import Session
from headpond.broker.settings import LogSettings, Settings
from headpond.storage.disk import Disk
from headpond.storage.log.read import ReadResult
from headpond.wire.connection import ClientSide, ConnectionFault, Event
from headpond.wire.control.codec import Operation, Request, Response, encode_control
from headpond.wire.control.greeting import Error
from headpond.wire.control.operation import Control

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
        cut: FolderCut | None = None,
    ) -> None:
        self.disk = disk
        self.now_us = now_us
        self._random = random.Random(seed)
        self.clients: dict[int, CoreClient] = {}
        self.pending: list[Callable[[], None]] = []
        """Disk work that the core requested and that has not run yet."""
        self.core = NodeCore(
            disk,
            settings,
            node=node,
            software="test",
            now_us=lambda: self.now_us,
            new_uuid=lambda: self._random.randbytes(16),
            cut=cut,
        )
        self.drain()

    def connect(self, token: str | None = None, *, name: str = "twin") -> CoreClient:
        number = len(self.clients) + 1
        client = self.clients[number] = CoreClient(self, token, name)
        client.session = self.core.connected(number)
        client.greet()
        return client

    def received(self, session: Session, data: bytes) -> None:
        self.core.received(session, data)
        self.drain()

    def drain(self) -> None:
        """Carries out the effects of the core, as ``node/server.py`` does."""
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
        """Runs one pending job."""
        self.pending.pop(index)()
        self.drain()

    def work_all(self) -> None:
        """Runs all pending jobs, and those that follow from them."""
        while self.pending:
            self.work()

    def wait(self, us: int) -> None:
        """Moves the clock forward."""
        self.now_us += us
        self.core.on_time()
        self.drain()


class CoreClient:
    """The client's half of a conversation with the core."""

    def __init__(self, shell: CoreShell, token: str | None, name: str) -> None:
        self._shell = shell
        self._side = ClientSide(client=name, token=token)
        self.session: Session
        self._requests = 0
        self.events: list[Event] = []
        self.closed = False

    def greet(self) -> None:
        self.send(*self._side.data_to_send())

    def send(self, *pieces: bytes | Control) -> None:
        data = b"".join(piece if isinstance(piece, bytes) else encode_control(piece) for piece in pieces)
        self._shell.received(self.session, data)

    def receive(self, data: bytes) -> None:
        self.events += self._side.receive(data)

    def take(self, kind: type[Kind]) -> list[Kind]:
        """Removes and returns the received events of a kind."""
        found: list[Kind] = [event for event in self.events if isinstance(event, kind)]
        self.events = [event for event in self.events if not isinstance(event, kind)]
        return found

    def request(self, operation: Operation) -> Any:
        """Runs all pending work and returns the result of a request; raises its error."""
        self._requests += 1
        self.send(Request(self._requests, operation))
        self._shell.work_all()
        for response in self.take(Response):
            return response.result
        for refusal in self.take(Error):
            raise refusal.as_exception()
        (fault,) = self.take(ConnectionFault)
        raise fault.error
