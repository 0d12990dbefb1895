"""One TCP connection of a pipe: frames in and out, and nothing that outlives it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Mapping
from typing import cast

from headpond.client.pipes.frames import PipeFrame, encode_packets
from headpond.model.errors import ConnectionLost, HeadpondError
from headpond.pipes.packet import Packet, decode_packet
from headpond.wire.frame import Frame, FrameReader

WRITE_BUFFER_BYTES = 1024 * 1024
WRITE_BUFFER_BYTES_MAX = 16 * 1024 * 1024
"""Past this, packets are lost, as a route may: the other side asks for more than it reads."""
DEAD_AFTER_S = 30
"""Without a sign of life from the other machine."""
STUCK_AFTER_S = 120
"""The same while bytes are on their way; the kernel counts one that is there and does not read as well."""


class Connection(asyncio.Protocol):
    """``on_frame`` gets all frames but packets, ``on_packets`` those; ``on_end`` hears once why it ended.

    ``limits`` says which frames may come, and may be replaced as the conversation goes on. ``pipes`` is how
    many the route has, which says in how many envelopes a payload comes.
    """

    def __init__(
        self,
        limits: Mapping[int, int],
        *,
        pipes: int,
        on_open: Callable[[Connection], None],
        on_frame: Callable[[Connection, Frame], None],
        on_packets: Callable[[Connection, list[Packet]], None],
        on_end: Callable[[Connection, HeadpondError], None],
        on_writable: Callable[[Connection, bool], None],
    ) -> None:
        self.malformed = 0
        self.faulty = False
        """Whether it was ended because of what came over it."""
        self.writable = False
        self.lost = 0
        """Packets dropped because the other side did not read."""
        self._pipes = pipes
        self._limits = dict(limits)
        self._reader = FrameReader(self._limits)
        self._on_open = on_open
        self._on_frame = on_frame
        self._on_packets = on_packets
        self._on_end = on_end
        self._on_writable = on_writable
        self._transport: asyncio.Transport | None = None
        self._reading = True
        self._ended: HeadpondError | None = None
        self._closed = asyncio.Event()

    # --- what the owner does with it ----------------------------------------------------------------

    @property
    def is_ended(self) -> bool:
        """Whether nothing that comes counts any more."""
        return self._ended is not None

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
        if transport.get_write_buffer_size() > WRITE_BUFFER_BYTES_MAX:
            self.lost += len(packets)
            return
        transport.writelines(encode_packets(packets))

    def set_reading(self, reading: bool) -> None:
        if self._transport is None or reading == self._reading or self._transport.is_closing():
            return
        self._reading = reading
        if reading:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def end(self, error: HeadpondError, *, faulty: bool = False) -> None:
        """Ends it at once."""
        if self._ended is None:
            self._ended = error
            self.faulty = faulty
        if self._transport is not None:
            self._transport.abort()

    def end_after_writing(self, error: HeadpondError, *, faulty: bool = False) -> None:
        """Reads nothing more, and ends it when what was written is out."""
        if self._ended is None:
            self._ended = error
            self.faulty = faulty
        if self._transport is not None:
            self._transport.close()

    async def close(self) -> None:
        """Writes what is left and ends it."""
        self._ended = self._ended or ConnectionLost("this side closed the connection")
        if self._transport is None:
            return
        self._transport.close()
        try:
            async with asyncio.timeout(1.0):
                await self._closed.wait()
        except TimeoutError:
            self._transport.abort()  # the other side does not read
            await self._closed.wait()

    # --- what the loop tells ------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(WRITE_BUFFER_BYTES)
        _find_out_when_dead(self._transport.get_extra_info("socket"))
        if self._ended is not None:
            self._transport.abort()
            return
        self.writable = True
        self._on_open(self)

    def data_received(self, data: bytes) -> None:
        if self.is_ended:
            return
        packets: list[Packet] = []
        for frame in self._reader.feed(data):
            if frame.type != PipeFrame.PACKET:
                if not self._hear(frame):
                    return
            elif (packet := decode_packet(frame.body, self._pipes)) is not None:
                packets.append(packet)
            else:
                self.malformed += 1
        if packets:
            self._on_packets(self, packets)
        if self._reader.fault is not None:
            self.end(self._reader.fault, faulty=True)

    def _hear(self, frame: Frame) -> bool:
        """Whether to go on after it."""
        self._on_frame(self, frame)
        return not self.is_ended

    def pause_writing(self) -> None:
        self.writable = False
        self._on_writable(self, False)

    def resume_writing(self) -> None:
        self.writable = True
        self._on_writable(self, True)

    def connection_lost(self, exc: Exception | None) -> None:
        self.writable = False
        self._closed.set()
        error = self._ended or ConnectionLost(str(exc) if exc else "the other side closed the connection")
        self._ended = error
        self._on_end(self, error)


def _find_out_when_dead(sock: socket.socket | None) -> None:
    """Lets the kernel find out that the other machine is gone; a pipe has no pings of its own."""
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
