"""The unconfirmed messages of a sender: numbers, payloads, and when to send each again.

A message gets its number once, when it enters, and keeps it however often it is sent. A flight stands for all
messages that went out at one time: timers and round trips belong to a flight, so a message costs one entry in a
dict.

Two bounds: ``limit`` messages may be unconfirmed, and the newest may be at most ``span_of(limit)`` numbers past
the oldest, so that a receiver that remembers so many numbers never meets one that it has had to forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import Any, NamedTuple

from headpond.pipes.calculus.declarations import span_of
from headpond.pipes.machines.timeout import Timeout


class _Flight(NamedTuple):
    due_at: float
    age: int
    """Breaks ties on time, so that flights are never compared further."""
    sent_at: float
    tries: int
    """How often its messages were sent, this time included; without a limit of tries, 2 stands for more."""
    numbers: Sequence[int]


class Window:
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
