"""What most receivers have in common: of bare, index, dedup, continuous, sequential.

All but bare keep a place in a sender's numbering. They follow one session of the sender, except dedup by id,
which tells sessions apart.
"""

from __future__ import annotations

from collections.abc import Sequence

from headpond.pipes.machines.machine import (
    ROOM_ENDLESS,
    Arrive,
    Counts,
    Effects,
    Fail,
    Input,
    Settle,
    Submit,
    Wake,
)
from headpond.pipes.machines.packet import Kind, Packet

_DATA = int(Kind.DATA)


class FollowingReceiver:
    settles = False
    """Whether it has use for ``Settle`` and ``Fail``."""

    def __init__(self, *, epoch: int) -> None:
        self.epoch = epoch
        self.counts = Counts()

    @property
    def room(self) -> int:
        return ROOM_ENDLESS

    @property
    def wake_at(self) -> float | None:
        return None

    def step(self, input: Input, now: float) -> Effects:
        effects = Effects()
        if isinstance(input, Arrive):
            for packet in input.packets:
                self._arrive(packet, now, effects)
            self._arrived(now, effects)
        elif isinstance(input, Settle):
            self._settle(input.epoch, input.numbers, effects)
        elif isinstance(input, Fail):
            self._fail(input.epoch, input.numbers)
        elif isinstance(input, Wake):
            self._wake(now, effects)
        elif isinstance(input, Submit):
            self.counts.unknown += 1
        return effects

    def _arrive(self, packet: Packet, now: float, effects: Effects) -> None:
        if packet.kind != _DATA:
            self.counts.unknown += 1
        elif packet.payloads is None or len(packet.payloads) != len(packet.numbers):
            self.counts.malformed += 1
        elif len(packet.numbers):
            self._take(packet, now, effects)

    def _take(self, packet: Packet, now: float, effects: Effects) -> None:
        """Data, well formed and not empty: what every one of them sees differently."""
        raise NotImplementedError

    def _arrived(self, now: float, effects: Effects) -> None:
        """All the packets of one arrival were taken."""

    def _wake(self, now: float, effects: Effects) -> None:
        """Time has passed."""

    def _settle(self, epoch: int, numbers: Sequence[int], effects: Effects) -> None:
        """The worker after is done with these."""

    def _fail(self, epoch: int, numbers: Sequence[int]) -> None:
        """The next copy of these is welcome, if this pipe can bear it."""
