"""What stands before every route: bounds on bodies and requests, and no way in for other sites' pages.

A browser sends requests for any page that it shows, to 127.0.0.1 too. So a request that names another site as
its ``Origin`` is refused, and, where the node asks for no token, one whose ``Host`` is a name other than
``localhost`` (a page can give its own name this machine's address; it cannot give itself an address). Programs
send no ``Origin``.
"""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, ReceiveMessage, Scope, Send

from penstock.api.faults import refusing
from penstock.model.errors import (
    BadRequest,
    BodyTooLarge,
    CrossSite,
    LimitReached,
    PenstockError,
    WrongMediaType,
)
from penstock.node.settings import HttpLimits

HEALTH = ("/livez", "/readyz")
"""Answered when the node is busy too: whoever asks might end it otherwise."""
WRITERS = b"/v1/writers/"


class Gate:
    def __init__(self, app: ASGIApp, limits: HttpLimits, is_guarded: Callable[[], bool]) -> None:
        self._app = app
        self._limits = limits
        self._is_guarded = is_guarded
        self.requests = 0
        self.bodies_bytes = 0
        self.refused = 0
        """Requests that were refused here."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            return
        headers = dict(scope["headers"])
        try:
            self._check(headers)
            if scope["path"] not in HEALTH:
                self._check_room()
            elif scope["method"] == "HEAD":  # as balancers ask; the protocol leaves the body out
                scope = {**scope, "method": "GET"}
            _join_parts(scope)
        except PenstockError as error:
            self.refused += 1
            await refusing(error, close=b"transfer-encoding" in headers)(scope, receive, send)
            return
        body = Body(self, receive)
        self.requests += 1
        try:
            await self._app(scope, body.receive, send)
        finally:
            self.requests -= 1
            self.bodies_bytes -= body.bytes

    def _check(self, headers: dict[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        origin = headers.get(b"origin")
        if origin is not None and not _is_of(origin.decode("latin-1"), host):
            raise CrossSite("the request comes from a page of another site")
        if not self._is_guarded() and not _is_here(host):
            raise CrossSite(
                f"this node asks for no tokens: it answers to an address or localhost, not to {host[:80]!r}",
                hint="Name the node by its address, as in http://127.0.0.1:7412, or make tokens.",
            )
        if b"transfer-encoding" in headers and b"content-length" in headers:
            raise BadRequest(
                "the request has a Content-Length and a Transfer-Encoding: where it ends is not clear"
            )
        if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"identity", b""):
            raise WrongMediaType("a body with a Content-Encoding is not taken", hint="Send it as it is.")
        size = headers.get(b"content-length", b"0")
        if size.isdigit():
            self.check_body(int(size), 0)

    def _check_room(self) -> None:
        if self.requests >= self._limits.requests:
            raise LimitReached(f"{self._limits.requests:,} requests are under way (http_limits.requests)")

    def check_body(self, size: int, held: int) -> None:
        """Whether a body of ``size`` bytes may come, of which so many are counted already."""
        if size > self._limits.body_bytes:
            raise BodyTooLarge(f"a body of more than {self._limits.body_bytes:,} bytes")
        if self.bodies_bytes + size - held > self._limits.bodies_bytes:
            raise LimitReached(
                f"the requests under way hold {self._limits.bodies_bytes:,} bytes (http_limits.bodies_bytes)"
            )


class Body:
    """One request's body as it comes, counted."""

    def __init__(self, gate: Gate, receive: Receive) -> None:
        self._gate = gate
        self._receive = receive
        self.bytes = 0

    async def receive(self) -> ReceiveMessage:
        message = await self._receive()
        if message["type"] == "http.request":
            size = len(message["body"])
            self._gate.check_body(self.bytes + size, self.bytes)
            self.bytes += size
            self._gate.bodies_bytes += size
        return message


def _is_of(origin: str, host: str) -> bool:
    try:
        return urlsplit(origin).netloc == host
    except ValueError:
        return False


def _is_here(host: str) -> bool:
    try:
        name = urlsplit(f"//{host}").hostname or ""
        return name == "localhost" or bool(ip_address(name))
    except ValueError:
        return False


def _join_parts(scope: Scope) -> None:
    """A name's parts are joined by colons in a path; slashes that a program encoded mean the same.

    Writers' names alone may hold slashes: those are what they are.
    """
    raw = scope.get("raw_path") or b""
    if b"%2f" in raw.lower() and not raw.startswith(WRITERS):
        scope["path"] = unquote(raw.decode("ascii").replace("%2F", ":").replace("%2f", ":"))
    if "\x00" in scope["path"]:
        raise BadRequest("the path holds a zero byte")
