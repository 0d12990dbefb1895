"""The HTTP of a member that is not active: it lives, is not ready, and shows itself and its group.

What it shows beyond ``/readyz`` is for an admin of everything, as on the active member: the tokens are in its
folder.
"""

from __future__ import annotations

import ssl
from time import monotonic
from typing import Any

import msgspec
from litestar import Request
from litestar.types import Receive, Scope, Send
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from headpond.broker.access.tokens import Tokens
from headpond.broker.settings import Settings
from headpond.model.errors import CrossSite, HeadpondError, NotAllowed, TokenNeeded
from headpond.model.grant import ALL
from headpond.node.http.cluster import ClusterView, read_tokens
from headpond.node.http.gate import Gate, OwnNames
from headpond.node.http.metrics import render
from headpond.node.http.request import token_of
from headpond.node.http.server import HttpListener
from headpond.node.http.status import refusing
from headpond.node.server import now_us

TOKENS_S = 1.0
"""For so long tokens that were read from the folder are used."""


class StandbyHttp(HttpListener):
    """``/livez``, ``/readyz`` (503, with the member's role), ``/metrics``, ``/v1/cluster``; the rest is 503."""

    def __init__(self, cluster: ClusterView, settings: Settings, tls: ssl.SSLContext | None) -> None:
        # The host of a request matters only where something is shown; ``_check`` compares it there.
        address = settings.http_address
        assert address is not None, "settings.http says where to listen"
        self._names = OwnNames(address[0], settings.http_names)
        super().__init__(Gate(self._answer, settings.http_limits, lambda: True, self._names), settings, tls)
        self._cluster = cluster
        self._member = cluster.member
        self._tokens: Tokens | None = None
        self._tokens_at = 0.0

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        fields: dict[str, Any] = {}
        try:
            if path == "/livez":
                await _send(send, b"ok\n", "text/plain; charset=utf-8")
                return
            if path in ("/metrics", "/v1/cluster") and self._member.role in ("standby", "active"):
                await self._check(Request(scope))
                await self._show(path, send)
                return
            if path == "/readyz":
                active = self._member.active_member
                fields = {"role": self._member.role, "active": active.member if active is not None else None}
            error: HeadpondError = self._member.not_active()
        except HeadpondError as refusal:
            error = refusal
        await refusing(error, **fields)(scope, receive, send)

    async def _show(self, path: str, send: Send) -> None:
        if path == "/metrics":
            await _send(send, render(await self._cluster.readings()), CONTENT_TYPE_LATEST)
        else:
            await _send(send, msgspec.json.encode(await self._cluster.group()), "application/json")

    async def _check(self, request: Request[Any, Any, Any]) -> None:
        if self._tokens is None or monotonic() - self._tokens_at > TOKENS_S:
            self._tokens = await self._member.read_folder(read_tokens)
            self._tokens_at = monotonic()
        if not self._tokens.guarded:
            host = request.headers.get("host", "")
            if host not in self._names:
                raise CrossSite(f"this node asks for no tokens, and its name is not {host[:80]!r} (Host)")
            return
        text = token_of(request)
        if text is None:
            raise TokenNeeded("this node asks for a token, and none was given")
        if not self._tokens.find(text, now_us()).grant.covers(ALL):
            raise NotAllowed("this is for an admin of everything")


async def _send(send: Send, body: bytes, media: str) -> None:
    headers = [(b"content-type", media.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
