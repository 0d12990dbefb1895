"""A histogram of durations, as Prometheus has them: how many were at most so long, and their sum."""

from __future__ import annotations

from bisect import bisect_left
from itertools import accumulate

BOUNDS_S = (
    *(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
    *(60.0, 300.0, 3600.0),
)
"""Prometheus's usual bounds, and more at both ends: a sync takes less than 5 ms, a backlog hours."""
_BOUNDS_US = [round(bound * 1e6) for bound in BOUNDS_S]


class Histogram:
    __slots__ = ("_counts", "_sum_us")

    def __init__(self) -> None:
        self._counts = [0] * (len(_BOUNDS_US) + 1)
        self._sum_us = 0

    def observe(self, duration_us: int) -> None:
        """A negative duration, between two clocks that differ, counts as 0."""
        if duration_us < 0:
            duration_us = 0
        self._counts[bisect_left(_BOUNDS_US, duration_us)] += 1
        self._sum_us += duration_us

    @property
    def sum_s(self) -> float:
        return self._sum_us / 1e6

    @property
    def buckets(self) -> list[tuple[str, int]]:
        """By upper bound in seconds, as text: how many durations were at most so long."""
        bounds = [*map(str, BOUNDS_S), "+Inf"]
        return list(zip(bounds, accumulate(self._counts), strict=True))
