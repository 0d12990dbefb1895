"""The blocking producer: the calling threads gather rows, and the thread of the loop sends them."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from typing import Any, Generic

from headpond.client.arguments import checked
from headpond.client.produce.batcher import Batcher, SentT
from headpond.client.produce.producer import Producer as AsyncProducer
from headpond.client.produce.producer import ProducerStats
from headpond.client.produce.promise import Promise as AsyncPromise
from headpond.model.errors import BufferFull, HeadpondError, TimedOut
from headpond.model.receipt import Receipt
from headpond.producer.encoder import Sharder
from headpond.sync.background import LEND_S, Background, Mirror, ScopeTwin, blocking, mirrored
from headpond.wire.expiry import with_ttl


class Promise(AsyncPromise, eq=False, gc=False):
    """The result of ``post``: ``result()`` waits for the receipt, or raises the refusal."""

    @checked
    def result(self, timeout: float | None = None) -> Receipt:
        """The receipt; ``TimedOut`` if it is not known within ``timeout`` seconds."""
        timeout = None if timeout is None else min(timeout, threading.TIMEOUT_MAX)
        parcel = self._parcel
        parcel.claim(self._row)
        if parcel.fate is None:
            known = threading.Event()
            parcel.waiters.append(known.set)
            # Looked at again: the fate may have come between the look above and the line before.
            if parcel.fate is None and not known.wait(timeout):
                raise TimedOut(f"no answer within {timeout} s")
        return parcel.settled(self._row)

    @checked
    def confirmed(  # type: ignore[override]  # the same, blocking
        self, by: int | str = "all", timeout: float | None = None
    ) -> Receipt:
        """Waits until that many destinations have stored it: a number, ``one``, ``quorum`` or ``all``."""
        parcel = self._parcel
        parcel.claim(self._row)
        deadline = None if timeout is None else time.monotonic() + min(timeout, threading.TIMEOUT_MAX / 2)
        while True:
            changed = threading.Event()
            parcel.waiters.append(changed.set)  # before the look, so that no change comes in between
            if parcel.is_stored(by):
                return parcel.receipt_so_far(self._row)
            if not changed.wait(None if deadline is None else max(0.0, deadline - time.monotonic())):
                raise TimedOut(f"not stored by {by} within {timeout} s")


class LockedBatcher(Batcher):
    """Calling threads add rows, and the thread of the loop seals them."""

    promise = Promise

    def __init__(self, rows_max: int) -> None:
        super().__init__(rows_max)
        self._lock = threading.RLock()
        self._ended: HeadpondError | None = None

    def add(self, value: Any, key: Any, id: str | None, headers: Mapping[str, str] | None) -> AsyncPromise:
        with self._lock:
            if self._ended is not None:
                raise self._ended.again()
            return super().add(value, key, id, headers)

    def seal_all(self) -> None:
        with self._lock:  # ``learn`` and ``end`` hold it already
            super().seal_all()

    def learn(self, sharder: Sharder, state: bool | None) -> None:
        with self._lock:
            super().learn(sharder, state)

    def end(self, error: HeadpondError) -> None:
        """A row is either added before this and sent, or refused: none is added after the last segment."""
        with self._lock:
            self._ended = error
            super().seal_all()


async def _wait(promise: AsyncPromise) -> Receipt:
    return await promise


class Producer(ScopeTwin[AsyncProducer[Any]], Generic[SentT]):
    """Sends messages to one topic, from any thread."""

    def __init__(self, producer: AsyncProducer[Any], background: Background) -> None:
        super().__init__(producer, background)
        self._linger_s = producer.linger_s
        self._kicked = False
        self._hurried = False

    def post(
        self,
        value: SentT | None,
        *,
        key: bytes | str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        ttl: float | None = None,
    ) -> Promise:
        """Takes a message and returns at once; ``promise.result()`` waits for its receipt.

        Raises ``BufferFull`` when ``memory_max`` is reached; ``post_when_room`` waits instead.
        """
        producer = self._twin
        producer.check_room()
        if ttl is not None:
            headers = with_ttl(headers, ttl)
        promise = producer.batcher.add(value, key, id, headers)
        if not self._kicked:
            self._kicked = True
            self._background.soon(self._kick)
        elif self._linger_s and producer.batcher.sealed and not self._hurried:
            self._hurried = True
            self._background.soon(self._hurry)
        assert isinstance(promise, Promise)
        return promise

    def _kick(self) -> None:
        if self._linger_s:
            self._background.loop.call_later(self._linger_s, self._tick)
        else:
            self._tick()

    def _tick(self) -> None:
        self._kicked = False  # before the rows are taken: one that comes now kicks again
        self._twin.tick()

    def _hurry(self) -> None:
        """Full segments do not linger."""
        self._hurried = False
        self._twin.ship_sealed()

    def post_when_room(
        self,
        value: SentT | None,
        *,
        key: bytes | str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        ttl: float | None = None,
    ) -> Promise:
        """The same, once there is room for the message; see ``on_full`` and ``timeout``."""
        while True:
            try:
                return self.post(value, key=key, id=id, headers=headers, ttl=ttl)
            except BufferFull:
                self._background.run(self._twin.wait_room())

    def send(
        self,
        value: SentT | None,
        *,
        key: bytes | str | None = None,
        id: str | None = None,
        headers: Mapping[str, str] | None = None,
        ttl: float | None = None,
    ) -> Receipt:
        """Sends a message; returns its receipt once it is stored or spilled, or raises the refusal."""
        background, twin = self._background, self._twin
        if not background.shared:
            if twin.is_lone and background.begin():
                try:
                    promise = self._send_lone(value, key, id, headers, ttl)
                finally:
                    background.end()
                if promise is not None:
                    return promise.result() if promise.done() else background.run(_wait(promise))
            return background.run(twin.send(value, key=key, id=id, headers=headers, ttl=ttl))
        # Rows of several threads share segments.
        return self.post_when_room(value, key=key, id=id, headers=headers, ttl=ttl).result()

    def _send_lone(
        self,
        value: Any,
        key: bytes | str | None,
        id: str | None,
        headers: Mapping[str, str] | None,
        ttl: float | None,
    ) -> Promise | None:
        """Sends a message in place of the loop and waits a short time; None if something has to come first."""
        twin = self._twin
        connection = twin.connection
        if connection is None or not (twin.is_lone and twin.has_room):
            return None
        promise = twin.batcher.add(value, key, id, headers if ttl is None else with_ttl(headers, ttl))
        twin.tick()
        until = time.monotonic() + LEND_S
        while not promise.done() and (left_s := until - time.monotonic()) > 0 and connection.receive(left_s):
            pass
        assert isinstance(promise, Promise)
        return promise

    send_batch = blocking(AsyncProducer.send_batch)
    flush = blocking(AsyncProducer.flush)
    close = blocking(AsyncProducer.close)
    stats: Mirror[ProducerStats] = mirrored(AsyncProducer.stats)
