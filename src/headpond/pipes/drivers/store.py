"""The messages of a listener's streams, in a journal on disk that outlives its process.

**A sender gets a confirm after the sync.** All effects of a machine's step, confirms and deliveries alike,
wait until the records that it staged are durable; many steps share one write and one sync.

**A message stays until the program is done with it.** The receiver's machine keeps its position in memory;
the journal has the position up to which the program confirmed, and the next process delivers from there.

Records are msgpack arrays: ``["data", sender, first index, payloads]`` and ``["done", sender, index]``.
Replaying one twice changes nothing. The store compacts a journal that is much longer than its contents.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from headpond.model.errors import HeadpondError, StorageFailed
from headpond.pipes.calculus.route import Route
from headpond.pipes.drivers.lane import STORED_MAX, Inbox, StreamLane
from headpond.pipes.machines.compose import ReceiverStack, receiver_of
from headpond.pipes.machines.machine import WAKE, Effects
from headpond.pipes.machines.packet import cut, payload_bytes
from headpond.pipes.machines.stream import FETCH_MAX, Entries, StoredStream
from headpond.storage.journal import FileJournal
from headpond.storage.os_disk import OsDisk

STORE_BYTES_MAX = 1 << 30
"""Payloads that all streams of a store may hold; beyond it a storage is full, and its sender waits."""
RECORD_BYTES_MAX = 4 << 20
COMPACT_MIN_BYTES = 16 << 20
FOLDER = "stream"

log = logging.getLogger("headpond.pipes.drivers")
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Any]).decode


class StreamStore:
    def __init__(self, disk: OsDisk, bytes_max: int = STORE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        """Of all payloads that it holds."""
        self._disk = disk
        self._journal: FileJournal
        self._entries: dict[str, DurableEntries] = {}
        self._waiting: list[Callable[[], None]] = []
        """Called after the next write."""
        self._writing: asyncio.Task[None] | None = None
        self._error: StorageFailed | None = None
        self._on_failure: Callable[[HeadpondError], None]

    async def open(self, on_failure: Callable[[HeadpondError], None]) -> None:
        """Locks the folder and reads it; ``DataLocked`` if another process uses it."""
        self._on_failure = on_failure
        self._disk.lock()
        self._journal = await asyncio.to_thread(FileJournal.open, self._disk, FOLDER)
        for line in self._journal.report.lines():
            log.warning("the store %s: %s", self._disk.root, line)
        for record in self._journal.records:
            self._replay(_decode(record))

    async def close(self) -> None:
        """Returns when everything staged is durable."""
        await self.flush()
        if self._error is None:
            await asyncio.to_thread(self._journal.close)
        self._disk.unlock()

    async def flush(self) -> None:
        while self._writing is not None:
            await asyncio.shield(self._writing)

    @property
    def senders(self) -> list[str]:
        """Senders with unread messages."""
        return [name for name, entries in self._entries.items() if entries.payloads]

    def entries_of(self, sender: str) -> DurableEntries:
        if sender not in self._entries:
            self._entries[sender] = DurableEntries(self, sender)
        return self._entries[sender]

    def stage(self, *record: Any) -> None:
        if self._error is None:
            self._journal.append(_encode(record))
            if self._writing is None:
                self._writing = asyncio.create_task(self._write())

    def after_sync(self, act: Callable[[], None]) -> None:
        """Acts once everything staged before is durable, at once if it is, and never if that fails."""
        if self._writing is None:
            act()
        else:
            self._waiting.append(act)

    def _replay(self, record: Sequence[Any]) -> None:
        what, sender, index = record[:3]
        entries = self.entries_of(sender)
        if what == "data":
            entries.restore(index, record[3])
        else:
            entries.forget(index)

    async def _write(self) -> None:
        await asyncio.sleep(0)  # all records of this turn of the loop share the sync
        while True:
            write = self._journal.take()
            waiting, self._waiting = self._waiting, []
            if write is not None:
                try:
                    await asyncio.to_thread(write.run, self._disk)
                except OSError as error:
                    self._journal.failed(write)
                    self._fail(error)
                    break
                self._journal.committed(write)
            elif not waiting:
                break
            for act in waiting:
                act()
            if self._journal.size_bytes > max(COMPACT_MIN_BYTES, 2 * self.bytes):
                self._journal.compact(self._snapshot())
        self._writing = None

    def _fail(self, error: OSError) -> None:
        self._waiting.clear()
        self._error = StorageFailed(
            f"the store {self._disk.root} cannot be written: {error.strerror or error}",
            hint="Nothing that it had not synced was confirmed; make room, and open the receiver again.",
        )
        self._on_failure(self._error)

    def _snapshot(self) -> Iterator[bytes]:
        for sender, entries in self._entries.items():
            yield _encode(("done", sender, entries.first))
            yield from map(_encode, entries.records(entries.first, entries.payloads))


class DurableEntries(Entries):
    """One sender's messages. The machine appends them; the program decides which are dropped."""

    __slots__ = ("_sender", "_store")

    def __init__(self, store: StreamStore, sender: str) -> None:
        super().__init__(capacity=STORED_MAX)
        self._store = store
        self._sender = sender

    def fitting(self, payloads: Sequence[Any]) -> int:
        room = self._store.bytes_max - self._store.bytes
        count = 0
        for payload in payloads[: super().fitting(payloads)]:
            room -= payload_bytes(payload)
            if room < 0:
                break
            count += 1
        return count

    def append(self, payloads: Sequence[Any]) -> None:
        for record in self.records(self.first + len(self.payloads), payloads):
            self._store.stage(*record)
        super().append(payloads)
        self._store.bytes += sum(map(payload_bytes, payloads))

    def trim(self, index: int) -> int:
        """Does nothing: the machine is done with messages that it passed on; the program may not be."""
        return 0

    def done(self, index: int) -> None:
        """The program is done with everything below."""
        if index > self.first:
            self._store.stage("done", self._sender, index)
            self.forget(index)

    def restore(self, first: int, payloads: Sequence[Any]) -> None:
        end = self.first + len(self.payloads)
        fresh = payloads[max(end - first, 0) :]
        if not self.payloads:
            self.first = max(first, self.first)
        self.payloads += fresh
        self._store.bytes += sum(map(payload_bytes, fresh))

    def forget(self, index: int) -> None:
        count = min(index - self.first, len(self.payloads))
        if count > 0:
            self._store.bytes -= sum(map(payload_bytes, self.payloads[:count]))
            del self.payloads[:count]
        self.first = max(self.first, index)

    def records(self, first: int, payloads: Sequence[Any]) -> Iterator[tuple[Any, ...]]:
        """The records of payloads that begin at an index, as few as fit."""
        for piece in cut(payloads, RECORD_BYTES_MAX) if payloads else ():
            yield "data", self._sender, first + piece.start, payloads[piece]


class DurableLane(StreamLane):
    """A sender's lane whose messages are in a store.

    Effects wait for the sync, the position for the program, and deliveries for room in the program; the
    sender waits only for the store.
    """

    def __init__(self, name: str, route: Route, epoch: int, inbox: Inbox, store: StreamStore) -> None:
        self._store = store
        self._reading = True
        entries = store.entries_of(name)
        super().__init__(name, route, epoch, inbox, entries.done, entries)

    def _new_machine(self) -> ReceiverStack:
        self._stream = StoredStream(self._entries, pace=FETCH_MAX)
        return receiver_of(self._route, epoch=self._epoch, jitter=random.random, stored=self._stream)

    def set_reading(self, reading: bool) -> None:
        self._reading = reading
        self._ask()

    def _on_effects(self, effects: Effects) -> None:
        self._store.after_sync(lambda: self._act(effects))

    def _act(self, effects: Effects) -> None:
        super()._on_effects(effects)
        if not self._stream.asked:
            asyncio.get_running_loop().call_soon(self._ask)

    def _ask(self) -> None:
        if self._reading and not self._stream.asked:
            self._stream.asked = True
            self._runner.step(WAKE)
