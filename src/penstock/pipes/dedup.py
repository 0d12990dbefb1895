"""Deduplication: each message at most once.

**By id** (default): the sender's (epoch, number) is the id. The receiver remembers every id it has passed on:
all numbers of a session below its ``floor`` and a set of those above. The set holds at most ``window`` ids a
session. When it would hold more, the floor is raised over the oldest numbers that never came; these are told in
a notice (``given up``), and would be dropped if they came after all, for nobody could say any more whether they
are new. A sender keeps its numbers within 16 of its windows, so this happens only where more than that was lost
for good.

Up to ``sessions_max`` sessions are told apart, so several senders may share a receiver. One more is taken in
only when another has been silent for ``retire_after_s``, which is told in a notice (``retired``). Otherwise it
is refused, counted and told: never is a session forgotten in silence.

**By index** (``by=index``): only the last number is kept, and what is not above it is dropped: see ``index``.

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
data       new, following                   ids not seen are passed on and remembered; the others are counted
data       full                             a known session: as above; another one: refused, counted, told
settle     any                              handed down to the pipe beneath, if that one waits; so is what is
                                            dropped, or its sender would send it for ever
fail       any                              forgotten, so that the next copy passes
wake       any                              nothing
others     any                              ignored and counted
=========  ===============================  =================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from penstock.calculus.declarations import DEDUP_BY_ID, DEDUP_BY_INDEX
from penstock.pipes import index
from penstock.pipes.following import FollowingReceiver
from penstock.pipes.machine import Effects, Event, Table, Token, closed
from penstock.pipes.numbering import NumberingSender
from penstock.pipes.packet import Packet, Run

DECLARATION = DEDUP_BY_ID
DECLARATION_BY_INDEX = DEDUP_BY_INDEX

WINDOW = 65536
SESSIONS_MAX = 64
RETIRE_AFTER_S = 3600.0


class Sender(NumberingSender):
    pass


class ReceiverState(StrEnum):
    NEW = "new"
    FOLLOWING = "following"
    FULL = "full"
    """As many sessions are known as may be."""


_ANY = tuple(ReceiverState)
RECEIVER_TABLE: Table = closed(
    ReceiverState,
    {
        (ReceiverState.NEW, Event.DATA): (
            "passed on and remembered",
            (ReceiverState.FOLLOWING, ReceiverState.FULL),
        ),
        (ReceiverState.FOLLOWING, Event.DATA): (
            "passed on if not seen",
            (ReceiverState.FOLLOWING, ReceiverState.FULL),
        ),
        (ReceiverState.FULL, Event.DATA): ("a new session is refused and told", (ReceiverState.FULL,)),
        (None, Event.SETTLE): ("handed down", ()),
        (None, Event.FAIL): ("forgotten, so that the next copy passes", ()),
        (None, Event.WAKE): ("nothing", ()),
    },
)


class _Seen:
    """The numbers of one session that were passed on: all below the floor, and a set."""

    __slots__ = ("above", "floor", "heard_at", "welcome")

    def __init__(self) -> None:
        self.floor = 0
        self.above: set[int] = set()
        self.welcome: set[int] = set()
        """Numbers below the floor whose next copy is to pass."""
        self.heard_at = 0.0

    def rise(self) -> None:
        """Takes into the floor what stands on it."""
        floor, above = self.floor, self.above
        while floor in above:
            above.remove(floor)
            floor += 1
        self.floor = floor

    def rise_to_fit(self, most: int) -> list[range]:
        """Raises the floor until at most so many stand above it; the numbers that never came."""
        missing: list[range] = []
        excess = len(self.above) - most
        for number in sorted(self.above)[: max(excess, 0)]:
            if number > self.floor:
                missing.append(range(self.floor, number))
            self.above.remove(number)
            self.floor = number + 1
        self.rise()
        return missing

    def forget(self, numbers: Sequence[int], most: int) -> int:
        """Lets the next copy pass; how many it could not, having no room to remember that."""
        below = {number for number in numbers if number < self.floor}
        self.above.difference_update(numbers)
        kept = sorted(below)[: max(most - len(self.welcome), 0)]
        self.welcome.update(kept)
        return len(below) - len(kept)


class Receiver(FollowingReceiver):
    """By id."""

    TABLE = RECEIVER_TABLE

    def __init__(
        self,
        *,
        epoch: int,
        window: int = WINDOW,
        sessions_max: int = SESSIONS_MAX,
        retire_after_s: float = RETIRE_AFTER_S,
        settles: bool = False,
    ) -> None:
        super().__init__(epoch=epoch)
        self.settles = settles
        self._window = window
        self._sessions_max = sessions_max
        self._retire_after_s = retire_after_s
        self._sessions: dict[int, _Seen] = {}

    @property
    def state(self) -> ReceiverState:
        if not self._sessions:
            return ReceiverState.NEW
        return ReceiverState.FULL if len(self._sessions) >= self._sessions_max else ReceiverState.FOLLOWING

    def _take(self, packet: Packet, now: float, effects: Effects) -> None:
        seen = self._session(packet, now, effects)
        if seen is None:
            return
        seen.heard_at = now
        # Every message of the run, with its place: at this length of loop each name is worth keeping local.
        floor, above, add, welcome = seen.floor, seen.above, seen.above.add, seen.welcome
        fresh: list[int] = []
        places: list[int] = []
        for place, number in enumerate(packet.numbers):
            if number >= floor and number not in above:
                add(number)
            elif number in welcome:
                welcome.remove(number)
            else:
                continue
            fresh.append(number)
            places.append(place)
        seen.rise()
        if len(fresh) < len(packet.numbers):
            self._drop(packet, places, effects)
        if fresh:
            payloads: Sequence[Any] = packet.payloads or ()
            kept = payloads if len(fresh) == len(payloads) else [payloads[place] for place in places]
            effects.delivered.append(Run(packet.epoch, fresh, kept))
        if len(above) > self._window:
            for missing in seen.rise_to_fit(self._window):
                self.counts.abandoned += len(missing)
                effects.tell("given up", packet.epoch, missing)

    def _drop(self, packet: Packet, places: list[int], effects: Effects) -> None:
        self.counts.duplicate += len(packet.numbers) - len(places)
        if self.settles:
            kept = set(places)
            dropped = [number for place, number in enumerate(packet.numbers) if place not in kept]
            effects.settled.append(Token(packet.epoch, dropped))

    def _session(self, packet: Packet, now: float, effects: Effects) -> _Seen | None:
        seen = self._sessions.get(packet.epoch)
        if seen is not None:
            return seen
        if self._sessions:
            self.counts.restarts += 1
        if len(self._sessions) >= self._sessions_max and not self._retire_one(now, effects):
            self.counts.refused += len(packet.numbers)
            effects.tell("refused", packet.epoch, packet.numbers)
            return None
        seen = self._sessions[packet.epoch] = _Seen()
        return seen

    def _retire_one(self, now: float, effects: Effects) -> bool:
        epoch = min(self._sessions, key=lambda each: self._sessions[each].heard_at)
        if now - self._sessions[epoch].heard_at < self._retire_after_s:
            return False
        retired = self._sessions.pop(epoch)
        effects.tell("retired", epoch, range(retired.floor))
        return True

    def _settle(self, epoch: int, numbers: Sequence[int], effects: Effects) -> None:
        if self.settles and len(numbers):
            effects.settled.append(Token(epoch, numbers))

    def _fail(self, epoch: int, numbers: Sequence[int]) -> None:
        seen = self._sessions.get(epoch)
        if seen is not None and len(numbers):
            self.counts.refused += seen.forget(numbers, self._window)


class IndexReceiver(index.Receiver):
    """By index."""
