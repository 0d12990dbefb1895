"""The unconfirmed messages of a sender: numbers, payloads, and when to send each again.

A message gets its number once, when it enters, and keeps it however often it is sent. A flight stands for all
messages that went out at one time: timers and round trips belong to a flight, so a message costs one entry in a
dict.

Two bounds: ``limit`` messages may be unconfirmed, and the newest may be at most ``span`` numbers past the
oldest, so that a receiver that remembers ``span`` numbers never meets one that it has had to forget.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heapify, heappop, heappush
from itertools import repeat
from typing import Any

from headpond.pipes.calculus.declarations import span_of
from headpond.pipes.machines.timeout import Timeout


class _Flight:
    __slots__ = ("numbers", "sent_at", "tries")

    def __init__(self, numbers: Sequence[int], sent_at: float, tries: int) -> None:
        self.numbers = numbers
        self.sent_at = sent_at
        self.tries = tries
        """How often its messages were sent, this time included; without a limit of tries, 2 stands for more."""


class Window:
    def __init__(self, limit: int, timeout: Timeout, *, span: int | None = None, tries: int = 0) -> None:
        """``tries``: how often a message is sent before it is given up; 0: until it is confirmed."""
        self.limit = limit
        self._tries_max = tries
        self.span: int = span_of(limit) if span is None else max(span, limit)
        self.number_next = 0
        self._timeout = timeout
        self._waiting: dict[int, tuple[Any, _Flight]] = {}
        self._flights: list[tuple[float, int, _Flight]] = []
        self._flight_count = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def room(self) -> int:
        waiting = self._waiting
        if not waiting:
            return self.limit
        # A message that is sent again moves no entry, so the first entry is the lowest number.
        by_span: int = next(iter(waiting)) + self.span - self.number_next
        return min(by_span, self.limit - len(waiting))

    @property
    def wake_at(self) -> float | None:
        return self._flights[0][0] if self._flights else None

    def enter(self, payloads: Sequence[Any], now: float) -> range:
        """Numbers them and counts them as sent now."""
        numbers = range(self.number_next, self.number_next + len(payloads))
        self.number_next = numbers.stop
        flight = self._fly(numbers, now, tries=1)
        self._waiting.update(zip(numbers, zip(payloads, repeat(flight)), strict=True))
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
        elif len(self._flights) > 2 * self.limit + 16:
            self._forget_landed_flights()
        return done

    def due(self, now: float) -> tuple[list[tuple[Sequence[int], list[Any]]], list[int]]:
        """Returns the runs to send again, which count as sent now, and the numbers that are given up after
        their last try."""
        again: dict[int, list[int]] = {}
        while self._flights and self._flights[0][0] <= now:
            _, _, flight = heappop(self._flights)
            left = [number for number in flight.numbers if number in self._waiting]
            if left:
                self._timeout.ran_out(flight.sent_at, now)
                # Messages fly together only with those that were tried as often.
                again.setdefault(flight.tries + 1 if self._tries_max else 2, []).extend(left)
        abandoned = again.pop(self._tries_max + 1, []) if self._tries_max else []
        for number in abandoned:
            del self._waiting[number]
        return [self._again(numbers, now, tries) for tries, numbers in sorted(again.items())], abandoned

    def _again(self, numbers: list[int], now: float, tries: int) -> tuple[Sequence[int], list[Any]]:
        numbers.sort()
        waiting = self._waiting
        payloads = [waiting[number][0] for number in numbers]
        flight = self._fly(numbers, now, tries)
        waiting.update(zip(numbers, zip(payloads, repeat(flight)), strict=True))
        return numbers, payloads

    def _fly(self, numbers: Sequence[int], now: float, tries: int) -> _Flight:
        flight = _Flight(numbers, now, tries)
        self._flight_count += 1  # ties on time are broken by age, never by comparing flights
        heappush(self._flights, (self._timeout.deadline(now), self._flight_count, flight))
        return flight

    def _forget_landed_flights(self) -> None:
        """Flights outlive their messages until their deadline; this keeps them within a bound."""
        live = {id(flight) for _, flight in self._waiting.values()}
        self._flights = [each for each in self._flights if id(each[2]) in live]
        heapify(self._flights)
