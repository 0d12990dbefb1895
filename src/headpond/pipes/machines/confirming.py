"""The receiver that confirms what it passed on: of resend and resend_many.

It keeps no place in the numbering, so it can start again at any time and any copy is passed on: at least once.
With ``confirm="settled"`` it confirms when the worker after it is done, not when it has passed the message on;
until then it remembers what that worker has, at most ``pending_max`` messages, and does not hand it a second
copy.

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
data       ready                            passed on; confirmed at once, or pending until settled
data       holding                          as ready, but a copy of a pending message is only counted
data       full                             not passed on, not confirmed: it will come again
settle     any                              confirmed, and no longer pending
fail       any                              no longer pending: the next copy is passed on
wake       any                              nothing
others     any                              ignored and counted
=========  ===============================  =================================================================
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
    closed,
)
from headpond.pipes.machines.packet import Kind, Packet, Run

_DATA = int(Kind.DATA)
_CONFIRM = int(Kind.CONFIRM)

PENDING_MAX = 65536


class ReceiverState(StrEnum):
    READY = "ready"
    HOLDING = "holding"
    """The worker after has messages that it has not settled."""
    FULL = "full"
    """It has as many as it may."""


_ANY = tuple(ReceiverState)
RECEIVER_TABLE: Table = closed(
    ReceiverState,
    {
        (ReceiverState.READY, Event.DATA): ("passed on", _ANY),
        (ReceiverState.HOLDING, Event.DATA): (
            "passed on, but no second copy of a pending one",
            (ReceiverState.HOLDING, ReceiverState.FULL),
        ),
        (ReceiverState.FULL, Event.DATA): ("refused and counted", (ReceiverState.FULL,)),
        (None, Event.SETTLE): ("confirmed", _ANY),
        (None, Event.FAIL): ("forgotten, so that the next copy is passed on", _ANY),
        (None, Event.WAKE): ("nothing", ()),
    },
)


class ConfirmingReceiver:
    TABLE = RECEIVER_TABLE

    def __init__(self, *, epoch: int, confirm: str = "delivered", pending_max: int = PENDING_MAX) -> None:
        self.epoch = epoch
        self.settles = confirm == "settled"
        self.counts = Counts()
        self._pending_max = pending_max
        self._pending: dict[int, set[int]] = {}
        self._pending_count = 0

    @property
    def state(self) -> ReceiverState:
        if self._pending_count >= self._pending_max:
            return ReceiverState.FULL
        return ReceiverState.HOLDING if self._pending_count else ReceiverState.READY

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
                if packet.kind != _DATA:
                    self.counts.unknown += 1
                elif packet.payloads is None or len(packet.payloads) != len(packet.numbers):
                    self.counts.malformed += 1
                elif self.settles:
                    self._hold(packet, effects)
                else:
                    effects.delivered.append(Run(packet.epoch, packet.numbers, packet.payloads))
                    self._answer(packet.epoch, packet.numbers, effects)
        elif isinstance(input, Settle):
            self._forget(input.epoch, input.numbers)
            # What is not pending any more may still be settled: it was passed on before a Fail, or by a machine
            # that has started again since. It is done, and its sender should know.
            if input.numbers:
                self._answer(input.epoch, input.numbers, effects)
        elif isinstance(input, Fail):
            self._forget(input.epoch, input.numbers)
        elif isinstance(input, Submit):
            self.counts.unknown += 1
        return effects

    def _answer(self, epoch: int, numbers: Sequence[int], effects: Effects) -> None:
        effects.packets.append(Packet(_CONFIRM, epoch, self.epoch, numbers))

    def _hold(self, packet: Packet, effects: Effects) -> None:
        pending = self._pending.setdefault(packet.epoch, set())
        numbers: list[int] = []
        payloads: list[object] = []
        assert packet.payloads is not None
        for number, payload in zip(packet.numbers, packet.payloads, strict=True):
            if number in pending:
                self.counts.duplicate += 1
            elif self._pending_count >= self._pending_max:
                self.counts.refused += 1
            else:
                pending.add(number)
                self._pending_count += 1
                numbers.append(number)
                payloads.append(payload)
        if not pending:
            del self._pending[packet.epoch]
        if numbers:
            effects.delivered.append(Run(packet.epoch, numbers, payloads))

    def _forget(self, epoch: int, numbers: Sequence[int]) -> None:
        pending = self._pending.get(epoch)
        if pending is None:
            return
        before = len(pending)
        pending.difference_update(numbers)
        self._pending_count -= before - len(pending)
        if not pending:
            del self._pending[epoch]
