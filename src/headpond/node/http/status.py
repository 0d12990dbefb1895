"""The HTTP status of every error of the catalogue."""

from __future__ import annotations

import logging
from typing import Any, Final

import msgspec
from litestar import MediaType, Request, Response
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException, ValidationException
from litestar.types import ASGIApp, Receive, Scope, Send

from headpond.model import errors as e
from headpond.model.errors import AccessRefused, BadRequest, HeadpondError, NoRoute, NotHeld, WrongMethod
from headpond.shapes.convert import error_object

BY_ERROR: Final[dict[type[e.HeadpondError], int]] = {
    e.HeadpondError: 500,
    # invalid requests
    e.BadRequest: 400,
    e.BadTopicName: 400,
    e.BadScope: 400,
    e.BadSetting: 400,
    e.BadFilter: 400,
    e.BadSegment: 400,
    e.KeyMissing: 400,
    e.ValueMissing: 400,
    e.SchemaMismatch: 400,
    e.NoRoute: 404,
    e.WrongMethod: 405,
    e.WrongMediaType: 415,
    # tokens and rights
    e.AccessRefused: 401,
    e.NotAllowed: 403,
    e.CrossSite: 403,
    # things that are missing, or in the way
    e.TopicNotFound: 404,
    e.SubscriptionNotFound: 404,
    e.PlaceNotFound: 404,
    e.ProducerNotFound: 404,
    e.WriterNotFound: 404,
    e.StageNotFound: 404,
    e.TokenNotFound: 404,
    e.PeerNotFound: 404,
    e.EntriesMissing: 410,
    e.TopicExists: 409,
    e.PlaceExists: 409,
    e.PeerExists: 409,
    e.PeerItself: 409,
    e.PeerMismatch: 409,
    e.PeerBarred: 409,
    e.ProducerExists: 409,
    e.TopicMismatch: 409,
    e.SubscriptionMismatch: 409,
    e.SubscriptionBusy: 409,
    e.SubscriptionMoved: 409,
    e.ProducerMismatch: 409,
    e.ProducerBusy: 409,
    e.StageMismatch: 409,
    e.NotEmpty: 409,
    e.Conflict: 409,
    e.Fenced: 409,
    e.IncarnationChanged: 409,
    e.SchemaChanged: 409,
    e.LeaseLost: 409,
    e.NotHeld: 409,
    e.Closed: 409,
    # limits of size and room
    e.BodyTooLarge: 413,
    e.SegmentTooLarge: 413,
    e.FrameTooLarge: 413,
    e.QuotaReached: 429,
    e.DiskFull: 507,
    e.StagingFull: 507,
    # everything else
    e.NotSupported: 501,
    e.TimedOut: 504,
    e.Damaged: 500,
    e.BadChecksum: 500,
}
RETRYABLE: Final = 503
"""The status of every other retryable error."""


def status_of(error: e.HeadpondError) -> int:
    for kind in type(error).__mro__:
        if kind in BY_ERROR and kind is not e.HeadpondError:
            return BY_ERROR[kind]
    return RETRYABLE if error.retryable else BY_ERROR[e.HeadpondError]


logger = logging.getLogger("headpond.http")

RETRY_AFTER_S = 1
_WITH_RETRY_AFTER = (429, 503)


class PositionsNotHeld(NotHeld):
    """The consumer does not hold some of the positions to settle; the others are settled."""

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
    return answer(error)


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


def _invalid_parts(error: ValidationException) -> str:
    """The invalid parts of a request, each with the reason."""
    extra = error.extra if isinstance(error.extra, list) else []
    parts = [
        f"{each.get('key') or each.get('source') or 'body'}: {each.get('message')}"
        for each in extra
        if isinstance(each, dict)
    ]
    return "; ".join(parts)[:1000] or str(error.detail)[:500]


def refusing(error: HeadpondError, *, close: bool = False) -> ASGIApp:
    """An application that answers every request with an error."""

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
