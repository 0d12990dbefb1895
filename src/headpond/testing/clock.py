"""The node's clock: the machine's, plus the time by which a test advanced it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from headpond.model.errors import BadRequest
from headpond.node.server import clock_us, now_us

STEPS = 64
"""The clock moves in so many steps: the node does some work bit by bit, such as retention."""


class Clock:
    """The clock of one node. Timers of clients run on the event loop, which it does not change."""

    def __init__(self, on_advance: Callable[[], None]) -> None:
        """``on_advance`` is called with every step."""
        self._on_advance = on_advance
        self._ahead_us = 0

    def advance(self, seconds: float) -> None:
        """Moves the clock forward; the node begins at once what is due until then, such as a redelivery.

        The node rounds deadlines and delays up, by at most 2 % or 20 ms: advance by a little more.
        """
        if not seconds >= 0:
            raise BadRequest(f"a clock cannot be set back, by {-seconds:g} s")
        left_us = round(seconds * 1e6)
        for steps_left in range(STEPS, 0, -1):
            step_us = left_us // steps_left
            left_us -= step_us
            self._ahead_us += step_us
            self._on_advance()

    def now(self) -> datetime:
        """The node's time of day."""
        return datetime.fromtimestamp(self.now_us() / 1e6, UTC)

    def now_us(self) -> int:
        return now_us() + self._ahead_us

    def clock_us(self) -> int:
        return clock_us() + self._ahead_us
