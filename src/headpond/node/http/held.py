"""A consumer that a caller holds between its requests, with the messages that it delivered and did not settle.

It is one consumer of the subscription like any other. It is closed when no request has used it for a while,
when the caller's session ends, or when its token is revoked; other consumers get its messages at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable
from datetime import datetime
from time import monotonic
from typing import Any

import msgspec

from headpond.client.consume.consumer import Consumer
from headpond.model.errors import BadRequest, HeadpondError
from headpond.model.message import Message
from headpond.node.http.status import PositionsNotHeld

logger = logging.getLogger("headpond.http")

HELD_MAX = 10_000
"""Unsettled messages of one consumer; it delivers no more beyond that."""
HELD_BYTES_MAX = 32 * 1024 * 1024
"""The same in bytes, which the process holds until they are settled."""
ANSWER_BYTES = 8 * 1024 * 1024
"""The messages of one fetch; the last one may exceed it."""
MESSAGE_BYTES = 500
"""The memory of a message beside its value."""
Place = tuple[int, int]
"""Shard and entry."""


def position_of(message: Message) -> str:
    """``SHARD/ENTRY@STORED``: the time differs if a restored node stored another message at that entry."""
    return f"{message.shard}/{message.entry}@{message.origin.stored_at_us}"


def parse_position(text: str) -> Place:
    """Shard and entry of ``SHARD/ENTRY`` or ``SHARD/ENTRY@STORED``."""
    place, at, stored = text.partition("@")
    shard, slash, entry = place.partition("/")
    for part in (shard, entry, stored if at else "0"):
        if not (slash and part.isascii() and part.isdigit() and len(part) < 20):
            raise BadRequest(
                f"{text[:80]!r} is not a position",
                hint="Send it as it came with the message, or as SHARD/ENTRY, as in 0/17.",
            )
    return int(shard), int(entry)


def parse_start(text: str, *, new: bool = True) -> str | int | datetime:
    """``earliest``, ``latest``, ``state`` (of a new subscription), an entry, or a time in ISO 8601."""
    if text in ("earliest", "latest") or (new and text == "state"):
        return text
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        words = "earliest, latest, state" if new else "earliest, latest"
        raise BadRequest(f"{text[:80]!r} is none of {words}, an entry or a time (ISO 8601)") from None


def start_word(text: str, *, new: bool = True) -> str | int:
    """The same as a field of an operation."""
    start = parse_start(text, new=new)
    return start.isoformat() if isinstance(start, datetime) else start


def message_bytes(message: Message[Any]) -> int:
    """The memory of a message, roughly."""
    value = message.value
    if not isinstance(value, bytes | None):  # an object of a typed topic
        value = msgspec.json.encode(value, enc_hook=str)
    return MESSAGE_BYTES + len(value or b"")


class HeldConsumer:
    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.used_at = monotonic()
        self.busy = 0
        """Requests that use it now."""
        self._handed: dict[Place, Message] = {}
        self._returned: deque[Message] = deque()
        """Delivered to a client that had hung up; the next fetch begins with them."""
        self._drops = consumer.drops
        """The consumer's count of lost connections, as this object last saw it."""
        self._sizes: dict[Place, int] = {}
        """Of all messages that came from the consumer and are not settled."""
        self.bytes = 0
        self._turn = asyncio.Lock()
        self._settled = asyncio.Event()

    @property
    def over(self) -> bool:
        return self.consumer.stopped is not None

    @property
    def full(self) -> bool:
        """Whether messages must be settled before more are delivered."""
        return len(self._handed) >= HELD_MAX or self.bytes >= HELD_BYTES_MAX

    async def fetch(self, count: int, wait_s: float) -> list[Message]:
        """The next messages: waits for the first, then takes those that are there.

        One fetch at a time waits for the consumer; another one waits for its turn up to its own ``wait_s``.
        """
        until = monotonic() + wait_s
        self.busy += 1
        try:
            try:
                async with asyncio.timeout(wait_s):
                    await self._turn.acquire()
            except TimeoutError:
                return []
            try:
                await self._wait_for_room(until)
                return [] if self.full else await self._take(count, until)
            finally:
                self._turn.release()
        finally:
            self._used()

    async def _wait_for_room(self, until: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(until - monotonic()):
                while self.full and not self.over:
                    self._settled.clear()
                    await self._settled.wait()

    async def _take(self, count: int, until: float) -> list[Message]:
        found: list[Message] = []
        size = 0
        room = min(count, HELD_MAX - len(self._handed))
        try:
            while len(found) < room and size < ANSWER_BYTES:
                message = await self._next(0.0 if found else max(0.0, until - monotonic()))
                if message is None:
                    break
                found.append(message)
                size += self._sizes[message.shard, message.entry]
        except BaseException:
            self._returned.extendleft(reversed(found))
            raise
        for message in found:
            self._handed[message.shard, message.entry] = message
        return found

    async def _next(self, wait_s: float) -> Message | None:
        self._drop_returned()
        if self._returned:
            return self._returned.popleft()
        message = await self.consumer.receive(wait_s)
        if message is not None:
            place = (message.shard, message.entry)
            self.bytes -= self._sizes.get(place, 0)  # it was redelivered
            self._sizes[place] = message_bytes(message)
            self.bytes += self._sizes[place]
        return message

    def _drop_returned(self) -> None:
        """After a lost connection, messages that no client saw may be another consumer's now, or come again."""
        if self._drops != self.consumer.drops:
            self._drops = self.consumer.drops
            for message in self._returned:
                self.consumer.put_back(message)
                self.bytes -= self._sizes.pop((message.shard, message.entry), 0)
            self._returned.clear()

    def put_back(self, messages: list[Message]) -> None:
        """No client saw these messages: the next fetch gets them."""
        self._drop_returned()
        unsettled = [each for each in messages if self._handed.pop((each.shard, each.entry), None) is not None]
        self._returned.extendleft(reversed(unsettled))

    def in_hand(self, position: str) -> Message | None:
        """The unsettled message at a position; None if there is none, or another one."""
        message = self._handed.get(parse_position(position))
        if message is None or ("@" in position and position != position_of(message)):
            return None
        return message

    async def ack_upto(self, position: str) -> None:
        """Acknowledges a message and those delivered before it; the others come again.

        A position that the consumer does not hold acknowledges nothing.
        """
        message = self.in_hand(position)
        if message is not None:
            delivered = list(self._handed.values())
            upto = delivered.index(message) + 1
            await self.settle([position_of(each) for each in delivered[:upto]], self.consumer.ack)
        self.put_back(list(self._handed.values()))

    async def settle(
        self, positions: list[str], settle: Callable[[Message], Awaitable[None]], *, flush: bool = True
    ) -> int:
        """Settles messages; returns when that is on the disk. An error names positions it does not hold."""
        self.busy += 1
        try:
            missing = []
            settled = 0
            for text in positions:
                message = self.in_hand(text)
                if message is None:
                    missing.append(text)
                    continue
                await settle(message)
                place = (message.shard, message.entry)
                self._handed.pop(place, None)
                self.bytes -= self._sizes.pop(place, 0)
                settled += 1
            self._settled.set()
            if settled and flush:
                await self.consumer.flush()
            if missing:
                raise PositionsNotHeld(missing)
            return settled
        finally:
            self._used()

    async def close(self) -> None:
        """Other consumers get the unsettled messages; those that no client saw do not count as attempts."""
        try:
            for message in self._returned if not self.over else ():
                self.consumer.put_back(message)
            await self.consumer.close()
        except HeadpondError as error:
            logger.info("closing a consumer of %s: %s", self.consumer.topic, error.message)

    def _used(self) -> None:
        self.busy -= 1
        self.used_at = monotonic()
