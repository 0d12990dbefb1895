"""A connection between a client and a node that fails on purpose, and counts its failures.

It cuts connections at random, with everything on its way in both directions: segments that the node never gets,
and acknowledgements that the producer never gets, so that it sends again what the node has.

It also loses single messages, or the answers to them, as ``Faults`` says. TCP leaves nothing out of a
connection, so each loss ends the connection. Without its answer a message comes twice: the producer sends the
segment again, and the node the delivery.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
from dataclasses import dataclass, field

from headpond.node.relay import Relay
from headpond.wire.frame import HEADER, HEADER_BYTES, OVERHEAD_BYTES, FrameType

FRAMES_AT_ONCE = 8
"""Frames that it passes on at a time; the others are still on their way."""


@dataclass(slots=True)
class Faults:
    """What a lossy link does to messages; it may be changed while the link runs."""

    loss: float = 0.0
    """The share of segments, and of deliveries, that do not arrive."""
    duplicates: float = 0.0
    """The share of answers to them that do not arrive, so that the messages come again."""
    delay_s: float = 0.02
    """How long a frame is on its way."""
    cut_s: float | None = 0.4
    """About how long a connection lasts; None: until a loss ends it."""


@dataclass(slots=True)
class Harm:
    """What a lossy link did."""

    passed: int = 0
    """Segments that it passed on."""
    swallowed: int = 0
    """Segments that it took and never passed on."""
    answers_swallowed: int = 0
    """Acknowledgements that it took and never passed back."""
    cuts: int = 0
    segments: Counted = field(default_factory=lambda: Counted())
    """From producers to the node."""
    deliveries: Counted = field(default_factory=lambda: Counted())
    """From the node to consumers."""


@dataclass(slots=True)
class Counted:
    """What became of single messages by ``loss``, and of the answers by ``duplicates``."""

    given: int = 0
    lost: int = 0
    answers: int = 0
    answers_lost: int = 0


@dataclass(slots=True)
class LossyLink(Relay):
    faults: Faults = field(default_factory=Faults)
    topic: str = ""
    """The topic of the producers and consumers that use it, and their subscription, for those who watch it."""
    subscription: str = ""
    seed: int = 0
    harm: Harm = field(default_factory=Harm)
    _chance: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self._chance = random.Random(self.seed)

    @property
    def url(self) -> str:
        return self.address.url

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        there = _Way(messages=FrameType.SEGMENT, answers=FrameType.SETTLE)
        back = _Way(messages=FrameType.DELIVER, answers=FrameType.ACK)
        works = [
            asyncio.create_task(self._last()),
            asyncio.create_task(self._give(there, far_writer)),
            asyncio.create_task(self._give(back, writer)),
            asyncio.create_task(there.take(reader)),
            asyncio.create_task(back.take(far_reader)),
        ]
        try:
            done, _ = await asyncio.wait(works, return_when=asyncio.FIRST_COMPLETED)
            self.harm.cuts += works[0] in done or any(each.done() and each.result() for each in works[1:3])
        finally:
            for work in works:
                work.cancel()
            await asyncio.gather(*works, return_exceptions=True)
            self.harm.swallowed += there.left(FrameType.SEGMENT)
            self.harm.answers_swallowed += back.left(FrameType.ACK)
            writer.transport.abort()

    async def _last(self) -> None:
        """Returns when the connection has lasted long enough."""
        if self.faults.cut_s is None:
            await asyncio.get_running_loop().create_future()
        else:
            await asyncio.sleep(self._chance.expovariate(1 / self.faults.cut_s))

    async def _give(self, way: _Way, writer: asyncio.StreamWriter) -> bool:
        """Passes frames on, ``delay_s`` after they came; whether the loss of one ended the connection."""
        with contextlib.suppress(ConnectionError):
            while True:
                await asyncio.sleep(self.faults.delay_s)
                frames = [await way.frames.get()]
                while not way.frames.empty() and len(frames) < FRAMES_AT_ONCE:
                    frames.append(way.frames.get_nowait())
                for type_, frame in frames:
                    if self._is_lost(way, type_):
                        return True
                    writer.write(frame)
                    self.harm.passed += type_ == way.messages == FrameType.SEGMENT
                await writer.drain()
        return False

    def _is_lost(self, way: _Way, type_: int) -> bool:
        """Whether a frame is lost, and the connection with it."""
        if type_ == way.messages:
            lost = self._happens(self.faults.loss)
            counted = self.harm.segments if type_ == FrameType.SEGMENT else self.harm.deliveries
            counted.given += 1
            counted.lost += lost
        elif type_ == way.answers:
            lost = self._happens(self.faults.duplicates)
            counted = self.harm.segments if type_ == FrameType.ACK else self.harm.deliveries
            counted.answers += 1
            counted.answers_lost += lost
        else:
            return False
        return lost

    def _happens(self, share: float) -> bool:
        return share > 0 and self._chance.random() < share


class _Way:
    """One direction: bytes cut into frames, of which some are messages and some are answers."""

    def __init__(self, *, messages: int, answers: int) -> None:
        self.messages = messages
        self.answers = answers
        self.frames: asyncio.Queue[tuple[int, bytes]] = asyncio.Queue(maxsize=256)

    async def take(self, reader: asyncio.StreamReader) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                header = await reader.readexactly(HEADER_BYTES)
                type_, _, _, size = HEADER.unpack(header)
                rest = await reader.readexactly(OVERHEAD_BYTES - HEADER_BYTES + size)
                await self.frames.put((type_, header + rest))

    def left(self, type_: int) -> int:
        """How many frames of this type were not passed on; call it once."""
        count = 0
        while not self.frames.empty():
            count += self.frames.get_nowait()[0] == type_
        return count
