"""A client's link to the node of the same process.

The link has a session at the node like any client: the node greets it with its token, counts it, and ends it
when the token does. Requests and the segments of ``publish`` go to the broker as objects, and so do the
answers. Consumers and named producers, the client's own classes, send and receive frames over a connection in
memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

from headpond.broker.operations import LocalRequest
from headpond.broker.reading.fetch import Records
from headpond.client.connect import Client
from headpond.client.link.connection import Connection
from headpond.client.link.link import Link, LinkOptions
from headpond.model.address import Address
from headpond.model.errors import ConnectionLost, HeadpondError
from headpond.node.server import ClientConnection, Server
from headpond.wire.connection import ClientSide
from headpond.wire.control.codec import Operation
from headpond.wire.control.operation import Control, OperationOf, Result
from headpond.wire.control.producing import Ack, AckItem
from headpond.wire.control.reading import Fetched
from headpond.wire.frame import FILE_BODY_BYTES_MAX, Frame, decode_at

Answers = dict[tuple[int, int], tuple[AckItem, str]]
"""By shard and number of a segment: the node's answer, and how durable it is."""


class Publication:
    """Segments of one block that the node has not answered yet."""

    def __init__(self, segments: Sequence[Frame]) -> None:
        self.answers: Answers = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._expected = {(each.shard, each.segment) for each in segments}

    def on_ack(self, ack: Ack) -> None:
        for item in ack.items:
            if (ack.shard, item.segment) in self._expected:
                self.answers[ack.shard, item.segment] = (item, ack.durability)
        if len(self.answers) == len(self._expected) and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: HeadpondError) -> None:
        if not self.done.done():
            self.done.set_exception(error.again())


class LocalConnection(Connection):
    """``session`` is the node's side of it."""

    session: ClientConnection

    def __init__(self, node: Server, address: Address, side: ClientSide, link: LocalLink) -> None:
        super().__init__(
            address,
            side,
            on_event=link._on_event,
            on_end=lambda error: link._on_down(self, error),
            on_writable=link._on_writable,
            dial=self._attach,
        )
        self._node = node
        self.publications: dict[bytes, Publication] = {}

    async def _attach(self, *_: object) -> None:
        self.session = self._node.attach(self, self._take_ack)

    def _take_ack(self, ack: Ack) -> None:
        """The node calls it in the middle of its work: a producer gets the ack at the next turn of the loop."""
        publication = self.publications.get(ack.block)
        if publication is not None:
            publication.on_ack(ack)
        else:
            self._loop.call_soon(self._pass_on, ack)

    def _pass_on(self, ack: Ack) -> None:
        if self.ended is None:
            self._on_event(ack)

    def _end(self, error: HeadpondError) -> None:
        super()._end(error)
        for publication in self.publications.values():
            publication.fail(error)


class LocalLink(Link):
    def __init__(self, node: Server, addresses: Sequence[Address], *, client: str, token: str | None) -> None:
        super().__init__(addresses, client=client, token=token, options=LinkOptions())
        self._node = node

    async def _connect(self) -> None:
        """The node of this process is the only address: its own refusal is the error."""
        side = ClientSide(client=self._client, token=self._token)
        connection = LocalConnection(self._node, self.addresses[0], side, self)
        welcome = await connection.open(self._options.connect_timeout_s)
        if connection.ended is not None:
            raise connection.ended
        self.welcome, self.refusal = welcome, None
        self._on_up(connection)

    async def ask(
        self, operation: OperationOf[Result], *, retry: bool | None = None, timeout_s: float | None = None
    ) -> Result:
        """Returns the node's own answer, which needs no conversion."""
        retry = operation.repeatable if retry is None else retry
        found: Result = await self.request(operation, retry=retry, timeout_s=timeout_s)
        return found

    async def _exchange(self, operation: Control) -> Any:
        if not self._local().session.reading:
            await self._local().session.wait_reading()
        number = self.next_number()
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        request = LocalRequest(
            cast(Operation, operation),
            lambda result: self._answer(number, result),
            lambda error: self._answer(number, error.again()),
        )
        try:
            self._local().session.take(request)
            result = await answer
        finally:
            del self._answers[number]
        return _fetched(number, result) if isinstance(result, Records) else result

    async def publish(self, title: Frame, block: bytes, segments: Sequence[Frame]) -> Answers:
        """Sends segments of a block; returns the node's answer to each. ``title`` names the block."""
        connection = self._local()
        if not connection.session.reading:
            await connection.session.wait_reading()
            connection = self._local()
        while (before := connection.publications.get(block)) is not None:  # a key that is sent twice at once
            await asyncio.wait([before.done])
            connection = self._local()
        publication = connection.publications[block] = Publication(segments)
        try:
            if connection.title is title.body:
                connection.session.take(*segments)
            else:
                connection.title = title.body
                connection.session.take(title, *segments)
            await publication.done
        finally:
            del connection.publications[block]
            publication.done.cancel()
        return publication.answers

    def take(self, message: Control) -> None:
        """Sends a message that has no answer; nothing while the link is down."""
        if self._connection is not None:
            self._local().session.take(message)

    def _local(self) -> LocalConnection:
        if self._connection is None:
            raise ConnectionLost("the connection to the node was lost")
        assert isinstance(self._connection, LocalConnection)
        return self._connection


class LocalClient(Client):
    """A client of the node in the same process: ``await LocalClient(node, token, name).open()``."""

    def __init__(self, node: Server, token: str | None, name: str) -> None:
        super().__init__(node.url, token, name, LinkOptions())
        self._node = node

    def _new_link(self, addresses: Sequence[Address]) -> Link:
        return LocalLink(self._node, addresses, client=self._name, token=self._token_for(addresses))

    @property
    def link(self) -> LocalLink:
        link = super().link
        assert isinstance(link, LocalLink)
        return link


def _fetched(number: int, records: Records) -> tuple[Fetched, list[Frame]]:
    """Records as a reader gets them from a connection; their checksums are checked."""
    frames = [decode_at(b"".join(parts), 0, FILE_BODY_BYTES_MAX) for parts in records.frames]
    place = (records.entry_next, records.entry_end, records.lost, records.masks, records.compacted)
    fetched = Fetched(number, len(frames), *place, records.producers, records.incarnation)
    return fetched, [frame for frame in frames if frame is not None]
