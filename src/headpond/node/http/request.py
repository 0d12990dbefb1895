"""What routes share: the state of the HTTP server, the caller of a request, names in paths, and waiting."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from litestar import Request
from litestar.di import NamedDependency
from litestar.params import PathParameter, QueryParameter

from headpond.broker.timings import Timings
from headpond.client.reader import Reader
from headpond.model.bounds import SECONDS_MAX
from headpond.model.errors import BadRequest, HeadpondError, NodeStopping
from headpond.model.names import TopicName
from headpond.node.http.answers import ANSWER, Answer
from headpond.node.http.callers import Caller, Callers
from headpond.node.http.held import parse_start
from headpond.node.http.history import History
from headpond.wire.control.operation import Page

if TYPE_CHECKING:
    from headpond.node.http.cluster import ClusterView
    from headpond.node.lossy_link import LossyLink

NOT_IN_QUERY = {"caller", "data", "request", "idempotency_key", "last_event_id"}
"""Parameters of routes that come from elsewhere than the query."""
HttpRequest = Request[Any, Any, Any]
Result = TypeVar("Result")

FromCaller = NamedDependency[Caller]
"""The caller of a request, in the signature of a route."""

TopicPath = Annotated[
    str,
    PathParameter(description="A topic: `NAME`, or `tenant:product:component:NAME`. In answers: with slashes."),
]
Count = Annotated[int, QueryParameter(ge=1, le=1000, description="How many messages at most.")]
Match = Annotated[str, QueryParameter(max_length=4096, description="Only full names that contain it.")]
After = Annotated[str, QueryParameter(max_length=4096, description="Only full names after this one.")]
Limit = Annotated[
    int | None, QueryParameter(ge=1, le=1000, description="At most so many, in the order of full names.")
]
Wait = Annotated[
    float,
    QueryParameter(
        ge=0, le=SECONDS_MAX, description="Seconds to wait for a message; at most `http_limits.wait_s`."
    ),
]


@dataclass(frozen=True, slots=True)
class HttpState:
    """What routes use of the HTTP server and its node."""

    callers: Callers
    stopping: asyncio.Event
    """Set when the node stops: waits and streams end."""
    hindrance: Callable[[], HeadpondError | None]
    """Why the node takes no messages now; None while it does."""
    gauges: Callable[[], dict[str, int]]
    """The counts of the HTTP server, for ``/metrics``."""
    timings: Timings
    history: History
    cluster: ClusterView | None
    """If the node is a member of a cluster."""
    lossy_link: LossyLink | None = None
    """The link of ``headpond up``; None on every other node."""


def state_of(request: HttpRequest) -> HttpState:
    state: HttpState = request.app.state.http
    return state


def answer_of(request: HttpRequest) -> Answer:
    """The answer to a request, which a route makes room for."""
    answer: Answer = request.scope["state"][ANSWER]
    return answer


def token_of(request: HttpRequest) -> str | None:
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


async def provide_caller(request: HttpRequest) -> Caller:
    return await state_of(request).callers.get(token_of(request))


def refuse_unknown(request: HttpRequest) -> None:
    """Refuses a query parameter that the route does not have: it may be a typing error."""
    if not request.scope["query_string"]:
        return
    parameters = inspect.signature(request.route_handler.fn).parameters.keys()
    known = parameters - NOT_IN_QUERY - request.path_params.keys()
    for name in request.query_params:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise BadRequest(
                f"this route has no query parameter {name[:80]!r}", hint=f"Known in the query: {names}."
            )


@lru_cache(4096)
def topic_name(text: str) -> str:
    """The full name of a topic in a path."""
    return str(TopicName.parse(text.replace(":", "/")))


def page_of(match: str, after: str, limit: int | None) -> Page | None:
    """The part of a list that a request asks for; None: the whole list."""
    if limit is not None:
        return Page(match, after, limit)
    if match or after:
        raise BadRequest("a search needs a limit", hint="Add limit=100, for one.")
    return None


def wait_of(request: HttpRequest, wait: float) -> float:
    limit = state_of(request).callers.limits.wait_s
    if not wait <= limit:
        raise BadRequest(f"a wait of {wait:g} s; at most {limit:g} are allowed (http_limits.wait_s)")
    return wait


async def first_entries(reader: Reader, start: str) -> list[int]:
    """The entry of each shard that a reading starts at: ``earliest``, ``latest``, an entry or a time."""
    place = parse_start(start, new=False)
    if isinstance(place, datetime):
        return await reader.entries_at(place)
    if isinstance(place, int):
        return [place] * reader.shards
    return [each.entry_next if place == "latest" else each.entry_first for each in await reader.ends()]


async def while_connected(request: HttpRequest, work: Coroutine[Any, Any, Result]) -> Result | None:
    """The result of ``work``; None if the client hangs up first. A stopping node ends it with an error."""
    doing = asyncio.ensure_future(work)
    gone = asyncio.ensure_future(_gone(request))
    stopping = asyncio.ensure_future(state_of(request).stopping.wait())
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


async def _gone(request: HttpRequest) -> None:
    while True:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            return
