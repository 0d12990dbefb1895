"""One connection to a node, over TCP or as ``dial`` makes it: bytes in and out of the connection machine."""

from __future__ import annotations

import asyncio
import os
import select
import socket
import ssl
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from headpond.client.link.spin import LoopSpin, Spin
from headpond.client.link.tls import Certificate, TlsOptions, shown_certificate, tls_failure
from headpond.model.address import Address
from headpond.model.errors import ConnectionLost, HeadpondError, TimedOut, Unavailable
from headpond.wire.connection import ClientSide, ConnectionFault, Event
from headpond.wire.control.codec import encode_control
from headpond.wire.control.greeting import Ping, Pong, Welcome

WRITE_BUFFER_BYTES = 1024 * 1024
READ_BYTES = 64 * 1024
GOODBYE_S = 0.5
SPIN_S = 0.0003
"""How long ``receive`` waits without sleeping."""
PROGRESS_BYTES = 64 * 1024
"""An incomplete frame that grows by so much counts as a sign of life. A few bytes do not: they may be the
answers to pings, taken for the rest of a frame whose size was altered on the way."""
NO_WELCOME_HINTS = {
    False: "The node may speak TLS alone: then use headponds:// instead of headpond://.",
    True: "The node may ask for a client certificate: HEADPOND_CERT, HEADPOND_KEY or `headpond context add`.",
}
"""Why a connection may end before the welcome, without and with TLS: the node gives no reason."""
Dial = Callable[[asyncio.Protocol, Address, ssl.SSLContext | None], Awaitable[None]]
"""Connects a protocol with the node at an address; ``OSError`` if that fails."""


async def dial_tcp(protocol: asyncio.Protocol, address: Address, tls: ssl.SSLContext | None) -> None:
    loop = asyncio.get_running_loop()
    await loop.create_connection(lambda: protocol, address.host, address.port, ssl=tls)


class Connection(asyncio.Protocol):
    """``on_event`` gets the node's messages; ``on_end`` gets, once, why a welcomed connection ended."""

    def __init__(
        self,
        address: Address,
        side: ClientSide,
        *,
        on_event: Callable[[Event], None],
        on_end: Callable[[HeadpondError], None],
        on_writable: Callable[[], None],
        tls: TlsOptions | None = None,
        dial: Dial = dial_tcp,
    ) -> None:
        self.address = address
        self._tls = tls or TlsOptions()
        self._dial = dial
        self.writable = False
        self.title: bytes | None = None
        """The last TITLE written, to which SEGMENT frames now belong."""
        self.ended: HeadpondError | None = None
        self._side = side
        self._on_event = on_event
        self._on_end = on_end
        self._on_writable = on_writable
        self._loop = asyncio.get_running_loop()
        self._welcome: asyncio.Future[Welcome] = self._loop.create_future()
        self._transport: asyncio.Transport | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()
        self._received_at = self._loop.time()
        self._partial_bytes = 0
        self._pinged_at = 0.0
        self._pings = 0
        self._timer: asyncio.TimerHandle | None = None
        self._handle: int | None = None
        """Of the socket, for ``receive``."""
        self._poll = select.poll()
        self._spin = Spin(SPIN_S)
        self.awake = LoopSpin(self._spin) if dial is dial_tcp else None
        self._answers_soon = True
        """Whether the last wait of ``receive`` was as short as ``SPIN_S``."""

    # --- for the link -------------------------------------------------------------------------------

    async def open(self, timeout_s: float) -> Welcome:
        """Connects and greets; any failure is a ``HeadpondError`` that says why."""
        try:
            async with asyncio.timeout(timeout_s):
                await self._dial(self, self.address, self._tls.context() if self.address.tls else None)
                return await self._welcome
        except TimeoutError:
            self.abort(TimedOut(f"no answer within {timeout_s:.3g} s"))
            raise TimedOut(f"no answer within {timeout_s:.3g} s") from None
        except ssl.SSLError as error:
            await asyncio.sleep(0)  # the loop closes the socket with its next step
            raise tls_failure(error) from error
        except (OSError, UnicodeError) as error:  # the latter where a host name cannot be one
            raise Unavailable(_why(error)) from error
        except asyncio.CancelledError:
            self.abort(ConnectionLost("the client gave up connecting"))
            raise

    @property
    def certificate(self) -> Certificate | None:
        """The node's certificate, with TLS."""
        transport = self._transport
        return None if transport is None else shown_certificate(transport.get_extra_info("peercert"))

    def write(self, parts: Sequence[bytes]) -> None:
        transport = self._transport
        if (
            transport is not None and self.ended is None and not transport.is_closing()
        ):  # asyncio warns of a lost one
            transport.writelines(parts)

    def receive(self, timeout_s: float) -> bool:
        """Waits for bytes and takes them, in place of the loop, which must not run meanwhile.

        False if none came in time, or only the loop can take them: TLS, the end of the connection.
        """
        if self._transport is None or self.ended is not None or self.address.tls:
            return False
        handle = self._handle
        if handle is None:
            handle = self._handle = self._transport.get_extra_info("socket").fileno()
            self._poll.register(handle, select.POLLIN)
        if [(handle, select.POLLIN)] != self._wait(timeout_s):
            return False
        try:
            data = os.read(handle, READ_BYTES)
        except OSError:  # the loop finds the end of the connection
            return False
        if data:
            self.data_received(data)
        return bool(data)

    def _wait(self, timeout_s: float) -> list[tuple[int, int]]:
        """What the poll says once the socket is ready. Spins at first, if the last answer came soon."""
        poll, began_s = self._poll.poll, time.monotonic()
        if self._answers_soon and self._spin.may_begin(began_s):
            os.sched_yield()  # the kernel may have put the node on this core, as if this thread would sleep
            until_s = began_s + min(self._spin.seconds, timeout_s)
            while time.monotonic() < until_s:
                if ready := poll(0):
                    return ready
        ready = poll(timeout_s * 1000)
        self._answers_soon = time.monotonic() - began_s < SPIN_S
        return ready

    def watch(self, ping_after_s: float, dead_after_s: float) -> None:
        """Pings an idle node from now on, and ends the connection when nothing comes back."""
        self._timer = self._loop.call_later(ping_after_s / 4, self.watch, ping_after_s, dead_after_s)
        now = self._loop.time()
        silent_s = now - self._received_at
        if silent_s >= dead_after_s:
            self.abort(ConnectionLost(f"{self.address} was silent for {silent_s:.3g} s"))
        elif silent_s >= ping_after_s and now - self._pinged_at >= ping_after_s:
            self._pinged_at = now
            self._pings += 1
            self.write([encode_control(Ping(self._pings))])

    async def close(self) -> None:
        """Ends the connection in good order: it still sends written bytes, for a short time."""
        if self._transport is not None:
            self._transport.close()
            await asyncio.sleep(0)
            if self.address.tls:  # TLS says goodbye in both directions; the wait is short
                await asyncio.wait([self._gone], timeout=GOODBYE_S)
                self._transport.abort()
        self._end(ConnectionLost(f"the connection to {self.address} was closed"))

    def abort(self, error: HeadpondError) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._end(error)

    # --- the loop's events --------------------------------------------------------------------------

    def connection_made(self, made: asyncio.BaseTransport) -> None:
        transport = cast(asyncio.Transport, made)  # uvloop's is one in all but its base class
        transport.set_write_buffer_limits(high=WRITE_BUFFER_BYTES)
        self._transport = transport
        if self.ended is not None:
            transport.abort()
            return
        self._received_at = self._loop.time()
        self.writable = True
        transport.writelines(self._side.data_to_send())

    def data_received(self, data: bytes) -> None:
        events = self._side.receive(data)
        self._partial_bytes += len(data)
        if events or self._partial_bytes >= PROGRESS_BYTES:
            self._received_at = self._loop.time()
            self._partial_bytes = 0
        for event in events:
            if self.ended is not None:
                return
            if isinstance(event, ConnectionFault):
                self.abort(event.error)
            elif isinstance(event, Ping):
                self.write([encode_control(Pong(event.number))])
            elif isinstance(event, Welcome) and not self._welcome.done():
                self._welcome.set_result(event)
            elif not isinstance(event, Pong):
                self._on_event(event)

    def connection_lost(self, error: Exception | None) -> None:
        if not self._gone.done():
            self._gone.set_result(None)
        if isinstance(error, ssl.SSLError):
            self._end(tls_failure(error))
            return
        why = f": {error}" if error else ""
        hint = None if self._welcome.done() else NO_WELCOME_HINTS[self.address.tls]
        self._end(ConnectionLost(f"the connection to {self.address} ended{why}", hint=hint))

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if self.ended is None:
            self._on_writable()

    def _end(self, error: HeadpondError) -> None:
        if self.ended is not None:
            return
        self.ended = error
        self.writable = False
        if self._timer is not None:
            self._timer.cancel()
        if not self._welcome.done():
            self._welcome.set_exception(error)
            self._welcome.exception()  # `open` raises it; it is no fault if nobody waits for that
            return
        if not self._welcome.cancelled() and self._welcome.exception() is None:
            self._on_end(error)


def _why(error: OSError | UnicodeError) -> str:
    """The system's words; asyncio's text of a refusal only repeats the address."""
    if isinstance(error, socket.gaierror) or not isinstance(error, OSError) or not error.errno:
        return getattr(error, "strerror", None) or str(error) or "the connection ended before it was made"
    return os.strerror(error.errno)
