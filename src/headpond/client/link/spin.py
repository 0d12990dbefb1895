"""Spinning: waiting without sleeping, because the kernel takes tens of microseconds to wake a thread."""

from __future__ import annotations

import os
from contextlib import suppress
from functools import cache
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
