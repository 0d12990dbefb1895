"""Errors as answers: the catalogue's fields as JSON, with a status that fits; nothing of what is inside."""

from __future__ import annotations

import logging
from typing import Any

import msgspec
from litestar import MediaType, Request, Response
from litestar.exceptions import (
    HTTPException,
    MethodNotAllowedException,
    NotFoundException,
    ValidationException,
)
from litestar.types import ASGIApp, Receive, Scope, Send

from headpond.api.status import status_of
from headpond.model.errors import (
    AccessRefused,
    BadRequest,
    HeadpondError,
    NoRoute,
    NotHeld,
    WrongMethod,
)
from headpond.shapes.error import error_object

logger = logging.getLogger("headpond.http")

RETRY_AFTER_S = 1
_ANSWERED = (429, 503)


class PositionsNotHeld(NotHeld):
    """Some positions that were to be settled are not in this consumer's hands; the others are settled."""

    def __init__(self, positions: list[str]) -> None:
        shown = ", ".join(positions[:10]) + (" …" if len(positions) > 10 else "")
        super().__init__(f"not in this consumer's hands: {shown}; what else was named is settled")
        self.positions = positions


def headers_of(error: HeadpondError, status: int) -> dict[str, str]:
    if isinstance(error, AccessRefused):
        return {"WWW-Authenticate": 'Bearer realm="headpond"'}
    return {"Retry-After": str(RETRY_AFTER_S)} if status in _ANSWERED and error.retryable else {}


def body_of(error: HeadpondError) -> dict[str, Any]:
    found: dict[str, Any] = {**error_object(error)}
    if isinstance(error, PositionsNotHeld):
        found["positions"] = error.positions
    return found


def answer(error: HeadpondError, status: int | None = None) -> Response[dict[str, Any]]:
    """``status`` where it is not the error's own."""
    status = status_of(error) if status is None else status
    return Response(
        body_of(error), status_code=status, headers=headers_of(error, status), media_type=MediaType.JSON
    )


def on_headpond_error(request: Request[Any, Any, Any], error: HeadpondError) -> Response[dict[str, Any]]:
    return answer(error)


def on_http_exception(request: Request[Any, Any, Any], error: HTTPException) -> Response[dict[str, Any]]:
    """What the framework refuses, in the catalogue's words."""
    found: HeadpondError
    if isinstance(error, NotFoundException):
        found = NoRoute(f"there is nothing at {request.url.path[:200]}")
    elif isinstance(error, MethodNotAllowedException):
        found = WrongMethod(f"{request.method} is not taken at {request.url.path[:200]}")
    elif isinstance(error, ValidationException):
        found = BadRequest(_told(error))
    elif error.status_code < 500:
        found = BadRequest(str(error.detail)[:500] or "the request cannot be read")
    else:
        return on_fault(request, error)
    made = answer(found)
    if isinstance(error, MethodNotAllowedException) and error.headers:
        made.headers.update(error.headers)
    return made


def on_fault(request: Request[Any, Any, Any], error: Exception) -> Response[dict[str, Any]]:
    """A fault of ours: told in the log, not in the answer."""
    route = request.scope.get("path_template") or "a request"  # the path itself may hold what is secret
    logger.error("%s %s failed", request.method, route, exc_info=error)
    return answer(HeadpondError("the node failed to do this; its log says why"))


def on_recursion(request: Request[Any, Any, Any], error: RecursionError) -> Response[dict[str, Any]]:
    return answer(BadRequest("the body is nested too deeply"))


def _told(error: ValidationException) -> str:
    """Which part of the request is at fault, and why."""
    extra = error.extra if isinstance(error.extra, list) else []
    parts = [
        f"{each.get('key') or each.get('source') or 'body'}: {each.get('message')}"
        for each in extra
        if isinstance(each, dict)
    ]
    return "; ".join(parts)[:1000] or str(error.detail)[:500]


def refusing(error: HeadpondError, *, close: bool = False) -> ASGIApp:
    """An application that answers with an error, whatever is asked."""

    async def refuse(scope: Scope, receive: Receive, send: Send) -> None:
        status = status_of(error)
        body = msgspec.json.encode(body_of(error))
        more = {**headers_of(error, status), **({"Connection": "close"} if close else {})}
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *((name.lower().encode(), text.encode()) for name, text in more.items()),
        ]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body, "more_body": False})

    return refuse
