"""The two ends of a link: this node and the other one, which answer the same operations.

So copying to a node and copying from it are the same work (``flow.py``, ``follow.py``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import msgspec

from headpond.broker.core import NodeCore
from headpond.broker.links.link_table import LinkMade
from headpond.broker.links.requests import local_session
from headpond.broker.links.sink import NODE_LENGTH_MAX
from headpond.broker.links.status import LinkStatus
from headpond.broker.reading.fetch import Records
from headpond.broker.steps import run
from headpond.client.link.link import Link
from headpond.model.bounds import check_fields
from headpond.model.errors import BadFrame, ConnectionLost, HeadpondError, NodeStopping, ProtocolError
from headpond.wire.control.codec import read_answer
from headpond.wire.control.links import AdmitRecords, Admitted
from headpond.wire.control.operation import Control, OperationOf, Result
from headpond.wire.control.reading import Fetched, FetchEntries
from headpond.wire.frame import HEADER, HEADER_BYTES, TRAILER, Frame, FrameType, frame_parts
from headpond.wire.record import decode_record_header

TIMEOUT_S = 120.0
"""An answer may wait for a disk, and for other requests before it."""


class LogRecord(NamedTuple):
    """A record as a log has it."""

    segment: int
    record: bytes


class LinkEnd(Protocol):
    """One node of a link."""

    @property
    def id(self) -> str: ...

    async def ask(self, operation: OperationOf[Result]) -> Result: ...

    async def fetch(self, ask: FetchEntries) -> tuple[list[LogRecord], int]:
        """Records, and the entry to continue at."""

    async def admit(self, ask: AdmitRecords, records: list[LogRecord]) -> Admitted: ...


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a link: messages go from ``source`` to ``sink``."""

    made: LinkMade
    name: str
    """``pull`` or ``push``"""
    source: LinkEnd
    sink: LinkEnd
    status: LinkStatus
    number: int = 0
    """Of the link's connection."""
    claims: dict[tuple[str, str, str], int] = field(default_factory=dict)
    """By direction, other node and topic: the connection that copies the topic; other links leave it alone."""

    def claim(self, topic: str) -> bool:
        """Whether this link copies the topic: no other one does."""
        return self.claims.setdefault(self._key(topic), self.number) == self.number

    def release(self, topic: str) -> None:
        """Lets another link copy the topic."""
        if self.claim(topic):
            del self.claims[self._key(topic)]

    def _key(self, topic: str) -> tuple[str, str, str]:
        return self.name, (self.source if self.name == "pull" else self.sink).id, topic


class ThisNode:
    """This node, whose core is asked directly; ``drain`` carries out the core's effects."""

    def __init__(self, core: NodeCore, number: int, drain: Callable[[], None]) -> None:
        """``number`` stands for a connection; no connection has it."""
        self._core = core
        self._session = local_session(number)
        self._drain = drain

    @property
    def id(self) -> str:
        return self._core.context.node

    def close(self) -> None:
        self._core.peering.on_disconnect(self._session.connection)
        self._core.fetching.on_disconnect(self._session)

    async def ask(self, operation: OperationOf[Result]) -> Result:
        found: Result = await self._answer(operation)
        return found

    async def _answer(self, operation: Any) -> Any:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(result: Any) -> None:
            if not answer.done():
                answer.set_result(result)

        def refused(error: HeadpondError) -> None:
            if not answer.done():
                answer.set_exception(error.again())

        check_fields(operation)  # it may hold values of the other node
        if self._core.context.stopping:
            raise NodeStopping("the node is shutting down")
        run(self._core.operations.steps(self._session, operation), answered, refused)
        self._drain()
        return await answer

    async def fetch(self, ask: FetchEntries) -> tuple[list[LogRecord], int]:
        found: Records = await self._answer(ask)
        return [_log_record(b"".join(parts)) for parts in found.frames], found.entry_next

    async def admit(self, ask: AdmitRecords, records: list[LogRecord]) -> Admitted:
        sink = self._core.peering.sink
        for segment, record in records:
            header = decode_record_header(record)
            sink.take(self._session.connection, ask.topic, ask.shard, segment, header, record)
        return await self.ask(ask)


class OtherNode:
    """The other node, over one connection: stamps and feeds of this connection mean nothing on the next one."""

    def __init__(self, link: Link) -> None:
        assert link.welcome is not None
        self._link = link
        self.id = link.welcome.node
        if not 0 < len(self.id) <= NODE_LENGTH_MAX or not self.id.isprintable():
            raise ProtocolError("the other node has an invalid id, or none")

    async def ask(self, operation: OperationOf[Result]) -> Result:
        answer = await self._request(operation)
        try:
            return read_answer(operation, answer)
        except msgspec.ValidationError as error:
            what = type(operation).__name__
            raise ProtocolError(f"the other node sent an invalid answer to {what}: {error}") from error

    async def _request(self, operation: Control) -> Any:
        self._check_connected()
        return await self._link.request(operation, timeout_s=TIMEOUT_S)

    def _check_connected(self) -> None:
        if self._link.reconnects or not self._link.up:
            raise ConnectionLost("the connection to the other node was lost")

    async def fetch(self, ask: FetchEntries) -> tuple[list[LogRecord], int]:
        answer = await self._request(ask)
        if not isinstance(answer, tuple):
            raise BadFrame("the other node answered a fetch with something else")
        fetched: Fetched = answer[0]
        frames: list[Frame] = answer[1]
        return [LogRecord(frame.segment, frame.body) for frame in frames], fetched.entry_next

    async def admit(self, ask: AdmitRecords, records: list[LogRecord]) -> Admitted:
        self._check_connected()
        for segment, record in records:
            parts = frame_parts(FrameType.PEER, ask.topic, record, shard=ask.shard, segment=segment)
            if not self._link.send_frames(parts):
                raise ConnectionLost("the connection to the other node was lost")
        return await self.ask(ask)


def _log_record(frame: bytes) -> LogRecord:
    _, _, segment, _ = HEADER.unpack_from(frame)
    return LogRecord(segment, frame[HEADER_BYTES : -TRAILER.size])
