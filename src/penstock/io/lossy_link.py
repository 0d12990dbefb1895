"""A link between a client and a node that behaves badly on purpose, and counts what it did.

It passes frames on, but swallows some segments, passes some twice, and cuts the connection now and then with
all that is on its way in both directions. What a producer sends over it is worth a measurement.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field

from penstock.wire.frame import HEADER, HEADER_BYTES, OVERHEAD_BYTES, FrameType

CHUNK_BYTES = 256 * 1024


@dataclass(slots=True)
class Harm:
    """What a link did."""

    passed: int = 0
    """Segments that it passed on, copies included."""
    swallowed: int = 0
    """Segments that it took and never passed on."""
    doubled: int = 0
    """Segments that it passed on a second time."""
    answers_swallowed: int = 0
    """Acknowledgements that never came back."""
    cuts: int = 0


@dataclass(slots=True)
class LossyLink:
    """Listens on a port of its own; each connection to it goes on to ``host``:``port``."""

    host: str
    port: int
    loss: float = 0.05
    double: float = 0.05
    delay_s: float = 0.01
    """For how long a frame is on its way."""
    cut_s: float = 1.0
    """A connection lives about so long."""
    seed: int = 0
    harm: Harm = field(default_factory=Harm)
    _chance: random.Random = field(init=False)
    _server: asyncio.Server | None = None
    _open: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    async def __aenter__(self) -> LossyLink:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._open):
            task.cancel()
        await asyncio.gather(*self._open, return_exceptions=True)

    @property
    def url(self) -> str:
        assert self._server is not None
        return f"penstock://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            await self._carry(reader, writer)
        finally:
            self._open.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            return  # the node is away: so is the link
        there = _Way(FrameType.SEGMENT)
        back = _Way(FrameType.ACK)
        works = [
            asyncio.create_task(there.take(reader)),
            asyncio.create_task(self._give(there, far_writer)),
            asyncio.create_task(back.take(far_reader)),
            asyncio.create_task(self._give(back, writer)),
            asyncio.create_task(asyncio.sleep(self._chance.expovariate(1 / self.cut_s))),
        ]
        try:
            done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            self.harm.cuts += works[-1] in done
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            self.harm.swallowed += there.left()
            self.harm.answers_swallowed += back.left()
            far_writer.transport.abort()

    async def _give(self, way: _Way, writer: asyncio.StreamWriter) -> None:
        """Passes frames on, some of them not and some of them twice."""
        while True:
            type_, frame = await way.frames.get()
            await asyncio.sleep(self.delay_s if way.frames.empty() else 0)
            copies = self._copies() if type_ == FrameType.SEGMENT else 1
            with contextlib.suppress(ConnectionError):
                writer.write(frame * copies)
                await writer.drain()

    def _copies(self) -> int:
        copies = 1
        if self._chance.random() < self.loss:
            copies = 0
            self.harm.swallowed += 1
        elif self._chance.random() < self.double:
            copies = 2
            self.harm.doubled += 1
        self.harm.passed += copies
        return copies


class _Way:
    """One direction: bytes cut into frames."""

    def __init__(self, counted: int) -> None:
        self.frames: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(maxsize=256)
        self._counted = counted

    async def take(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                header = await reader.readexactly(HEADER_BYTES)
                type_, _, _, size = HEADER.unpack(header)
                rest = await reader.readexactly(OVERHEAD_BYTES - HEADER_BYTES + size)
                await self.frames.put((type_, header + rest))

    def left(self) -> int:
        """How many of the counted frames never got on."""
        count = 0
        while not self.frames.empty():
            count += self.frames.get_nowait()[0] == self._counted
        return count
