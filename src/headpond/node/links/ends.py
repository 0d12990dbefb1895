"""The two ends of a link, as whoever carries records between them asks: this node and the other one.

Both answer the same questions (wire/control/links.py), so that taking and giving are the same work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from headpond.broker.core import NodeCore
from headpond.broker.links.requests import local_session
from headpond.broker.links.sink import NODE_LENGTH_MAX
from headpond.broker.reading.fetch import Records
from headpond.broker.steps import run
from headpond.client.link.link import Link
from headpond.model.bounds import check_fields
from headpond.model.errors import (
    BadFrame,
    ConnectionLost,
    HeadpondError,
    LimitReached,
    NodeStopping,
    ProtocolError,
)
from headpond.wire.control.catalog import ShowTopic, TopicInfo
from headpond.wire.control.codec import Operation, read_result
from headpond.wire.control.links import (
    AdmitRecords,
    Admitted,
    FeedOpened,
    Followed,
    FollowTopics,
    Heads,
    OfferHeads,
    OpenFeed,
    ReadHeads,
    peer_parts,
)
from headpond.wire.control.reading import Fetched, FetchEntries
from headpond.wire.frame import HEADER, HEADER_BYTES, TRAILER, Frame
from headpond.wire.record import decode_record_header

Kind = TypeVar("Kind")

TIMEOUT_S = 120.0
"""An answer waits for a disk, and perhaps for others in front of it."""


class Stored(NamedTuple):
    """A record as it stands in a log."""

    segment: int
    record: bytes


class PeerNode(Protocol):
    """One end of a link."""

    @property
    def id(self) -> str: ...

    async def ask(self, operation: Operation, kind: type[Kind]) -> Kind:
        """The answer to any other question."""

    async def follow(self, ask: FollowTopics) -> list[Followed]: ...

    async def show(self, topic: str) -> TopicInfo: ...

    async def heads(self, ask: ReadHeads) -> Heads: ...

    async def fetch(self, ask: FetchEntries) -> tuple[list[Stored], int]:
        """Records, and where to read on."""

    async def open_feed(self, ask: OpenFeed) -> FeedOpened: ...

    async def offer(self, ask: OfferHeads) -> list[int]: ...

    async def admit(self, ask: AdmitRecords, records: list[Stored]) -> Admitted: ...


class HereNode:
    """This node, asked directly. ``drain`` carries out what its core wants done."""

    def __init__(self, core: NodeCore, number: int, drain: Callable[[], None]) -> None:
        """``number`` is no connection's."""
        self._core = core
        self._session = local_session(number)
        self._drain = drain

    @property
    def id(self) -> str:
        return self._core.context.node

    def close(self) -> None:
        self._core.peering.on_disconnect(self._session.connection)
        self._core.fetching.on_disconnect(self._session)

    async def _ask(self, operation: Operation) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def done(result: Any) -> None:
            if not answer.done():
                answer.set_result(result)

        def refused(error: HeadpondError) -> None:
            if not answer.done():
                answer.set_exception(error.again())

        check_fields(operation)  # it may be made of what the other node said
        if self._core.context.stopping:
            raise NodeStopping("the node is shutting down")
        run(self._core.operations.steps(self._session, operation), done, refused)
        self._drain()
        return await answer

    async def ask(self, operation: Operation, kind: type[Kind]) -> Kind:
        answer: Kind = await self._ask(operation)
        return answer

    async def follow(self, ask: FollowTopics) -> list[Followed]:
        return list(await self._ask(ask))

    async def show(self, topic: str) -> TopicInfo:
        info: TopicInfo = await self._ask(ShowTopic(topic))
        return info

    async def heads(self, ask: ReadHeads) -> Heads:
        heads: Heads = await self._ask(ask)
        return heads

    async def fetch(self, ask: FetchEntries) -> tuple[list[Stored], int]:
        found: Records = await self._ask(ask)
        return [_stored(b"".join(parts)) for parts in found.frames], found.entry_next

    async def open_feed(self, ask: OpenFeed) -> FeedOpened:
        opened: FeedOpened = await self._ask(ask)
        return opened

    async def offer(self, ask: OfferHeads) -> list[int]:
        return list(await self._ask(ask))

    async def admit(self, ask: AdmitRecords, records: list[Stored]) -> Admitted:
        sink = self._core.peering.sink
        for segment, record in records:
            header = decode_record_header(record)
            sink.take(self._session.connection, ask.topic, ask.shard, segment, header, record)
        admitted: Admitted = await self._ask(ask)
        return admitted


class ThereNode:
    """The other node, over one connection: what was said on it, stamps and feeds, means nothing on the next."""

    def __init__(self, link: Link) -> None:
        assert link.welcome is not None
        self._link = link
        self.id = link.welcome.node
        if not 0 < len(self.id) <= NODE_LENGTH_MAX or not self.id.isprintable():
            raise ProtocolError("the other node has no name, or one that cannot be")

    def _check(self) -> None:
        if self._link.reconnects or not self._link.up:
            raise ConnectionLost("the connection was lost")

    async def _request(self, operation: Operation) -> Any:
        self._check()
        return await self._link.request(operation, timeout_s=TIMEOUT_S)

    async def _ask(self, operation: Operation, kind: type[Kind]) -> Kind:
        answer = await self._request(operation)
        try:
            return read_result(answer, kind)
        except msgspec.ValidationError as error:
            what = type(operation).__name__
            raise ProtocolError(f"an answer to {what} that cannot be: {error}") from error

    async def ask(self, operation: Operation, kind: type[Kind]) -> Kind:
        return await self._ask(operation, kind)

    async def follow(self, ask: FollowTopics) -> list[Followed]:
        return await self._ask(ask, list[Followed])

    async def show(self, topic: str) -> TopicInfo:
        return await self._ask(ShowTopic(topic), TopicInfo)

    async def heads(self, ask: ReadHeads) -> Heads:
        return await self._ask(ask, Heads)

    async def fetch(self, ask: FetchEntries) -> tuple[list[Stored], int]:
        answer = await self._request(ask)
        if not isinstance(answer, tuple):
            raise BadFrame("a fetch was answered by something else")
        fetched: Fetched = answer[0]
        frames: list[Frame] = answer[1]
        return [Stored(frame.segment, frame.body) for frame in frames], fetched.entry_next

    async def open_feed(self, ask: OpenFeed) -> FeedOpened:
        return await self._ask(ask, FeedOpened)

    async def offer(self, ask: OfferHeads) -> list[int]:
        """In halves where names of producers are so long that one request cannot hold them."""
        try:
            return await self._ask(ask, list[int])
        except LimitReached:
            middle = len(ask.heads) // 2
            if not middle:
                raise
        verdicts: list[int] = []
        for heads in (ask.heads[:middle], ask.heads[middle:]):
            named = {head.block for head in heads}
            blocks = {block: name for block, name in ask.blocks.items() if block in named}
            verdicts += await self.offer(OfferHeads(ask.topic, ask.shard, heads, blocks))
        return verdicts

    async def admit(self, ask: AdmitRecords, records: list[Stored]) -> Admitted:
        self._check()
        for segment, record in records:
            if not self._link.send_frames(peer_parts(ask.topic, ask.shard, segment, record)):
                raise ConnectionLost("the connection was lost")
        return await self._ask(ask, Admitted)


def _stored(raw: bytes) -> Stored:
    """Of a whole frame of a log."""
    _, _, segment, _ = HEADER.unpack_from(raw)
    return Stored(segment, raw[HEADER_BYTES : -TRAILER.size])
