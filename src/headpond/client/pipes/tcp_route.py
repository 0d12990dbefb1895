"""A sender's way over TCP: a connection that is made anew whenever it is lost."""

from __future__ import annotations

import asyncio
import logging
import ssl

from headpond.calculus.route import Route
from headpond.client.backoff import Backoff
from headpond.client.pipes.connection import Connection
from headpond.client.pipes.frames import (
    FROM_RECEIVER,
    VERSION,
    Hello,
    PipeFrame,
    decode_hello,
    encode_hello,
    shape_of,
)
from headpond.client.pipes.sender import Sender
from headpond.model.errors import (
    BadFrame,
    ConnectionLost,
    HeadpondError,
    ProtocolError,
    RouteMismatch,
    SessionOver,
    TimedOut,
    Unavailable,
    VersionUnsupported,
)
from headpond.pipes.packet import Packet
from headpond.wire.control import Error, decode_control
from headpond.wire.frame import Frame

log = logging.getLogger("headpond.client.pipes")

TRY_S = 5.0
"""How long one attempt to connect and be greeted may take."""


class TcpRoute:
    def __init__(
        self,
        route: Route,
        host: str,
        port: int,
        *,
        connect_timeout: float,
        backoff: Backoff,
        context: ssl.SSLContext | None,
    ) -> None:
        self.reconnects = 0
        self.faults = 0
        self._route = route
        self._shape = shape_of(route)
        self._host = host
        self._port = port
        self._connect_timeout = connect_timeout
        self._backoff = backoff
        self._context = context
        self._sender: Sender
        self._connection: Connection | None = None
        self._greeted: asyncio.Future[None] | None = None
        self._malformed_before = 0
        self._reconnecting: asyncio.Task[None] | None = None
        self._closed = False
        self._known = 0
        """The highest session of this sender that its receiver spoke of."""

    @property
    def malformed(self) -> int:
        return self._malformed_before + (self._connection.malformed if self._connection else 0)

    async def open(self, sender: Sender) -> None:
        """Tries until the receiver is there, for as long as ``connect_timeout`` says."""
        self._sender = sender
        last: HeadpondError | None = None
        try:
            async with asyncio.timeout(self._connect_timeout):
                attempt = 0
                while True:
                    try:
                        return await self._connect()
                    except SessionOver:
                        # A clock that went back: this is the later program, and has sent nothing yet.
                        if not sender.start_above(self._known):
                            raise
                        continue
                    except HeadpondError as error:
                        if not error.retryable:
                            raise
                        last = error
                    await asyncio.sleep(self._backoff.delay_s(attempt))
                    attempt += 1
        except TimeoutError:
            why = last.message if last else f"no answer within {self._connect_timeout:g} s"
            raise Unavailable(
                f"no receiver at {self._host}:{self._port}: {why}",
                hint="Start the receiving side, or allow more time with connect_timeout.",
            ) from None

    def carry(self, packets: list[Packet]) -> None:
        if self._connection is not None:
            self._connection.carry(packets)

    async def close(self) -> None:
        self._closed = True
        if self._reconnecting is not None:
            self._reconnecting.cancel()
            await asyncio.gather(self._reconnecting, return_exceptions=True)
        if self._connection is not None:
            await self._connection.close()

    # --- one connection after the other -------------------------------------------------------------

    async def _connect(self) -> None:
        """One attempt; on success the sender goes on."""
        loop = asyncio.get_running_loop()
        greeted = self._greeted = loop.create_future()
        connection = Connection(
            FROM_RECEIVER,
            pipes=len(self._route.stages),
            on_open=self._greet,
            on_frame=self._on_frame,
            on_packets=self._on_packets,
            on_end=self._on_end,
            on_writable=self._on_writable,
        )
        try:
            async with asyncio.timeout(TRY_S):
                await loop.create_connection(lambda: connection, self._host, self._port, ssl=self._context)
                await greeted
        except TimeoutError:
            greeted.cancel()
            connection.end(TimedOut("not greeted in time"))
            raise TimedOut(f"{self._host}:{self._port} did not answer within {TRY_S:g} s") from None
        except OSError as error:
            raise Unavailable(f"{self._host}:{self._port}: {error.strerror or error}") from None
        except BaseException:
            greeted.cancel()  # nobody waits for it any more
            connection.end(ConnectionLost("given up"))
            raise
        self._connection = connection
        self._sender.on_route(connection.writable, lost=True)

    def _greet(self, connection: Connection) -> None:
        connection.write(encode_hello(Hello(VERSION, self._shape, self._sender.name, self._sender.epoch)))

    def _on_frame(self, connection: Connection, frame: Frame) -> None:
        try:
            if frame.type != PipeFrame.HELLO:
                error = decode_control(frame.type, frame.body)
                assert isinstance(error, Error), "only HELLO and ERROR pass the reader"
                connection.end(error.as_exception())
                return
            hello = decode_hello(frame.body)
            if hello.version != VERSION:
                raise VersionUnsupported(f"the receiver speaks version {hello.version}, this side {VERSION}")
            if hello.shape != self._shape:
                raise RouteMismatch(f"this end is {self._shape!r}, the receiver's is {hello.shape!r}")
            if hello.known > self._sender.epoch:
                self._known = hello.known  # its ERROR follows, and says so
                return
        except HeadpondError as error:
            connection.end(error, faulty=isinstance(error, BadFrame))
            return
        if self._greeted is not None and not self._greeted.done():
            self._greeted.set_result(None)

    def _on_packets(self, connection: Connection, packets: list[Packet]) -> None:
        if self._greeted is None or not self._greeted.done():
            connection.end(ProtocolError("a packet before the greeting"), faulty=True)
        else:
            self._sender.on_packets(packets)

    def _on_writable(self, connection: Connection, writable: bool) -> None:
        if connection is self._connection:
            self._sender.on_route(writable)

    def _on_end(self, connection: Connection, error: HeadpondError) -> None:
        self.faults += connection.faulty
        self._malformed_before += connection.malformed
        if self._greeted is not None and not self._greeted.done():
            self._greeted.set_exception(error)
        if connection is not self._connection:
            return
        self._connection = None
        self._sender.on_route(False)
        if error.code in (RouteMismatch.code, "session-over"):
            self._sender.fail(error)
        elif not self._closed:
            log.info("the pipe to %s:%d is cut: %s", self._host, self._port, error.message)
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        attempt = 0
        while True:
            await asyncio.sleep(self._backoff.delay_s(attempt))
            attempt += 1
            try:
                await self._connect()
            except HeadpondError as error:
                # What is no pipe's may be another program that took the port for a while.
                if not error.retryable and not isinstance(error, BadFrame):
                    self._sender.fail(error)
                    return
            else:
                self.reconnects += 1
                return
