"""``/v1/node``, ``/v1/top``, ``/v1/errors``: the node itself, how busy it is, and the catalogue of errors."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any, TypedDict

from litestar import get
from litestar.params import FromPath, QueryParameter

from headpond.model.errors import CATALOGUE, BadRequest
from headpond.node.http.asking import Asked, Called, while_asked
from headpond.shapes.top import Sample, sample, top_object
from headpond.wire.typed.values import readable


class ErrorExplained(TypedDict):
    code: str
    meaning: str
    hint: str
    retryable: bool


@get("/node", tags=["node"])
async def show_node(caller: Called) -> dict[str, Any]:
    """The node's counters, limits and what recovery found."""
    found: dict[str, Any] = readable(dict(await caller.client.admin.show_node()))
    return found


@get("/top", tags=["node"])
async def show_top(
    request: Asked,
    caller: Called,
    topic: Annotated[str, QueryParameter(description="Topics of this form alone (* and ?).")] = "",
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 50,
    interval: Annotated[
        float, QueryParameter(ge=0.1, le=30, description="Seconds between two readings.")
    ] = 1.0,
) -> dict[str, Any]:
    """Rates and lag, from two readings; the furthest behind come first."""

    async def read() -> Sample:
        before = await caller.client.admin.top(topic, limit=limit)
        await asyncio.sleep(interval)
        return sample(before, await caller.client.admin.top(topic, limit=limit))

    found = await while_asked(request, read())
    return {} if found is None else top_object(found)


@get("/errors", tags=["node"])
async def list_errors() -> list[ErrorExplained]:
    """The catalogue of errors."""
    return [_explained(code) for code in sorted(CATALOGUE)]


@get("/errors/{code:str}", tags=["node"])
async def explain_error(code: FromPath[str]) -> ErrorExplained:
    """What an error means, and what to do next."""
    if code not in CATALOGUE:
        raise BadRequest(f"there is no error {code[:80]!r}", hint="GET /v1/errors lists all there are.")
    return _explained(code)


def _explained(code: str) -> ErrorExplained:
    kind = CATALOGUE[code]
    meaning = " ".join((kind.__doc__ or "").split())
    return {"code": code, "meaning": meaning, "hint": kind.default_hint, "retryable": kind.retryable}


ROUTES = [show_node, show_top, list_errors, explain_error]
