"""The sender that sends again until it is confirmed: of resend, resend_many, sequential and stream.

It has a window of unconfirmed messages and a buffer behind it; the pipes differ in how wide each is. Its table:

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
submit     idle, open                       as many as there is room for are taken; the window's share is sent
submit     full                             none is taken: ``accepted`` is empty, the caller keeps them
confirm    any                              known numbers leave the window, the buffer moves up; unknown,
                                            repeated and stale ones are counted
wake       any                              what has waited too long is sent again, under the same number; after
                                            the last of its ``tries`` it is given up, and told
others     any                              ignored and counted
=========  ===============================  =================================================================

A lost confirm costs one more copy; nothing waits for an event that may never come, since a message in the
window always has a timer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from itertools import islice
from typing import Any

from headpond.pipes.machines.epoch import Follower, Session
from headpond.pipes.machines.machine import (
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
from headpond.pipes.machines.timeout import Timeout, TimeoutSettings
from headpond.pipes.machines.window import Window

_DATA = int(Kind.DATA)
_CONFIRM = int(Kind.CONFIRM)


class SenderState(StrEnum):
    IDLE = "idle"
    """Nothing is unconfirmed."""
    OPEN = "open"
    """Something is unconfirmed, and there is room."""
    FULL = "full"
    """There is no room: the caller has to wait."""


_ANY = tuple(SenderState)
SENDER_TABLE: Table = closed(
    SenderState,
    {
        (SenderState.IDLE, Event.SUBMIT): ("taken and sent", (SenderState.OPEN, SenderState.FULL)),
        (SenderState.OPEN, Event.SUBMIT): ("taken up to the room", (SenderState.OPEN, SenderState.FULL)),
        (SenderState.FULL, Event.SUBMIT): ("refused, the caller keeps them", (SenderState.FULL,)),
        (None, Event.CONFIRM): ("known numbers are done, the others are counted", _ANY),
        (None, Event.WAKE): ("what is overdue is sent again, or given up after its last try", _ANY),
    },
)


class ResendingSender:
    TABLE = SENDER_TABLE
    confirms = True
    """Its ``confirmed`` are its receiver's own answers, not those of a pipe beneath."""
    resends = True

    def __init__(
        self,
        *,
        epoch: int,
        window: int,
        buffer: int,
        timeout: TimeoutSettings | None = None,
        jitter: Jitter = no_jitter,
        tries: int = 0,
    ) -> None:
        self.epoch = epoch
        self.counts = Counts()
        self._buffer_max = buffer
        self._buffer: deque[Any] = deque()
        self._window = Window(window, Timeout(timeout, jitter), tries=tries)
        self._receiver = Follower()

    @property
    def state(self) -> SenderState:
        if self.room <= 0:
            return SenderState.FULL
        return SenderState.OPEN if len(self._window) else SenderState.IDLE

    @property
    def room(self) -> int:
        return max(self._window.room, 0) + self._buffer_max - len(self._buffer)

    @property
    def unconfirmed(self) -> int:
        """Messages taken whose arrival is not known."""
        return len(self._window) + len(self._buffer)

    @property
    def wake_at(self) -> float | None:
        return self._window.wake_at

    def step(self, input: Input, now: float) -> Effects:
        effects = Effects()
        if isinstance(input, Submit):
            self._submit(input.payloads, now, effects)
        elif isinstance(input, Arrive):
            for packet in input.packets:
                if packet.kind == _CONFIRM:
                    self._confirm(packet, now, effects)
                else:
                    self.counts.unknown += 1
            self._fill(now, effects)
        elif isinstance(input, Wake):
            again, abandoned = self._window.due(now)
            for numbers, payloads in again:
                self.counts.resent += len(numbers)
                self.counts.expired += 1
                self._send(numbers, payloads, effects)
            if abandoned:
                self.counts.abandoned += len(abandoned)
                effects.abandoned.append(Token(self.epoch, abandoned))
                effects.tell("given up", self.epoch, abandoned)
                self._fill(now, effects)
        else:
            self.counts.unknown += 1
        return effects

    def _submit(self, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        taken = min(len(payloads), self.room)
        self.counts.refused += len(payloads) - taken
        first = self._window.number_next + len(self._buffer)
        effects.accepted = range(first, first + taken)
        straight = 0 if self._buffer else min(taken, max(self._window.room, 0))
        if straight:
            # The common case: nothing waits before these, and a run that fits is sent as it came.
            chosen = payloads if straight == len(payloads) else payloads[:straight]
            self._send(self._window.enter(chosen, now), chosen, effects)
        if taken > straight:
            self._buffer.extend(payloads[straight:taken])
            self._fill(now, effects)

    def _fill(self, now: float, effects: Effects) -> None:
        """Moves the buffer up into the window's room."""
        while self._buffer and (room := min(self._window.room, len(self._buffer))) > 0:
            payloads = list(islice(self._buffer, room))
            for _ in range(room):
                self._buffer.popleft()
            self._send(self._window.enter(payloads, now), payloads, effects)

    def _send(self, numbers: Sequence[int], payloads: Sequence[Any], effects: Effects) -> None:
        if len(numbers) <= NUMBERS_MAX:
            effects.packets.append(Packet(_DATA, self.epoch, 0, numbers, payloads))
            return
        for at in range(0, len(numbers), NUMBERS_MAX):
            end = at + NUMBERS_MAX
            effects.packets.append(Packet(_DATA, self.epoch, 0, numbers[at:end], payloads[at:end]))

    def _confirm(self, packet: Packet, now: float, effects: Effects) -> None:
        if packet.epoch != self.epoch:
            self.counts.stale += len(packet.numbers)
            return
        was_new = self._receiver.is_new
        if self._receiver.meet(packet.origin) is Session.NEW and not was_new:
            self.counts.restarts += 1
        done = self._window.confirm(packet.numbers, now)
        if len(done) < len(packet.numbers):
            never_sent = sum(number >= self._window.number_next for number in packet.numbers)
            self.counts.unknown += never_sent
            self.counts.duplicate += len(packet.numbers) - len(done) - never_sent
        if done:
            effects.confirmed.append(Token(self.epoch, done))
