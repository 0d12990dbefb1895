"""A bad route between the two ends of a pipe: it drops, repeats, delays and so reorders, and cuts."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from headpond.pipes.drivers.connection import PipeFrame
from headpond.pipes.drivers.memory import CarryOn
from headpond.pipes.machines.packet import Kind, Packet, decode_packet
from headpond.wire.frame import CONTROL_BYTES_MAX, SEGMENT_BYTES_MAX, FrameReader, FrameType, encode

LIMITS: dict[int, int] = {
    PipeFrame.HELLO: CONTROL_BYTES_MAX,
    PipeFrame.PACKET: SEGMENT_BYTES_MAX,
    FrameType.ERROR: CONTROL_BYTES_MAX,
}


class Mischief:
    """Decides what becomes of each packet, from a seed; the first few pass, so that a round trip is known."""

    def __init__(
        self, seed: int, *, loss: float = 0.15, repeat: float = 0.15, delay: float = 0.25, spare: int = 6
    ) -> None:
        self._random = random.Random(seed)
        self._loss, self._repeat, self._delay = loss, repeat, delay
        self._spare = spare
        self.waiting = 0
        """Packets that are delayed now."""
        self.lost = self.repeated = self.delayed = 0

    def meddle(self, pass_on: Callable[[], None]) -> None:
        if self._spare > 0:
            self._spare -= 1
            pass_on()
            return
        if self._random.random() < self._loss:
            self.lost += 1
            return
        copies = 2 if self._random.random() < self._repeat else 1
        self.repeated += copies - 1
        for _ in range(copies):
            if self._random.random() < self._delay:
                self.delayed += 1
                self.waiting += 1
                delay_s = self._random.uniform(0.0, 0.005)
                asyncio.get_running_loop().call_later(delay_s, self._late, pass_on)
            else:
                pass_on()

    def _late(self, pass_on: Callable[[], None]) -> None:
        self.waiting -= 1
        pass_on()

    def between(self, packet: Packet, carry_on: CarryOn) -> None:
        """For a pipe in memory."""
        self.meddle(lambda: carry_on(packet))


class Proxy:
    """A server between the ends of a pipe over TCP. Greetings pass: they belong to connecting."""

    def __init__(self, target: tuple[str, int], mischief: Mischief | None, cut_every: int | None) -> None:
        self.target = target
        self.port = 0
        self.forwarded = 0
        """Messages handed on towards the receiver, counting copies."""
        self.cuts = 0
        self._mischief = mischief
        self._cut_every = cut_every
        self._frames = 0
        self._tasks: set[asyncio.Task[object] | None] = set()
        self._open: set[asyncio.StreamWriter] = set()

    def cut(self) -> None:
        """Ends all connections as a pulled plug does."""
        self.cuts += 1
        for writer in list(self._open):
            writer.transport.abort()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())
        try:
            onward_reader, onward_writer = await asyncio.open_connection(*self.target)
        except OSError:
            writer.transport.abort()
            return
        self._open |= {writer, onward_writer}
        try:
            await asyncio.gather(
                self._pump(reader, onward_writer, forwards=True),
                self._pump(onward_reader, writer, forwards=False),
            )
        except asyncio.CancelledError:
            pass  # the test is over
        finally:
            self._open -= {writer, onward_writer}
            writer.transport.abort()
            onward_writer.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, forwards: bool
    ) -> None:
        frames = FrameReader(LIMITS)
        try:
            while data := await reader.read(65536):
                for frame in frames.feed(data):
                    if frame.type == PipeFrame.PACKET:
                        self._packet(frame.body, writer, forwards=forwards)
                    else:
                        writer.write(encode(frame.type, frame.body))
            writer.write_eof()
        except (ConnectionError, RuntimeError, OSError):
            writer.transport.abort()

    def _packet(self, body: bytes, writer: asyncio.StreamWriter, *, forwards: bool) -> None:
        def pass_on() -> None:
            if writer.transport.is_closing():
                return
            packet = decode_packet(body)
            if forwards and packet is not None and packet.kind == Kind.DATA and packet.layer == 0:
                self.forwarded += len(packet.numbers)
            writer.write(encode(PipeFrame.PACKET, body))

        self._frames += 1
        if self._cut_every is not None and self._frames % self._cut_every == 0:
            self.cut()
        elif self._mischief is None:
            pass_on()
        else:
            self._mischief.meddle(pass_on)

    async def end(self) -> None:
        self.cut()
        tasks = [task for task in self._tasks if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def proxy(
    target: tuple[str, int], mischief: Mischief | None = None, *, cut_every: int | None = None
) -> AsyncIterator[Proxy]:
    between = Proxy(target, mischief, cut_every)
    server = await asyncio.start_server(between.serve, "127.0.0.1", 0)
    between.port = server.sockets[0].getsockname()[1]
    try:
        yield between
    finally:
        server.close()
        await between.end()
        await asyncio.sleep(0)
