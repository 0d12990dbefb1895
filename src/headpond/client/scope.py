"""``async with`` for a client, a producer, a consumer, a reader and a writer."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import ClassVar, Self

from headpond.model.errors import HeadpondError

log = logging.getLogger("headpond.client")


class PublicNames:
    """Completion and the reference (docs/api.md) offer the names that programs use."""

    internal: ClassVar[frozenset[str]] = frozenset({"internal"})
    """Names that other parts of the client use, and programs do not."""

    def __dir__(self) -> list[str]:
        hidden = self.internal
        names = (name for name in super().__dir__() if name not in hidden)
        return [name for name in names if not name.startswith("_") or name.startswith("__")]


class AsyncScope(PublicNames):
    """Opens on the way in and closes on the way out; an error of the body hides one of closing."""

    internal = PublicNames.internal | {"open", "shown"}

    @property
    def shown(self) -> str:
        """Its name in a log line."""
        raise NotImplementedError

    async def open(self) -> Self:
        raise NotImplementedError

    async def close(self) -> None:
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except HeadpondError as failure:
            if error is None:
                raise
            log.warning("closing %s: %s", self.shown, failure.message)
