"""The HTTP of a member that is not active: it lives, it is not ready, and it names the active member."""

from __future__ import annotations

import ssl
from typing import Any

from litestar.types import Receive, Scope, Send

from headpond.broker.settings import Settings
from headpond.cluster.member import Member
from headpond.node.http.server import HttpListener
from headpond.node.http.status import refusing


class StandbyHttp(HttpListener):
    """``/livez`` is 200, ``/readyz`` 503 with the member's role, and everything else 503."""

    def __init__(self, member: Member, settings: Settings, tls: ssl.SSLContext | None) -> None:
        super().__init__(self._answer, settings, tls)
        self._member = member

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path == "/livez":
            headers = [(b"content-type", b"text/plain; charset=utf-8"), (b"content-length", b"3")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await send({"type": "http.response.body", "body": b"ok\n", "more_body": False})
            return
        fields: dict[str, Any] = {}
        if path == "/readyz":
            active = self._member.active_member
            fields = {"role": self._member.role, "active": active.member if active is not None else None}
        await refusing(self._member.not_active(), **fields)(scope, receive, send)
