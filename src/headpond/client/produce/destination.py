"""A destination: the link to a node, the topic at that node, and the writing of segments to it.

Each time the link comes up, the destination asks for the topic again, because the node may be another one, or
may have lost its disk. Only then are segments sent:

- The topic is the same: sending continues.
- The node is the first, or another than before: the topic is taken as it is there, created if that is allowed.
- The same node has deleted the topic, or deleted and created it again: the destination refuses the segments.

A topic is created like the known one, from another destination or from before the node lost it. As long as
nobody knows it, the destination asks a copy without the topic again, and segments for that copy are spilled.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Protocol

import msgspec

from headpond.client.link.link import Link
from headpond.client.produce.registration import ProducerRegistration
from headpond.model.errors import (
    AccessRefused,
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
_ABOUT_SENDER = frozenset({NotAllowed.code, Fenced.code})
"""Refusals that are about the producer, not about the segment."""


class DestinationListener(Protocol):
    """The run of a producer."""

    def make_title(self, info: TopicInfo, burst: Burst) -> Title: ...

    def on_connected(self, index: int, info: TopicInfo) -> None: ...

    def on_disconnected(self, index: int) -> None: ...

    def on_hindered(self, index: int, error: HeadpondError) -> None: ...

    def on_refused(self, index: int, error: HeadpondError) -> None: ...

    def on_token_refused(self, index: int, error: AccessRefused) -> None: ...

    def on_fenced(self, error: Fenced) -> None: ...

    def on_ack(self, index: int, ack: Ack) -> None: ...

    def carry(self) -> None: ...


def _checked(result: Any, name: str) -> TopicInfo:
    """A node's answer, checked."""
    try:
        info = read_result(result, TopicInfo)
        if info.schema is not None:
            decode_schema(info.schema)
    except (msgspec.ValidationError, SchemaMismatch) as error:
        raise ProtocolError(f"{name} describes the topic with values that cannot be: {error}") from error
    if info.shards.bit_count() != 1 or not 1 <= info.shards <= 2**SHARD_POWER_MAX:
        raise ProtocolError(f"{name} says that the topic has {info.shards} shards")
    return info


def _node_of(link: Link) -> str | None:
    return link.welcome.node if link.welcome is not None else None


class Destination:
    def __init__(
        self, index: int, link: Link, topic: str, registration: ProducerRegistration, *, create: bool
    ) -> None:
        self.index = index
        self.link = link
        self.name = link.service
        self.ready = False
        """Whether segments may be written."""
        self.like: TopicInfo | None = None
        """The topic to create where it does not exist; None while nobody knows."""
        self._topic = topic
        self._create = create
        self._registration = registration
        self._listener: DestinationListener | None = None
        """None before ``start``."""
        self._info: TopicInfo | None = None
        """The topic at the node; None before it was asked."""
        self._node: str | None = None
        """The node that ``_info`` is of."""
        self._answer: TopicInfo | None = None
        """The last answer to ``ask``."""
        self._opening: asyncio.Task[None] | None = None
        self._titles: dict[bytes, dict[bytes | None, bytes]] = {}
        """By block and schema; a block that all runs share may have segments of several."""

    @property
    def _to(self) -> DestinationListener:
        assert self._listener is not None, "nothing happens before the start"
        return self._listener

    # --- the topic ----------------------------------------------------------------------------------

    async def ask(self) -> TopicInfo:
        """Asks for the topic's settings at this node, and registers the producer there."""
        return await self.link.at_group(self._ask_at)

    async def _ask_at(self, link: Link) -> TopicInfo:
        same = self._node is not None and self._node == _node_of(link)
        create = self._create and not same
        try:
            opened = OpenTopic(self._topic, create and not self.index and self.like is None)
            result = await link.request(opened, retry=True)
        except TopicNotFound:
            if not create or self.like is None:
                raise
            result = await self._make(link, self.like)
        info = _checked(result, self.name)
        if same and self._info is not None and info.uuid != self._info.uuid:
            raise TopicMismatch(f"topic {info.topic} was deleted and created again at {self.name}")
        await self._registration.enter(link, info.topic, self.index)
        self._answer = info
        self._move(link)
        return info

    def _move(self, link: Link) -> None:
        """The topic is on the group of another link: its node gets the segments."""
        if link is not self.link:
            if self._listener is not None:
                self.link.remove_producer(self)
                link.add_producer(self)
            self.link = link

    async def _make(self, link: Link, like: TopicInfo) -> Any:
        """Creates the topic like the known one; somebody else may be faster."""
        settings: dict[str, Value] = {"state": True} if like.state else {}
        made = CreateTopic(self._topic, like.shards, exist_ok=True, schema=like.schema, settings=settings)
        with suppress(TopicExists):  # the run judges whether that one fits
            await link.request(made, retry=True)
        return await link.request(OpenTopic(self._topic), retry=True)

    def start(self, listener: DestinationListener) -> None:
        """Listens to the link; a node that was asked just before need not be asked again."""
        self._listener = listener
        self.link.add_producer(self)
        if self._answer is not None and self.link.up:
            self._opened(self._answer)
        elif self.link.up:
            self.on_up()

    def stop(self) -> None:
        self.ready = False
        if self._opening is not None:
            self._opening.cancel()
        if self._listener is not None:
            self.link.remove_producer(self)

    def _opened(self, info: TopicInfo) -> None:
        self._node = _node_of(self.link)
        self._info = info
        self._titles.clear()
        self.ready = True
        self._to.on_connected(self.index, info)

    async def _open(self) -> None:
        while True:
            try:
                info = await self.ask()
            except HeadpondError as error:
                if not self.link.up:
                    return  # the next connection asks again
                if error.retryable or (self.index and self.like is None and isinstance(error, TopicNotFound)):
                    self._to.on_hindered(self.index, error)
                    await asyncio.sleep(OPEN_AGAIN_S)
                    continue
                if isinstance(error, Fenced):
                    self._to.on_fenced(error)
                else:
                    self._to.on_refused(self.index, error)
                return
            if self.link.up:
                self._opened(info)
            return

    # --- writing ------------------------------------------------------------------------------------

    def write(self, burst: Burst) -> None:
        """Writes a block's frames after its title."""
        known = self._titles.get(burst.block)
        if known is None:
            known = self._titles[burst.block] = {}
        title = known.get(burst.schema)
        if title is None:
            assert self._info is not None, "nothing is written before the topic is open"
            fields = self._to.make_title(self._info, burst)
            power = self._info.shards.bit_length() - 1
            title = encode(FrameType.TITLE, encode_title(burst.block, power, fields))
            known[burst.schema] = title
            self.link.add_block(burst.block, self)
        self.link.send_segments(title, burst.frames)

    def end_block(self, block: bytes, segments_next: dict[int, int]) -> None:
        """Says that no segment follows."""
        if self.ready and self._titles.pop(block, None) is not None:
            self.link.send(BlockEnd(block, segments_next))
        self.link.remove_block(block)

    # --- the link -----------------------------------------------------------------------------------

    def on_up(self) -> None:
        if self._opening is not None:
            self._opening.cancel()
        self._opening = asyncio.get_running_loop().create_task(self._open())

    def on_down(self) -> None:
        self.ready = False
        self._to.on_disconnected(self.index)

    def on_writable(self) -> None:
        self._to.carry()

    def on_ack(self, ack: Ack) -> None:
        for item in ack.items:
            if item.code in _ABOUT_SENDER:
                self._on_refusals(ack)
                return
        assert self._listener is not None
        self._listener.on_ack(self.index, ack)

    def _on_refusals(self, ack: Ack) -> None:
        """Segments that are refused because of their sender are not refused for good: the refill keeps them."""
        holds = self._registration.epoch > 0
        fenced = next((item for item in ack.items if item.code == Fenced.code and holds), None)
        denied = next((item for item in ack.items if item.code == NotAllowed.code), None)
        held = {NotAllowed.code} if fenced is None else _ABOUT_SENDER
        items = [item for item in ack.items if item.code not in held]
        self._to.on_ack(self.index, msgspec.structs.replace(ack, items=items))
        if fenced is not None:
            self._to.on_fenced(Fenced(fenced.message))
        if denied is not None:
            self._to.on_refused(self.index, NotAllowed(denied.message))

    def on_error(self, error: HeadpondError) -> None:
        """The node refused something of a block as a whole; it answers the segments one by one as well."""
        if isinstance(error, AccessRefused):
            self._to.on_token_refused(self.index, error)
        log.warning("%s: %s", self.name, error.message)
