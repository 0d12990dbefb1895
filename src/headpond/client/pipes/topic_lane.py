"""The lane of a topic: a stream's receiver whose commits wait until the program is done.

The machine commits what it has passed on. Here that becomes a mark: *when the program is done with the first so
many payloads, the index may be kept*. The program may be done in any order; the index follows the first that it
is not done with.

**What a pipe over the stream refuses is never passed over.** The lane halts: nothing of that step or of a later
one is delivered or committed, so it stays in the topic for the next receiver.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

from headpond.calculus.route import Route
from headpond.client.pipes.lane import Inbox, Lane
from headpond.client.pipes.prefix import Marks
from headpond.pipes.compose import receiver_of
from headpond.pipes.machine import WAKE, Arrive, Effects, Notice
from headpond.pipes.packet import Kind, Packet

STORAGE_EPOCH = 1
"""The storage's own session: a topic is one storage for all its life."""
LOST: Any = object()
"""Stands for an entry that will not come."""


class TopicLane(Lane):
    def __init__(
        self, topic: str, route: Route, epoch: int, inbox: Inbox, commit: Callable[[int], None]
    ) -> None:
        make = lambda: receiver_of(route, epoch=epoch, jitter=random.random)  # noqa: E731  # as lanes take it
        super().__init__(topic, make, inbox, self._hear)
        self.settles = self.stored = True
        self.halted = False
        """Whether a message was refused, and nothing behind it counts any more."""
        self.lost = 0
        self._epoch = epoch
        self._commit = commit
        self._marks = Marks(exact=len(route.stages) == 1)

    def begin(self) -> None:
        """The machine has something to ask from the start."""
        self._runner.step(WAKE)
        # Its questions need no answer, but what it remembers of silent sessions is to grow old.
        self._runner.go_on()

    def start_at(self, index: int) -> None:
        """The position that was asked for."""
        position = Packet(int(Kind.POSITION), STORAGE_EPOCH, self._epoch, (index,))
        self._runner.step(Arrive([position]))

    def fetched(self, first: int, payloads: Sequence[Any]) -> None:
        """Entries, as they stand in the topic from ``first`` on."""
        numbers = range(first, first + len(payloads))
        if payloads[0] is LOST:
            self.lost += len(numbers)
            self._inbox.notice([Notice("lost", STORAGE_EPOCH, numbers)])
        else:
            self.arrived += len(numbers)
        packet = Packet(int(Kind.FETCHED), STORAGE_EPOCH, self._epoch, numbers, payloads)
        self._runner.step(Arrive([packet]))

    def settle(self, epoch: int, numbers: Sequence[int], places: Sequence[int]) -> None:
        self._keep(self._marks.done(places))

    def fail(self, epoch: int, numbers: Sequence[int], places: Sequence[int]) -> None:
        """It is not done, so the index does not go past it."""

    def on_route(self, there: bool) -> None:
        """The client's link keeps the route up, and nothing is sent again from here: the clock runs on."""

    def _on_effects(self, effects: Effects) -> None:
        self.halted = self.halted or bool(effects.refused)
        if self.halted:
            effects.delivered, effects.packets = [], []
        effects.delivered = [run for run in effects.delivered if run.payloads[0] is not LOST]
        super()._on_effects(effects)

    def _hear(self, packets: list[Packet]) -> None:
        """READ and FETCH need no ear: entries come as they come, from the settled position on."""
        for packet in packets:
            if packet.kind == Kind.COMMIT:
                self._keep(self._marks.add(self.delivered, packet.numbers[0]))

    def _keep(self, index: int | None) -> None:
        if index is not None:
            self._commit(index)
