"""Re-send: a message is sent again, under the same number, until the receiver confirms it. At least once.

``resend`` is this pipe with a window of one message; ``resend_many`` sends up to ``window`` messages before it
needs a confirm. ``buffer`` more messages may wait behind the window; past that the sender refuses a ``Submit``.
The pipes ``sequential`` and ``stream`` have the same sender.

Sender:

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
submit     idle, open                       as many as there is room for are taken; the window's share is sent
submit     full                             none is taken: ``accepted`` is empty, the caller keeps them
confirm    any                              known numbers leave the window, the buffer moves up; unknown,
                                            repeated and stale ones are counted
wake       any                              overdue messages are sent again, under the same number; after the
                                            last of its ``tries`` a message is abandoned, with a notice
others     any                              ignored and counted
=========  ===============================  =================================================================

A lost confirm costs one more copy. Every message in the window has a timer, so the sender never waits for an
event that may not come.

Receiver: it keeps no position in the numbering, so it can restart at any time and passes on any copy. With
``confirm="settled"`` it confirms a message when the worker after it is done, not when it has passed the message
on. Until then it remembers the messages that this worker has, at most ``pending_max``, and passes on no second
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

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from itertools import islice
from typing import Any

from headpond.pipes.machines.epoch import EpochAge, EpochTracker
from headpond.pipes.machines.machine import (
    ROOM_ENDLESS,
    Arrive,
    Counts,
    Effects,
    Event,
    Fail,
    Input,
    Jitter,
    Settle,
    Submit,
    Table,
    Token,
    Wake,
    complete_table,
    no_jitter,
)
from headpond.pipes.machines.packet import NUMBERS_MAX, Kind, Packet, Run
from headpond.pipes.machines.timeout import Timeout, TimeoutSettings
from headpond.pipes.machines.window import Window

_DATA = int(Kind.DATA)
_CONFIRM = int(Kind.CONFIRM)
PENDING_MAX = 65536


class SenderState(StrEnum):
    IDLE = "idle"
    """Nothing is unconfirmed."""
    OPEN = "open"
    """Something is unconfirmed, and there is room."""
    FULL = "full"
    """There is no room: the caller has to wait."""


_ANY = tuple(SenderState)
SENDER_TABLE: Table = complete_table(
    SenderState,
    {
        (SenderState.IDLE, Event.SUBMIT): ("taken and sent", (SenderState.OPEN, SenderState.FULL)),
        (SenderState.OPEN, Event.SUBMIT): ("taken up to the room", (SenderState.OPEN, SenderState.FULL)),
        (SenderState.FULL, Event.SUBMIT): ("refused, the caller keeps them", (SenderState.FULL,)),
        (None, Event.CONFIRM): ("known numbers are done, the others are counted", _ANY),
        (None, Event.WAKE): ("overdue messages are sent again, or abandoned after their last try", _ANY),
    },
)


class ResendSender:
    TABLE = SENDER_TABLE
    confirms = True
    """Its receiver confirms, not a pipe beneath."""

    def __init__(
        self,
        *,
        epoch: int,
        window: int = 1024,
        buffer: int = 0,
        timeout: TimeoutSettings | None = None,
        jitter: Jitter = no_jitter,
        tries: int = 0,
    ) -> None:
        self.epoch = epoch
        self.counts = Counts()
        self._buffer_max = buffer
        self._buffer: deque[Any] = deque()
        self._window = Window(window, Timeout(timeout, jitter), tries=tries)
        self._receiver = EpochTracker()

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
                effects.notify("given up", self.epoch, abandoned)
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
        if self._receiver.observe(packet.origin) is EpochAge.NEW and not was_new:
            self.counts.restarts += 1
        done = self._window.confirm(packet.numbers, now)
        if len(done) < len(packet.numbers):
            never_sent = sum(number >= self._window.number_next for number in packet.numbers)
            self.counts.unknown += never_sent
            self.counts.duplicate += len(packet.numbers) - len(done) - never_sent
        if done:
            effects.confirmed.append(Token(self.epoch, done))


class ResendReceiverState(StrEnum):
    READY = "ready"
    HOLDING = "holding"
    """The worker after has messages that it has not settled."""
    FULL = "full"
    """It has as many as it may."""


_ANY_RECEIVER = tuple(ResendReceiverState)
RECEIVER_TABLE: Table = complete_table(
    ResendReceiverState,
    {
        (ResendReceiverState.READY, Event.DATA): ("passed on", _ANY_RECEIVER),
        (ResendReceiverState.HOLDING, Event.DATA): (
            "passed on, but no second copy of a pending one",
            (ResendReceiverState.HOLDING, ResendReceiverState.FULL),
        ),
        (ResendReceiverState.FULL, Event.DATA): ("refused and counted", (ResendReceiverState.FULL,)),
        (None, Event.SETTLE): ("confirmed", _ANY_RECEIVER),
        (None, Event.FAIL): ("forgotten, so that the next copy is passed on", _ANY_RECEIVER),
        (None, Event.WAKE): ("nothing", ()),
    },
)


class ResendReceiver:
    TABLE = RECEIVER_TABLE

    def __init__(self, *, epoch: int, confirm: str = "delivered", pending_max: int = PENDING_MAX) -> None:
        self.epoch = epoch
        self.settles = confirm == "settled"
        self.counts = Counts()
        self._pending_max = pending_max
        self._pending: dict[int, set[int]] = {}
        self._pending_count = 0

    @property
    def state(self) -> ResendReceiverState:
        if self._pending_count >= self._pending_max:
            return ResendReceiverState.FULL
        return ResendReceiverState.HOLDING if self._pending_count else ResendReceiverState.READY

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
            # A message that is not pending may still be settled: this machine passed it on before a Fail, or an
            # earlier session did. It is done, and its sender should know.
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
