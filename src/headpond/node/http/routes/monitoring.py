"""The node itself: ``/livez``, ``/readyz``, ``/metrics``, and below ``/v1`` its node, top, cluster and errors.

``/metrics`` (metrics.py) is for Prometheus, and for an admin of everything. It shows at most 1,000 topics and
subscriptions, the busiest and the furthest behind, and how many it left out.
"""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from litestar import MediaType, Response, get
from litestar.params import FromPath, QueryParameter
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from headpond.model.errors import CATALOGUE, BadRequest, NoRoute
from headpond.node.http.metrics import NodeReadings, render
from headpond.node.http.request import FromCaller, HttpRequest, state_of, topic_name, while_connected
from headpond.node.http.status import answer
from headpond.shapes.convert import ErrorExplained, explained_object
from headpond.shapes.top import HistoryShape, Sample, sample, top_object
from headpond.wire.control.status import ROWS_MAX, ShowNode, ShowTop
from headpond.wire.typed.values import readable

UNREADY = 503


@get("/livez", media_type=MediaType.TEXT, tags=["health"])
async def livez() -> str:
    """The process is there and its loop turns."""
    return "ok\n"


@get("/readyz", media_type=MediaType.TEXT, tags=["health"])
async def readyz(request: HttpRequest) -> Response[Any]:
    """The node takes messages; 503, with the reason, while it stops or its disk is full."""
    hindrance = state_of(request).hindrance()
    return Response("ok\n") if hindrance is None else answer(hindrance, UNREADY)


# --- the node ---------------------------------------------------------------------------------------


@get("/node", tags=["node"])
async def show_node(request: HttpRequest, caller: FromCaller) -> dict[str, Any]:
    """The node's counters, limits and what recovery found."""
    found: dict[str, Any] = readable(await caller.ask(ShowNode()))
    # Only a node of `headpond up` has such a link; the console looks here before it asks for one.
    return found if state_of(request).lossy_link is None else {**found, "lossy_link": True}


@get("/top", tags=["node"])
async def show_top(
    request: HttpRequest,
    caller: FromCaller,
    topic: Annotated[str, QueryParameter(description="Topics of this form alone (* and ?).")] = "",
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 50,
    interval: Annotated[
        float, QueryParameter(ge=0.1, le=30, description="Seconds between two readings.")
    ] = 1.0,
) -> dict[str, Any]:
    """Rates and lag, from two readings; the furthest behind come first."""

    async def read() -> Sample:
        before = await caller.ask(ShowTop(topic, limit))
        await asyncio.sleep(interval)
        return sample(before, await caller.ask(ShowTop(topic, limit)))

    found = await while_connected(request, read())
    return {} if found is None else top_object(found)


@get("/history", tags=["node"])
async def show_history(
    request: HttpRequest,
    caller: FromCaller,
    topic: Annotated[
        str, QueryParameter(max_length=1024, description="This topic and its subscriptions too.")
    ] = "",
) -> HistoryShape:
    """The last hour of the node and its links, and of a topic while it is among the 50 busiest."""
    await caller.ask(ShowNode())  # refused unless the caller is an admin of everything
    return state_of(request).history.show(topic_name(topic) if topic else None)


@get("/cluster", tags=["node"])
async def show_cluster(request: HttpRequest, caller: FromCaller) -> dict[str, Any]:
    """The members of the node's group, and its stream; takes a second. A standby answers it too."""
    await caller.ask(ShowNode())  # refused unless the caller is an admin of everything
    cluster = state_of(request).cluster
    if cluster is None:
        raise NoRoute("this node is no member of a cluster", hint="docs/cluster.md has the steps.")
    return await cluster.group()


@get("/errors", tags=["node"])
async def list_errors() -> list[ErrorExplained]:
    """The catalogue of errors."""
    return [explained_object(kind) for _, kind in sorted(CATALOGUE.items())]


@get("/errors/{code:str}", tags=["node"])
async def explain_error(code: FromPath[str]) -> ErrorExplained:
    """What an error means, and what to do next."""
    if code not in CATALOGUE:
        raise BadRequest(f"there is no error {code[:80]!r}", hint="GET /v1/errors lists all there are.")
    return explained_object(CATALOGUE[code])


# --- Prometheus -------------------------------------------------------------------------------------


@get("/metrics", media_type="text/plain", tags=["health"])
async def metrics(request: HttpRequest, caller: FromCaller) -> Response[bytes]:
    """The node's counters, its topics and its subscriptions, for Prometheus."""
    top = await caller.ask(ShowTop("", ROWS_MAX))
    counters = (await caller.ask(ShowNode())).get("counters", {})
    state = state_of(request)
    readings: list[Collector] = [NodeReadings(top, counters, state.gauges(), state.timings)]
    if state.cluster is not None:
        readings.append(await state.cluster.readings())
    page = await asyncio.to_thread(render, *readings)
    return Response(page, headers={"Content-Type": CONTENT_TYPE_LATEST})
