"""The sender that only counts: of index, dedup, and continuous without gap requests.

It gives each message the next number and sends it once. It keeps one number and no message, so there is always
room, and what a crash loses is that number: the next session starts at 0 again, under a new epoch.
"""

from __future__ import annotations

from enum import StrEnum

from headpond.pipes.machines.machine import (
    ROOM_ENDLESS,
    Arrive,
    Counts,
    Effects,
    Event,
    Input,
    Submit,
    Table,
    Wake,
    closed,
)
from headpond.pipes.machines.packet import NUMBERS_MAX, Kind, Packet

_DATA = int(Kind.DATA)


class NumberingState(StrEnum):
    READY = "ready"


NUMBERING_TABLE: Table = closed(
    NumberingState,
    {(None, Event.SUBMIT): ("numbered and sent, once", ()), (None, Event.WAKE): ("nothing", ())},
)


class NumberingSender:
    TABLE = NUMBERING_TABLE
    confirms = False
    resends = False

    def __init__(self, *, epoch: int) -> None:
        self.epoch = epoch
        self.counts = Counts()
        self._number_next = 0

    @property
    def state(self) -> NumberingState:
        return NumberingState.READY

    @property
    def room(self) -> int:
        return ROOM_ENDLESS

    @property
    def unconfirmed(self) -> int:
        return 0

    @property
    def wake_at(self) -> float | None:
        return None

    def step(self, input: Input, now: float) -> Effects:
        effects = Effects()
        if isinstance(input, Submit):
            payloads = input.payloads
            first = self._number_next
            self._number_next += len(payloads)
            effects.accepted = range(first, self._number_next)
            for at in range(0, len(payloads), NUMBERS_MAX):
                piece = payloads[at : at + NUMBERS_MAX]
                numbers = range(first + at, first + at + len(piece))
                effects.packets.append(Packet(_DATA, self.epoch, 0, numbers, piece))
        elif isinstance(input, Arrive):
            self.counts.unknown += len(input.packets)
        elif not isinstance(input, Wake):
            self.counts.unknown += 1
        return effects
