"""A pipe between two processes, over TCP.

The receiving side listens. The sending side connects, and connects again for as long as it is open. A pipe
that sends again repeats the messages that were on their way over a lost connection.

A restarted program is recognised by its session: a sender by its ``name`` and a higher epoch, so that its
numbers count from 0; a receiver by the epoch in its answers. A sender without a name is the only one of its
receiver.

A ``stream`` has its storage at the listening side: in memory, for as long as the receiver is open, or in the
folder ``store``, where the next process finds it.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from ssl import SSLContext

from headpond.client.link.dialling import Backoff
from headpond.model.errors import (
    AddressInUse,
    BadFrame,
    BadRequest,
    ConnectionLost,
    HeadpondError,
    LimitReached,
    ProtocolError,
    RouteMismatch,
    SessionOver,
    TimedOut,
    Unavailable,
)
from headpond.pipes.calculus.route import Route, check_composition
from headpond.pipes.drivers.connection import (
    FROM_RECEIVER,
    FROM_SENDER,
    FROM_STRANGER,
    NAME_MAX,
    VERSION,
    PipeConnection,
    PipeFrame,
    PipeHello,
    check_hello,
    decode_hello,
    encode_hello,
    shape_of,
)
from headpond.pipes.drivers.end import check_epoch, new_epoch
from headpond.pipes.drivers.lane import SenderLane, lose
from headpond.pipes.drivers.receiver import LaneSource, PipeReceiver
from headpond.pipes.drivers.sender import PipeSender, Way
from headpond.pipes.drivers.store import DurableLane, StreamStore
from headpond.pipes.machines.compose import parse_drivable
from headpond.pipes.machines.machine import Notice
from headpond.pipes.machines.packet import Packet
from headpond.storage.os_disk import OsDisk
from headpond.wire.control.codec import decode_control, encode_control
from headpond.wire.control.greeting import Error
from headpond.wire.frame import Frame

log = logging.getLogger("headpond.pipes.drivers")

TRY_S = 5.0
"""How long one attempt to connect and be greeted may take."""
GREETING_S_MAX = 5.0
CONNECTIONS_MAX = 1024
SENDERS_MAX = 1024


class TcpRoute(Way):
    """The sender's way over TCP: one connection after the other."""

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
        self._reconnects = 0
        self._route = route
        self._shape = shape_of(route)
        self._host = host
        self._port = port
        self._connect_timeout = connect_timeout
        self._backoff = backoff
        self._context = context
        self._sender: PipeSender
        self._connection: PipeConnection | None = None
        self._greeted: asyncio.Future[None] | None = None
        self._reconnecting: asyncio.Task[None] | None = None
        self._closed = False
        self._known = 0
        """The highest session of this sender that its receiver named."""

    @property
    def reconnects(self) -> int:
        return self._reconnects

    async def open(self, sender: PipeSender) -> None:
        """Tries until the receiver is there, for as long as ``connect_timeout`` says."""
        self._sender = sender
        last: HeadpondError | None = None
        try:
            async with asyncio.timeout(self._connect_timeout):
                for attempt in count():
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
        """One attempt; on success the sender continues."""
        loop = asyncio.get_running_loop()
        greeted = self._greeted = loop.create_future()
        connection = PipeConnection(self, FROM_RECEIVER, len(self._route.stages))
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
            greeted.cancel()
            connection.end(ConnectionLost("given up"))
            raise
        self._connection = connection
        self._sender.on_route(connection.writable, lost=True)

    def on_open(self, connection: PipeConnection) -> None:
        connection.write(encode_hello(PipeHello(VERSION, self._shape, self._sender.name, self._sender.epoch)))

    def on_frame(self, connection: PipeConnection, frame: Frame) -> None:
        try:
            if frame.type != PipeFrame.HELLO:
                error = decode_control(frame.type, frame.body)
                assert isinstance(error, Error), "only HELLO and ERROR pass the reader"
                connection.end(error.as_exception())
                return
            hello = decode_hello(frame.body)
            check_hello(hello, self._shape, "receiver")
            if hello.known > self._sender.epoch:
                self._known = hello.known  # its ERROR follows, and says so
                return
        except HeadpondError as error:
            connection.end(error, faulty=isinstance(error, BadFrame))
            return
        if self._greeted is not None and not self._greeted.done():
            self._greeted.set_result(None)

    def on_packets(self, connection: PipeConnection, packets: list[Packet]) -> None:
        if self._greeted is None or not self._greeted.done():
            connection.end(ProtocolError("a packet before the greeting"), faulty=True)
        else:
            self._sender.on_packets(packets)

    def on_writable(self, connection: PipeConnection, writable: bool) -> None:
        if connection is self._connection:
            self._sender.on_route(writable)

    def on_end(self, connection: PipeConnection, error: HeadpondError) -> None:
        if self._greeted is not None and not self._greeted.done():
            self._greeted.set_exception(error)
        if connection is not self._connection:
            return
        self._connection = None
        self._sender.on_route(False)
        if error.code in (RouteMismatch.code, SessionOver.code):
            self._sender.fail(error)
        elif not self._closed:
            log.info("the pipe to %s:%d is cut: %s", self._host, self._port, error.message)
            self._reconnecting = asyncio.get_running_loop().create_task(self._reconnect())

    async def _reconnect(self) -> None:
        for attempt in count():
            await asyncio.sleep(self._backoff.delay_s(attempt))
            try:
                await self._connect()
            except HeadpondError as error:
                # Bytes that are not a pipe's may come from another program that has the port for a while.
                if not error.retryable and not isinstance(error, BadFrame):
                    self._sender.fail(error)
                    return
            else:
                self._reconnects += 1
                return


class TcpListener(LaneSource):
    """A receiver's source over TCP: senders connect, each under its name, and each has a lane.

    A sender that comes back continues in its lane. One of the same name with a later session takes its place;
    the earlier one, if it is still connected, gets ``SessionOver``.

    The listener keeps a lane while its sender is away, because the lane's state recognises repeats. Past
    ``SENDERS_MAX`` lanes it retires the one whose sender has been away longest, with a notice: if that sender
    comes back, the messages that it sends again are delivered again.
    """

    def __init__(
        self,
        route: Route,
        host: str,
        port: int,
        *,
        epoch: int | None,
        context: ssl.SSLContext | None,
        store: StreamStore | None = None,
    ) -> None:
        self._route = route
        self._shape = shape_of(route)
        self._host = host
        self._port = port
        self._epoch = new_epoch() if epoch is None else check_epoch(epoch)
        self._context = context
        self._store = store
        self._receiver: PipeReceiver
        self._server: asyncio.Server | None = None
        self._lanes: dict[str, SenderLane] = {}
        self._by_connection: dict[PipeConnection, SenderLane | None] = {}
        """None until it is greeted."""
        self._greeting: dict[PipeConnection, asyncio.TimerHandle] = {}
        self._reading = True

    # --- a receiver's source ------------------------------------------------------------------------

    async def open(self, receiver: PipeReceiver) -> None:
        self._receiver = receiver
        if self._store is not None:
            await self._store.open(receiver.stop)
            for name in self._store.senders:
                self._lanes[name] = self._new_lane(name)
                self._lanes[name].on_route(True)  # its storage is here, whether its sender is or not
        try:
            self._server = await asyncio.get_running_loop().create_server(
                lambda: PipeConnection(self, FROM_STRANGER, len(self._route.stages)),
                self._host,
                self._port,
                ssl=self._context,
            )
        except OSError as error:
            if self._store is not None:
                await self._store.close()
            raise AddressInUse(
                f"cannot listen on {self._host}:{self._port}: {error.strerror or error}",
                hint="Another program listens there; choose another port (0 picks a free one).",
            ) from None
        host, port = self._server.sockets[0].getsockname()[:2]
        self.address = (host, port)

    async def close(self) -> None:
        self.address = None
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(connection.close() for connection in list(self._by_connection)))
        for lane in self._lanes.values():
            lane.close()
        if self._store is not None:
            await self._store.close()

    async def flush(self) -> None:
        """Confirms are on their way at once; with a store, they are on disk when this returns."""
        if self._store is not None:
            await self._store.flush()

    def set_reading(self, reading: bool) -> None:
        self._reading = reading
        if self._store is not None:  # senders continue: the store takes the messages
            for lane in self._lanes.values():
                lane.set_reading(reading)
            return
        for connection, greeted in self._by_connection.items():
            if greeted is not None:
                connection.set_reading(reading)
                greeted.set_reading(reading)

    @property
    def lanes(self) -> Sequence[SenderLane]:
        return list(self._lanes.values())

    # --- connections --------------------------------------------------------------------------------

    def on_open(self, connection: PipeConnection) -> None:
        self._by_connection[connection] = None
        if len(self._by_connection) > CONNECTIONS_MAX:
            self._refuse(connection, LimitReached(f"at most {CONNECTIONS_MAX} connections are taken here"))
            return
        self._greeting[connection] = asyncio.get_running_loop().call_later(
            GREETING_S_MAX, connection.end, TimedOut(f"no greeting within {GREETING_S_MAX:g} s")
        )

    def on_frame(self, connection: PipeConnection, frame: Frame) -> None:
        if self._by_connection.get(connection) is not None:
            connection.end(ProtocolError("a second greeting"), faulty=True)
            return
        try:
            hello = decode_hello(frame.body)
            lane = self._welcome(hello)
        except HeadpondError as error:
            self._refuse(connection, error)
            return
        answer = PipeHello(VERSION, self._shape, "", self._epoch, max(lane.session, 0))
        if not lane.meet(hello.epoch):
            connection.write(encode_hello(answer))
            over = SessionOver(
                f"a later session ({lane.session}) of the sender {hello.name!r} has been here",
                hint="Stop the older of the two programs; if this is the later one, open it with "
                f"epoch={lane.session + 1} or more.",
            )
            self._refuse(connection, over)
            return
        if (timer := self._greeting.pop(connection, None)) is not None:
            timer.cancel()
        for other, taken in list(self._by_connection.items()):
            if taken is lane:
                self._refuse(other, SessionOver("the sender came back over another connection"))
        self._by_connection[connection] = lane
        connection.allow(FROM_SENDER)
        connection.write(encode_hello(answer))
        reading = self._reading or self._store is not None
        connection.set_reading(reading)
        lane.carry = connection.carry
        lane.on_route(reading)

    def _welcome(self, hello: PipeHello) -> SenderLane:
        """The lane of the sender that greets so, or why there is none for it."""
        check_hello(hello, self._shape, "sender")
        lane = self._lanes.get(hello.name)
        if lane is None:
            if len(self._lanes) >= SENDERS_MAX:
                self._retire_one()
            lane = self._lanes[hello.name] = self._new_lane(hello.name)
        return lane

    def _retire_one(self) -> None:
        present = set(self._by_connection.values())
        unread = set(self._store.senders) if self._store is not None else set()
        absent = [each for each in self._lanes.values() if each not in present and each.name not in unread]
        if not absent:
            raise LimitReached(
                f"{SENDERS_MAX:,} senders are connected or have messages unread; no more are taken"
            )
        lane = min(absent, key=lambda each: each.absent_since)
        del self._lanes[lane.name]
        lane.close()
        self.retired = self.retired.plus(lane)
        log.warning("the sender %r was away longest, and makes room for another", lane.name)
        self._receiver.notice([Notice("retired", lane.session, range(lane.delivered))])

    def _new_lane(self, name: str) -> SenderLane:
        if self._store is not None:
            return DurableLane(name, self._route, self._epoch, self._receiver, self._store)
        return SenderLane(name, self._route, self._epoch, self._receiver)

    def _refuse(self, connection: PipeConnection, error: HeadpondError) -> None:
        """Says why, and ends it."""
        faulty = isinstance(error, BadFrame)
        if not faulty:
            connection.write(encode_control(Error(error.code, error.message, error.hint, error.retryable)))
        connection.end(error, faulty=faulty, after_writing=True)

    def on_packets(self, connection: PipeConnection, packets: list[Packet]) -> None:
        lane = self._by_connection.get(connection)
        if lane is not None:
            lane.arrive(packets)

    def on_writable(self, connection: PipeConnection, writable: bool) -> None:
        """Answers are small."""

    def on_end(self, connection: PipeConnection, error: HeadpondError) -> None:
        if (timer := self._greeting.pop(connection, None)) is not None:
            timer.cancel()
        lane = self._by_connection.pop(connection, None)
        if connection.faulty or isinstance(error, TimedOut):
            log.warning("a connection was ended: %s", error.message)
        if lane is not None and lane.carry == connection.carry:
            lane.carry = lose
            lane.absent_since = asyncio.get_running_loop().time()
            lane.on_route(False)


def listen(
    route: str,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    epoch: int | None = None,
    ssl: SSLContext | None = None,
    store: Path | str | None = None,
) -> PipeReceiver:
    """The receiving end of a pipe, to be opened with ``async with``; ``receiver.address`` tells the port.

    ``store`` is a folder for the messages of a ``stream``: each is confirmed to its sender when it is synced,
    and stays there until ``receiver.confirm``. One process uses it at a time.

    Anybody who reaches the port can send: listen on loopback, or give an ``ssl`` context that asks for
    certificates.
    """
    parsed = parse_drivable(route)
    check_composition(parsed)
    if store is not None and not parsed.stages[0].settings.get("commit"):
        raise BadRequest(f"a store is for a stream that commits, and this is {route}", hint="Write stream | …")
    disk = None if store is None else StreamStore(OsDisk(Path(store)))
    return PipeReceiver(route, TcpListener(parsed, host, port, epoch=epoch, context=ssl, store=disk))


def connect(
    route: str,
    host: str,
    port: int,
    *,
    name: str = "",
    epoch: int | None = None,
    connect_timeout: float = 10.0,
    backoff: Backoff | None = None,
    ssl: SSLContext | None = None,
) -> PipeSender:
    """The sending end of a pipe, to be opened with ``async with``.

    Opening waits up to ``connect_timeout`` seconds for the receiver. ``epoch`` must be higher each time a
    sender of this name starts; by default it is the clock's reading.
    """
    if len(name) > NAME_MAX:
        raise BadRequest(f"a sender's name has at most {NAME_MAX} characters")
    way = TcpRoute(
        parse_drivable(route),
        host,
        port,
        connect_timeout=connect_timeout,
        backoff=backoff or Backoff(),
        context=ssl,
    )
    return PipeSender(route, way, name=name, epoch=epoch)
