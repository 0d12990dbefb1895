"""No pipe: the sender sends each message once, and the receiver passes on every copy that arrives.

A calculation or a run of the lab starts from this hop; ``channel(loss=0.5)`` alone in a route means it. The
pipes ``index`` and ``dedup`` have the same sender. It keeps one number and no message, so it always has room. A
crash loses only that number: the next session starts at 0 again, under a new epoch.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from headpond.pipes.machines.machine import Effects, ReceiverMachine, SenderMachine
from headpond.pipes.machines.packet import Packet, Run


class BareState(StrEnum):
    READY = "ready"


class BareSender(SenderMachine):
    """Submit: numbered and sent, once. Everything else is ignored and counted."""

    def __init__(self, *, epoch: int) -> None:
        super().__init__(epoch=epoch)
        self._number_next = 0

    @property
    def state(self) -> BareState:
        return BareState.READY

    def _submit(self, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        effects.accepted = range(self._number_next, self._number_next + len(payloads))
        self._number_next = effects.accepted.stop
        if len(payloads):
            self._send(effects.accepted, payloads, effects)


class BareReceiver(ReceiverMachine):
    """Data: passed on. Everything else is ignored and counted."""

    @property
    def state(self) -> BareState:
        return BareState.READY

    def _take(self, packet: Packet, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        effects.delivered.append(Run(packet.epoch, packet.numbers, payloads))
