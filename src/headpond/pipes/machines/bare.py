"""No pipe: the sender sends each message once, and the receiver passes on every copy that arrives.

A calculation or a run of the lab starts from this hop; ``channel(loss=0.5)`` alone in a route means it. The
pipes ``index`` and ``dedup`` have the same sender. It keeps one number and no message, so it always has room. A
crash loses only that number: the next session starts at 0 again, under a new epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from headpond.pipes.machines.machine import (
    ROOM_ENDLESS,
    Arrive,
    Counts,
    Effects,
    Event,
    Fail,
    Input,
    Settle,
    Submit,
    Table,
    Wake,
    complete_table,
)
from headpond.pipes.machines.packet import NUMBERS_MAX, Kind, Packet, Run

_DATA = int(Kind.DATA)


class BareSenderState(StrEnum):
    READY = "ready"


SENDER_TABLE: Table = complete_table(
    BareSenderState,
    {(None, Event.SUBMIT): ("numbered and sent, once", ()), (None, Event.WAKE): ("nothing", ())},
)


class BareSender:
    TABLE = SENDER_TABLE
    confirms = False

    def __init__(self, *, epoch: int) -> None:
        self.epoch = epoch
        self.counts = Counts()
        self._number_next = 0

    @property
    def state(self) -> BareSenderState:
        return BareSenderState.READY

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


class ReceiverBase:
    """The step that the receivers of bare, index, dedup, continuous and sequential share."""

    settles = False
    """Whether the worker after it has to answer with ``Settle`` or ``Fail``."""

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
        """Handles data that is well formed and not empty."""
        raise NotImplementedError

    def _arrived(self, now: float, effects: Effects) -> None:
        """Runs after all packets of one ``Arrive``."""

    def _wake(self, now: float, effects: Effects) -> None:
        """Runs at every ``Wake``."""

    def _settle(self, epoch: int, numbers: Sequence[int], effects: Effects) -> None:
        """The worker after it is done with these."""

    def _fail(self, epoch: int, numbers: Sequence[int]) -> None:
        """The worker after it failed on these: a pipe that can passes on their next copy."""


class BareReceiverState(StrEnum):
    READY = "ready"


RECEIVER_TABLE: Table = complete_table(
    BareReceiverState,
    {
        (None, Event.DATA): ("passed on", ()),
        (None, Event.SETTLE): ("nothing", ()),
        (None, Event.FAIL): ("nothing", ()),
        (None, Event.WAKE): ("nothing", ()),
    },
)


class BareReceiver(ReceiverBase):
    TABLE = RECEIVER_TABLE
    state = BareReceiverState.READY

    def _take(self, packet: Packet, now: float, effects: Effects) -> None:
        effects.delivered.append(Run(packet.epoch, packet.numbers, packet.payloads or ()))
