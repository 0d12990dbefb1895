"""A named producer at its destinations: registered by name, and with single access the holder of a lease.

The lease is had at the first destination. Its epoch goes into every TITLE, also at further destinations, which
raise theirs to it before anything is sent. An instance that was taken over is *fenced*: nothing it sends is
taken any more, anywhere, and what it has not delivered stays in its refill.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from headpond.client.link.link import Link
from headpond.client.produce.slot import LeaseNote
from headpond.model.errors import Fenced, HeadpondError, ProducerBusy
from headpond.wire.control.codec import read_result
from headpond.wire.control.greeting import Ping
from headpond.wire.control.producing import Ack, CloseProducer, OpenProducer, ProducerOpened

log = logging.getLogger("headpond.client")

Result = TypeVar("Result")

INSTANCE_BYTES = 16
CLOSE_S = 2.0
"""How long closing waits for the node to hear that the lease is free."""
BEATS = 3
"""How often within the time of the lease the node hears of its holder."""
ASK_AGAIN_S = 0.25
"""How often an instance that waits for the lease asks for it."""


class Registration:
    def __init__(self, name: str, access: str | None, *, late: bool = False) -> None:
        """``late``: what is sent was kept by instances that were taken over, so no lease is asked for."""
        self.name = name
        self.late = late
        self.epoch = 0
        """Of the lease; 0 with multiple access, and before it was granted."""
        self.single = access == "single"
        """As far as is known: the node may have the name registered so."""
        self.fenced: Fenced | None = None
        self.note = LeaseNote()
        self.on_fenced: Callable[[Fenced], None] = lambda error: None
        self._access = access or ""
        self._instance = secrets.token_bytes(INSTANCE_BYTES)
        self._entered: list[tuple[Link, str]] = []
        self._timer: asyncio.TimerHandle | None = None

    # --- coming and going ---------------------------------------------------------------------------

    async def enter(self, link: Link, topic: str, index: int) -> None:
        """Registers at a destination, and asks for the lease or for its epoch to be taken there."""
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
        """Has the node hear of this instance well before its lease is over, also while it sends nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(every_s, self._beat, link, every_s)
        link.send(Ping(0))

    def _stop_beating(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def keep_note(self, path: Path) -> None:
        """From now on what is held is noted in a file."""
        self.note = LeaseNote(path)
        self.single = self.single or (not self._access and self.note.exists)
        if self.epoch:
            self.note.granted(self.epoch)

    async def leave(self) -> None:
        """The producer is closed: the lease is free at once, where a node is there to hear it."""
        self._stop_beating()
        entered, self._entered = dict.fromkeys(self._entered), []
        for link, topic in entered:
            if link.up and self.fenced is None:
                ask = CloseProducer(topic, self.name, self._instance)
                try:
                    await link.request(ask, timeout_s=CLOSE_S)
                except HeadpondError as error:
                    log.info(
                        "%s was not told that producer %r closed: %s", link.service, self.name, error.message
                    )

    # --- being taken over ---------------------------------------------------------------------------

    def is_late(self, epoch: int, block: bytes) -> bool:
        """Whether a refill file may not be sent by this instance (yet)."""
        return not self.late and self.single and self.note.is_late(epoch, block, self.epoch)

    def fence(self, error: Fenced) -> None:
        """Another instance took over."""
        self._stop_beating()
        if self.fenced is None:
            self.fenced = error
            self.on_fenced(error)

    def heard(self, ack: Ack) -> Fenced | None:
        """Whether an answer says that another instance took over."""
        if not self.epoch:
            return None
        item = next((each for each in ack.items if each.code == Fenced.code), None)
        return None if item is None else Fenced(item.message)


async def until_free(ask: Callable[[], Awaitable[Result]], wait_s: float | None) -> Result:
    """Asks until the lease is granted, if another instance holds it, for so long; None for ever."""
    over_at = None if wait_s is None else time.monotonic() + wait_s
    while True:
        try:
            return await ask()
        except ProducerBusy:
            if over_at is not None and time.monotonic() + ASK_AGAIN_S > over_at:
                raise
        await asyncio.sleep(ASK_AGAIN_S)
