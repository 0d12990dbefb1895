"""Continuous index: every message once and in order (absolute); a message that comes early waits in a queue.

The sender gives each message the next number. The receiver passes on the next number only, holds up to
``queue`` later ones, and drops earlier ones. ``strict=False`` also passes on a repeat of the last number:
continuous order.

With ``gaps`` (default) the two also talk, so that a message that the queue had no room for is not lost:

1. The receiver reports its *progress*: the next number that it waits for; one more than the highest that
   came, and how many microseconds ago that was. The sender keeps the messages above the first, at most
   ``window``, then refuses more; from the others it learns how long a message takes, however long it waits
   there for its turn.
2. The receiver asks by number for a gap that does not close by itself, for each number more slowly each time.
   The sender answers when its last copy must have arrived, and not twice in that time: over a pipe that is
   slow but sure, a copy would only make it slower.
3. A sender that hears no progress sends a *probe* with its last number; the answer is a gap request or
   progress. So both sides notice the loss of the last message, of a gap request or of any answer.
4. A restarted receiver asks for every number from 0. The sender no longer has the messages that the earlier
   session passed on, and answers with its *floor*, from where the receiver continues.

Without ``gaps`` the sender keeps nothing, and the route beneath has to bring everything. Then the queue must
have room for all messages that may overtake a late one: the receiver refuses the others with a notice, and
nobody brings them again.

Sender:

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
submit     idle, open                       numbered, sent, kept until there is progress past it
submit     full                             refused, the caller keeps them
gap        any                              kept messages are sent again, now or when the last copy must have
                                            arrived; if some are not kept, the floor is sent
progress   any                              the messages below it are confirmed and dropped
wake       any                              due answers to gap requests are sent; the probe, if it is due
=========  ===============================  =================================================================

**How long a message takes** is measured from its sending to the first progress that names it, without the
time that it had been there by then (Karn's rule: only if it was sent once). A number that is asked for
earlier than that after its last sending is on its way; the sender remembers the question, and answers it if
it is still open when the time is over. Each copy doubles the time until the next.

A probe is due when the sender has heard nothing for a while, not less than a message takes, and keeps
something. It names the last number sent, so that the receiver knows what it lacks; the receiver always
answers.

Receiver:

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
data       new, flowing, waiting            the next is passed on, with all that waited for it; later ones are
                                            queued; earlier ones are dropped and counted. A higher epoch: the
                                            queue is dropped with a notice, numbers count from 0. A lower one:
                                            stale, dropped, counted
data       full                             as waiting, but later ones are refused and counted; without gaps
                                            with a notice, because nobody will bring them again
floor      any                              the missing numbers below it are given up with a notice; the queue
                                            moves up
probe      any                              answered with progress, and with a gap request if there is a gap
wake       waiting, full                    the gap is asked for, if it is time
=========  ===============================  =================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import islice, repeat
from typing import Any

from headpond.pipes.machines.machine import (
    ROOM_ENDLESS,
    Effects,
    FollowingReceiver,
    Jitter,
    SenderMachine,
    Token,
    no_jitter,
)
from headpond.pipes.machines.packet import Kind, Packet, Run
from headpond.pipes.machines.resend import SenderState
from headpond.pipes.machines.timeout import Timeout, TimeoutSettings

DOUBLINGS_MAX = 5
ASKED_MAX = 1024
"""Numbers in one gap request."""
ASK_S_MAX = 1.0
"""The longest wait before a missing number is asked for again, while anything moves."""
GAP_WAIT = TimeoutSettings(initial_s=0.05, min_s=0.01, max_s=5.0)
"""A gap is often only a message overtaken, so it is given a moment to close."""


class ContinuousSender(SenderMachine):
    def __init__(
        self,
        *,
        epoch: int,
        gaps: bool = True,
        window: int = 4096,
        jitter: Jitter = no_jitter,
    ) -> None:
        super().__init__(epoch=epoch)
        self.confirms = gaps
        self._window = window
        self._number_next = 0
        self._buffer: dict[int, tuple[Any, float]] = {}
        """Payloads, and when they were last sent."""
        self._copies: dict[int, int] = {}
        """How often a number in the buffer was sent again."""
        self._resend_at: dict[int, float] = {}
        """When to send again a number that the receiver asked for."""
        self._arrived_end = 0
        """One more than the highest number that has arrived, as far as the receiver reported."""
        self._transit = Timeout(jitter=jitter)
        """How long a message takes."""
        self._probe = Timeout(jitter=jitter)
        self._probe_at: float | None = None
        self._probed_at = 0.0

    @property
    def state(self) -> SenderState:
        if self.room <= 0:
            return SenderState.FULL
        return SenderState.OPEN if self._buffer else SenderState.IDLE

    @property
    def room(self) -> int:
        return self._window - len(self._buffer) if self.confirms else ROOM_ENDLESS

    @property
    def unconfirmed(self) -> int:
        return len(self._buffer)

    @property
    def wake_at(self) -> float | None:
        if not self._resend_at:
            return self._probe_at
        due_at = min(self._resend_at.values())
        return due_at if self._probe_at is None else min(due_at, self._probe_at)

    def _submit(self, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        taken = payloads[: min(len(payloads), max(self.room, 0))]
        self.counts.refused += len(payloads) - len(taken)
        numbers = range(self._number_next, self._number_next + len(taken))
        self._number_next = numbers.stop
        effects.accepted = numbers
        if self.confirms and len(taken):
            if not self._buffer:
                self._set_probe(now)
            self._buffer.update(zip(numbers, zip(taken, repeat(now)), strict=True))
        if len(taken):
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

    def _wake(self, now: float, effects: Effects) -> None:
        self._send_again([number for number, due_at in self._resend_at.items() if due_at <= now], now, effects)
        if self._probe_at is not None and self._probe_at <= now:
            self._probe.ran_out(self._probed_at, now)
            self.counts.expired += 1
            effects.packets.append(Packet(Kind.PROBE, self.epoch, 0, (self._number_next - 1,)))
            self._set_probe(now)

    def _progress(self, upto: int, now: float, effects: Effects) -> None:
        if upto > self._number_next:
            self.counts.unknown += 1
            return
        lowest = next(iter(self._buffer), self._number_next)
        if upto <= lowest:
            self.counts.duplicate += 1
        else:
            done = range(lowest, upto)
            for number in done:
                del self._buffer[number]
            for known in (self._resend_at, self._copies):
                for number in [number for number in known if number < upto]:
                    del known[number]
            effects.confirmed.append(Token(self.epoch, done))
        # Any answer, even without news, says that the receiver is there.
        self._probe.heard(now)
        if self._buffer:
            self._set_probe(now)
        else:
            self._probe_at = None

    def _measure(self, arrived_end: int, held_s: float, now: float) -> None:
        """The number before ``arrived_end`` is the highest that came, ``held_s`` ago."""
        if not self._arrived_end < arrived_end <= self._number_next:
            return
        self._arrived_end = arrived_end
        newest = self._buffer.get(arrived_end - 1)
        if newest is not None and arrived_end - 1 not in self._copies:
            self._transit.measured(max(now - newest[1] - held_s, 0.0), now)

    def _fill_gap(self, asked: Sequence[int], now: float, effects: Effects) -> None:
        buffer = self._buffer
        due: list[int] = []
        for number in dict.fromkeys(asked):
            if number not in buffer:
                continue
            due_at = buffer[number][1] + self._transit.base_s * 2 ** min(
                self._copies.get(number, 0), DOUBLINGS_MAX
            )
            if due_at <= now:
                due.append(number)
            else:
                self._resend_at.setdefault(number, due_at)
        self._send_again(due, now, effects)
        lowest = next(iter(buffer), self._number_next)
        if any(number < lowest for number in asked):
            effects.packets.append(Packet(Kind.FLOOR, self.epoch, 0, (lowest,)))

    def _send_again(self, numbers: list[int], now: float, effects: Effects) -> None:
        buffer, copies = self._buffer, self._copies
        payloads = [buffer[number][0] for number in numbers]
        for number, payload in zip(numbers, payloads, strict=True):
            self._resend_at.pop(number, None)
            copies[number] = copies.get(number, 0) + 1
            buffer[number] = (payload, now)
        self.counts.resent += len(numbers)
        if numbers:
            self._send(numbers, payloads, effects)

    def _set_probe(self, now: float) -> None:
        self._probed_at = now
        self._probe_at = max(self._probe.deadline(now), self._transit.deadline(now))


class ContinuousState(StrEnum):
    NEW = "new"
    FLOWING = "flowing"
    """Nothing waits."""
    WAITING = "waiting"
    """Messages wait behind a gap."""
    FULL = "full"
    """As many as may."""


class ContinuousReceiver(FollowingReceiver):
    def __init__(
        self,
        *,
        epoch: int,
        strict: bool = True,
        gaps: bool = True,
        queue: int = 16384,
        jitter: Jitter = no_jitter,
    ) -> None:
        super().__init__(epoch=epoch)
        self._strict = strict
        self._gaps = gaps
        self._queue_max = queue
        self._queue: dict[int, Any] = {}
        self._next = 0
        self._highest = -1
        """The highest number known to have been sent."""
        self._arrived_end = 0
        """One more than the highest number that has arrived."""
        self._arrived_at = 0.0
        self._reported = (0, 0)
        self._wait = Timeout(GAP_WAIT, jitter)
        self._asked: dict[int, tuple[float, int]] = {}
        """Of the first missing numbers: not to be asked for before then, and how often they were."""
        self._asked_at = 0.0
        self._ask_at: float | None = None

    @property
    def state(self) -> ContinuousState:
        if self._session < 0:
            return ContinuousState.NEW
        if not self._queue:
            return ContinuousState.FLOWING
        return ContinuousState.FULL if len(self._queue) >= self._queue_max else ContinuousState.WAITING

    @property
    def wake_at(self) -> float | None:
        return self._ask_at

    def _arrive(self, packet: Packet, now: float, effects: Effects) -> None:
        if not self._gaps or packet.kind not in (Kind.FLOOR, Kind.PROBE):
            super()._arrive(packet, now, effects)
        elif self._follow(packet, effects):
            if packet.kind == Kind.FLOOR:
                self._raise_to(packet.numbers[0], effects)
            else:
                self._highest = max(self._highest, packet.numbers[0])
                self._reported = (-1, 0)  # a probe is answered even without news
                self._ask(now, effects)

    def _take(self, packet: Packet, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        if not self._follow(packet, effects):
            return
        if (highest := max(packet.numbers)) >= self._arrived_end:
            self._arrived_end, self._arrived_at = highest + 1, now
        numbers: list[int] = []
        passed: list[Any] = []
        refused: list[int] = []
        for number, payload in zip(packet.numbers, payloads, strict=True):
            if number == self._next:
                numbers.append(number)
                passed.append(payload)
                self._next += 1
                if self._queue:
                    self._move_up(numbers, passed)
            elif number > self._next:
                if not self._enqueue(number, payload):
                    refused.append(number)
            elif number == self._next - 1 and not self._strict:
                numbers.append(number)
                passed.append(payload)
            else:
                self.counts.duplicate += 1
        self._deliver(numbers, passed, effects)
        if refused and not self._gaps:
            effects.refuse(packet.epoch, refused)

    def _move_up(self, numbers: list[int], payloads: list[Any]) -> None:
        """Adds the messages that waited for their turn, as far as it has come."""
        while self._next in self._queue:
            numbers.append(self._next)
            payloads.append(self._queue.pop(self._next))
            self._next += 1

    def _deliver(self, numbers: list[int], payloads: list[Any], effects: Effects) -> None:
        if numbers:
            self._highest = max(self._highest, self._next - 1)
            effects.delivered.append(Run(self._session, numbers, payloads))

    def _enqueue(self, number: int, payload: Any) -> bool:
        """Whether it is there now."""
        self._highest = max(self._highest, number)
        if number in self._queue:
            self.counts.duplicate += 1
        elif len(self._queue) >= self._queue_max:
            self.counts.refused += 1
            return False
        else:
            self._queue[number] = payload
        return True

    def _begin(self, packet: Packet, effects: Effects) -> None:
        if self._queue:
            self.counts.abandoned += len(self._queue)
            effects.notify("given up", packet.epoch, sorted(self._queue))
        self._queue.clear()
        self._next, self._highest, self._arrived_end, self._reported, self._ask_at = 0, -1, 0, (0, 0), None
        self._asked.clear()

    def _raise_to(self, floor: int, effects: Effects) -> None:
        if floor <= self._next:
            self.counts.duplicate += 1
            return
        self.counts.abandoned += floor - self._next
        effects.notify("skipped", self._session, range(self._next, floor))
        for number in [number for number in self._queue if number < floor]:
            del self._queue[number]
        self._next = floor
        self._highest = max(self._highest, floor - 1)
        numbers: list[int] = []
        payloads: list[Any] = []
        self._move_up(numbers, payloads)
        self._deliver(numbers, payloads, effects)

    # --- progress and gaps ---

    def _arrived(self, now: float, effects: Effects) -> None:
        if not self._gaps or self._session < 0:
            return
        if self._next != self._reported[0]:
            self._report_progress(now, effects)
            self._wait.heard(now)
            self._ask_at = None
        if self._highest < self._next:
            self._ask_at = None
        elif self._ask_at is None:
            self._asked_at = now
            self._ask_at = self._wait.deadline(now)

    def _wake(self, now: float, effects: Effects) -> None:
        if self._ask_at is not None and self._ask_at <= now:
            self._wait.ran_out(self._asked_at, now)
            self._ask(now, effects)

    def _report_progress(self, now: float, effects: Effects) -> None:
        self._reported = (self._next, self._arrived_end)
        numbers = (*self._reported, int((now - self._arrived_at) * 1e6))
        effects.packets.append(Packet(Kind.PROGRESS, self._session, self.epoch, numbers))

    def _ask(self, now: float, effects: Effects) -> None:
        queue = self._queue
        wanted = (number for number in range(self._next, self._highest + 1) if number not in queue)
        missing = list(islice(wanted, ASKED_MAX))
        due = self._due(missing, now)
        if due:
            if self._arrived_end != self._reported[1]:
                # So the sender learns how long a message takes also while nothing moves, before it is asked.
                self._report_progress(now, effects)
            self.counts.gaps += len(due)
            effects.packets.append(Packet(Kind.GAP, self._session, self.epoch, due))
        self._asked_at = now
        self._ask_at = self._wait.deadline(now) if missing else None

    def _due(self, missing: list[int], now: float) -> list[int]:
        """The numbers to ask for now: each one more and more seldom, however much the others move."""
        before, self._asked = self._asked, {}
        due: list[int] = []
        for number in missing:
            not_before, times = before.get(number, (now, 0))
            if not_before <= now:
                due.append(number)
                wait_s = min(GAP_WAIT.initial_s * 2 ** min(times, 16), ASK_S_MAX)
                not_before, times = now + wait_s, times + 1
            self._asked[number] = (not_before, times)
        return due
