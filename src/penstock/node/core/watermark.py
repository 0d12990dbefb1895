"""The disk's watermark: below it sends are refused, for a while, so that acknowledgements and settlements still
work.

The free room is looked at once a second, and sooner when half of what there is above the mark was taken.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.model.errors import DiskFull

LOOK_US = 1_000_000
LOOK_FULL_US = 100_000


class Watermark:
    def __init__(self, free_bytes: Callable[[], int], free_bytes_min: int, clock_us: Callable[[], int]) -> None:
        self._free_bytes = free_bytes
        self._min = free_bytes_min
        self._clock_us = clock_us
        self._look_us: int | None = None
        self._left = 0
        self.full = False

    def refusal(self, size: int) -> DiskFull | None:
        """Why a segment of so many bytes cannot be taken now, if it cannot."""
        self._left -= size
        now_us = self._clock_us()
        if self._look_us is None or now_us >= self._look_us or (self._left < 0 and not self.full):
            self._look(now_us)
        if not self.full:
            return None
        return DiskFull(f"less than {self._min:,} bytes are free on the node's disk (limits.free_bytes_min)")

    def _look(self, now_us: int) -> None:
        try:
            above = self._free_bytes() - self._min
        except OSError:  # who cannot tell does not refuse: a full disk shows in the write itself
            above = self._min
        self.full = above < 0
        self._left = above // 2
        self._look_us = now_us + (LOOK_FULL_US if self.full else LOOK_US)
