"""What this process has used of its machine."""

from __future__ import annotations

import os
import resource

Vitals = tuple[int | None, int | None]
"""Microseconds of processor time, and bytes of memory; None where the system does not tell."""


def process_vitals() -> Vitals:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round((usage.ru_utime + usage.ru_stime) * 1e6), _resident_bytes()


def _resident_bytes() -> int | None:
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None
