"""The link: a client's one conversation with a service, which it keeps up over lost connections.

It tries addresses in order. The first connection succeeds or fails within its timeout; after a later loss the
link reconnects, with backoff, until it is closed. Producers and consumers register handlers: each one hears
when the link goes down and comes up, and sends again what it must.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, cast

from headpond.client.link.connection import Connection, Dial, dial_tcp
from headpond.client.link.dialling import SEVERAL_DELAY_S_MAX, Backoff, Dialling, none_answered
from headpond.client.link.tls import Certificate, TlsOptions
from headpond.model.address import Address, service_url
from headpond.model.bounds import check_fields
from headpond.model.errors import (
    AccessRefused,
    BadRequest,
    Closed,
    ConnectionLost,
    HeadpondError,
    ProtocolError,
    TimedOut,
    WrongGroup,
)
from headpond.wire.connection import ClientSide, Event
from headpond.wire.control.codec import Operation, Request, Response, encode_control, read_answer
from headpond.wire.control.consuming import Deliver, Lost, Settled, Subscribed, Unsubscribed
from headpond.wire.control.greeting import Error, Welcome
from headpond.wire.control.operation import Control, OperationOf, Result
from headpond.wire.control.producing import Ack
from headpond.wire.control.reading import Fetched
from headpond.wire.frame import FILE_BODY_BYTES_MAX, Frame

REQUEST_TIMEOUT_S = 30.0
STEADY_AFTER_S = 5.0
"""After a connection that lasted this long, attempts and redirects count from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    connect_timeout_s: float = 5.0
    ping_after_s: float = 10.0
    dead_after_s: float = 30.0
    request_timeout_s: float = REQUEST_TIMEOUT_S
    """Seconds that a request waits for its answer, also while the node is away."""
    backoff: Backoff = field(default_factory=Backoff)
    steady_after_s: float = STEADY_AFTER_S
    tls: TlsOptions = field(default_factory=TlsOptions)
    redirects: str = "listed"
    """Which successor the link follows when a node stops (dialling.py)."""
    dial: Dial = dial_tcp


class Handler(Protocol):
    """The events that producers and consumers get from the link."""

    def on_up(self) -> None:
        """A new connection is up; nothing sent over the old one will be answered."""

    def on_down(self) -> None:
        """The connection is lost; the link makes a new one."""

    def on_error(self, error: HeadpondError) -> None:
        """The node refused something that this handler sent, or (``AccessRefused``) the connection's token."""

    def on_writable(self) -> None:
        """Writing was paused and may continue."""


class BlockHandler(Handler, Protocol):
    """A producer: it gets the link's events, and the answers to the blocks that it registered."""

    def on_ack(self, ack: Ack) -> None: ...


class ConsumerHandler(Handler, Protocol):
    def on_deliver(self, deliver: Deliver, frames: list[Frame]) -> None: ...

    def on_control(self, message: Subscribed | Unsubscribed | Settled | Lost) -> None: ...


Elsewhere = Callable[["Link", WrongGroup], Awaitable["Link"]]
"""The link to the group that a node named; raises the node's error if the client does not go there."""
Answer = TypeVar("Answer")

log = logging.getLogger("headpond.client")

GROUP_HOPS_MAX = 5
"""Groups that one call is sent to, before it fails: they may not agree for a moment."""
FETCHED_BYTES_MAX = 2 * FILE_BODY_BYTES_MAX
"""The most bytes in one answer to a fetch: a node sends a few MiB, or a single record."""
WARN_AFTER_S = 10.0
"""Seconds between two warnings of a link that finds no node."""


class Link:
    def __init__(
        self,
        addresses: Sequence[Address],
        *,
        client: str,
        token: str | None,
        options: LinkOptions,
        elsewhere: Elsewhere | None = None,
        service: str | None = None,
    ) -> None:
        """``service`` is the name of a producer's destination, if it is not the addresses."""
        self.addresses = list(addresses)
        self.dialling = Dialling(addresses, options.redirects)
        self.reconnects = 0
        self.backoff = options.backoff
        self.request_timeout_s = options.request_timeout_s
        self.welcome: Welcome | None = None
        self.refusal: AccessRefused | None = None
        """Why the node refuses this client, if so; then nobody waits for a connection."""
        self._client = client
        self._token = token
        self._options = options
        self._elsewhere = elsewhere
        self._service = service
        self._connection: Connection | None = None
        self._up = asyncio.Event()
        self._closed = False
        self._reconnecting: asyncio.Task[None] | None = None
        self._attempts = 0
        """Connections tried since the last one that lasted."""
        self._up_since = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._blocks: dict[bytes, BlockHandler] = {}
        self._producers: list[BlockHandler] = []
        self._consumers: dict[int, ConsumerHandler] = {}
        self._numbers = 0
        self._answers: dict[int, asyncio.Future[Any]] = {}
        """By the number of a request that waits."""
        self._delivery: tuple[Deliver | Fetched, list[Frame]] | None = None
        self._delivery_bytes = 0

    # --- life ---------------------------------------------------------------------------------------

    @property
    def up(self) -> bool:
        return self._connection is not None

    @property
    def connection(self) -> Connection | None:
        """None while the link is down."""
        return self._connection

    @property
    def writable(self) -> bool:
        return self._connection is not None and self._connection.writable

    @property
    def service(self) -> str:
        """All addresses, as one URL: the name of a producer's destination."""
        return self._service or service_url(self.addresses)

    @property
    def destination(self) -> str:
        """The URL of the node that answers now, or of the first address."""
        address = self._connection.address if self._connection else self.addresses[0]
        return address.url

    @property
    def certificate(self) -> Certificate | None:
        """With TLS: the certificate of the node that answers now."""
        return self._connection.certificate if self._connection is not None else None

    @property
    def may_change(self) -> bool:
        """Whether another node may come to answer; the members of a group are one node."""
        grouped = self.welcome is not None and bool(self.welcome.group)
        return self.dialling.may_change and not grouped

    async def open(self, *, wait: bool = True) -> None:
        """Connects. Without ``wait`` a node that is away is no error: the link keeps trying."""
        self._loop = asyncio.get_running_loop()
        try:
            await self._connect()
        except HeadpondError as error:
            if wait or not error.retryable:
                raise
            log.info("%s; trying again", error.message)
            self._reconnecting = self._loop.create_task(self._reconnect())

    async def open_if_new(self) -> None:
        """Connects a link that is not open yet; a node that is away is no error."""
        if self._loop is None:
            await self.open(wait=False)

    async def close(self) -> None:
        self._closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.gather(self._reconnecting, return_exceptions=True)
        connection, self._connection = self._connection, None
        self._up.clear()
        if connection is not None:
            await connection.close()
        self._up.set()  # a waiter finds out that the link is closed
        self._fail_requests(Closed("the client was closed"))

    async def wait_up(self) -> None:
        self._check_waiting()
        await self._up.wait()
        self._check_waiting()

    def _check_waiting(self) -> None:
        if self._closed:
            raise Closed("the client was closed")
        if self.refusal is not None and not self.up:
            raise self.refusal.again()

    async def _connect(self) -> None:
        """One round over the addresses within the connect timeout."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._options.connect_timeout_s
        failures: list[tuple[Address, HeadpondError]] = []
        order = self.dialling.order()
        for index, address in enumerate(order):
            left_s = max(deadline - loop.time(), 0.0) / (len(order) - index)
            connection = self._new_connection(address)
            try:
                welcome = await connection.open(left_s)
            except HeadpondError as error:
                self.dialling.heed(address, error)
                failures.append((address, error))
                continue
            if connection.ended is not None:  # the node welcomed the client and ended the connection since
                failures.append((address, connection.ended))
                continue
            self.welcome, self.refusal = welcome, None
            self.dialling.connected(address, welcome.successor)
            self._on_up(connection)
            return
        raise none_answered(failures)

    def _new_connection(self, address: Address) -> Connection:
        connection = Connection(
            address,
            ClientSide(client=self._client, token=self._token),
            on_event=self._on_event,
            on_end=lambda error: self._on_down(connection, error),
            on_writable=self._on_writable,
            tls=self._options.tls,
            dial=self._options.dial,
        )
        return connection

    def _on_up(self, connection: Connection) -> None:
        self._connection = connection
        self._up_since = asyncio.get_running_loop().time()
        self._delivery = None
        connection.watch(self._options.ping_after_s, self._options.dead_after_s)
        self._up.set()
        for handler in self._handlers():
            try:
                handler.on_up()
            except Exception:
                log.exception("a producer or consumer failed to continue over a new connection")

    def _on_down(self, connection: Connection, error: HeadpondError) -> None:
        if self._connection is not connection:
            return
        self._connection = None
        self._up.clear()
        if asyncio.get_running_loop().time() - self._up_since >= self._options.steady_after_s:
            self._attempts = 0
            self.dialling.lasted()
        self.dialling.heed(connection.address, error)
        self._fail_requests(error if isinstance(error, AccessRefused) else ConnectionLost(error.message))
        for handler in self._handlers():
            handler.on_down()
        if isinstance(error, AccessRefused):
            self._on_refused(error)
        if not self._closed:
            log.warning("connection lost: %s; reconnecting", error.message)
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    def _on_refused(self, error: AccessRefused) -> None:
        """The node no longer takes the token: readers end; producers refuse, or keep messages in a refill."""
        if self.refusal is not None:
            return
        self.refusal = error
        self._up.set()  # a waiter finds out that it waits in vain
        self._up.clear()
        for handler in (*self._consumers.values(), *self._producers):
            handler.on_error(error)

    async def _reconnect(self) -> None:
        warned_at = asyncio.get_running_loop().time()
        while not self._closed:
            delay_s = self.backoff.delay_s(self._attempts)
            if len(self.dialling.given) > 1:
                delay_s = min(delay_s, SEVERAL_DELAY_S_MAX)
            await asyncio.sleep(delay_s)
            self._attempts += 1
            try:
                self.reconnects += 1
                await self._connect()
            except HeadpondError as error:
                self.reconnects -= 1
                if isinstance(error, AccessRefused):
                    self._on_refused(error)
                now = asyncio.get_running_loop().time()
                if now - warned_at >= WARN_AFTER_S:
                    warned_at = now
                    log.warning("still not connected, trying again: %s", error.message)
            else:
                log.info("reconnected to %s", self.destination)
                return

    async def at_group(self, attempt: Callable[[Link], Awaitable[Answer]]) -> Answer:
        """Makes an attempt over this link; if the node says ``WrongGroup``, over the link to that group."""
        link = self
        hops = 0
        while True:
            try:
                return await attempt(link)
            except WrongGroup as error:
                if link._elsewhere is None or hops == GROUP_HOPS_MAX:
                    raise
                if hops:
                    await asyncio.sleep(self.backoff.delay_s(hops))
                hops += 1
                link = await link._elsewhere(link, error)

    def readdress(self, addresses: Sequence[Address]) -> None:
        """The service has other addresses from now on; a connection stays."""
        self.addresses = self.dialling.given = list(addresses)

    def check_loop(self) -> None:
        """Refuses a call on another loop than the client was opened on: there no wait would end."""
        if self._loop not in (None, asyncio.get_running_loop()):
            raise BadRequest(
                "this client was opened on another event loop",
                hint="Open one client per event loop, or use headpond.sync across threads.",
            )

    # --- writing ------------------------------------------------------------------------------------

    def send(self, *messages: Control) -> bool:
        """Writes conversation frames; False while the link is down (the caller sends again when it is up)."""
        if self._connection is None:
            return False
        self._connection.write(list(map(encode_control, messages)))
        return True

    def send_segments(self, title: bytes, frames: list[bytes]) -> None:
        """Writes a block's frames, after its TITLE unless that was the last one on the connection."""
        assert self._connection is not None, "callers check `writable` first"
        if self._connection.title != title:
            frames = [title, *frames]
            self._connection.title = title
        self._connection.write(frames)

    def send_frames(self, frames: list[bytes]) -> bool:
        """Writes frames that need no TITLE; False while the link is down."""
        if self._connection is None:
            return False
        self._connection.write(frames)
        return True

    async def ask(
        self, operation: OperationOf[Result], *, retry: bool | None = None, timeout_s: float | None = None
    ) -> Result:
        """Sends an operation and returns its answer, as the type that the operation declares.

        After a lost connection the link asks again, if the operation is ``repeatable`` or ``retry`` says so.
        """
        retry = operation.repeatable if retry is None else retry
        return read_answer(operation, await self.request(operation, retry=retry, timeout_s=timeout_s))

    async def request(self, operation: Control, *, retry: bool = False, timeout_s: float | None = None) -> Any:
        """Sends an operation and returns its answer as plain data; with ``retry``, again after a lost link."""
        timeout_s = self.request_timeout_s if timeout_s is None else timeout_s
        check_fields(operation)
        self.check_loop()
        what = type(operation).__name__
        try:
            async with asyncio.timeout(timeout_s):
                while True:
                    await self.wait_up()
                    try:
                        return await self._exchange(operation)
                    except ConnectionLost:
                        if not retry:
                            raise
        except TimeoutError:
            raise TimedOut(f"{what} was not answered within {timeout_s:.3g} s") from None

    async def _exchange(self, operation: Control) -> Any:
        number = self.next_number()
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            if not self.send(Request(number, cast(Operation, operation))):
                raise ConnectionLost("the connection was lost")
            return await answer
        finally:
            del self._answers[number]

    def _answer(self, number: int, result: Any) -> None:
        """Gives a waiting request its answer; an error is raised there."""
        answer = self._answers.get(number)
        if answer is None or answer.done():
            return
        if isinstance(result, HeadpondError):
            answer.set_exception(result)
        else:
            answer.set_result(result)

    def _fail_requests(self, error: HeadpondError) -> None:
        for number in list(self._answers):
            self._answer(number, error.again())

    def next_number(self) -> int:
        """A number for a request or a consumer, unique on this link."""
        self._numbers += 1
        return self._numbers

    # --- handlers -----------------------------------------------------------------------------------

    def add_producer(self, handler: BlockHandler) -> None:
        self._producers.append(handler)

    def remove_producer(self, handler: BlockHandler) -> None:
        self._producers.remove(handler)
        self._blocks = {block: each for block, each in self._blocks.items() if each is not handler}

    def add_block(self, block: bytes, handler: BlockHandler) -> None:
        """Sends the answers to ``block`` to ``handler``."""
        self._blocks[block] = handler

    def remove_block(self, block: bytes) -> None:
        self._blocks.pop(block, None)

    def add_consumer(self, number: int, handler: ConsumerHandler) -> None:
        self._consumers[number] = handler

    def remove_consumer(self, number: int) -> None:
        self._consumers.pop(number, None)

    def _handlers(self) -> list[Handler]:
        return [*self._producers, *self._consumers.values()]

    def _on_writable(self) -> None:
        for handler in self._handlers():
            handler.on_writable()

    # --- the node's messages ------------------------------------------------------------------------

    def _on_event(self, event: Event) -> None:
        if self._delivery is not None:
            self._collect(event)
        elif isinstance(event, Ack):
            if (block := self._blocks.get(event.block)) is not None:
                block.on_ack(event)
        elif isinstance(event, Deliver | Fetched):
            self._delivery, self._delivery_bytes = (event, []), 0
            self._deliver_if_whole()
        elif isinstance(event, Subscribed | Unsubscribed | Settled | Lost):
            if (consumer := self._consumers.get(event.consumer)) is not None:
                consumer.on_control(event)
        elif isinstance(event, Response):
            self._answer(event.number, event.result)
        elif isinstance(event, Error):
            self._on_error(event)
        else:
            self._distrust(f"a {type(event).__name__} that nothing announced")

    def _collect(self, event: Event) -> None:
        assert self._delivery is not None
        if not isinstance(event, Frame):
            self._distrust(f"a {type(event).__name__} inside a delivery")
            return
        deliver, frames = self._delivery
        frames.append(event)
        self._delivery_bytes += len(event.body)
        if isinstance(deliver, Fetched) and self._delivery_bytes > FETCHED_BYTES_MAX:
            self._distrust("more than was asked for")
            return
        if len(frames) == deliver.records:
            self._deliver_if_whole()

    def _deliver_if_whole(self) -> None:
        assert self._delivery is not None
        deliver, frames = self._delivery
        if len(frames) < deliver.records:
            return
        self._delivery = None
        if isinstance(deliver, Fetched):
            self._answer(deliver.number, (deliver, frames))
        elif (consumer := self._consumers.get(deliver.consumer)) is not None:
            consumer.on_deliver(deliver, frames)

    def _on_error(self, event: Error) -> None:
        error = event.as_exception()
        if event.request is not None:
            self._answer(event.request, error)
        elif event.consumer is not None and (consumer := self._consumers.get(event.consumer)):
            consumer.on_error(error)
        elif event.block is not None and (block := self._blocks.get(event.block)):
            block.on_error(error)
        # A producer or consumer may have closed while this was on its way.

    def _distrust(self, what: str) -> None:
        """Ends a connection whose frames make no sense; the link makes a new one."""
        if self._connection is not None:
            self._connection.abort(ProtocolError(f"the node sent {what}"))
