"""One batch after the other, for ``async for``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Self

from headpond.client.batch import Batch


class Batches:
    """Not an async generator: a wait for the next batch may be given up and the one after it still comes."""

    def __init__(self, next_batch: Callable[[], Awaitable[Batch | None]]) -> None:
        self._next_batch = next_batch

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        if (batch := await self._next_batch()) is None:
            raise StopAsyncIteration
        return batch
