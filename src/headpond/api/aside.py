"""Large bodies are worked on beside the node's loop, in one thread: the node's own clients do not wait for it.

One thread, so that the objects made of a body are those of one body at a time, whoever sends how many.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

Result = TypeVar("Result")

SMALL_BYTES = 64 * 1024
"""Up to this a body is worked on at once: a thread would cost more."""
_thread = ThreadPoolExecutor(1, "http-bodies")


async def aside(size: int, work: Callable[[], Result]) -> Result:
    """What ``work`` on a body of ``size`` bytes makes."""
    if size <= SMALL_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_thread, work)
