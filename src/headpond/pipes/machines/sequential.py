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
=========  ===============================  =================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from headpond.pipes.machines.machine import Effects, FollowingReceiver
from headpond.pipes.machines.packet import Packet, Run


class SequentialState(StrEnum):
    NEW = "new"
    FOLLOWING = "following"
    HOLDING = "holding"
    """The worker after has the last message and has not settled it."""


class SequentialReceiver(FollowingReceiver):
    def __init__(self, *, epoch: int, confirm: str = "delivered") -> None:
        super().__init__(epoch=epoch)
        self.settles = confirm == "settled"
        self._last = -1
        self._holding = False

    @property
    def state(self) -> SequentialState:
        if self._session < 0:
            return SequentialState.NEW
        return SequentialState.HOLDING if self._holding else SequentialState.FOLLOWING

    def _begin(self, packet: Packet, effects: Effects) -> None:
        self._last, self._holding = packet.numbers[0] - 1, False

    def _take(self, packet: Packet, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        if self._follow(packet, effects):
            for number, payload in zip(packet.numbers, payloads, strict=True):
                self._take_one(packet.epoch, number, payload, effects)

    def _take_one(self, epoch: int, number: int, payload: Any, effects: Effects) -> None:
        if number <= self._last:
            self.counts.duplicate += 1
            if not (self._holding and number == self._last):
                self._confirm(epoch, (number,), effects)
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
            self._confirm(epoch, (number,), effects)

    def _settle(self, epoch: int, numbers: Sequence[int], effects: Effects) -> None:
        if epoch == self._session and self._last in numbers:
            self._holding = False
        if len(numbers):
            self._confirm(epoch, numbers, effects)

    def _fail(self, epoch: int, numbers: Sequence[int]) -> None:
        if self._holding and epoch == self._session and self._last in numbers:
            self._holding = False
            self._last -= 1
