"""Deduplication: each message at most once.

**By id** (default): the sender's (epoch, number) is the id; the sender is a ``BareSender``. The receiver
remembers every id that it has passed on: all numbers of a session below its ``floor``, and those above. Up to
``window`` later messages may overtake a message. Where more do, the receiver raises the floor over the oldest
missing numbers, with a notice (``given up``), and drops them if they come after all, because it cannot know
whether they are new. A sender keeps its numbers within 16 of its windows, so with that much room the receiver
gives up nothing that can still come: the calculus checks it.

The receiver distinguishes up to ``sessions_max`` sessions, so many senders may share it; a session without
holes costs a few numbers, however long it is. All sessions together have room for ``ids_max`` ids above their
floors. Where either is used up, the session that was silent longest makes room, with a notice (``retired``),
if it was silent for ``retire_after_s`` or more. Otherwise the receiver refuses a message that it has no room
for, counts it and gives a notice: it never forgets a session in silence, and a refused message does not count
as done.

**By index** (``by=index``): the receiver is an ``IndexReceiver``.

=========  ===============================  =================================================================
event      state                            outcome
=========  ===============================  =================================================================
data       new, following                   new ids are passed on and remembered; the others are counted
data       full                             a known session: as above; another one: refused, with a notice.
                                            So is an id above a floor where there is no room for it
settle     any                              passed down to the pipe beneath, if that one waits; so are dropped
                                            copies, or their sender would send them for ever
fail       any                              forgotten, so that the next copy passes
=========  ===============================  =================================================================
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

from headpond.pipes.machines.machine import Effects, ReceiverMachine, Token
from headpond.pipes.machines.packet import Packet, Run

WINDOW = 65536
SESSIONS_MAX = 65536
IDS_MAX = 1 << 20
"""About a hundred bytes each."""
RETIRE_AFTER_S = 3600.0


class DedupState(StrEnum):
    NEW = "new"
    FOLLOWING = "following"
    FULL = "full"
    """As many sessions are known as may be."""


class _SessionIds:
    """The numbers of one session that the receiver passed on: all below the floor, an island, and a set.

    The island is the run that begins with the number by which the session was first met: a reader that starts
    in the middle of a session has it all there, at the cost of two numbers.
    """

    __slots__ = ("above", "end", "floor", "heard_at", "start", "welcome")

    def __init__(self, first: int) -> None:
        self.floor = 0
        self.start = self.end = first or -1
        """The island, as a range; -1 without one."""
        self.above: set[int] = set()
        self.welcome: set[int] = set()
        """Numbers below the floor whose next copy is to pass."""
        self.heard_at = 0.0

    def rise(self) -> None:
        """Grows the floor and the island by the numbers next to them."""
        above = self.above
        self.floor = _climb(self.floor, above)
        if self.start >= 0:
            self.end = _climb(self.end, above)
            if self.floor >= self.start:
                self.floor = _climb(max(self.end, self.floor), above)
                self.start = self.end = -1

    def rise_to_fit(self, most: int) -> list[range]:
        """Raises the floor until at most so many are above it; returns the numbers that never came."""
        missing: list[range] = []
        while (excess := len(self.above) + self.end - self.start - most) > 0:
            if self.start >= 0:
                below = sorted(number for number in self.above if number < self.start)
                self._raise_over([*below, self.start], missing)
                self.rise()
            else:
                self._raise_over(sorted(self.above)[:excess], missing)
                self.rise()
        return missing

    def _raise_over(self, numbers: list[int], missing: list[range]) -> None:
        for number in numbers:
            if number > self.floor:
                missing.append(range(self.floor, number))
            self.above.discard(number)
            self.floor = number if number == self.start else number + 1

    def forget(self, numbers: Sequence[int], most: int) -> int:
        """Lets the next copy pass; returns how many it has no room to remember."""
        below = {number for number in numbers if number < self.floor or self.start <= number < self.end}
        self.above.difference_update(numbers)
        remembered = sorted(below)[: max(most - len(self.welcome), 0)]
        self.welcome.update(remembered)
        return len(below) - len(remembered)


def _climb(number: int, over: set[int]) -> int:
    while number in over:
        over.remove(number)
        number += 1
    return number


class DedupReceiver(ReceiverMachine):
    """By id."""

    def __init__(
        self,
        *,
        epoch: int,
        window: int = WINDOW,
        sessions_max: int = SESSIONS_MAX,
        ids_max: int = IDS_MAX,
        retire_after_s: float = RETIRE_AFTER_S,
        settles: bool = False,
    ) -> None:
        super().__init__(epoch=epoch)
        self.settles = settles
        self._window = window
        self._sessions_max = sessions_max
        self._ids_max = ids_max
        self._ids_count = 0
        """Above the floors, of all sessions."""
        self._retire_after_s = retire_after_s
        self._sessions: dict[int, _SessionIds] = {}
        """The one that was silent longest first."""

    @property
    def state(self) -> DedupState:
        if not self._sessions:
            return DedupState.NEW
        return DedupState.FULL if len(self._sessions) >= self._sessions_max else DedupState.FOLLOWING

    def _take(self, packet: Packet, payloads: Sequence[Any], now: float, effects: Effects) -> None:
        ids = self._session(packet, now, effects)
        if ids is None:
            return
        ids.heard_at = now
        held = len(ids.above)
        numbers = packet.numbers
        if self._ids_count >= self._ids_max and not self._retire_one(now, effects, with_ids=True):
            numbers, payloads = self._fitting(packet, payloads, ids, effects)
        # Every message of the run: at this length of loop each name is worth keeping local.
        floor, above, add, welcome = ids.floor, ids.above, ids.above.add, ids.welcome
        start, end = ids.start, ids.end
        fresh: list[int] = []
        passed: list[Any] = []
        dropped: list[int] = []
        for number, payload in zip(numbers, payloads, strict=True):
            if number >= floor and number not in above and not start <= number < end:
                add(number)
            elif number in welcome:
                welcome.remove(number)
            else:
                dropped.append(number)
                continue
            fresh.append(number)
            passed.append(payload)
        ids.rise()
        self.counts.duplicate += len(dropped)
        if dropped and self.settles:
            effects.settled.append(Token(packet.epoch, dropped))
        if fresh:
            effects.delivered.append(Run(packet.epoch, fresh, passed))
        for missing in ids.rise_to_fit(self._window):
            self.counts.abandoned += len(missing)
            effects.notify("given up", packet.epoch, missing)
        self._ids_count += len(ids.above) - held

    def _fitting(
        self, packet: Packet, payloads: Sequence[Any], ids: _SessionIds, effects: Effects
    ) -> tuple[list[int], list[Any]]:
        """The messages that need no room: known ids, and those next to the floor or the island."""
        taken: list[int] = []
        passed: list[Any] = []
        refused: list[int] = []
        rising = [ids.floor, ids.end]
        for number, payload in zip(packet.numbers, payloads, strict=True):
            if number in rising:
                rising[rising.index(number)] += 1
            elif number >= rising[0] and number not in ids.above and not ids.start <= number < rising[1]:
                refused.append(number)
                continue
            taken.append(number)
            passed.append(payload)
        if refused:
            self.counts.refused += len(refused)
            effects.refuse(packet.epoch, refused)
        return taken, passed

    def _session(self, packet: Packet, now: float, effects: Effects) -> _SessionIds | None:
        ids = self._sessions.pop(packet.epoch, None)
        if ids is not None:
            self._sessions[packet.epoch] = ids
            return ids
        if self._sessions:
            self.counts.restarts += 1
        if len(self._sessions) >= self._sessions_max and not self._retire_one(now, effects):
            self.counts.refused += len(packet.numbers)
            effects.refuse(packet.epoch, packet.numbers)
            return None
        ids = self._sessions[packet.epoch] = _SessionIds(packet.numbers[0])
        return ids

    def _retire_one(self, now: float, effects: Effects, *, with_ids: bool = False) -> bool:
        """Forgets the session that was silent longest, if long enough; ``with_ids``: of those with holes."""
        silent = (each for each, ids in self._sessions.items() if ids.above or not with_ids)
        epoch = next(silent, None)
        if epoch is None or now - self._sessions[epoch].heard_at < self._retire_after_s:
            return False
        retired = self._sessions.pop(epoch)
        self._ids_count -= len(retired.above)
        effects.notify("retired", epoch, range(retired.floor))
        return True

    def _settle(self, epoch: int, numbers: Sequence[int], effects: Effects) -> None:
        if self.settles and len(numbers):
            effects.settled.append(Token(epoch, numbers))

    def _fail(self, epoch: int, numbers: Sequence[int]) -> None:
        ids = self._sessions.get(epoch)
        if ids is not None and len(numbers):
            held = len(ids.above)
            self.counts.refused += ids.forget(numbers, self._window)
            self._ids_count += len(ids.above) - held
