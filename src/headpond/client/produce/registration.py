"""A named producer at its destinations: registered by name, and with single access the holder of a lease.

The first destination grants the lease. Its epoch goes into every TITLE, also at further destinations, which
raise theirs to it before anything is sent. An instance that another one took over is *fenced*: no node takes
anything that it sends, and its undelivered messages stay in its refill.

The *lease note* beside the refill says which epochs were held from here without a break. Files of an epoch from
``first`` on are sent by the next holder, because nobody elsewhere sent anything in between. Older files, and
those of an instance that was taken over, are *late*: they are kept, reported, and sent only by `headpond refill
send --late`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

import msgspec

from headpond.client.link.link import Link
from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import BadFrame, Fenced, HeadpondError, ProducerBusy
from headpond.storage.append import write_whole
from headpond.storage.disk import Disk, read_whole
from headpond.wire.control.codec import read_result
from headpond.wire.control.greeting import Ping
from headpond.wire.control.producing import CloseProducer, OpenProducer, ProducerOpened
from headpond.wire.frame import CONTROL_BYTES_MAX, FrameType, decode_at, encode

log = logging.getLogger("headpond.client")

Result = TypeVar("Result")

INSTANCE_BYTES = 16
CLOSE_S = 2.0
"""How long closing waits for the node to confirm that the lease is free."""
BEATS = 3
"""Pings of the holder within the time of the lease."""
ASK_AGAIN_S = 0.25
"""How often an instance that waits for the lease asks for it."""
LATE_BLOCKS_MAX = 10_000


class LeaseRecord(msgspec.Struct, array_like=True):
    first: int = 0
    """The first of the epochs that were held from here without another's in between."""
    last: int = 0
    late: list[bytes] = msgspec.field(default_factory=list)
    """Blocks of instances that were taken over."""


class LeaseNote:
    def __init__(self, disk: Disk | None = None, path: str = "") -> None:
        """Without a disk it is kept in memory: without a refill there are no files to judge."""
        self._disk = disk
        self._path = path
        self._record = LeaseRecord()
        if disk is not None:
            with suppress(OSError, BadFrame, *UNDECODABLE):
                if (frame := decode_at(read_whole(disk, path), 0, CONTROL_BYTES_MAX)) is not None:
                    self._record = msgspec.msgpack.decode(frame.body, type=LeaseRecord)

    @property
    def last(self) -> int:
        """The last epoch that was held from here; 0: none."""
        return self._record.last

    def granted(self, epoch: int) -> None:
        """This instance holds the lease with this epoch."""
        record = self._record
        if epoch == record.last:
            return
        if not record.last or epoch != record.last + 1:
            record.first = epoch
        record.last = epoch
        self._write()

    def taken_over(self, epoch: int, blocks: list[bytes]) -> None:
        """Another instance took over from one here that held ``epoch``: its undelivered messages are late."""
        record = self._record
        record.first = max(record.first, epoch + 1)
        record.late = list(dict.fromkeys([*record.late, *blocks]))[-LATE_BLOCKS_MAX:]
        self._write()

    def is_late(self, epoch: int, block: bytes, held: int) -> bool:
        """Whether a refill file of this epoch and block is late when ``held`` is held now (0: not known)."""
        if block in self._record.late:
            return True
        return epoch > 0 and (not held or epoch < self._record.first)

    def _write(self) -> None:
        if self._disk is not None:
            with suppress(OSError):  # without it, files that are spilled now count as late
                write_whole(
                    self._disk, self._path, encode(FrameType.RECORD, msgspec.msgpack.encode(self._record))
                )


class ProducerRegistration:
    def __init__(self, name: str, access: str | None, *, late: bool = False) -> None:
        """``late``: it sends files of instances that were taken over, so it asks for no lease."""
        self.name = name
        self.late = late
        self.epoch = 0
        """Of the lease; 0 with multiple access, and before it was granted."""
        self.single = access == "single"
        """As far as is known: the node may have registered the name with single access."""
        self.fenced: Fenced | None = None
        self.note = LeaseNote()
        self._access = access or ""
        self._instance = secrets.token_bytes(INSTANCE_BYTES)
        self._entered: list[tuple[Link, str]] = []
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, link: Link, topic: str, index: int) -> None:
        """Registers at a destination, which grants the lease or raises its epoch to that of the lease."""
        if not self.name or self.late:
            return
        if self.fenced is not None:
            raise self.fenced.again()
        if index and self.single and not self.epoch:
            raise ProducerBusy(
                f"the lease of producer {self.name!r} is not granted yet at its first destination"
            )
        access = "single" if index and self.single else self._access
        ask = OpenProducer(topic, self.name, self._instance, access, self.epoch, elsewhere=index > 0)
        opened = read_result(await link.request(ask, retry=True), ProducerOpened)
        self._entered.append((link, topic))
        if not index:
            self.single = opened.access == "single"
            self.epoch = opened.epoch
            if self.epoch:
                self.note.granted(self.epoch)
                self._beat(link, opened.lease_s / BEATS)

    def _beat(self, link: Link, every_s: float) -> None:
        """Pings the node well before the lease is over, also while this instance sends nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(every_s, self._beat, link, every_s)
        link.send(Ping(0))

    def _stop_beating(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def keep_note(self, disk: Disk, path: str) -> None:
        """From now on a file notes the held epochs."""
        self.note = LeaseNote(disk, path)
        self.single = self.single or (not self._access and self.note.last > 0)
        if self.epoch:
            self.note.granted(self.epoch)

    async def leave(self) -> None:
        """The producer is closed: the nodes that are there free the lease at once."""
        self._stop_beating()
        entered, self._entered = dict.fromkeys(self._entered), []
        for link, topic in entered:
            if link.up and self.fenced is None:
                ask = CloseProducer(topic, self.name, self._instance)
                try:
                    await link.request(ask, timeout_s=CLOSE_S)
                except HeadpondError as error:
                    log.info("closing producer %r at %s: %s", self.name, link.service, error.message)

    def is_late(self, epoch: int, block: bytes) -> bool:
        """Whether a refill file may not be sent by this instance (yet)."""
        return not self.late and self.single and self.note.is_late(epoch, block, self.epoch)

    def fence(self, error: Fenced) -> bool:
        """Another instance took over; whether that is new."""
        self._stop_beating()
        is_new, self.fenced = self.fenced is None, self.fenced or error
        return is_new


async def until_free(ask: Callable[[], Awaitable[Result]], wait_s: float | None) -> Result:
    """Asks until the lease is granted, if another instance holds it, for at most ``wait_s``; None for ever."""
    over_at = None if wait_s is None else time.monotonic() + wait_s
    while True:
        try:
            return await ask()
        except ProducerBusy:
            if over_at is not None and time.monotonic() + ASK_AGAIN_S > over_at:
                raise
        await asyncio.sleep(ASK_AGAIN_S)
