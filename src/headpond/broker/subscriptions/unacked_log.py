"""The unacked log of one shard: refused entries, and what each of them waits for before its redelivery.

1. An entry waits for its time: the delay that its consumer asked for, or the policy's backoff.
2. Where redelivery is ``after_backlog`` it also waits for the backlog. Its ``bound`` is the end of the shard's
   log at the refusal: every entry before the bound must be delivered and settled first, except those that are
   in this log themselves. New messages are behind the bound, so a busy topic does not starve it.
3. An entry before the bound that stays with a stuck consumer delays it by one more backlog at most. When the
   last entry before the bound is delivered, a ``limit`` is set: the log's end, and at least
   ``IN_FLIGHT_ENTRIES`` behind the bound. When everything before the limit is delivered, it no longer waits
   for entries in flight.
4. When a consumer has room and there is nothing new to deliver, it does not wait for the backlog.

An entry without a time (0) or a bound (0) does not wait for it. Times and bounds are a few hundred sets of
entries, however many entries there are: both are rounded up, by about 1 % of their distance. Entries that are
settled leave ``entries``; a set by time or bound is compared with it when it is used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from heapq import heappop, heappush
from itertools import chain

from headpond.model.entry_set import EntrySet

DUE_STEP_US = 20_000
STEPS = 64
"""The distance to a time or a bound is divided into at least this many steps, and at most twice as many."""

IN_FLIGHT_ENTRIES = 1024

Keyed = tuple[int, EntrySet]
"""A time or a bound, and the entries that wait for it."""


def due_step_up(due_us: int, wait_us: int) -> int:
    """A time that is ``wait_us`` away, rounded up as the log stores it."""
    return _round_up(due_us, DUE_STEP_US << (wait_us // (2 * STEPS * DUE_STEP_US)).bit_length())


def bound_step_up(bound: int, entries_ahead: int) -> int:
    """A bound with that many undelivered entries before it, rounded up as the log stores it."""
    return _round_up(bound, 1 << (max(entries_ahead, 0) // (2 * STEPS)).bit_length())


def _round_up(number: int, step: int) -> int:
    return -(-number // step) * step


class _ByKey:
    """Sets of entries in the order of their keys."""

    def __init__(self) -> None:
        self._heap: list[int] = []
        self._sets: dict[int, EntrySet] = {}

    def add(self, key: int, entries: EntrySet) -> None:
        if key not in self._sets:
            self._sets[key] = EntrySet()
            heappush(self._heap, key)
        self._sets[key].include(entries)

    @property
    def first(self) -> int | None:
        return self._heap[0] if self._heap else None

    def pop_upto(self, key: int) -> Iterator[Keyed]:
        """Takes out the sets whose key is at most this one."""
        while self._heap and self._heap[0] <= key:
            first = heappop(self._heap)
            yield first, self._sets.pop(first)

    def exclude(self, entries: EntrySet) -> None:
        for each in self._sets.values():
            each.exclude(entries)

    def __iter__(self) -> Iterator[Keyed]:
        return iter(sorted(self._sets.items(), key=lambda item: item[0]))


class UnackedLog:
    def __init__(self) -> None:
        self.entries = EntrySet()
        """Everything in the log."""
        self._by_due_us = _ByKey()
        self._by_bound = _ByKey()
        self._in_flight: deque[tuple[int, int, EntrySet]] = deque()
        """(bound, limit, entries): everything before the bound is delivered, and not all of it is settled."""
        self._due = EntrySet()
        """Their time has come; they wait for the backlog."""
        self._through = EntrySet()
        """The backlog is settled; they wait for their time."""
        self._free = EntrySet()
        """They wait for nothing."""

    def __bool__(self) -> bool:
        return bool(self.entries)

    # --- adding -------------------------------------------------------------------------------------

    def put(self, by_due_us: Iterable[Keyed], by_bound: Iterable[Keyed]) -> None:
        """Adds entries; each is named once with its time and once with its bound."""
        for due_us, entries in by_due_us:
            if entries.meets(self.entries):  # refused again; the journal does not record when it is taken out
                self.take_out(entries)
            self.entries.include(entries)
            if due_us:
                self._by_due_us.add(due_us, entries)
            else:
                self._due.include(entries)
        for bound, entries in by_bound:
            if bound:
                self._by_bound.add(bound, entries)
            else:
                self._pass(entries)

    # --- waiting ------------------------------------------------------------------------------------

    def wake(self, now_us: int) -> None:
        """Time passes."""
        for _, entries in self._by_due_us.pop_upto(now_us):
            due = entries.common(self.entries)
            free = due.common(self._through)
            self._through.exclude(free)
            self._free.include(free)
            due.exclude(free)
            self._due.include(due)

    @property
    def due_us(self) -> int | None:
        """When ``wake`` is to be called next."""
        return self._by_due_us.first

    def advance(self, delivered: int, settled: int, end: int) -> None:
        """Everything before these entries is delivered, or also settled; ``end`` is the log's end."""
        for bound, entries in self._by_bound.pop_upto(delivered):
            self._in_flight.append((bound, max(end, bound + IN_FLIGHT_ENTRIES), entries))
        while self._in_flight:
            bound, limit, entries = self._in_flight[0]
            if bound > settled and limit > delivered:
                break
            self._in_flight.popleft()
            self._pass(entries.common(self.entries))

    def _pass(self, entries: EntrySet) -> None:
        """These no longer wait for the backlog."""
        free = entries.common(self._due)
        self._due.exclude(free)
        self._free.include(free)
        rest = entries.copy()
        rest.exclude(free)
        self._through.include(rest)

    # --- removing -----------------------------------------------------------------------------------

    def take(self, *, nothing_new: bool) -> EntrySet:
        """Takes out what may be redelivered now."""
        free = self._free.copy()
        if nothing_new:
            free.include(self._due)
        if free:
            self.take_out(free)
        return free

    def take_out(self, entries: EntrySet) -> None:
        """Takes entries out; they may be refused again."""
        self._by_due_us.exclude(entries)
        self._by_bound.exclude(entries)
        for _, _, waiting in self._in_flight:
            waiting.exclude(entries)
        self.exclude(entries)

    def exclude(self, entries: EntrySet) -> None:
        """Takes out entries that are not refused again."""
        for each in (self.entries, self._due, self._through, self._free):
            each.exclude(entries)

    def discard(self, start: int, end: int) -> None:
        """Takes out a span of entries that are not refused again."""
        for each in (self.entries, self._due, self._through, self._free):
            each.discard(start, end)

    # --- listing ------------------------------------------------------------------------------------

    def by_due_us(self, wanted: EntrySet) -> list[Keyed]:
        """The wanted entries by their time; 0 for those whose time has come."""
        come = self._due.copy()
        come.include(self._free)
        return _common([(0, come), *self._by_due_us], wanted.common(self.entries))

    def by_bound(self, wanted: EntrySet) -> list[Keyed]:
        """The wanted entries by their bound; 0 for those that do not wait for the backlog."""
        through = self._through.copy()
        through.include(self._free)
        in_flight = ((bound, entries) for bound, _, entries in self._in_flight)
        return _common(chain([(0, through)], in_flight, self._by_bound), wanted.common(self.entries))


def _common(sets: Iterable[Keyed], wanted: EntrySet) -> list[Keyed]:
    found = ((key, entries.common(wanted)) for key, entries in sets)
    return [(key, entries) for key, entries in found if entries]
