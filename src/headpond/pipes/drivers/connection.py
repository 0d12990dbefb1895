"""One TCP connection of a pipe, and its bytes.

The bytes of a pipe over TCP: frames of ``wire/frame.py``, of three types.

========  ================  ==========================================================================
type      from              body
========  ================  ==========================================================================
64 HELLO  sender            msgpack array: version, shape of the route, the sender's name, its session
64 HELLO  receiver          the same of the receiver, with no name; then the highest session of this sender
                            that it knows. If that is above the sender's own, it is refused: ERROR follows
18 ERROR  receiver          why it refuses (``wire/control/codec.py``); it then closes
65 PACKET both              one packet (``pipes/machines/packet.py``)
========  ================  ==========================================================================

The sender greets first and sends no packet before it is greeted. The shape is what both sides must have in
common: the pipes, from the innermost out, with every setting on which the promise depends. Anything that is
not such a frame, with the right checksum and within its limit, ends the connection. A PACKET frame that
holds no packet is counted and passed over: the timers of the pipe make it good.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Protocol, cast

import msgspec

from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import BadFrame, ConnectionLost, HeadpondError, RouteMismatch, VersionUnsupported
from headpond.pipes.calculus.route import Route, RouteStage
from headpond.pipes.machines.packet import Packet, cut, decode_packet, encode_packet
from headpond.wire.frame import CONTROL_BYTES_MAX, SEGMENT_BYTES_MAX, Frame, FrameReader, FrameType, encode

VERSION = 1
NAME_MAX = 200
PIECE_BYTES = 256 * 1024
"""Payloads go out in packets of about this size."""
WRITE_BUFFER_BYTES = 1024 * 1024
WRITE_BUFFER_BYTES_MAX = 16 * 1024 * 1024
"""Past this, packets are lost, as a route may: the other side asks for more than it reads."""
DEAD_AFTER_S = 30
"""Without a sign of life from the other machine."""
STUCK_AFTER_S = 120
"""The same while bytes are on their way; the kernel counts one that is there and does not read as well."""


class PipeFrame(IntEnum):
    """Other types than a node has, so that a pipe and a node that meet by mistake notice at once."""

    HELLO = 64
    PACKET = 65


FROM_STRANGER: Mapping[int, int] = {PipeFrame.HELLO: 4096}
"""The frames that a receiver takes before the greeting."""
FROM_SENDER: Mapping[int, int] = {PipeFrame.PACKET: SEGMENT_BYTES_MAX}
FROM_RECEIVER: Mapping[int, int] = {
    PipeFrame.HELLO: 4096,
    PipeFrame.PACKET: SEGMENT_BYTES_MAX,
    FrameType.ERROR: CONTROL_BYTES_MAX,
}


class PipeHello(msgspec.Struct, array_like=True, frozen=True):
    version: int
    shape: str
    name: str
    epoch: int
    known: int = 0


_hello_decoder = msgspec.msgpack.Decoder(PipeHello)


def encode_hello(hello: PipeHello) -> bytes:
    return encode(PipeFrame.HELLO, msgspec.msgpack.encode(hello))


def decode_hello(body: bytes) -> PipeHello:
    try:
        hello = _hello_decoder.decode(body)
    except UNDECODABLE as error:
        raise BadFrame(f"a greeting that cannot be read: {error}") from None
    if len(hello.name) > NAME_MAX or not all(0 <= each < 1 << 63 for each in (hello.epoch, hello.known)):
        raise BadFrame("a greeting with a name or a session out of bounds")
    return hello


def check_hello(hello: PipeHello, shape: str, peer: str) -> None:
    """Raises where the two ends of the pipe do not fit; ``peer`` is the side that greets."""
    if hello.version != VERSION:
        raise VersionUnsupported(f"the {peer} speaks version {hello.version}, this side {VERSION}")
    if hello.shape != shape:
        raise RouteMismatch(f"this end is {shape!r}, the {peer}'s is {hello.shape!r}")


def shape_of(route: Route) -> str:
    """The part of a route that both sides must have in common: all but local settings."""
    return str(Route(tuple(_shared(stage) for stage in route.stages)))


def _shared(stage: RouteStage) -> RouteStage:
    local = {each.name: each.default for each in stage.declaration.parameters if each.local}
    return RouteStage(stage.declaration, {**stage.settings, **local})


def encode_packets(packets: Sequence[Packet]) -> list[bytes]:
    """Frames for packets; a packet with many payloads becomes several."""
    return [encode(PipeFrame.PACKET, encode_packet(piece)) for packet in packets for piece in _pieces(packet)]


def _pieces(packet: Packet) -> Iterator[Packet]:
    payloads = packet.payloads
    if payloads is None:
        yield packet
        return
    for piece in cut(payloads, PIECE_BYTES):
        yield packet._replace(numbers=packet.numbers[piece], payloads=payloads[piece])


class ConnectionOwner(Protocol):
    """The sender's way or the listener, to which a connection belongs."""

    faults: int
    malformed: int

    def on_open(self, connection: PipeConnection) -> None: ...

    def on_frame(self, connection: PipeConnection, frame: Frame) -> None:
        """A frame that is no packet."""

    def on_packets(self, connection: PipeConnection, packets: list[Packet]) -> None: ...

    def on_writable(self, connection: PipeConnection, writable: bool) -> None: ...

    def on_end(self, connection: PipeConnection, error: HeadpondError) -> None:
        """Once, with the reason."""


class PipeConnection(asyncio.Protocol):
    """``limits`` says which frames may come; ``allow`` replaces it. ``pipes`` is how many the route has, which
    says in how many envelopes a payload comes."""

    def __init__(self, owner: ConnectionOwner, limits: Mapping[int, int], pipes: int) -> None:
        self.faulty = False
        """Whether it ended because of bytes that are not a pipe's."""
        self.writable = False
        self._owner = owner
        self._pipes = pipes
        self._limits = dict(limits)
        self._reader = FrameReader(self._limits)
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._ended: HeadpondError | None = None
        self._closed = asyncio.Event()

    def is_ended(self) -> bool:
        """Whether it ignores everything that comes."""
        return self._ended is not None

    # --- called by the owner ------------------------------------------------------------------------

    def allow(self, limits: Mapping[int, int]) -> None:
        """Which frames may come from now on."""
        self._limits.clear()
        self._limits.update(limits)

    def write(self, frame: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(frame)

    def carry(self, packets: list[Packet]) -> None:
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.get_write_buffer_size() <= WRITE_BUFFER_BYTES_MAX:
            transport.writelines(encode_packets(packets))

    def set_reading(self, reading: bool) -> None:
        if self._transport is None or reading == self._reading or self._transport.is_closing():
            return
        self._reading = reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def end(self, error: HeadpondError, *, faulty: bool = False, after_writing: bool = False) -> None:
        """Reads nothing more, and ends it at once or when everything written is out."""
        if self._ended is None:
            self._ended = error
            self.faulty = faulty
        if self._transport is not None:
            if after_writing:
                self._transport.close()
            else:
                self._transport.abort()

    async def close(self) -> None:
        """Writes the rest and ends it."""
        self.end(ConnectionLost("this side closed the connection"), after_writing=True)
        if self._transport is None:
            return
        try:
            async with asyncio.timeout(1.0):
                await self._closed.wait()
        except TimeoutError:
            self._transport.abort()  # the other side does not read
            await self._closed.wait()

    # --- called by the loop -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        _find_out_when_dead(self._transport.get_extra_info("socket"))
        if self._ended is not None:
            self._transport.abort()
            return
        self.writable = True
        self._owner.on_open(self)

    def data_received(self, data: bytes) -> None:
        if self.is_ended():
            return
        packets: list[Packet] = []
        for frame in self._reader.feed(data):
            if frame.type != PipeFrame.PACKET:
                self._owner.on_frame(self, frame)
                if self.is_ended():
                    return
            elif (packet := decode_packet(frame.body, self._pipes)) is not None:
                packets.append(packet)
            else:
                self._owner.malformed += 1
        if packets:
            self._owner.on_packets(self, packets)
        if self._reader.fault is not None:
            self.end(self._reader.fault, faulty=True)

    def pause_writing(self) -> None:
        self.writable = False
        self._owner.on_writable(self, False)

    def resume_writing(self) -> None:
        self.writable = True
        self._owner.on_writable(self, True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.writable = False
        self._closed.set()
        if self._ended is None:
            self._ended = ConnectionLost(str(exc) if exc else "the other side closed the connection")
        self._owner.faults += self.faulty
        self._owner.on_end(self, self._ended)


def _find_out_when_dead(sock: socket.socket | None) -> None:
    """Lets the kernel find out that the other machine is gone; a pipe sends no pings."""
    if sock is None or sock.family not in (socket.AF_INET, socket.AF_INET6):
        return
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", DEAD_AFTER_S // 3),
        ("TCP_KEEPINTVL", DEAD_AFTER_S // 6),
        ("TCP_KEEPCNT", 4),
        ("TCP_USER_TIMEOUT", STUCK_AFTER_S * 1000),
    ):
        if hasattr(socket, name):
            sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
