"""A receiver's source over TCP: senders connect, each under its name, and each has a lane.

A sender that comes back goes on in its lane. One of the same name with a later session takes its place: the
earlier one, if it is still there, is told that its session is over.

A lane is kept while its sender is away, since its state is what tells a repeat. Past ``SENDERS_MAX`` of them
the one whose sender has been away longest is retired, which is told in a notice: a sender that comes back after
that is a new one, and what it sends again is delivered again.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Sequence

from headpond.calculus.route import Route
from headpond.client.pipes.connection import Connection
from headpond.client.pipes.frames import (
    FROM_SENDER,
    FROM_STRANGER,
    VERSION,
    Hello,
    decode_hello,
    encode_hello,
    shape_of,
)
from headpond.client.pipes.lane import Lane, LaneTotals, new_storage, receiver_machine
from headpond.client.pipes.receiver import Receiver
from headpond.client.pipes.runner import check_epoch, new_epoch
from headpond.client.pipes.store import DurableLane, StreamStore
from headpond.model.errors import (
    AddressInUse,
    BadFrame,
    HeadpondError,
    LimitReached,
    ProtocolError,
    RouteMismatch,
    SessionOver,
    TimedOut,
    VersionUnsupported,
)
from headpond.pipes.machine import Notice
from headpond.pipes.packet import Packet
from headpond.wire.control import Error, encode_control
from headpond.wire.frame import Frame

log = logging.getLogger("headpond.client.pipes")

GREETING_S_MAX = 5.0
CONNECTIONS_MAX = 1024
SENDERS_MAX = 1024


class TcpListener:
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
        self.faults = 0
        self._route = route
        self._shape = shape_of(route)
        self._host = host
        self._port = port
        self._epoch = new_epoch() if epoch is None else check_epoch(epoch)
        self._context = context
        self._store = store
        self._receiver: Receiver
        self._server: asyncio.Server | None = None
        self._lanes: dict[str, Lane] = {}
        self._by_connection: dict[Connection, Lane | None] = {}
        """None until it is greeted."""
        self._greeting: dict[Connection, asyncio.TimerHandle] = {}
        self._malformed_before = 0
        self._reading = True
        self.retired = LaneTotals()

    # --- a receiver's source ------------------------------------------------------------------------

    async def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        if self._store is not None:
            await self._store.open(receiver.stop)
            for name in self._store.senders:
                self._lanes[name] = self._new_lane(name)
                self._lanes[name].on_route(True)  # its storage is here, whether its sender is or not
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._new_connection, self._host, self._port, ssl=self._context
            )
        except OSError as error:
            if self._store is not None:
                await self._store.close()
            raise AddressInUse(
                f"cannot listen on {self._host}:{self._port}: {error.strerror or error}",
                hint="Another program listens there; choose another port (0 picks a free one).",
            ) from None

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        await asyncio.gather(*(connection.close() for connection in list(self._by_connection)))
        for lane in self._lanes.values():
            lane.close()
        if self._store is not None:
            await self._store.close()

    async def flush(self) -> None:
        """What was confirmed is on its way at once; with a store, it is on disk."""
        if self._store is not None:
            await self._store.flush()

    def set_reading(self, reading: bool) -> None:
        self._reading = reading
        if self._store is not None:  # senders go on: the store takes what the program does not
            for lane in self._lanes.values():
                lane.set_reading(reading)
            return
        for connection, greeted in self._by_connection.items():
            if greeted is not None:
                connection.set_reading(reading)
                greeted.set_reading(reading)

    @property
    def lanes(self) -> Sequence[Lane]:
        return list(self._lanes.values())

    @property
    def malformed(self) -> int:
        return self._malformed_before + sum(each.malformed for each in self._by_connection)

    @property
    def address(self) -> tuple[str, int] | None:
        if self._server is None or not self._server.sockets:
            return None
        host, port = self._server.sockets[0].getsockname()[:2]
        return host, port

    # --- connections --------------------------------------------------------------------------------

    def _new_connection(self) -> Connection:
        return Connection(
            FROM_STRANGER,
            pipes=len(self._route.stages),
            on_open=self._on_open,
            on_frame=self._on_frame,
            on_packets=self._on_packets,
            on_end=self._on_end,
            on_writable=lambda _connection, _writable: None,  # what a receiver says is small
        )

    def _on_open(self, connection: Connection) -> None:
        self._by_connection[connection] = None
        if len(self._by_connection) > CONNECTIONS_MAX:
            self._refuse(connection, LimitReached(f"at most {CONNECTIONS_MAX} connections are taken here"))
            return
        self._greeting[connection] = asyncio.get_running_loop().call_later(
            GREETING_S_MAX, connection.end, TimedOut(f"no greeting within {GREETING_S_MAX:g} s")
        )

    def _on_frame(self, connection: Connection, frame: Frame) -> None:
        if self._by_connection.get(connection) is not None:
            connection.end(ProtocolError("a second greeting"), faulty=True)
            return
        try:
            hello = decode_hello(frame.body)
            lane = self._welcome(hello)
        except HeadpondError as error:
            self._refuse(connection, error)
            return
        answer = Hello(VERSION, self._shape, "", self._epoch, max(lane.session, 0))
        if not lane.meet(hello.epoch):
            connection.write(encode_hello(answer))
            self._refuse(connection, session_over(hello.name, lane.session))
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

    def _welcome(self, hello: Hello) -> Lane:
        """The lane of the sender that greets so, or why there is none for it."""
        if hello.version != VERSION:
            raise VersionUnsupported(f"the sender speaks version {hello.version}, this side {VERSION}")
        if hello.shape != self._shape:
            raise RouteMismatch(f"this end is {self._shape!r}, the sender's is {hello.shape!r}")
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

    def _new_lane(self, name: str) -> Lane:
        if self._store is not None:
            return DurableLane(name, self._route, self._epoch, self._receiver, self._store)
        entries, place = new_storage()
        return Lane(
            name,
            lambda: receiver_machine(self._route, epoch=self._epoch, entries=entries, place=place),
            self._receiver,
        )

    def _refuse(self, connection: Connection, error: HeadpondError) -> None:
        """Says why, and ends it."""
        faulty = isinstance(error, BadFrame)
        if not faulty:
            connection.write(encode_control(Error(error.code, error.message, error.hint, error.retryable)))
        connection.end_after_writing(error, faulty=faulty)

    def _on_packets(self, connection: Connection, packets: list[Packet]) -> None:
        lane = self._by_connection.get(connection)
        if lane is not None:
            lane.arrive(packets)

    def _on_end(self, connection: Connection, error: HeadpondError) -> None:
        self.faults += connection.faulty
        self._malformed_before += connection.malformed
        if (timer := self._greeting.pop(connection, None)) is not None:
            timer.cancel()
        lane = self._by_connection.pop(connection, None)
        if connection.faulty or isinstance(error, TimedOut):
            log.warning("a connection was ended: %s", error.message)
        if lane is not None and lane.carry == connection.carry:
            lane.carry = _lose
            lane.absent_since = asyncio.get_running_loop().time()
            lane.on_route(False)


def session_over(name: str, known: int) -> SessionOver:
    return SessionOver(
        f"a later session ({known}) of the sender {name!r} has been here",
        hint="Stop the older of the two programs; if this is the later one, open it with "
        f"epoch={known + 1} or more.",
    )


def _lose(packets: list[Packet]) -> None:
    """There is no way to the sender now; its timers bring it here again."""
