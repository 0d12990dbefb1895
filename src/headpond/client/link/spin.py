"""Spinning: waiting without sleeping, because the kernel takes tens of microseconds to wake a thread."""

from __future__ import annotations

import asyncio
import os
import time
from contextlib import suppress
from functools import cache
from math import inf
from pathlib import Path

CPU_MAX = Path("/sys/fs/cgroup/cpu.max")
"""On Linux, how much of the processor a container may use: microseconds, or "max", of a period."""
LOAD = Path("/proc/loadavg")
"""On Linux: ``0.20 0.18 0.12 1/80 11206``, where 1 is how many threads run or wait for a core."""
LOOK_S = 0.01
LOOK_SHARE = 0.2
"""What one look counts in the average."""
SPARE = 0.25
"""By how much that average may be above the number of cores: threads of the kernel run too, for moments."""


def cores() -> float:
    """How many cores this process may use."""
    try:
        count = float(len(os.sched_getaffinity(0)))
    except AttributeError:  # not on macOS
        count = float(os.cpu_count() or 1)
    with suppress(OSError, ValueError):  # no such limit
        quota, period = CPU_MAX.read_text().split()
        count = min(count, float(quota) / float(period))
    return count


@cache
def _load_file() -> int:
    """Stays open: to open it takes six times as long as to read it."""
    return os.open(LOAD, os.O_RDONLY | os.O_CLOEXEC)


def running() -> int:
    """How many threads of this machine want to run now; 0 if it does not say."""
    try:
        return int(os.pread(_load_file(), 64, 0).split()[3].split(b"/")[0])
    except (OSError, ValueError, IndexError):
        return 0


class Spin:
    """Whether a thread may spin, for ``seconds`` at most: not where another one needs the core.

    That is where the process has fewer than two cores, and while more threads want to run than the machine has
    cores, on average.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._possible = cores() >= 2
        self._most = (os.cpu_count() or 1) + SPARE
        self._running = self._most + 1.0
        self._look_at_s = 0.0

    def may_begin(self, now_s: float) -> bool:
        if now_s >= self._look_at_s and self._possible:
            self._look_at_s = now_s + LOOK_S
            self._running += LOOK_SHARE * (running() - self._running)
        return self._running <= self._most


class LoopSpin:
    """Keeps an event loop from sleeping while pieces of work follow each other soon; its tasks run as ever."""

    def __init__(self, spin: Spin) -> None:
        """``spin`` has what is soon, which is also for how long it spins."""
        self._spin = spin
        self._loop = asyncio.get_running_loop()
        self._ended_s = -inf
        self._until_s = -inf
        self._turns = False

    def between(self, began_s: float) -> None:
        """Work that began at a time has ended now: spins until the next begins, for a moment."""
        now_s = time.monotonic()
        self._follow(began_s, now_s)
        self._ended_s = now_s

    def begin(self) -> float:
        """Work begins whose end another process tells: spins until ``end``, for a moment. Returns the time."""
        now_s = time.monotonic()
        self._follow(now_s, now_s)
        return now_s

    def end(self, began_s: float) -> None:
        """That work has ended. If it took long, the next will not be worth a spin."""
        now_s = time.monotonic()
        self._ended_s = now_s if now_s - began_s < self._spin.seconds else -inf
        self._until_s = -inf

    def _follow(self, began_s: float, now_s: float) -> None:
        if began_s - self._ended_s < self._spin.seconds:
            self._until_s = now_s + self._spin.seconds
            if not self._turns:
                self._turns = True
                self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        now_s = time.monotonic()
        self._turns = now_s < self._until_s and self._spin.may_begin(now_s)
        if self._turns:
            self._loop.call_soon(self._turn)
