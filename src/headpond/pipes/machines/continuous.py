"""Continuous index: every message once and in order (absolute); what comes before its turn waits in a queue.

The sender gives each message the next number. The receiver passes on the next number only, keeps what is ahead
in a queue of ``queue`` messages, and drops what has gone by. ``strict=False`` also passes a repeat of the last
number on: continuous order.

With ``gaps`` (default) the two also talk, so that nothing the queue had no room for is missing for good:

1. The receiver tells its *progress*: the next number it waits for; one more than the highest that came, and how
   many microseconds ago that was. The sender keeps what is above the first, at most ``window`` messages, then
   refuses more; from the others it learns how long a message takes, however long it waits there for its turn.
2. A gap that does not close by itself is asked for by number, again and again, each number more slowly each
   time. The sender answers when what it sent before must have arrived, and not twice in that time: over a pipe
   that is slow but sure, a copy would only make it slower.
3. A sender that hears no progress sends a *probe* naming its last number; the answer is a gap request or
   progress. So the loss of the last message, of a gap request or of any answer is found out.
4. A receiver that started again asks for what it has never seen. What was passed on by its earlier session the
   sender does not have any more, and it answers with its *floor*, from where the receiver goes on.

Without ``gaps`` the sender keeps nothing, and the route beneath has to bring everything. Then the queue must
have room for all that may come before a message that is late: what it has no room for nobody brings again. It
is refused and told.

Sender:

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

Receiver:

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
data       new, flowing, waiting            the next is passed on, with all that waited for it; ahead: queued;
                                            gone by: dropped, counted. A higher epoch: the queue is dropped and
                                            told, numbers count from 0. A lower one: stale, dropped, counted
data       full                             as waiting, but what is ahead is refused and counted; without gaps
                                            that is told, since nobody will bring it again
floor      any                              what is missing below it is given up and told; the queue moves up
probe      any                              answered with progress, and with a gap request if there is a gap
wake       waiting, full                    the gap is asked for, if it is time
others     any                              ignored and counted
=========  ===============================  =================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from itertools import islice, repeat
from typing import Any

from headpond.pipes.machines.bare import ReceiverBase
from headpond.pipes.machines.epoch import EpochAge, EpochTracker
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
    complete_table,
    no_jitter,
)
from headpond.pipes.machines.packet import NUMBERS_MAX, Kind, Packet, Run
from headpond.pipes.machines.resend import SenderState
from headpond.pipes.machines.timeout import Timeout, TimeoutSettings

DOUBLINGS_MAX = 5
ASKED_MAX = 1024
"""Numbers in one gap request."""
ASK_S_MAX = 1.0
"""A number that is missing is asked for so often at the least, as long as anything moves."""
GAP_WAIT = TimeoutSettings(initial_s=0.05, min_s=0.01, max_s=5.0)
"""A gap is often only a message overtaken, so it is given a moment to close."""


_ANY = tuple(SenderState)
_SENDING = (SenderState.OPEN, SenderState.FULL)
SENDER_TABLE: Table = complete_table(
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


class ContinuousSender:
    TABLE = SENDER_TABLE

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
        self.confirms = gaps
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


class ContinuousState(StrEnum):
    NEW = "new"
    FLOWING = "flowing"
    """Nothing waits."""
    WAITING = "waiting"
    """Messages wait behind a gap."""
    FULL = "full"
    """As many as may."""


_FOLLOWED = (ContinuousState.FLOWING, ContinuousState.WAITING, ContinuousState.FULL)
RECEIVER_TABLE: Table = complete_table(
    ContinuousState,
    {
        (None, Event.DATA): ("passed on, queued or dropped by its number", _FOLLOWED),
        (None, Event.FLOOR): ("what is missing below it is given up and told", _FOLLOWED),
        (None, Event.PROBE): ("answered with progress, and a gap request if one is due", _FOLLOWED),
        (None, Event.SETTLE): ("nothing", ()),
        (None, Event.FAIL): ("nothing", ()),
        (None, Event.WAKE): ("the gap is asked for, if it is time", ()),
    },
)


class ContinuousReceiver(ReceiverBase):
    TABLE = RECEIVER_TABLE

    def __init__(
        self,
        *,
        epoch: int,
        strict: bool = True,
        gaps: bool = True,
        queue: int = 16384,
        wait: TimeoutSettings = GAP_WAIT,
        jitter: Jitter = no_jitter,
    ) -> None:
        super().__init__(epoch=epoch)
        self._strict = strict
        self._gaps = gaps
        self._queue_max = queue
        self._queue: dict[int, Any] = {}
        self._sender = EpochTracker()
        self._next = 0
        self._highest = -1
        """The highest number known to have been sent."""
        self._seen = 0
        """The highest number that came, and one."""
        self._seen_at = 0.0
        self._told = (0, 0)
        self._wait = Timeout(wait, jitter)
        self._patience = wait
        self._asked: dict[int, tuple[float, int]] = {}
        """Of the first missing numbers: not to be asked for before then, and how often they were."""
        self._asked_at = 0.0
        self._ask_at: float | None = None

    @property
    def state(self) -> ContinuousState:
        if self._sender.is_new:
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
                self._told = (-1, 0)  # told again, news or not
                self._ask(now, effects)

    def _take(self, packet: Packet, now: float, effects: Effects) -> None:
        if not self._follow(packet, effects):
            return
        if (highest := max(packet.numbers)) >= self._seen:
            self._seen, self._seen_at = highest + 1, now
        numbers: list[int] = []
        payloads: list[Any] = []
        refused: list[int] = []
        expected, queue = self._next, self._queue
        for number, payload in zip(packet.numbers, packet.payloads or (), strict=True):
            if number == expected:
                numbers.append(number)
                payloads.append(payload)
                expected += 1
                while expected in queue:
                    numbers.append(expected)
                    payloads.append(queue.pop(expected))
                    expected += 1
            elif number > expected:
                if not self._enqueue(number, payload):
                    refused.append(number)
            elif number == expected - 1 and not self._strict:
                numbers.append(number)
                payloads.append(payload)
            else:
                self.counts.duplicate += 1
        self._next = expected
        if numbers:
            self._highest = max(self._highest, expected - 1)
            effects.delivered.append(Run(packet.epoch, numbers, payloads))
        if refused and not self._gaps:
            effects.refuse(packet.epoch, refused)

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

    def _follow(self, packet: Packet, effects: Effects) -> bool:
        was_new = self._sender.is_new
        session = self._sender.observe(packet.epoch)
        if session is EpochAge.STALE:
            self.counts.stale += len(packet.numbers)
            if packet.payloads is not None:
                effects.notify("stale", packet.epoch, packet.numbers)
            return False
        if session is EpochAge.NEW:
            self.counts.restarts += not was_new
            if self._queue:
                self.counts.abandoned += len(self._queue)
                effects.notify("given up", packet.epoch, sorted(self._queue))
            self._queue.clear()
            self._next, self._highest, self._seen, self._told, self._ask_at = 0, -1, 0, (0, 0), None
            self._asked.clear()
        return True

    def _raise_to(self, floor: int, effects: Effects) -> None:
        if floor <= self._next:
            self.counts.duplicate += 1
            return
        self.counts.abandoned += floor - self._next
        effects.notify("skipped", self._sender.epoch, range(self._next, floor))
        for number in [number for number in self._queue if number < floor]:
            del self._queue[number]
        self._next = floor
        numbers: list[int] = []
        payloads: list[Any] = []
        while self._next in self._queue:
            numbers.append(self._next)
            payloads.append(self._queue.pop(self._next))
            self._next += 1
        if numbers:
            effects.delivered.append(Run(self._sender.epoch, numbers, payloads))
        self._highest = max(self._highest, self._next - 1)

    # --- progress and gaps ---

    def _arrived(self, now: float, effects: Effects) -> None:
        if not self._gaps or self._sender.is_new:
            return
        if self._next != self._told[0]:
            self._tell_progress(now, effects)
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

    def _tell_progress(self, now: float, effects: Effects) -> None:
        self._told = (self._next, self._seen)
        numbers = (*self._told, int((now - self._seen_at) * 1e6))
        effects.packets.append(Packet(int(Kind.PROGRESS), self._sender.epoch, self.epoch, numbers))

    def _ask(self, now: float, effects: Effects) -> None:
        queue = self._queue
        wanted = (number for number in range(self._next, self._highest + 1) if number not in queue)
        missing = list(islice(wanted, ASKED_MAX))
        due = self._due(missing, now)
        if due:
            if self._seen != self._told[1]:
                # So the sender learns how long a message takes also while nothing moves, before it is asked.
                self._tell_progress(now, effects)
            self.counts.gaps += len(due)
            effects.packets.append(Packet(int(Kind.GAP), self._sender.epoch, self.epoch, due))
        self._asked_at = now
        self._ask_at = self._wait.deadline(now) if missing else None

    def _due(self, missing: list[int], now: float) -> list[int]:
        """Those to ask for now: each one more and more seldom, however much the others move."""
        before, self._asked = self._asked, {}
        due: list[int] = []
        for number in missing:
            not_before, times = before.get(number, (now, 0))
            if not_before <= now:
                due.append(number)
                wait_s = min(self._patience.initial_s * 2 ** min(times, 16), ASK_S_MAX)
                not_before, times = now + wait_s, times + 1
            self._asked[number] = (not_before, times)
        return due
