"""The HTTP of a member that is not active: it lives, is not ready, and shows itself and its group.

The console and ``/readyz`` are for anybody. What it shows beyond them is for an admin of everything, as on the
active member: the tokens are in its folder.
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
from headpond.cluster.groups import http_url
from headpond.model.address import parse_place
from headpond.model.errors import CrossSite, HeadpondError, NotAllowed, TokenNeeded
from headpond.model.grant import ALL
from headpond.node.http.cluster import ClusterView, read_tokens
from headpond.node.http.console.site import PREFIX, answer_file
from headpond.node.http.gate import Gate, OwnNames
from headpond.node.http.metrics import render
from headpond.node.http.request import token_of
from headpond.node.http.server import HttpListener
from headpond.node.http.status import refusing
from headpond.node.server import now_us

TOKENS_S = 1.0
"""For so long tokens that were read from the folder are used."""


class StandbyHttp(HttpListener):
    """``/livez``, ``/metrics``, ``/v1/cluster``, the console, and ``/readyz`` (503, with the member's role).

    The rest is 503.
    """

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
        request: Request[Any, Any, Any] = Request(scope)
        try:
            if path == "/livez":
                await _send(send, b"ok\n", {"Content-Type": "text/plain; charset=utf-8"})
                return
            if path == "/" or path.startswith(PREFIX):
                status, headers, body = answer_file(path, request.headers.get("if-none-match"))
                await _send(send, body, headers, status)
                return
            if path in ("/metrics", "/v1/cluster") and self._member.role in ("standby", "active"):
                await self._check(request)
                await self._show(path, send)
                return
            error: HeadpondError = self._member.not_active()
        except HeadpondError as refusal:
            error = refusal
        fields = self._place() if path == "/readyz" else {}
        await refusing(error, **fields)(scope, receive, send)

    def _place(self) -> dict[str, Any]:
        """This member, and the one that is active."""
        member, active = self._member, self._member.active_member
        place = {"member": member.me.member, "role": member.role}
        if active is None:
            return {**place, "active": None, "active_http": None}
        listens = parse_place(active.http) if active.http else None
        http = http_url(None if listens is None else (listens.host, listens.port), active.url)
        return {**place, "active": active.member, "active_http": http or None}

    async def _show(self, path: str, send: Send) -> None:
        if path == "/metrics":
            await _send(send, render(await self._cluster.readings()), {"Content-Type": CONTENT_TYPE_LATEST})
        else:
            body = msgspec.json.encode(await self._cluster.group())
            await _send(send, body, {"Content-Type": "application/json"})

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


async def _send(send: Send, body: bytes, headers: dict[str, str], status: int = 200) -> None:
    named = {**headers, **({} if status == 304 else {"Content-Length": str(len(body))})}
    raw = [(name.lower().encode(), text.encode()) for name, text in named.items()]
    await send({"type": "http.response.start", "status": status, "headers": raw})
    await send({"type": "http.response.body", "body": body, "more_body": False})
