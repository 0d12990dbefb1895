"""Answers that are waited for, by the number of the request."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from headpond.model.errors import HeadpondError


class Answers:
    def __init__(self) -> None:
        self._waiting: dict[int, asyncio.Future[Any]] = {}

    @contextmanager
    def awaited(self, number: int) -> Iterator[asyncio.Future[Any]]:
        """What to await for the answer; leaving gives it up."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = answer
        try:
            yield answer
        finally:
            del self._waiting[number]

    def give(self, number: int, result: Any) -> None:
        """An answer came; an error is raised to whoever waits."""
        waiter = self._waiting.get(number)
        if waiter is None or waiter.done():
            return
        if isinstance(result, HeadpondError):
            waiter.set_exception(result)
        else:
            waiter.set_result(result)

    def fail(self, error: HeadpondError) -> None:
        """None of them will come."""
        for number in list(self._waiting):
            self.give(number, error.again())
