"""How much freed memory a process keeps for its next segments."""

from __future__ import annotations

from functools import cache

FREED_BYTES = 31 * 1024 * 1024
LARGE_BYTES = 128 * 1024
"""Smaller blocks are kept anyway."""


@cache
def keep_freed_memory() -> None:
    """The process keeps up to 64 MiB of freed memory, where its C library is glibc; elsewhere nothing changes.

    By default glibc gives freed blocks of the size of a segment back to the system at once. The next segment
    then gets new pages, and clearing and mapping them takes longer than its checksum. glibc adapts to the
    largest block that was freed, up to 32 MiB (mallopt(3), M_MMAP_THRESHOLD); nothing touches this one.
    """
    bytes(FREED_BYTES)
