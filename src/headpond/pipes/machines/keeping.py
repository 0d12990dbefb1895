"""The sender of continuous: it numbers, sends once, and keeps what its receiver may still ask for.

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
submit     idle, open                       numbered, sent, kept until there is progress past it
submit     full                             refused, the caller keeps them
gap        any                              what is kept is sent again, now or when what was sent before must
                                            have arrived; if some is not kept, the floor is told
progress   any                              what is below it is confirmed and let go
wake       any                              what was asked for and is due is sent; the probe, if it is due
others     any                              ignored and counted
=========  ===============================  =================================================================

**How long a message takes** is measured from its sending to the first progress that names it as come, without
the time that it had been there by then (Karn's rule: only if it was sent once). A number that is asked for
earlier than that after its last sending is on its way; the question is remembered, and answered if it is still
open when the time is over. Each copy doubles the time until the next.

A probe is due when nothing was heard for a while, not less than a message takes, and something is kept. It
names the last number sent, so the receiver can tell what it lacks, and answers in any case.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import repeat
from typing import Any

from headpond.pipes.machines.machine import (
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
from headpond.pipes.machines.packet import NUMBERS_MAX, Kind, Packet
from headpond.pipes.machines.sending import SenderState
from headpond.pipes.machines.timeout import Timeout, TimeoutSettings

DOUBLINGS_MAX = 5

_ANY = tuple(SenderState)
_SENDING = (SenderState.OPEN, SenderState.FULL)
KEEPING_TABLE: Table = closed(
    SenderState,
    {
        (SenderState.IDLE, Event.SUBMIT): ("numbered, sent and kept", (*_SENDING, SenderState.IDLE)),
        (SenderState.OPEN, Event.SUBMIT): ("taken up to the room", _SENDING),
        (SenderState.FULL, Event.SUBMIT): ("refused, the caller keeps them", ()),
        (None, Event.GAP): ("sent again, now or when it is time, or the floor is told", ()),
        (None, Event.PROGRESS): ("what is below it is confirmed", _ANY),
        (None, Event.WAKE): ("what was asked for and a probe, if they are due", ()),
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
        self._kept: dict[int, tuple[Any, float]] = {}
        """Payloads, and when they were last sent."""
        self._copies: dict[int, int] = {}
        """How often a kept number was sent again."""
        self._asked: dict[int, float] = {}
        """Asked for, and to be sent again then if it is still kept."""
        self._seen = 0
        """One more than the highest number that is known to have come."""
        self._takes = Timeout(timeout, jitter)
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
        if not self._asked:
            return self._probe_at
        due_at = min(self._asked.values())
        return due_at if self._probe_at is None else min(due_at, self._probe_at)

    def step(self, input: Input, now: float) -> Effects:
        effects = Effects()
        if isinstance(input, Submit):
            self._submit(input.payloads, now, effects)
        elif isinstance(input, Arrive):
            for packet in input.packets:
                self._arrive(packet, now, effects)
        elif isinstance(input, Wake):
            self._send_again([number for number, due_at in self._asked.items() if due_at <= now], now, effects)
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
            self._kept.update(zip(numbers, zip(taken, repeat(now)), strict=True))
        self._send(numbers, taken, effects)

    def _arrive(self, packet: Packet, now: float, effects: Effects) -> None:
        if packet.kind not in (Kind.GAP, Kind.PROGRESS) or not self.confirms:
            self.counts.unknown += 1
        elif packet.epoch != self.epoch:
            self.counts.stale += 1
        elif packet.kind == Kind.PROGRESS:
            if len(packet.numbers) == 3:
                self._measure(packet.numbers[1], packet.numbers[2] / 1e6, now)
            self._progress(packet.numbers[0], now, effects)
        else:
            self._fill_gap(packet.numbers, now, effects)

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
            for known in (self._asked, self._copies):
                for number in [number for number in known if number < upto]:
                    del known[number]
            effects.confirmed.append(Token(self.epoch, done))
        # Any answer, even without news, says that the receiver is there.
        self._probe.heard(now)
        if self._kept:
            self._set_probe(now)
        else:
            self._probe_at = None

    def _measure(self, seen: int, held_s: float, now: float) -> None:
        """The number before ``seen`` is the highest that came, so long ago."""
        if not self._seen < seen <= self._number_next:
            return
        self._seen = seen
        newest = self._kept.get(seen - 1)
        if newest is not None and seen - 1 not in self._copies:
            self._takes.measured(max(now - newest[1] - held_s, 0.0), now)

    def _fill_gap(self, asked: Sequence[int], now: float, effects: Effects) -> None:
        kept = self._kept
        due: list[int] = []
        for number in dict.fromkeys(asked):
            if number not in kept:
                continue
            due_at = kept[number][1] + self._takes.base_s * 2 ** min(self._copies.get(number, 0), DOUBLINGS_MAX)
            if due_at <= now:
                due.append(number)
            else:
                self._asked.setdefault(number, due_at)
        self._send_again(due, now, effects)
        lowest = next(iter(kept), self._number_next)
        if any(number < lowest for number in asked):
            effects.packets.append(Packet(int(Kind.FLOOR), self.epoch, 0, (lowest,)))

    def _send_again(self, numbers: list[int], now: float, effects: Effects) -> None:
        kept, copies = self._kept, self._copies
        payloads = [kept[number][0] for number in numbers]
        for number, payload in zip(numbers, payloads, strict=True):
            self._asked.pop(number, None)
            copies[number] = copies.get(number, 0) + 1
            kept[number] = (payload, now)
        self.counts.resent += len(numbers)
        self._send(numbers, payloads, effects)

    def _send(self, numbers: Sequence[int], payloads: Sequence[Any], effects: Effects) -> None:
        for at in range(0, len(numbers), NUMBERS_MAX):
            end = at + NUMBERS_MAX
            effects.packets.append(Packet(int(Kind.DATA), self.epoch, 0, numbers[at:end], payloads[at:end]))

    def _set_probe(self, now: float) -> None:
        self._probed_at = now
        self._probe_at = max(self._probe.deadline(now), self._takes.deadline(now))
