"""The sender of continuous: it numbers, sends once, and keeps what its receiver may still ask for.

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
submit     idle, open                       numbered, sent, kept until there is progress past it
submit     full                             refused, the caller keeps them
gap        any                              what is kept is sent again; if some is not, the floor is told
progress   any                              what is below it is confirmed and let go
wake       any                              if the probe is due, it is sent
others     any                              ignored and counted
=========  ===============================  =================================================================

A probe is due when nothing was heard for a while and something is kept. It names the last number sent, so the
receiver can tell what it lacks, and answers in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from penstock.pipes.machine import (
    ROOM_ENDLESS,
    Arrive,
    Counts,
    Effects,
    Event,
    Input,
    Jitter,
    Submit,
    Table,
    Token,
    Wake,
    closed,
    no_jitter,
)
from penstock.pipes.packet import NUMBERS_MAX, Kind, Packet
from penstock.pipes.sending import SenderState
from penstock.pipes.timeout import Timeout, TimeoutSettings

_ANY = tuple(SenderState)
_SENDING = (SenderState.OPEN, SenderState.FULL)
KEEPING_TABLE: Table = closed(
    SenderState,
    {
        (SenderState.IDLE, Event.SUBMIT): ("numbered, sent and kept", (*_SENDING, SenderState.IDLE)),
        (SenderState.OPEN, Event.SUBMIT): ("taken up to the room", _SENDING),
        (SenderState.FULL, Event.SUBMIT): ("refused, the caller keeps them", ()),
        (None, Event.GAP): ("sent again, or the floor is told", ()),
        (None, Event.PROGRESS): ("what is below it is confirmed", _ANY),
        (None, Event.WAKE): ("a probe, if it is due", ()),
    },
)


class KeepingSender:
    TABLE = KEEPING_TABLE

    def __init__(
        self,
        *,
        epoch: int,
        gaps: bool = True,
        window: int = 4096,
        timeout: TimeoutSettings | None = None,
        jitter: Jitter = no_jitter,
    ) -> None:
        self.epoch = epoch
        self.counts = Counts()
        self.confirms = self.resends = gaps
        self._window = window
        self._number_next = 0
        self._kept: dict[int, Any] = {}
        self._probe = Timeout(timeout, jitter)
        self._probe_at: float | None = None
        self._probed_at = 0.0

    @property
    def state(self) -> SenderState:
        if self.room <= 0:
            return SenderState.FULL
        return SenderState.OPEN if self._kept else SenderState.IDLE

    @property
    def room(self) -> int:
        return self._window - len(self._kept) if self.confirms else ROOM_ENDLESS

    @property
    def unconfirmed(self) -> int:
        return len(self._kept)

    @property
    def wake_at(self) -> float | None:
        return self._probe_at

    def step(self, input: Input, now: float) -> Effects:
        effects = Effects()
        if isinstance(input, Submit):
            self._submit(input.payloads, now, effects)
        elif isinstance(input, Arrive):
            for packet in input.packets:
                self._arrive(packet, now, effects)
        elif isinstance(input, Wake):
            if self._probe_at is not None and self._probe_at <= now:
                self._probe.ran_out(self._probed_at, now)
                self.counts.expired += 1
                effects.packets.append(Packet(int(Kind.PROBE), self.epoch, 0, (self._number_next - 1,)))
                self._set_probe(now)
        else:
            self.counts.unknown += 1
        return effects

    def _submit(self, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        taken = payloads[: min(len(payloads), max(self.room, 0))]
        self.counts.refused += len(payloads) - len(taken)
        numbers = range(self._number_next, self._number_next + len(taken))
        self._number_next = numbers.stop
        effects.accepted = numbers
        if self.confirms and len(taken):
            if not self._kept:
                self._set_probe(now)
            self._kept.update(zip(numbers, taken, strict=True))
        self._send(numbers, taken, effects)

    def _arrive(self, packet: Packet, now: float, effects: Effects) -> None:
        if packet.kind not in (Kind.GAP, Kind.PROGRESS) or not self.confirms:
            self.counts.unknown += 1
        elif packet.epoch != self.epoch:
            self.counts.stale += 1
        elif packet.kind == Kind.PROGRESS:
            self._progress(packet.numbers[0], now, effects)
        else:
            self._fill_gap(packet.numbers, effects)

    def _progress(self, upto: int, now: float, effects: Effects) -> None:
        if upto > self._number_next:
            self.counts.unknown += 1
            return
        lowest = next(iter(self._kept), self._number_next)
        if upto <= lowest:
            self.counts.duplicate += 1
        else:
            done = range(lowest, upto)
            for number in done:
                del self._kept[number]
            effects.confirmed.append(Token(self.epoch, done))
        # Any answer, even without news, says that the receiver is there.
        self._probe.heard(now)
        if self._kept:
            self._set_probe(now)
        else:
            self._probe_at = None

    def _fill_gap(self, asked: Sequence[int], effects: Effects) -> None:
        kept = self._kept
        numbers = [number for number in dict.fromkeys(asked) if number in kept]
        self.counts.resent += len(numbers)
        self._send(numbers, [kept[number] for number in numbers], effects)
        lowest = next(iter(kept), self._number_next)
        if any(number < lowest for number in asked):
            effects.packets.append(Packet(int(Kind.FLOOR), self.epoch, 0, (lowest,)))

    def _send(self, numbers: Sequence[int], payloads: Sequence[Any], effects: Effects) -> None:
        for at in range(0, len(numbers), NUMBERS_MAX):
            end = at + NUMBERS_MAX
            effects.packets.append(Packet(int(Kind.DATA), self.epoch, 0, numbers[at:end], payloads[at:end]))

    def _set_probe(self, now: float) -> None:
        self._probed_at = now
        self._probe_at = self._probe.deadline(now)
