"""Strict monotonic index: no repeats and nothing out of order; late messages are dropped.

The sender (``BareSender``) gives each message the next number. The receiver passes on a message whose number
is above the last number that it passed on. ``strict=False`` also passes on a repeat of that number: monotonic
order, repeats allowed.

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
data       new                              passed on; its session is the one to follow
data       following                        above the last: passed on. Else dropped and counted, as a duplicate
                                            (the last one again) or as late, with a notice.
                                            A higher epoch: the sender restarted, its numbers count from 0.
                                            A lower epoch: stale, dropped and counted
settle     any                              nothing: it waits for nobody
fail       any                              nothing: the message has gone by
=========  ===============================  =================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from headpond.pipes.machines.machine import Effects, FollowingReceiver
from headpond.pipes.machines.packet import Packet, Run


class IndexState(StrEnum):
    NEW = "new"
    """No session is followed yet."""
    FOLLOWING = "following"


class IndexReceiver(FollowingReceiver):
    def __init__(self, *, epoch: int, strict: bool = True) -> None:
        super().__init__(epoch=epoch)
        self._strict = strict
        self._last = -1

    @property
    def state(self) -> IndexState:
        return IndexState.NEW if self._session < 0 else IndexState.FOLLOWING

    def _begin(self, packet: Packet, effects: Effects) -> None:
        self._last = -1

    def _take(self, packet: Packet, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        if not self._follow(packet, effects):
            return
        above: list[int] = []
        passed: list[Any] = []
        dropped: list[int] = []
        last, least = self._last, 1 if self._strict else 0
        for number, payload in zip(packet.numbers, payloads, strict=True):
            if number - last >= least:
                last = number
                above.append(number)
                passed.append(payload)
            else:
                dropped.append(number)
        self._last = last
        if above:
            effects.delivered.append(Run(packet.epoch, above, passed))
        late = [number for number in dropped if number < last]
        self.counts.late += len(late)
        self.counts.duplicate += len(dropped) - len(late)
        if late:
            effects.notify("late", packet.epoch, late)
