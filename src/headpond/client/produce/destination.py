"""A destination: the link to a node, the topic as that node has it, and what a courier writes to it.

Each time the link comes up the topic is asked for again, because the node behind it may be another one, or have
lost its disk. Only then are segments sent:

- the topic is as it was: go on.
- the node is another than the one that the block was first sent to, or the first: the topic is taken as it is
  there, created if that is allowed.
- the same node has deleted the topic, or deleted and created it again: the destination refuses what is sent.

A topic that is created is made as it is known to be, from another destination or from before the node lost it.
As long as nobody knows how it is, a copy that does not have it is asked again, and what is for it is spilled.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from headpond.client.link.link import Link
from headpond.client.produce.registration import Registration
from headpond.model.errors import (
    Fenced,
    HeadpondError,
    NotAllowed,
    ProtocolError,
    SchemaMismatch,
    TopicExists,
    TopicMismatch,
    TopicNotFound,
)
from headpond.model.identity import SHARD_POWER_MAX
from headpond.model.topic_settings import Value
from headpond.producer.keeper import Burst
from headpond.wire.control.catalog import CreateTopic, OpenTopic, TopicInfo
from headpond.wire.control.codec import read_result
from headpond.wire.control.producing import Ack, BlockEnd
from headpond.wire.frame import FrameType, encode
from headpond.wire.title import Title, encode_title
from headpond.wire.typed.schema import decode_schema

log = logging.getLogger("headpond.client")

OPEN_AGAIN_S = 1.0


class Listener(Protocol):
    """The courier."""

    def on_connected(self, index: int, info: TopicInfo) -> None: ...

    def on_disconnected(self, index: int) -> None: ...

    def on_hindered(self, index: int, error: HeadpondError) -> None: ...

    def on_refused(self, index: int, error: HeadpondError) -> None: ...

    def on_ack(self, index: int, ack: Ack) -> None: ...

    def on_writable(self, index: int) -> None: ...


def _checked(result: Any, name: str) -> TopicInfo:
    """A node's answer, if it can be one."""
    try:
        info = read_result(result, TopicInfo)
        if info.schema is not None:
            decode_schema(info.schema)
    except (msgspec.ValidationError, SchemaMismatch) as error:
        raise ProtocolError(f"{name} says of the topic what cannot be: {error}") from error
    if info.shards.bit_count() != 1 or not 1 <= info.shards <= 2**SHARD_POWER_MAX:
        raise ProtocolError(f"{name} says that the topic has {info.shards} shards")
    return info


class Destination:
    def __init__(
        self,
        index: int,
        link: Link,
        topic: str,
        *,
        create: bool,
        make_title: Callable[[TopicInfo, Burst], Title],
        registration: Registration | None = None,
    ) -> None:
        self.index = index
        self.link = link
        self.info: TopicInfo | None = None
        """The topic as the node has it; None before it was asked."""
        self.ready = False
        """Whether segments may be written."""
        self._topic = topic
        self.listener: Listener
        self._create = create
        self._make_title = make_title
        self._registration = registration or Registration("", None)
        self._node: str | None = None
        """The node that ``info`` is of."""
        self.like: TopicInfo | None = None
        """How the topic is made where it does not exist; None while nobody knows."""
        self._opening: asyncio.Task[None] | None = None
        self._titles: dict[bytes, dict[bytes | None, bytes]] = {}
        """By block and schema; a block that is kept over runs may have segments of several."""
        self._registered = False

    @property
    def name(self) -> str:
        return self.link.service

    @property
    def writable(self) -> bool:
        return self.ready and self.link.writable

    # --- the topic ----------------------------------------------------------------------------------

    async def ask(self) -> TopicInfo:
        """The topic's settings at this node now."""
        same = self._node is not None and self._node == self._node_now
        create = self._create and not same
        try:
            opened = OpenTopic(self._topic, create and not self.index and self.like is None)
            result = await self.link.request(opened, retry=True)
        except TopicNotFound:
            if not create or self.like is None:
                raise
            result = await self._make(self.like)
        info = _checked(result, self.name)
        if same and self.info is not None and info.uuid != self.info.uuid:
            raise TopicMismatch(f"topic {info.topic} was deleted and created again at {self.name}")
        await self._registration.enter(self.link, info.topic, self.index)
        return info

    async def _make(self, like: TopicInfo) -> Any:
        """Creates the topic as it is known to be; somebody else may be faster."""
        settings: dict[str, Value] = {"state": True} if like.state else {}
        made = CreateTopic(self._topic, like.shards, exist_ok=True, schema=like.schema, settings=settings)
        with suppress(TopicExists):  # whether it fits as it is there is for others to judge
            await self.link.request(made, retry=True)
        return await self.link.request(OpenTopic(self._topic), retry=True)

    @property
    def _node_now(self) -> str | None:
        return self.link.welcome.node if self.link.welcome is not None else None

    def start(self, info: TopicInfo | None = None) -> None:
        """Listens to the link; ``info`` is the topic if it was asked for just now."""
        self._registered = True
        self.link.add_producer(self)
        if info is not None and self.link.up:
            self._opened(info)
        elif self.link.up:
            self.on_up()

    def stop(self) -> None:
        self.ready = False
        if self._opening is not None:
            self._opening.cancel()
        if self._registered:
            self._registered = False
            self.link.remove_producer(self)

    def _opened(self, info: TopicInfo) -> None:
        self._node = self._node_now
        self.info = info
        self._titles.clear()
        self.ready = True
        self.listener.on_connected(self.index, info)

    async def _open(self) -> None:
        while True:
            try:
                info = await self.ask()
            except HeadpondError as error:
                if not self.link.up:
                    return  # the next connection asks again
                if error.retryable or (self.index and self.like is None and isinstance(error, TopicNotFound)):
                    self.listener.on_hindered(self.index, error)
                    await asyncio.sleep(OPEN_AGAIN_S)
                    continue
                if isinstance(error, Fenced):
                    self._registration.fence(error)
                else:
                    self.listener.on_refused(self.index, error)
                return
            if self.link.up:
                self._opened(info)
            return

    # --- writing ------------------------------------------------------------------------------------

    def write(self, burst: Burst) -> None:
        """Writes a block's frames behind its title."""
        known = self._titles.setdefault(burst.block, {})
        title = known.get(burst.schema)
        if title is None:
            assert self.info is not None, "nothing is written before the topic is open"
            fields = self._make_title(self.info, burst)
            power = self.info.shards.bit_length() - 1
            title = encode(FrameType.TITLE, encode_title(burst.block, power, fields))
            known[burst.schema] = title
            self.link.add_block(burst.block, self)
        self.link.send_segments(title, burst.frames)

    def end_block(self, block: bytes, segments_next: dict[int, int]) -> None:
        """Says that no segment follows."""
        if self.ready and self._titles.pop(block, None) is not None:
            self.link.send(BlockEnd(block, segments_next))
        self.link.remove_block(block)

    # --- what the link tells ------------------------------------------------------------------------

    def on_up(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        self._opening = asyncio.get_running_loop().create_task(self._open())

    def on_down(self) -> None:
        self.ready = False
        self.listener.on_disconnected(self.index)

    def on_writable(self) -> None:
        self.listener.on_writable(self.index)

    def on_ack(self, ack: Ack) -> None:
        fenced = self._registration.heard(ack)
        denied = next((item.message for item in ack.items if item.code == NotAllowed.code), None)
        # What is refused because of who sends it is not refused for good: what is in the refill stays there.
        kept = {NotAllowed.code} if fenced is None else {NotAllowed.code, Fenced.code}
        items = [item for item in ack.items if item.code not in kept]
        self.listener.on_ack(self.index, msgspec.structs.replace(ack, items=items))
        if fenced is not None:
            self._registration.fence(fenced)
        if denied is not None:
            self.listener.on_refused(self.index, NotAllowed(denied))

    def on_error(self, error: HeadpondError) -> None:
        """The node refused something of a block as a whole; its segments are answered one by one as well."""
        log.warning("%s: %s", self.name, error.message)
