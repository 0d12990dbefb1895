"""Checks before every route: sizes and numbers of requests, and protection from web pages.

A browser sends requests for any page that it shows, to 127.0.0.1 too. Four things keep pages out:

1. ``Sec-Fetch-Site`` is how the browser describes the page. Anything but ``same-origin`` and ``none`` (a person
   typed the address) is refused; a page on another port of localhost is ``same-site``, and refused too. Only a
   link to the console is followed from anywhere: its page holds no data, and what it then asks is its own.
2. Browsers send ``Origin`` with every POST to another origin, also those that do not send the first header. It
   must be the ``Host`` of the request or one of ``http_names``.
3. No route takes the content types that an HTML form can send (``FORMS``).
4. A page can point its own domain name at this machine (DNS rebinding) and is same-origin then. So a node
   without tokens takes a ``Host`` only if it is one of the node's names (``OwnNames``). A node with tokens
   takes any: the page has no token.

Older browsers send none of these with an image or a script, which is a GET: no GET changes anything.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection
from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import unquote, urlsplit

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Receive, ReceiveMessage, Scope, Send

from headpond.broker.settings import HttpLimits
from headpond.model.address import Address, parse_place
from headpond.model.errors import (
    BadRequest,
    BodyTooLarge,
    ConnectionLost,
    CrossSite,
    HeadpondError,
    LimitReached,
    WrongMediaType,
)
from headpond.node.http.answers import ANSWER, Answer, AnswerRoom
from headpond.node.http.status import refusing

HEALTH = ("/livez", "/readyz")
"""Answered also when there is no room: a supervisor might end the node otherwise."""
WRITERS = b"/v1/writers/"
MESSAGES = "/messages"
ADMIN_BODY_BYTES = 1024 * 1024
"""The body of a request that sends no messages."""
MEDIA = re.compile(rb"[\w!#$&^.+-]+/[\w!#$&^.+-]+")
FORMS = (b"text/plain", b"application/x-www-form-urlencoded", b"multipart/form-data")
SAME_ORIGIN = ("same-origin", "none")


class OwnNames:
    """The names of a node in a ``Host`` header: where it listens, and ``http_names``.

    On loopback these are ``localhost`` and every loopback address, on all addresses (0.0.0.0) any address: a
    page can choose the address of its name, but it has no address as its name.
    """

    def __init__(self, listen: str, names: Collection[str]) -> None:
        self._listen = listen.lower()
        self._given = {parse_place(each).host.lower() for each in names}
        address = _address(listen)
        self._any_address = address is not None and address.is_unspecified
        self._loopback = self._any_address or Address(listen).on_loopback

    def __contains__(self, place: str) -> bool:
        """Whether a ``HOST`` or ``HOST:PORT`` is a name of the node. Ports may differ: tunnels change them."""
        name = _name(place)
        if name == self._listen or name in self._given:
            return True
        return (self._loopback and Address(name).on_loopback) or (
            self._any_address and _address(name) is not None
        )

    def is_given(self, place: str) -> bool:
        """Whether a place is one of ``http_names``."""
        return _name(place) in self._given


class Gate:
    def __init__(
        self, app: ASGIApp, limits: HttpLimits, is_guarded: Callable[[], bool], names: OwnNames
    ) -> None:
        self._app = app
        self.limits = limits
        self._share = limits.share_of(limits.requests)
        self._is_guarded = is_guarded
        self._names = names
        self.answers = AnswerRoom(limits.answers_bytes, limits.answer_wait_s)
        self.requests = 0
        self._by_token: Counter[bytes] = Counter()
        """Requests under way of each token."""
        self.bodies_bytes = 0
        self.refused = 0
        """Requests that the gate refused."""
        self.hung_up = 0
        """Clients that hung up in the middle of a request."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            return
        headers = dict(scope["headers"])
        answer = scope["state"][ANSWER] = Answer(self.answers, scope, receive, send)
        body = Body(self, receive, answer, self._body_max(scope))
        words = headers.get(b"authorization", b"").split()
        token = words[-1] if words else None
        try:
            self._check(headers, body, is_link=_is_link_to_console(scope, headers))
            if scope["path"] not in HEALTH:
                self._check_room(token)
            elif scope["method"] == "HEAD":  # as load balancers ask; h11 leaves the body out
                scope = {**scope, "method": "GET"}
            _join_parts(scope)
        except HeadpondError as error:
            self.refused += 1
            await refusing(error, close=b"transfer-encoding" in headers)(scope, receive, send)
            return
        self.requests += 1
        if token is not None:
            self._by_token[token] += 1
        try:
            await self._app(scope, body.receive, answer.send)
        finally:
            self.requests -= 1
            if token is not None:
                self._by_token[token] -= 1
                if not self._by_token[token]:
                    del self._by_token[token]
            answer.close()
            self.bodies_bytes -= body.bytes

    def _body_max(self, scope: HTTPScope) -> int:
        """Only messages may be large: other bodies are short, and decoded in the node's loop."""
        sends = scope["method"] == "POST" and scope["path"].endswith(MESSAGES)
        return self.limits.body_bytes if sends else min(self.limits.body_bytes, ADMIN_BODY_BYTES)

    def _check(self, headers: dict[bytes, bytes], body: Body, *, is_link: bool) -> None:
        self._check_site(headers, is_link=is_link)
        if b"transfer-encoding" in headers and b"content-length" in headers:
            raise BadRequest("the request has both a Content-Length and a Transfer-Encoding")
        if headers.get(b"content-encoding", b"identity").strip().lower() not in (b"identity", b""):
            raise WrongMediaType(
                "a body with a Content-Encoding is not accepted", hint="Send it without compression."
            )
        media = headers.get(b"content-type", b"").partition(b";")[0].strip().lower()
        if media in FORMS or (media and not MEDIA.fullmatch(media)):  # some browsers accept an invalid one
            shown = media[:80].decode("latin-1")
            raise WrongMediaType(
                f"a body of {shown!r} is not accepted: forms of web pages send this type",
                hint="Set the type, as in Content-Type: application/json (curl: -H).",
            )
        size = headers.get(b"content-length", b"0")
        if size.isdigit():
            body.check(int(size))

    def _check_site(self, headers: dict[bytes, bytes], *, is_link: bool) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        if b"sec-fetch-site" in headers and not is_link:
            site = headers[b"sec-fetch-site"].decode("latin-1")
            if site not in SAME_ORIGIN:
                raise CrossSite(f"a browser sent this for a page of another site (Sec-Fetch-Site: {site[:80]})")
        if b"origin" in headers:
            origin = headers[b"origin"].decode("latin-1")
            if not self._is_own(origin, host):
                raise CrossSite(f"a browser sent this for a page of another site (Origin: {origin[:80]})")
        if not self._is_guarded() and host not in self._names:
            raise CrossSite(
                f"this node asks for no tokens, and its name is not {host[:80]!r} (Host)",
                hint="Use the address that it listens on, as in http://127.0.0.1:7412. A name behind a "
                "proxy belongs in http_names in the node's settings.",
            )

    def _is_own(self, origin: str, host: str) -> bool:
        try:
            place = urlsplit(origin).netloc
        except ValueError:
            return False
        return bool(place) and (place == host or self._names.is_given(place))

    def _check_room(self, token: bytes | None) -> None:
        if self.requests >= self.limits.requests:
            raise LimitReached(f"{self.limits.requests:,} requests are under way (http_limits.requests)")
        if token is not None and self._by_token[token] >= self._share:
            raise LimitReached(
                f"{self._share:,} requests of this token are under way (http_limits.caller_share)"
            )


class Body:
    """The body of one request as it comes, counted."""

    def __init__(self, gate: Gate, receive: Receive, answer: Answer, bytes_max: int) -> None:
        self._gate = gate
        self._receive = receive
        self._answer = answer
        self._bytes_max = bytes_max
        self._whole = False
        self.bytes = 0

    def check(self, size: int) -> None:
        """Refuses a body of ``size`` bytes, of which some are counted already, if it is too large now."""
        if size > self._bytes_max:
            raise BodyTooLarge(f"a body of more than {self._bytes_max:,} bytes")
        limit = self._gate.limits.bodies_bytes
        if self._gate.bodies_bytes + size - self.bytes > limit:
            raise LimitReached(f"the requests under way hold {limit:,} bytes (http_limits.bodies_bytes)")

    async def receive(self) -> ReceiveMessage:
        message = await self._receive()
        if message["type"] == "http.request":
            size = len(message["body"])
            self.check(self.bytes + size)
            self.bytes += size
            self._gate.bodies_bytes += size
            self._whole = not message["more_body"]
        elif not self._whole and not self._answer.started:
            self._gate.hung_up += 1
            raise ConnectionLost("the client hung up before its request was complete")
        return message


def _is_link_to_console(scope: HTTPScope, headers: dict[bytes, bytes]) -> bool:
    """Whether a browser asks for the page of the console to show it in a window, not in a frame."""
    shown = headers.get(b"sec-fetch-mode"), headers.get(b"sec-fetch-dest")
    return scope["method"] == "GET" and scope["path"] == "/" and shown == (b"navigate", b"document")


def _name(place: str) -> str:
    """The host of ``HOST:PORT``, in lower case; empty if there is none."""
    try:
        return urlsplit(f"//{place}").hostname or ""
    except ValueError:
        return ""


def _address(name: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(name)
    except ValueError:
        return None


def _join_parts(scope: Scope) -> None:
    """Replaces encoded slashes in a path by the colons that join the parts of a name.

    Only names of writers may hold slashes; they stay as they are.
    """
    raw = scope.get("raw_path") or b""
    if b"%2f" in raw.lower() and not raw.startswith(WRITERS):
        scope["path"] = unquote(raw.decode("ascii").replace("%2F", ":").replace("%2f", ":"))
    if "\x00" in scope["path"]:
        raise BadRequest("the path contains a zero byte")
