"""The same bytes appended to one file, with fdatasync: what the disk gives without a broker.

A message, or a batch, is one write and one sync. As the node does it, room is reserved in steps, because an
append to a file that must also grow takes longer, and a long write is several calls (os_disk.py).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import ClassVar

from bench.limits import STEP_BYTES
from bench.peers.peer import Peer, PeerConsumer, PeerProducer
from bench.peers.server import Server
from headpond.storage.os_disk import CALL_BYTES_MAX


class SyncedFile(PeerProducer):
    def __init__(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
        self._end = self._room = 0

    def append(self, data: bytes) -> None:
        while self._end + len(data) > self._room:
            os.posix_fallocate(self._handle, self._room, STEP_BYTES)
            self._room += STEP_BYTES
        for at in range(0, len(data), CALL_BYTES_MAX):
            self._end += os.pwrite(self._handle, data[at : at + CALL_BYTES_MAX], self._end)
        os.fdatasync(self._handle)

    async def publish(self, values: Iterable[bytes]) -> None:
        for value in values:
            self.append(value)

    async def publish_batch(self, batches: Iterable[list[bytes]]) -> None:
        for batch in batches:
            self.append(b"".join(batch))

    async def send(self, value: bytes) -> None:
        self.append(value)

    def close(self) -> None:
        os.ftruncate(self._handle, self._end)
        os.close(self._handle)


class FileReader(PeerConsumer):
    def __init__(self, path: Path) -> None:
        self._data = path.read_bytes()

    async def consume(self, count: int, each: Callable[[bytes], object]) -> None:
        """All values are of one size, and there are ``count`` of them."""
        data, self._data = self._data, b""
        if not data:
            await asyncio.Event().wait()  # nothing more will come
        size = len(data) // count
        for start in range(0, len(data), size):
            each(data[start : start + size])


class PlainFile(Peer):
    name: ClassVar[str] = "append + fdatasync"
    install: ClassVar[str] = ""

    @classmethod
    def is_installed(cls) -> bool:
        return True

    def start(self) -> Server:
        raise AssertionError("a file needs no server")

    async def create(self, topic: str, subscriptions: Sequence[str]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)

    async def delete(self, topic: str, subscriptions: Sequence[str]) -> None:
        (self.folder / topic).unlink()

    @asynccontextmanager
    async def producer(self, topic: str) -> AsyncIterator[SyncedFile]:
        file = SyncedFile(self.folder / topic)
        try:
            yield file
        finally:
            file.close()

    @asynccontextmanager
    async def consumer(self, topic: str, subscription: str) -> AsyncIterator[FileReader]:
        yield FileReader(self.folder / topic)

    @contextmanager
    def blocking_sender(self, topic: str) -> Iterator[Callable[[bytes], object]]:
        file = SyncedFile(self.folder / topic)
        try:
            yield file.append
        finally:
            file.close()
