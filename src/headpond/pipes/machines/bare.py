"""No pipe: each message is sent once, and whatever arrives is passed on, as often as it arrives.

It is the hop that a calculation or a run of the lab starts from, and what ``channel(loss=0.5)`` means when it
stands alone.
"""

from __future__ import annotations

from enum import StrEnum

from headpond.pipes.calculus.declarations import BARE
from headpond.pipes.machines.following import FollowingReceiver
from headpond.pipes.machines.machine import Effects, Event, Table, closed
from headpond.pipes.machines.numbering import NumberingSender
from headpond.pipes.machines.packet import Packet, Run

DECLARATION = BARE


class Sender(NumberingSender):
    pass


class ReceiverState(StrEnum):
    READY = "ready"


RECEIVER_TABLE: Table = closed(
    ReceiverState,
    {
        (None, Event.DATA): ("passed on", ()),
        (None, Event.SETTLE): ("nothing", ()),
        (None, Event.FAIL): ("nothing", ()),
        (None, Event.WAKE): ("nothing", ()),
    },
)


class Receiver(FollowingReceiver):
    TABLE = RECEIVER_TABLE
    state = ReceiverState.READY

    def _take(self, packet: Packet, now: float, effects: Effects) -> None:
        effects.delivered.append(Run(packet.epoch, packet.numbers, packet.payloads or ()))
