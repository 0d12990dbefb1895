"""The disk's watermark: below it the node refuses sends, so that acknowledgements and settlements still work.

The node looks at the free bytes once a second, and sooner when half of the bytes above the mark are used. A
write that the disk refuses for lack of room (a quota, another program that fills it) counts too. The log has
one line when the node begins to refuse sends, and one when it takes them again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headpond.broker.context import Alarms
from headpond.model.errors import DiskFull

logger = logging.getLogger("headpond.node")

LOOK_US = 1_000_000
LOOK_FULL_US = 100_000
FAILED_US = 10_000_000
"""After a write that did not fit, the disk counts as full until one fits, or for this time."""


class Watermark:
    def __init__(
        self, free_bytes: Callable[[], int], free_bytes_min: int, clock_us: Callable[[], int], alarms: Alarms
    ) -> None:
        self._free_bytes = free_bytes
        self._min = free_bytes_min
        self._clock_us = clock_us
        self._alarm = alarms.add(self._on_time)
        """Rings while sends are refused, so that the end of the shortage is noticed without sends."""
        self._look_us: int | None = None
        self._left = 0
        self._free: int | None = None
        """What the last look found; None where the disk cannot tell."""
        self.failed_us: int | None = None
        """When a write last failed for lack of room; None since one fitted."""
        self._refusing = False
        """Whether the log says that sends are refused."""
        self.full = False
        """Whether the free room is below the mark."""

    def refusal(self, size: int) -> DiskFull | None:
        """Why a segment of ``size`` bytes cannot be taken now, if it cannot."""
        self._left -= size
        now_us = self._clock_us()
        if self._look_us is None or now_us >= self._look_us or (self._left < 0 and not self.full):
            self.look()
        if not self.full:
            return None
        return DiskFull(f"less than {self._min:,} bytes are free on the node's disk (limits.free_bytes_min)")

    def lack(self) -> DiskFull | None:
        """Why sends are refused, by the watermark or by the disk itself; None while they are taken."""
        refusal = self.refusal(0)
        if refusal is None and self.failed_us is not None:
            refusal = DiskFull("a write did not fit on the node's disk")
        return refusal

    def failed(self) -> None:
        """A write did not fit."""
        self.failed_us = self._clock_us()
        self.look()

    def fitted(self) -> None:
        """A log took a write."""
        if self.failed_us is not None:
            self.failed_us = None
            self.look()

    def _on_time(self) -> None:
        if self._refusing:
            self.look()

    def look(self) -> None:
        """Reads the free room."""
        now_us = self._clock_us()
        try:
            self._free = self._free_bytes()
        except OSError:  # a full disk shows in the write itself
            self._free = None
        above = self._min if self._free is None else self._free - self._min
        self.full = above < 0
        self._left = above // 2
        self._look_us = now_us + (LOOK_FULL_US if self.full else LOOK_US)
        if self.failed_us is not None and now_us >= self.failed_us + FAILED_US:
            self.failed_us = None
        self._tell(refusing=self.full or self.failed_us is not None)
        if self._refusing:
            self._alarm.by(self._look_us)

    def _tell(self, *, refusing: bool) -> None:
        if refusing == self._refusing:
            return
        self._refusing = refusing
        free = "an unknown number of" if self._free is None else f"{self._free:,}"
        if refusing:
            why = "sends are refused" if self.full else "a write did not fit"
            logger.error(
                "disk-full: %s; %s bytes are free on the node's disk, the watermark is %s bytes "
                "(limits.free_bytes_min); free some, or lower retention",
                why,
                free,
                f"{self._min:,}",
            )
        else:
            logger.warning(
                "sends are taken again: %s bytes are free on the node's disk; the watermark is %s bytes",
                free,
                f"{self._min:,}",
            )
