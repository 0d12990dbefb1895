"""The network: connections whose bytes arrive late, in pieces, altered, or not at all.

A connection is two directions, each a stream as TCP makes it: lost, doubled and reordered packets show as bytes
that come late or in pieces, never out of order. A partition holds bytes back until it heals, in one direction
or in both. A flipped bit is one that TCP's checksum did not catch.
"""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from headpond.sim.loop import Owner, SimLoop

Place = tuple[str, int]

KERNEL_BYTES = 64 * 1024
"""What the kernels of both sides take before a writer's own buffer grows."""
HIGH_BYTES = 64 * 1024
"""The default high-water mark of a writer's own buffer."""
DIAL_S = 0.001
PACKET_BYTES = 1400
"""Longer pieces arrive in several packets."""


@dataclass(slots=True)
class Weather:
    """What happens to bytes: rates are per piece."""

    delay_s: float = 0.001
    """Bytes take up to so long."""
    stall: float = 0.0
    """A packet was lost and is sent again: bytes wait for ``stall_s``."""
    stall_s: float = 0.5
    split: float = 0.0
    """Bytes arrive in two pieces."""
    flip: float = 0.0
    cut: float = 0.0
    """Some bytes arrive, and the connection ends."""
    reset: float = 0.0
    """The connection ends before the piece."""


class Network:
    def __init__(self, loop: SimLoop, seed: str) -> None:
        self.loop = loop
        self.random = random.Random(f"{seed} network")
        self.weather = Weather()
        self.counts: Counter[str] = Counter()
        """Faults that happened, by name."""
        self._listeners: dict[Place, Listener] = {}
        self._ends: list[End] = []
        self._cut: set[tuple[str, str]] = set()
        """Machines between which nothing arrives: from, to."""

    # --- for processes ------------------------------------------------------------------------------

    def listen(self, process: Owner, factory: Callable[[], asyncio.Protocol], place: Place) -> Listener:
        if place in self._listeners:
            raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
        listener = self._listeners[place] = Listener(self, process, factory, place)
        return listener

    async def dial(
        self, process: Owner, factory: Callable[[], asyncio.Protocol], place: Place
    ) -> tuple[asyncio.Transport, asyncio.Protocol]:
        await asyncio.sleep(DIAL_S + self.random.random() * self.weather.delay_s)
        while self.is_cut(process.place, place[0]) or self.is_cut(place[0], process.place):  # noqa: ASYNC110
            await asyncio.sleep(1.0)  # the system sends SYN again; the caller's timeout ends it
        listener = self._listeners.get(place)
        if listener is None:
            raise ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
        here = End(self, process)
        there = End(self, listener.process)
        here.other, there.other = there, here
        self._ends += [here, there]
        here.begin(factory())
        self.loop.call_in(listener.process, 0.0, lambda: there.begin(listener.factory()))
        return here, here.protocol

    def process_ended(self, process: Owner, *, silently: bool) -> None:
        for place in [place for place, listener in self._listeners.items() if listener.process is process]:
            del self._listeners[place]
        for end in [end for end in self._ends if end.process is process]:
            if silently:
                end.vanish()
            else:
                end.hang_up()

    # --- for the world ------------------------------------------------------------------------------

    def cut(self, source: str, target: str) -> None:
        """From now on nothing arrives from ``source`` at ``target``."""
        self._cut.add((source, target))

    def heal(self) -> None:
        """Good weather: partitions end, and bytes arrive unaltered."""
        self._cut.clear()
        self.weather = Weather()
        for end in list(self._ends):
            end.arrivals.resume()

    def heal_between(self, source: str, target: str) -> None:
        self._cut.discard((source, target))
        for end in list(self._ends):
            end.arrivals.resume()

    def is_cut(self, source: str, target: str) -> bool:
        return (source, target) in self._cut

    def reset_some(self, process: Owner) -> None:
        """Ends one of a process's connections at both sides."""
        if ends := [end for end in self._ends if end.process is process]:
            self.counts["reset"] += 1
            self.random.choice(ends).reset()

    def silence_some(self, process: Owner) -> None:
        """Nothing arrives any longer on one of a process's connections."""
        if ends := [end for end in self._ends if end.process is process]:
            self.random.choice(ends).fall_silent()

    def forget(self, end: End) -> None:
        if end in self._ends:
            self._ends.remove(end)


class Listener:
    """What ``create_server`` returns."""

    def __init__(
        self, network: Network, process: Owner, factory: Callable[[], asyncio.Protocol], place: Place
    ) -> None:
        self._network = network
        self.process = process
        self.factory = factory
        self.place = place
        self.sockets = [self]

    def getsockname(self) -> Place:
        return self.place

    def close(self) -> None:
        if self._network._listeners.get(self.place) is self:
            del self._network._listeners[self.place]


class Arrivals:
    """Bytes on their way to one end."""

    def __init__(self, end: End) -> None:
        self._end = end
        self._network = end.network
        self._pieces: deque[tuple[float, bytes]] = deque()
        """When a piece arrives; an empty one is the connection's end."""
        self._timer: asyncio.TimerHandle | None = None
        self._last_s = 0.0
        self.size = 0

    def send(self, data: bytes) -> None:
        network, weather, chance = self._network, self._network.weather, self._network.random.random
        if weather.split and chance() < weather.split and len(data) > 1:
            network.counts["split"] += 1
            at = network.random.randrange(1, len(data))
            self._add(data[:at])
            data = data[at:]
        if weather.flip and chance() < weather.flip:
            network.counts["flip"] += 1
            at = network.random.randrange(len(data))
            data = data[:at] + bytes([data[at] ^ (1 << network.random.randrange(8))]) + data[at + 1 :]
        if weather.cut and chance() < weather.cut:
            network.counts["cut"] += 1
            self._add(data[: network.random.randrange(len(data))])
            self._end.reset_later()
            return  # and nothing after it: bytes keep their order
        for at in range(0, len(data), PACKET_BYTES):
            self._add(data[at : at + PACKET_BYTES])

    def end(self) -> None:
        """The other side has closed: what it wrote arrives first."""
        self._add(b"", last=True)

    def _add(self, data: bytes, *, last: bool = False) -> None:
        if not data and not last:
            return
        network = self._network
        due_s = network.loop.time() + network.random.random() * network.weather.delay_s
        if network.weather.stall and network.random.random() < network.weather.stall:
            network.counts["stall"] += 1
            due_s += network.weather.stall_s * network.random.random()
        self._last_s = max(self._last_s, due_s)
        self._pieces.append((self._last_s, data))
        self.size += len(data)
        self.resume()

    def resume(self) -> None:
        if self._timer is None and self._pieces and self._end.takes_bytes:
            delay_s = max(0.0, self._pieces[0][0] - self._network.loop.time())
            self._timer = self._network.loop.call_in(self._end.process, delay_s, self._arrive)

    def _arrive(self) -> None:
        self._timer = None
        if not self._end.takes_bytes or not self._pieces:
            return
        _, data = self._pieces.popleft()
        self.size -= len(data)
        self.resume()
        if data:
            self._end.protocol.data_received(data)
        else:
            self._end.lose(None)
        self._end.other.on_room()


class End(asyncio.Transport):
    """One side of a connection: the transport of its program."""

    other: End
    protocol: asyncio.Protocol

    def __init__(self, network: Network, process: Owner) -> None:
        super().__init__()
        self.network = network
        self.process = process
        self.arrivals = Arrivals(self)
        self._open = False
        self._lost = False
        self._closing = False
        self._reading = True
        self._paused = False
        self._broken = False
        self._high_bytes = HIGH_BYTES

    def begin(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol
        self._open = True
        protocol.connection_made(self)
        self.arrivals.resume()

    @property
    def takes_bytes(self) -> bool:
        here, there = self.process.place, self.other.process.place
        return self._open and not self._lost and self._reading and not self.network.is_cut(there, here)

    # --- how it ends --------------------------------------------------------------------------------

    def lose(self, error: Exception | None) -> None:
        if not self._lost:
            self._lost = self._closing = True
            self.network.forget(self)
            if self._open:
                self.protocol.connection_lost(error)

    def hang_up(self) -> None:
        """Its process is gone, and the system ends the connection."""
        self.vanish()
        self.other.arrivals.end()

    def vanish(self) -> None:
        """Its machine is gone: the other side hears nothing until it writes and the machine is back."""
        self._lost = self._closing = True
        self.network.forget(self)

    def reset(self) -> None:
        for end in (self, self.other):
            self.network.loop.call_in(
                end.process, 0.0, end.lose, ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            )

    def fall_silent(self) -> None:
        """Later writes arrive nowhere."""
        self._broken = self.other._broken = True

    def reset_later(self) -> None:
        """The same, and both sides are informed."""
        self.fall_silent()
        self.network.loop.call_in(None, self.network.weather.delay_s, self.reset)

    # --- asyncio.Transport --------------------------------------------------------------------------

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._broken or not data:
            return
        if self.other._lost:  # nobody is there: the answer is a reset, if the machine is up
            if not self.network.is_cut(self.process.place, self.other.process.place):
                self.reset_later()
            return
        if self.network.weather.reset and self.network.random.random() < self.network.weather.reset:
            self.network.counts["reset"] += 1
            self.reset_later()
            return
        self.other.arrivals.send(bytes(data))
        if not self._paused and self.get_write_buffer_size() > self._high_bytes:
            self._paused = True
            self.protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def on_room(self) -> None:
        """The other side has read."""
        if self._paused and not self._lost and self.get_write_buffer_size() <= self._high_bytes // 4:
            self._paused = False
            self.network.loop.call_in(self.process, 0.0, self._resume_writing)

    def _resume_writing(self) -> None:
        if not self._lost:
            self.protocol.resume_writing()

    def get_write_buffer_size(self) -> int:
        return max(0, self.other.arrivals.size - KERNEL_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high_bytes = HIGH_BYTES if high is None else high

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self.other.arrivals.end()
            self.network.loop.call_soon(self.lose, None)

    def abort(self) -> None:
        if not self._lost:
            self._closing = True
            self.other.arrivals.end()
            self.network.loop.call_soon(self.lose, None)

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.arrivals.resume()

    def is_reading(self) -> bool:
        return self._reading

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default
