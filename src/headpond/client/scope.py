"""``async with`` for a client, a producer, a consumer, a reader and a writer."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from headpond.model.errors import HeadpondError

log = logging.getLogger("headpond.client")


class PublicNames:
    """Completion offers no private names."""

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_") or name.startswith("__")]


class AsyncScope(PublicNames):
    """Opens on the way in and closes on the way out; an error of the body hides one of closing."""

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
