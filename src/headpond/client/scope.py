"""What ``async with`` does for a client, a producer and a consumer alike."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Self

from headpond.model.errors import HeadpondError

log = logging.getLogger("headpond.client")


class AsyncScope:
    """Opened on the way in and closed on the way out; the body's own error goes before that of closing."""

    @property
    def shown(self) -> str:
        """What is closed, in the words of a log line."""
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
