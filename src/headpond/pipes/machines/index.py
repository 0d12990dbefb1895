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
wake       any                              nothing
others     any                              ignored and counted
=========  ===============================  =================================================================
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

from headpond.pipes.machines.bare import ReceiverBase
from headpond.pipes.machines.epoch import EpochAge, EpochTracker
from headpond.pipes.machines.machine import Effects, Event, Table, complete_table
from headpond.pipes.machines.packet import Packet, Run


class IndexState(StrEnum):
    NEW = "new"
    """No session is followed yet."""
    FOLLOWING = "following"


RECEIVER_TABLE: Table = complete_table(
    IndexState,
    {
        (IndexState.NEW, Event.DATA): (
            "passed on, the session is followed",
            (IndexState.FOLLOWING,),
        ),
        (IndexState.FOLLOWING, Event.DATA): (
            "passed on if above the last, else dropped and counted",
            (),
        ),
        (None, Event.SETTLE): ("nothing", ()),
        (None, Event.FAIL): ("nothing", ()),
        (None, Event.WAKE): ("nothing", ()),
    },
)


class IndexReceiver(ReceiverBase):
    TABLE = RECEIVER_TABLE

    def __init__(self, *, epoch: int, strict: bool = True) -> None:
        super().__init__(epoch=epoch)
        self._strict = strict
        self._sender = EpochTracker()
        self._last = -1

    @property
    def state(self) -> IndexState:
        return IndexState.NEW if self._sender.is_new else IndexState.FOLLOWING

    def _take(self, packet: Packet, now: float, effects: Effects) -> None:
        if not self._follow(packet, effects):
            return
        numbers: list[int] = []
        payloads: list[Any] = []
        dropped: list[int] = []
        last, least = self._last, 1 if self._strict else 0
        for number, payload in zip(packet.numbers, packet.payloads or (), strict=True):
            if number - last >= least:
                last = number
                numbers.append(number)
                payloads.append(payload)
            else:
                dropped.append(number)
        self._last = last
        if numbers:
            effects.delivered.append(Run(packet.epoch, numbers, payloads))
        if dropped:
            self._drop(packet.epoch, dropped, effects)

    def _follow(self, packet: Packet, effects: Effects) -> bool:
        was_new = self._sender.is_new
        session = self._sender.observe(packet.epoch)
        if session is EpochAge.NEW:
            self.counts.restarts += not was_new
            self._last = -1
        elif session is EpochAge.STALE:
            self.counts.stale += len(packet.numbers)
            effects.notify("stale", packet.epoch, packet.numbers)
            return False
        return True

    def _drop(self, epoch: int, dropped: list[int], effects: Effects) -> None:
        late = [number for number in dropped if number < self._last]
        self.counts.late += len(late)
        self.counts.duplicate += len(dropped) - len(late)
        if late:
            effects.notify("late", epoch, late)
