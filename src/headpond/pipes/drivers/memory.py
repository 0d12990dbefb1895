"""Both ends of a pipe in one process.

``between`` gets every packet and a function that carries a packet on, at once or later, once, often or never.
So a program can be tested over a bad route.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from headpond.pipes.drivers.end import new_epoch
from headpond.pipes.drivers.lane import SenderLane
from headpond.pipes.drivers.receiver import LaneSource, PipeReceiver
from headpond.pipes.drivers.sender import PipeSender, Way
from headpond.pipes.machines.compose import parse_drivable
from headpond.pipes.machines.packet import Packet

CarryOn = Callable[[Packet], None]
Between = Callable[[Packet, CarryOn], None]

QUEUE_MAX = 65536
"""Packets that a wire holds for a receiver that does not read; further ones are lost, as on a route."""


def pair(route: str, *, between: Between | None = None) -> tuple[PipeSender, PipeReceiver]:
    """The two ends of a new pipe, to be opened: ``async with receiver, sender``."""
    source = _MemorySource(route, between)
    return PipeSender(route, _MemoryWay(source)), PipeReceiver(route, source)


class _MemoryWire:
    """One direction. Packets arrive in the next turn of the loop, never within the call that sent them."""

    def __init__(self, deliver: Callable[[list[Packet]], None], between: Between | None) -> None:
        self._deliver = deliver
        self._between = between
        self._queue: deque[Packet] = deque()
        self._open = False
        self._scheduled = False

    def carry(self, packets: list[Packet]) -> None:
        for packet in packets:
            if self._between is None:
                self._enqueue(packet)
            else:
                self._between(packet, self._enqueue)

    def set_open(self, is_open: bool) -> None:
        self._open = is_open
        self._schedule()

    def _enqueue(self, packet: Packet) -> None:
        if len(self._queue) < QUEUE_MAX:
            self._queue.append(packet)
            self._schedule()

    def _schedule(self) -> None:
        if self._open and self._queue and not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._arrive)

    def _arrive(self) -> None:
        self._scheduled = False
        if self._open:
            packets = list(self._queue)
            self._queue.clear()
            self._deliver(packets)


class _MemorySource(LaneSource):
    """The receiver's lane, and the wires between it and the sender."""

    def __init__(self, route: str, between: Between | None) -> None:
        self.forth = _MemoryWire(self._arrive, between)
        self._back = _MemoryWire(self._answer, between)
        self._route = parse_drivable(route)
        self._sender: PipeSender | None = None
        self._lane: SenderLane | None = None
        self._reading = False

    async def open(self, receiver: PipeReceiver) -> None:
        self._lane = SenderLane("", self._route, new_epoch(), receiver)
        self._lane.carry = self._back.carry
        self.set_reading(True)

    async def close(self) -> None:
        self.set_reading(False)
        if self._lane is not None:
            self._lane.close()

    @property
    def lanes(self) -> Sequence[SenderLane]:
        return () if self._lane is None else (self._lane,)

    def set_reading(self, reading: bool) -> None:
        self._reading = reading
        self.forth.set_open(reading)
        if self._lane is not None:
            self._lane.on_route(reading and self._sender is not None)
        if self._sender is not None:
            self._sender.on_route(reading)

    def attach(self, sender: PipeSender | None) -> None:
        self._sender = sender
        self._back.set_open(sender is not None)
        self.set_reading(self._reading)

    def _arrive(self, packets: list[Packet]) -> None:
        if self._lane is not None:
            self._lane.arrive(packets)

    def _answer(self, packets: list[Packet]) -> None:
        if self._sender is not None:
            self._sender.on_packets(packets)


class _MemoryWay(Way):
    def __init__(self, source: _MemorySource) -> None:
        self._source = source

    async def open(self, sender: PipeSender) -> None:
        self._source.attach(sender)

    def carry(self, packets: list[Packet]) -> None:
        self._source.forth.carry(packets)

    async def close(self) -> None:
        self._source.attach(None)
