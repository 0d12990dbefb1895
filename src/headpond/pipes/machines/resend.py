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
=========  ===============================  =================================================================
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import StrEnum
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import Any, NamedTuple

from headpond.pipes.calculus.declarations import span_of
from headpond.pipes.machines.machine import Effects, Jitter, ReceiverMachine, SenderMachine, Token, no_jitter
from headpond.pipes.machines.packet import Kind, Packet, Run
from headpond.pipes.machines.timeout import Timeout, TimeoutSettings

PENDING_MAX = 65536


# --- the window of a sender -------------------------------------------------------------------------


class _Flight(NamedTuple):
    due_at: float
    age: int
    """Breaks ties on time, so that flights are never compared further."""
    sent_at: float
    tries: int
    """How often its messages were sent, this time included; without a limit of tries, 2 stands for more."""
    numbers: Sequence[int]


class Window:
    """The unconfirmed messages of a sender: numbers, payloads, and when to send each again.

    A message gets its number once, when it enters, and keeps it however often it is sent. A flight stands for
    all messages that went out at one time: timers and round trips belong to a flight, so a message costs one
    entry in a dict.

    Two bounds: ``limit`` messages may be unconfirmed, and the newest may be at most ``span_of(limit)`` numbers
    past the oldest, so that a receiver that remembers so many numbers never meets one that it had to forget.
    """

    def __init__(self, limit: int, timeout: Timeout, *, tries: int = 0) -> None:
        """``tries``: how often a message is sent before it is given up; 0: until it is confirmed."""
        self.number_next = 0
        self._limit = limit
        self._span = span_of(limit)
        self._tries_max = tries
        self._timeout = timeout
        self._waiting: dict[int, tuple[Any, _Flight]] = {}
        self._flights: list[_Flight] = []
        self._flight_count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def room(self) -> int:
        waiting = self._waiting
        if not waiting:
            return self._limit
        # A message that is sent again moves no entry, so the first entry is the lowest number.
        by_span: int = next(iter(waiting)) + self._span - self.number_next
        return max(min(by_span, self._limit - len(waiting)), 0)

    @property
    def wake_at(self) -> float | None:
        return self._flights[0].due_at if self._flights else None

    def enter(self, payloads: Sequence[Any], now: float) -> range:
        """Numbers as many as there is room for, the first ones, and counts them as sent now."""
        first = self.number_next
        self.number_next += min(len(payloads), self.room)
        numbers = range(first, self.number_next)
        if numbers:
            self._fly(numbers, payloads, now, tries=1)
        return numbers

    def confirm(self, numbers: Sequence[int], now: float) -> list[int]:
        """Returns those that were unconfirmed until now."""
        waiting = self._waiting
        # One measurement a run is enough; its last message is the one that waited for the least batching.
        last = waiting.get(numbers[-1]) if numbers else None
        if last is not None and last[1].tries == 1:
            self._timeout.measured(now - last[1].sent_at, now)
        elif last is not None:
            self._timeout.confirmed()
        pop = waiting.pop
        done = [number for number in numbers if pop(number, None)]
        if not waiting:
            self._flights.clear()
        elif len(self._flights) > 2 * self._limit + 16:
            self._forget_landed_flights()
        return done

    def due(self, now: float) -> tuple[list[tuple[Sequence[int], list[Any]]], list[int]]:
        """Returns the runs to send again, which count as sent now, and the numbers that are given up after
        their last try."""
        waiting = self._waiting
        again: dict[int, list[int]] = {}
        while self._flights and self._flights[0].due_at <= now:
            flight = heappop(self._flights)
            left = [number for number in flight.numbers if number in waiting]
            if left:
                self._timeout.ran_out(flight.sent_at, now)
                # Messages fly together only with those that were tried as often.
                again.setdefault(flight.tries + 1 if self._tries_max else 2, []).extend(left)
        abandoned = again.pop(self._tries_max + 1, []) if self._tries_max else []
        for number in abandoned:
            del waiting[number]
        runs: list[tuple[Sequence[int], list[Any]]] = []
        for tries, numbers in sorted(again.items()):
            numbers.sort()
            payloads = [waiting[number][0] for number in numbers]
            self._fly(numbers, payloads, now, tries)
            runs.append((numbers, payloads))
        return runs, abandoned

    def _fly(self, numbers: Sequence[int], payloads: Sequence[Any], now: float, tries: int) -> None:
        self._flight_count += 1
        flight = _Flight(self._timeout.deadline(now), self._flight_count, now, tries, numbers)
        heappush(self._flights, flight)
        self._waiting.update(zip(numbers, zip(payloads, repeat(flight)), strict=False))

    def _forget_landed_flights(self) -> None:
        """Flights outlive their messages until their deadline; this keeps them within a bound."""
        live = {flight.age for _, flight in self._waiting.values()}
        self._flights = [flight for flight in self._flights if flight.age in live]
        heapify(self._flights)


# --- the sender -------------------------------------------------------------------------------------


class SenderState(StrEnum):
    IDLE = "idle"
    """Nothing is unconfirmed."""
    OPEN = "open"
    """Something is unconfirmed, and there is room."""
    FULL = "full"
    """There is no room: the caller has to wait."""


class ResendSender(SenderMachine):
    confirms = True

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
        super().__init__(epoch=epoch)
        self._window = Window(window, Timeout(timeout, jitter), tries=tries)
        self._buffer_max = buffer
        self._buffer: deque[Any] = deque()
        """Messages that wait while the window has no room."""
        self._receiver_epoch = -1

    @property
    def state(self) -> SenderState:
        if self.room <= 0:
            return SenderState.FULL
        return SenderState.OPEN if len(self._window) else SenderState.IDLE

    @property
    def room(self) -> int:
        return self._window.room + self._buffer_max - len(self._buffer)

    @property
    def unconfirmed(self) -> int:
        return len(self._window) + len(self._buffer)

    @property
    def wake_at(self) -> float | None:
        return self._window.wake_at

    def _submit(self, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        first = self._window.number_next + len(self._buffer)
        numbers = range(0) if self._buffer else self._window.enter(payloads, now)
        taken = len(numbers)
        if taken:
            # The common case: nothing waits before these, and a run that fits is sent as it came.
            self._send(numbers, payloads if taken == len(payloads) else payloads[:taken], effects)
        if taken < len(payloads):
            waiting = payloads[taken : taken + self._buffer_max - len(self._buffer)]
            self._buffer.extend(waiting)
            taken += len(waiting)
            self.counts.refused += len(payloads) - taken
        effects.accepted = range(first, first + taken)

    def _arrive(self, packet: Packet, now: float, effects: Effects) -> None:
        if packet.kind != Kind.CONFIRM:
            self.counts.unknown += 1
            return
        if packet.epoch != self.epoch:
            self.counts.stale += len(packet.numbers)
            return
        if packet.origin > self._receiver_epoch:
            self.counts.restarts += self._receiver_epoch >= 0
            self._receiver_epoch = packet.origin
        done = self._window.confirm(packet.numbers, now)
        if len(done) < len(packet.numbers):
            never_sent = sum(number >= self._window.number_next for number in packet.numbers)
            self.counts.unknown += never_sent
            self.counts.duplicate += len(packet.numbers) - len(done) - never_sent
        if done:
            effects.confirmed.append(Token(self.epoch, done))

    def _arrived(self, now: float, effects: Effects) -> None:
        """Moves the buffer up into the window's room."""
        count = min(self._window.room, len(self._buffer)) if self._buffer else 0
        if count:
            payloads = [self._buffer.popleft() for _ in range(count)]
            self._send(self._window.enter(payloads, now), payloads, effects)

    def _wake(self, now: float, effects: Effects) -> None:
        again, abandoned = self._window.due(now)
        for numbers, payloads in again:
            self.counts.resent += len(numbers)
            self.counts.expired += 1
            self._send(numbers, payloads, effects)
        if abandoned:
            self.counts.abandoned += len(abandoned)
            effects.abandoned.append(Token(self.epoch, abandoned))
            effects.notify("given up", self.epoch, abandoned)
            self._arrived(now, effects)


# --- the receiver -----------------------------------------------------------------------------------


class ResendReceiverState(StrEnum):
    READY = "ready"
    HOLDING = "holding"
    """The worker after has messages that it has not settled."""
    FULL = "full"
    """It has as many as it may."""


class ResendReceiver(ReceiverMachine):
    def __init__(self, *, epoch: int, confirm: str = "delivered", pending_max: int = PENDING_MAX) -> None:
        super().__init__(epoch=epoch)
        self.settles = confirm == "settled"
        self._pending_max = pending_max
        self._pending: dict[int, set[int]] = {}
        """By session: the messages that the worker after has."""
        self._pending_count = 0

    @property
    def state(self) -> ResendReceiverState:
        if self._pending_count >= self._pending_max:
            return ResendReceiverState.FULL
        return ResendReceiverState.HOLDING if self._pending_count else ResendReceiverState.READY

    def _take(self, packet: Packet, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        if not self.settles:
            effects.delivered.append(Run(packet.epoch, packet.numbers, payloads))
            self._confirm(packet.epoch, packet.numbers, effects)
            return
        pending = self._pending.setdefault(packet.epoch, set())
        fresh: list[int] = []
        passed: list[Any] = []
        for number, payload in zip(packet.numbers, payloads, strict=True):
            if number in pending:
                self.counts.duplicate += 1
            elif self._pending_count >= self._pending_max:
                self.counts.refused += 1
            else:
                pending.add(number)
                self._pending_count += 1
                fresh.append(number)
                passed.append(payload)
        if fresh:
            effects.delivered.append(Run(packet.epoch, fresh, passed))
        elif not pending:
            del self._pending[packet.epoch]

    def _settle(self, epoch: int, numbers: Sequence[int], effects: Effects) -> None:
        self._fail(epoch, numbers)
        # A message that is not pending may still be settled: this machine passed it on before a Fail, or an
        # earlier session did. It is done, and its sender should know.
        if len(numbers):
            self._confirm(epoch, numbers, effects)

    def _fail(self, epoch: int, numbers: Sequence[int]) -> None:
        """No longer pending."""
        pending = self._pending.get(epoch)
        if pending is not None:
            self._pending_count -= len(pending)
            pending.difference_update(numbers)
            self._pending_count += len(pending)
            if not pending:
                del self._pending[epoch]
