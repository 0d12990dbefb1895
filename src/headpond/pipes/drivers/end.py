"""What both ends of a pipe are made of: sessions, the machine's clock, and the life of an end.

**The machine's clock stands still while its route is away or full.** Time in which nothing can arrive says
nothing about loss: a sender that counted it would fill a full route with copies, and would have become slow
by the time the route is back. When a lost route is back, the clock jumps to the machine's next wake time,
because everything that was on its way is known to be gone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, field
from typing import Any, Self

from headpond.model.errors import BadRequest, Closed, HeadpondError
from headpond.pipes.machines.machine import WAKE, Effects, Input, Machine, Notice
from headpond.pipes.machines.packet import NUMBER_MAX

NOTICES_KEPT = 64


def new_epoch() -> int:
    """A number for a session, larger each time a side starts: microseconds since 1970."""
    return time.time_ns() // 1000


def check_epoch(epoch: int) -> int:
    """The number, if it can travel; else ``BadRequest``."""
    if not 0 <= epoch <= NUMBER_MAX:
        raise BadRequest(f"the epoch must be from 0 to {NUMBER_MAX}, not {epoch}")
    return epoch


class Runner:
    """Passes the effects of every step, those of the timer included, to ``on_effects``.

    The clock stands still until ``resume``.
    """

    def __init__(self, machine: Machine, on_effects: Callable[[Effects], None]) -> None:
        self.machine = machine
        self._on_effects = on_effects
        self._loop = asyncio.get_running_loop()
        self._ahead_s = 0.0
        """How far the machine's clock is ahead of the loop's."""
        self._still_at: float | None = self._loop.time()
        """The machine's time while its clock stands still."""
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._closed = False

    @property
    def now(self) -> float:
        return self._loop.time() + self._ahead_s if self._still_at is None else self._still_at

    def step(self, input: Input) -> Effects:
        effects = self.machine.step(input, self.now)
        self._on_effects(effects)
        self._set_timer()
        return effects

    def pause(self) -> None:
        if self._still_at is None:
            self._still_at = self.now
            self._drop_timer()

    def resume(self, *, lost: bool = False) -> None:
        """``lost``: everything on its way is gone, so the next timer is due now."""
        now = self.now
        if lost and (wake_at := self.machine.wake_at) is not None:
            now = max(now, wake_at)
        self._still_at = None
        self._ahead_s = now - self._loop.time()
        self._drop_timer()
        self._set_timer()

    def close(self) -> None:
        self._closed = True
        self._drop_timer()

    def _set_timer(self) -> None:
        wake_at = self.machine.wake_at
        if wake_at is None or self._still_at is not None or self._closed:
            return
        # A timer that is early wakes the machine for nothing and is set again; that is cheaper than moving
        # it with every step.
        at = max(wake_at - self._ahead_s, self._loop.time())
        if self._timer is None or at < self._timer_at:
            self._drop_timer()
            self._timer_at = at
            self._timer = self._loop.call_at(at, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self.step(WAKE)

    def _drop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


@dataclass(slots=True)
class Prefix:
    """All numbers below ``floor`` are done, and some above it."""

    floor: int = 0
    _above: set[int] = field(default_factory=set)

    def add(self, numbers: Iterable[int]) -> None:
        floor, above = self.floor, self._above
        for number in numbers:
            if number == floor:
                floor += 1
            elif number > floor:
                above.add(number)
        while floor in above:
            above.remove(floor)
            floor += 1
        self.floor = floor


class PipeEnd:
    """One end of a pipe. Open it with ``async with``, or ``await`` it and ``close`` it."""

    def __init__(self, route: str, side: str) -> None:
        """``side`` is its word in errors: sender or receiver."""
        self.route = route
        self.notices: list[Notice] = []
        """The last notices: messages given up, late or refused."""
        self._side = side
        self._opened = False
        self._error: HeadpondError | None = Closed(f"the {side} is not open")
        """Why it takes or gives out nothing more."""

    async def open(self) -> Self:
        """Reaches the other side or begins to listen; ``async with`` and ``await`` do this."""
        if self._error is None:
            return self
        self._loop = asyncio.get_running_loop()
        self._opened = True
        self._error = None
        try:
            await self._start()
        except BaseException:
            self._error = Closed(f"the {self._side} could not be opened")
            raise
        return self

    async def _start(self) -> None:
        raise NotImplementedError

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    async def __aenter__(self) -> Self:
        return await self.open()

    def notice(self, notices: list[Notice]) -> None:
        self.notices = (self.notices + notices)[-NOTICES_KEPT:]
