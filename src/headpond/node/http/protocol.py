"""One HTTP connection, as uvicorn serves it, with a clock: slow, idle and surplus connections are cut.

=====================================  =========================================  ==========================
a connection that                      is closed after                            setting (http_limits)
=====================================  =========================================  ==========================
sends no whole headers                 10 s from its start, or their first byte   ``header_s``
does not end a body that it began      60 s from the headers                      ``body_s``
has no request                         30 s                                       ``idle_s``
reads nothing of what it is sent       60 s                                       ``unread_s``
is one too many, or waits while        at once, the longest idle first            ``connections``
another one comes that is too many
=====================================  =========================================  ==========================
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from headpond.broker.settings import HttpLimits

UNREAD_BODY_S = 2.0
"""How long who was answered before the end of its body may go on sending it, so that it reads the answer."""


class DoorProtocol(H11Protocol):
    limits: HttpLimits
    """Set on a class of the door's own (``protocol_with``)."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._deadline: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self.idle_since: float | None = None
        """Since when it has no request whose headers are whole."""
        self._between = False
        """Whether a request was answered and nothing of the next one has come."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.idle_since = self.loop.time()
        self._within(self.limits.header_s)
        if len(self.connections) > self.limits.connections:
            self._cut_one()

    def _cut_one(self) -> None:
        """Who has no request goes first, whoever has none for longest: it may be the newcomer."""
        others = cast("set[DoorProtocol]", self.connections)
        idle = [each for each in others if each.idle_since is not None and not each.transport.is_closing()]
        if idle:
            min(idle, key=lambda each: each.idle_since or 0.0).transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._between:  # the first bytes of another request
            self._between = False
            self._within(self.limits.header_s)
        super().data_received(data)
        self._look()

    def _look(self) -> None:
        """What is waited for now, after bytes came or an answer went."""
        if self.transport.is_closing():
            return
        answered = self.cycle is None or self.cycle.response_complete
        if not answered and self.idle_since is not None:  # headers are whole, a request is under way
            self.idle_since = None
            self._within(self.limits.body_s)
        if not answered and not self.cycle.more_body:
            self._within(None)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            return
        if self.conn.their_state is h11.SEND_BODY:  # it is answered, and still sends
            self._within(UNREAD_BODY_S)
        elif self.cycle.response_complete:
            self.idle_since = self.loop.time()
            self._between = True
            self._within(self.limits.idle_s)
        else:  # the next request came with this one
            self._within(self.limits.body_s if self.cycle.more_body else None)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unread = self.loop.call_later(self.limits.unread_s, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._within(None)
        if self._unread is not None:
            self._unread.cancel()
        super().connection_lost(exc)

    def _within(self, seconds: float | None) -> None:
        """What is waited for must come by then, or the connection is closed."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._deadline = None if seconds is None else self.loop.call_later(seconds, self.transport.abort)


def protocol_with(limits: HttpLimits) -> Callable[..., DoorProtocol]:
    return cast("Callable[..., DoorProtocol]", type("LimitedProtocol", (DoorProtocol,), {"limits": limits}))
