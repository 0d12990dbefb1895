"""Sequential confirm: each message is confirmed before the next one is sent. Continuous order.

The sender is a ``ResendSender`` with a window of one: one message on its way, a buffer behind it, sent again
until it is confirmed. So a lost confirm costs a copy and never stops the flow. The receiver remembers the
last number that it passed on and drops copies of it and of earlier ones, which may come late; it confirms
them all the same, because their sender may be waiting for that.

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
data       new                              passed on, with any number: this side started in the middle
data       following                        the next number: passed on and confirmed (or holding until settled).
                                            The last one or before: confirmed, dropped, counted.
                                            Further on: passed on, with a notice of the gap (an earlier session
                                            of this side confirmed the missing messages).
                                            A higher epoch: followed from its first message on.
                                            A lower epoch: stale, dropped and counted
data       holding                          a copy of the held message: dropped, not confirmed; else as above
settle     any                              confirmed
fail       any                              forgotten, so that the next copy is passed on
wake       any                              nothing
others     any                              ignored and counted
=========  ===============================  =================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum

from headpond.pipes.machines.bare import ReceiverBase
from headpond.pipes.machines.epoch import EpochAge, EpochTracker
from headpond.pipes.machines.machine import Effects, Event, Table, complete_table
from headpond.pipes.machines.packet import Kind, Packet, Run

_CONFIRM = int(Kind.CONFIRM)


class SequentialState(StrEnum):
    NEW = "new"
    FOLLOWING = "following"
    HOLDING = "holding"
    """The worker after has the last message and has not settled it."""


_FOLLOWED = (SequentialState.FOLLOWING, SequentialState.HOLDING)
RECEIVER_TABLE: Table = complete_table(
    SequentialState,
    {
        (SequentialState.NEW, Event.DATA): ("passed on", _FOLLOWED),
        (SequentialState.FOLLOWING, Event.DATA): (
            "passed on if it is the next, else confirmed only",
            _FOLLOWED,
        ),
        (SequentialState.HOLDING, Event.DATA): ("a copy of the held message is dropped", _FOLLOWED),
        (SequentialState.NEW, Event.SETTLE): ("confirmed: an earlier session passed it on", ()),
        (SequentialState.FOLLOWING, Event.SETTLE): ("confirmed", ()),
        (SequentialState.HOLDING, Event.SETTLE): ("confirmed", _FOLLOWED),
        (SequentialState.NEW, Event.FAIL): ("nothing", ()),
        (SequentialState.FOLLOWING, Event.FAIL): ("nothing", ()),
        (SequentialState.HOLDING, Event.FAIL): (
            "forgotten, so that the next copy is passed on",
            _FOLLOWED,
        ),
        (None, Event.WAKE): ("nothing", ()),
    },
)


class SequentialReceiver(ReceiverBase):
    TABLE = RECEIVER_TABLE

    def __init__(self, *, epoch: int, confirm: str = "delivered") -> None:
        super().__init__(epoch=epoch)
        self.settles = confirm == "settled"
        self._sender = EpochTracker()
        self._last = -1
        self._holding = False

    @property
    def state(self) -> SequentialState:
        if self._sender.is_new:
            return SequentialState.NEW
        return SequentialState.HOLDING if self._holding else SequentialState.FOLLOWING

    def _take(self, packet: Packet, now: float, effects: Effects) -> None:
        was_new = self._sender.is_new
        session = self._sender.observe(packet.epoch)
        if session is EpochAge.STALE:
            self.counts.stale += len(packet.numbers)
            effects.notify("stale", packet.epoch, packet.numbers)
            return
        if session is EpochAge.NEW:
            self.counts.restarts += not was_new
            self._last, self._holding = packet.numbers[0] - 1, False
        for number, payload in zip(packet.numbers, packet.payloads or (), strict=True):
            self._take_one(packet.epoch, number, payload, effects)

    def _take_one(self, epoch: int, number: int, payload: object, effects: Effects) -> None:
        if number <= self._last:
            self.counts.duplicate += 1
            if not (self._holding and number == self._last):
                self._answer(epoch, (number,), effects)
            return
        if number > self._last + 1:
            missing = range(self._last + 1, number)
            self.counts.abandoned += len(missing)
            effects.notify("gap", epoch, missing)
        self._last = number
        effects.delivered.append(Run(epoch, (number,), (payload,)))
        if self.settles:
            self._holding = True
        else:
            self._answer(epoch, (number,), effects)

    def _answer(self, epoch: int, numbers: Sequence[int], effects: Effects) -> None:
        effects.packets.append(Packet(_CONFIRM, epoch, self.epoch, numbers))

    def _settle(self, epoch: int, numbers: Sequence[int], effects: Effects) -> None:
        if epoch == self._sender.epoch and self._last in numbers:
            self._holding = False
        if len(numbers):
            self._answer(epoch, numbers, effects)

    def _fail(self, epoch: int, numbers: Sequence[int]) -> None:
        if self._holding and epoch == self._sender.epoch and self._last in numbers:
            self._holding = False
            self._last -= 1
