"""The results of a run: R, UR, orders and latency, with the confidence that the size of the run allows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from headpond.pipes.calculus.interval import CopyTally, Interval, tally_messages
from headpond.pipes.calculus.orders import Order, OrderCheck, held_orders

COPIES_MAX = 255
"""Copies of one message that are counted; more count as this many."""


class Measured(msgspec.Struct, frozen=True):
    """A measured share and where the true one lies, with the confidence named."""

    value: float
    low: float
    high: float
    confidence: float


class Latency(msgspec.Struct, frozen=True):
    """From the moment a message was taken to its first arrival, in seconds of the run; None if none arrived."""

    p50_s: float | None
    p90_s: float | None
    p99_s: float | None
    p999_s: float | None
    max_s: float | None


class Measure:
    """Counts arrivals. Messages are numbered in the order in which the route took them."""

    def __init__(self, messages: int, tick_s: float) -> None:
        self.received = 0
        self.unique = 0
        self._copies = bytearray(messages)
        self._taken_at: list[int] = []
        self._order = OrderCheck()
        self._latency: Counter[int] = Counter()
        self._tick_s = tick_s

    def submitted(self, count: int, now: int) -> None:
        self._taken_at += [now] * count

    @property
    def sent(self) -> int:
        return len(self._taken_at)

    def arrived(self, messages: Sequence[int], now: int) -> None:
        copies = self._copies
        fresh: list[int] = []
        for message in messages:
            count = copies[message]
            if not count:
                fresh.append(message)
            if count < COPIES_MAX:
                copies[message] = count + 1
        self.received += len(messages)
        self.unique += len(fresh)
        for taken_at, count in Counter(map(self._taken_at.__getitem__, fresh)).items():
            self._latency[now - taken_at] += count
        self._order.take(messages)

    @property
    def tally(self) -> CopyTally:
        """Of the messages that the route took."""
        return tally_messages(self._copies[: self.sent])

    @property
    def order(self) -> Order | None:
        """The strongest that held."""
        return self._order.order

    @property
    def orders(self) -> list[str]:
        return [str(each) for each in held_orders(self.order)]

    @property
    def missing(self) -> list[int]:
        """Messages that never arrived."""
        return [message for message, count in enumerate(self._copies[: self.sent]) if not count]

    def latency(self) -> Latency:
        ticks = sorted(self._latency.items())
        shares = (0.5, 0.9, 0.99, 0.999, 1.0)
        return Latency(*(self._percentile(ticks, share) for share in shares))

    def _percentile(self, ticks: list[tuple[int, int]], share: float) -> float | None:
        needed = share * self.unique
        passed = 0
        for tick, count in ticks:
            passed += count
            if passed >= needed:
                return round(tick * self._tick_s, 9)
        return None


def measured(interval: Interval) -> Measured:
    return Measured(interval.measured, interval.low, interval.high, interval.confidence)
