"""The HTTP status of every error of the catalogue."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec
from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException, ValidationException
from litestar.types import ASGIApp, Receive, Scope, Send

from headpond.model.errors import (
    CATALOGUE,
    AccessRefused,
    BadRequest,
    HeadpondError,
    NoRoute,
    NotHeld,
    WrongGroup,
    WrongMethod,
)
from headpond.shapes.convert import error_object

STATUSES: Final = {
    400: (
        "bad-request bad-topic-name bad-scope bad-setting bad-filter bad-segment key-missing "
        "value-missing schema-mismatch"
    ),
    401: "access-refused",
    403: "not-allowed cross-site",
    404: (
        "no-route topic-not-found subscription-not-found place-not-found producer-not-found "
        "writer-not-found stage-not-found token-not-found peer-not-found"
    ),
    405: "wrong-method",
    409: (
        "topic-exists place-exists peer-exists peer-itself peer-mismatch peer-barred producer-exists "
        "topic-mismatch subscription-mismatch subscription-busy subscription-moved producer-mismatch "
        "producer-busy stage-mismatch not-empty conflict fenced incarnation-changed schema-changed "
        "lease-lost not-held closed"
    ),
    410: "entries-missing",
    413: "body-too-large segment-too-large frame-too-large",
    415: "media-type",
    421: "wrong-group",
    429: "quota",
    500: "damaged bad-checksum",
    501: "not-supported",
    504: "timeout",
    507: "disk-full staging-full",
}
"""The codes of the errors with this status; errors that derive from them have it too."""
_STATUS_OF = {CATALOGUE[code]: status for status, codes in STATUSES.items() for code in codes.split()}
RETRYABLE: Final = 503
"""The status of every other retryable error."""
FAULT: Final = 500
REDIRECT: Final = 307
"""Of an error of another group of the cluster, if its active member answers HTTP."""


def status_of(error: HeadpondError) -> int:
    for kind in type(error).__mro__:
        if kind in _STATUS_OF:
            return _STATUS_OF[kind]
    return RETRYABLE if error.retryable else FAULT


logger = logging.getLogger("headpond.http")

RETRY_AFTER_S = 1
_WITH_RETRY_AFTER = (429, 503)


class PositionsNotHeld(NotHeld):
    """The consumer does not hold some of the positions to settle; the others are settled."""

    code = NotHeld.code

    def __init__(self, positions: list[str]) -> None:
        shown = ", ".join(positions[:10]) + (" …" if len(positions) > 10 else "")
        super().__init__(f"this consumer does not hold {shown}; the other positions are settled")
        self.positions = positions


def headers_of(error: HeadpondError, status: int) -> dict[str, str]:
    if isinstance(error, AccessRefused):
        return {"WWW-Authenticate": 'Bearer realm="headpond"'}
    return {"Retry-After": str(RETRY_AFTER_S)} if status in _WITH_RETRY_AFTER and error.retryable else {}


def body_of(error: HeadpondError) -> dict[str, Any]:
    found: dict[str, Any] = {**error_object(error)}
    if isinstance(error, PositionsNotHeld):
        found["positions"] = error.positions
    return found


def answer(error: HeadpondError, status: int | None = None) -> Response[dict[str, Any]]:
    """The response for an error; ``status`` replaces the error's own."""
    status = status_of(error) if status is None else status
    return Response(
        body_of(error), status_code=status, headers=headers_of(error, status), media_type=MediaType.JSON
    )


def on_headpond_error(request: Request[Any, Any, Any], error: HeadpondError) -> Response[dict[str, Any]]:
    if not isinstance(error, WrongGroup) or not error.http:
        return answer(error)
    path, query = request.scope["raw_path"], request.scope["query_string"]
    made = answer(error, REDIRECT)
    made.headers["Location"] = error.http + b"?".join(filter(None, (path, query))).decode("ascii")
    return made


def on_http_exception(request: Request[Any, Any, Any], error: HTTPException) -> Response[dict[str, Any]]:
    """An error of the framework as one of the catalogue."""
    found: HeadpondError
    if isinstance(error, NotFoundException):
        found = NoRoute(f"there is no route {request.url.path[:200]}")
    elif isinstance(error, MethodNotAllowedException):
        found = WrongMethod(f"{request.url.path[:200]} does not accept {request.method}")
    elif isinstance(error, ValidationException):
        found = BadRequest(_invalid_parts(error))
    elif error.status_code < 500:
        found = BadRequest(str(error.detail)[:500] or "the request is invalid")
    else:
        return on_fault(request, error)
    made = answer(found)
    if isinstance(error, MethodNotAllowedException) and error.headers:
        made.headers.update(error.headers)
    return made


def on_fault(request: Request[Any, Any, Any], error: Exception) -> Response[dict[str, Any]]:
    """An internal fault: the log has it, the answer does not."""
    route = request.scope.get("path_template") or "a request"  # the path itself may contain a secret
    logger.error("%s %s failed", request.method, route, exc_info=error)
    return answer(HeadpondError("the request failed; the node's log has the reason"))


def on_recursion(request: Request[Any, Any, Any], error: RecursionError) -> Response[dict[str, Any]]:
    return answer(BadRequest("the body is nested too deeply"))


def on_bad_text(request: Request[Any, Any, Any], error: UnicodeDecodeError) -> Response[dict[str, Any]]:
    return answer(BadRequest(f"the body is not UTF-8: {error}"))


def _invalid_parts(error: ValidationException) -> str:
    """The invalid parts of a request, each with the reason."""
    extra = error.extra if isinstance(error.extra, list) else []
    parts = [
        f"{each.get('key') or each.get('source') or 'body'}: {each.get('message')}"
        for each in extra
        if isinstance(each, dict)
    ]
    return "; ".join(parts)[:1000] or str(error.detail)[:500]


def refusing(error: HeadpondError, *, close: bool = False, **fields: Any) -> ASGIApp:
    """An application that answers every request with an error, and more ``fields`` in its body."""

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        status = status_of(error)
        body = msgspec.json.encode({**body_of(error), **fields})
        more = {**headers_of(error, status), **({"Connection": "close"} if close else {})}
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *((name.lower().encode(), text.encode()) for name, text in more.items()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    return refuse
