"""What routes share: who asks, names in paths, waiting until there is something or nobody waits any more."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from litestar import Request
from litestar.di import NamedDependency
from litestar.params import PathParameter, QueryParameter

from headpond.model.bounds import SECONDS_MAX
from headpond.model.errors import BadRequest, NodeStopping
from headpond.model.names import TopicName
from headpond.node.http.answers import ANSWER, Answer
from headpond.node.http.callers import Caller

if TYPE_CHECKING:
    from headpond.node.http.door import Door

NOT_ASKED = {"caller", "data", "request", "idempotency_key", "last_event_id"}
"""What routes take from elsewhere than the query."""
Asked = Request[Any, Any, Any]
Result = TypeVar("Result")

Called = NamedDependency[Caller]
"""Whoever asks, in a route."""

TopicPath = Annotated[
    str,
    PathParameter(description="A topic: `NAME`, or `tenant:product:component:NAME`. In answers: with slashes."),
]
Count = Annotated[int, QueryParameter(ge=1, le=1000, description="How many messages at most.")]
Wait = Annotated[
    float,
    QueryParameter(
        ge=0, le=SECONDS_MAX, description="Seconds to wait for a message; at most `http_limits.wait_s`."
    ),
]


def door_of(request: Asked) -> Door:
    door: Door = request.app.state.door
    return door


def answer_of(request: Asked) -> Answer:
    """The answer that is being made, to take room for it."""
    answer: Answer = request.scope["state"][ANSWER]
    return answer


def token_of(request: Asked) -> str | None:
    """The token of ``Authorization: Bearer TOKEN``."""
    given = request.headers.get("authorization")
    if given is None:
        return None
    scheme, _, token = given.strip().partition(" ")
    token = token.strip()
    if scheme.lower() != "bearer" or not token:
        raise BadRequest(
            "the Authorization header is not `Bearer TOKEN`", hint="Write Authorization: Bearer hpd_…"
        )
    return token


async def provide_caller(request: Asked) -> Caller:
    """The connection of whoever asks."""
    return await door_of(request).callers.get(token_of(request))


def refuse_unknown(request: Asked) -> None:
    """A mistyped name in the query would be as if it were not said."""
    if not request.scope["query_string"]:
        return
    told = (
        inspect.signature(request.route_handler.fn).parameters.keys() - NOT_ASKED - request.path_params.keys()
    )
    for name in request.query_params:
        if name not in told:
            known = ", ".join(sorted(told)) or "none"
            raise BadRequest(f"there is no {name[:80]!r} to ask for here", hint=f"Known in the query: {known}.")


def topic_name(text: str) -> str:
    """A topic's whole name."""
    return str(TopicName.parse(text.replace(":", "/")))


def wait_of(request: Asked, wait: float) -> float:
    limit = door_of(request).callers.limits.wait_s
    if not wait <= limit:
        raise BadRequest(f"a wait of {wait:g} s; at most {limit:g} are allowed (http_limits.wait_s)")
    return wait


def parse_start(text: str, *, new: bool = True) -> str | int | datetime:
    """``earliest``, ``latest``, ``state`` (of a new one), an entry, or a time in ISO 8601."""
    if text in ("earliest", "latest") or (new and text == "state"):
        return text
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        words = "earliest, latest, state" if new else "earliest, latest"
        raise BadRequest(f"{text[:80]!r} is none of {words}, an entry or a time (ISO 8601)") from None


async def while_asked(request: Asked, work: Coroutine[Any, Any, Result]) -> Result | None:
    """What ``work`` brings; None where whoever asked has gone meanwhile. A stopping node ends it."""
    doing = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    stopping = asyncio.ensure_future(door_of(request).stopping.wait())
    try:
        await asyncio.wait([doing, gone, stopping], return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            return doing.result()
        if stopping.done():
            raise NodeStopping("the node is shutting down")
        return None
    finally:
        for each in (doing, gone, stopping):
            each.cancel()
        await asyncio.gather(doing, gone, stopping, return_exceptions=True)


async def _gone(request: Asked) -> None:
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return
