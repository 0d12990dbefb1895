"""Packets on their way: which of their messages a link loses, doubles or delays.

A link in one direction has a rate of loss, of doubling and of lateness. Instead of drawing for each message,
it draws how many pass untouched before the next one that it changes, and moves those in one piece. A packet
that is one question or answer, and no run of messages, is lost, doubled or late as a whole.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from headpond.pipes.lab.faults import Faults
from headpond.pipes.machines.packet import Kind, Packet

_RUNS = frozenset((Kind.DATA, Kind.CONFIRM))
_NEVER = 1 << 60

RunKey = tuple[int, int, int, int]
"""Kind, epoch, origin, layer: runs of the same key that arrive together are one run."""


@dataclass(slots=True, eq=False)
class TickInbox:
    """The packets that arrive at one worker in one tick."""

    runs: dict[RunKey, tuple[list[int], list[Any]]] = field(default_factory=dict)
    whole: list[Packet] = field(default_factory=list)

    def run(self, key: RunKey) -> tuple[list[int], list[Any]]:
        if key not in self.runs:
            self.runs[key] = ([], [])
        return self.runs[key]

    def packets(self) -> list[Packet]:
        out = self.whole
        for (kind, epoch, origin, layer), (numbers, payloads) in self.runs.items():
            if numbers:
                out.append(Packet(kind, epoch, origin, numbers, payloads if kind == Kind.DATA else None, layer))
        return out


Post = Callable[[int], TickInbox]
"""The inbox at a tick, of the worker that a link leads to."""
Record = Callable[[str, str, Sequence[int]], None]


class LabLink:
    """One direction of a route between two workers."""

    def __init__(
        self,
        name: str,
        rates: tuple[float, float, float],
        faults: Faults,
        rng: Random,
        post: Post,
        record: Record | None,
    ) -> None:
        """``rates``: loss, duplicate and reorder."""
        loss, duplicate, reorder = rates
        self.name = name
        self.carried = 0
        self.lost = 0
        self.down_until = -1
        self._loss = loss
        self._reorder = reorder
        self._rng = rng
        self._post = post
        self._record = record
        self._delay = faults.delay
        self._tick_s = faults.tick_s
        self._late_ticks = max(round(faults.late_s / self._tick_s), 1)
        self._fixed_ticks = max(round(self._delay.first / self._tick_s), 1) if self._delay.is_fixed else 0
        clean = (1 - loss) * (1 - duplicate) * (1 - reorder)
        self._touched = 1 - clean
        odd = duplicate + (1 - duplicate) * reorder
        self._doubled_of_odd = duplicate / odd if odd else 0.0
        self._log_clean = math.log(clean) if 0 < clean < 1 else 0.0
        self._until_touched = self._skip()

    def carry(self, packet: Packet, now: int) -> None:
        count = len(packet.numbers)
        self.carried += count if packet.kind in _RUNS else 1
        if now < self.down_until:
            self._lose(packet.numbers)
        elif packet.kind in _RUNS:
            key = (packet.kind, packet.epoch, packet.origin, packet.layer)
            payloads = packet.numbers if packet.payloads is None else packet.payloads  # not looked at
            move = self._move_fixed if self._fixed_ticks else self._move_drawn
            move(packet.numbers, payloads, key, now)
        else:
            for _ in range(self._copies()):
                self._post(now + self._ticks() + self._lateness()).whole.append(packet)

    def _move_fixed(self, numbers: Sequence[int], payloads: Sequence[Any], key: RunKey, now: int) -> None:
        """All take the same time, so untouched messages stay together."""
        into, goods = self._post(now + self._fixed_ticks).run(key)
        count, start, at = len(numbers), 0, self._until_touched
        draw, skip = self._rng.random, self._skip
        while at < count:
            if at > start:
                into += numbers[start:at]
                goods += payloads[start:at]
            if draw() * self._touched < self._loss:
                self._lose(numbers[at : at + 1])
            else:
                self._change(numbers[at], payloads[at], key, now)
            start = at + 1
            at = start + skip()
        self._until_touched = at - count
        if start < count:
            into += numbers[start:] if start else numbers
            goods += payloads[start:] if start else payloads

    def _move_drawn(self, numbers: Sequence[int], payloads: Sequence[Any], key: RunKey, now: int) -> None:
        """Each takes its own time."""
        until = self._until_touched
        for number, payload in zip(numbers, payloads, strict=True):
            if until:
                until -= 1
                self._place(number, payload, key, now + self._ticks())
                continue
            if self._rng.random() * self._touched < self._loss:
                self._lose((number,))
            else:
                self._change(number, payload, key, now)
            until = self._skip()
        self._until_touched = until

    def _change(self, number: int, payload: Any, key: RunKey, now: int) -> None:
        """A message that is doubled or late."""
        if self._rng.random() < self._doubled_of_odd:
            for _ in range(2):
                self._place(number, payload, key, now + self._ticks() + self._lateness())
        else:
            late = 1 + int(self._rng.random() * self._late_ticks)
            self._place(number, payload, key, now + self._ticks() + late)

    def _place(self, number: int, payload: Any, key: RunKey, tick: int) -> None:
        into, goods = self._post(tick).run(key)
        into.append(number)
        goods.append(payload)

    def _lose(self, numbers: Sequence[int]) -> None:
        self.lost += len(numbers)
        if self._record is not None:
            self._record(self.name, "lost", numbers)

    def _skip(self) -> int:
        """How many messages pass before the next one that is touched."""
        if self._touched <= 0:
            return _NEVER
        if self._touched >= 1:
            return 0
        return int(math.log(1 - self._rng.random()) / self._log_clean)

    def _copies(self) -> int:
        if self._touched <= 0 or self._rng.random() >= self._touched:
            return 1
        if self._rng.random() * self._touched < self._loss:
            self.lost += 1
            return 0
        return 2 if self._rng.random() < self._doubled_of_odd else 1

    def _ticks(self) -> int:
        return self._fixed_ticks or max(round(self._delay.draw(self._rng) / self._tick_s), 1)

    def _lateness(self) -> int:
        if self._reorder <= 0 or self._rng.random() >= self._reorder:
            return 0
        return 1 + int(self._rng.random() * self._late_ticks)
