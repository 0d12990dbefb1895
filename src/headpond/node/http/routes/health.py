"""``/livez`` and ``/readyz``: whether the process answers, whether the node takes what it is sent."""

from __future__ import annotations

from typing import Any

from litestar import MediaType, Response, get

from headpond.node.http.asking import Asked, door_of
from headpond.node.http.status import answer

UNREADY = 503


@get("/livez", media_type=MediaType.TEXT, tags=["health"])
async def livez() -> str:
    """The process is there and its loop turns."""
    return "ok\n"


@get("/readyz", media_type=MediaType.TEXT, tags=["health"])
async def readyz(request: Asked) -> Response[Any]:
    """The node takes what it is sent; 503, with the reason, while it stops or its disk is full."""
    hindrance = door_of(request).hindrance
    return Response("ok\n") if hindrance is None else answer(hindrance, UNREADY)


ROUTES = [livez, readyz]
