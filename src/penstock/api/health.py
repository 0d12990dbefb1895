"""``/livez`` and ``/readyz``: whether the process answers, whether the node takes requests."""

from __future__ import annotations

from litestar import MediaType, get

from penstock.api.asking import Asked, door_of
from penstock.model.errors import NodeStopping


@get("/livez", media_type=MediaType.TEXT, tags=["health"])
async def livez() -> str:
    """The process is there and its loop turns."""
    return "ok\n"


@get("/readyz", media_type=MediaType.TEXT, tags=["health"])
async def readyz(request: Asked) -> str:
    """The node takes requests; 503 while it stops."""
    if not door_of(request).ready:
        raise NodeStopping("the node is shutting down")
    return "ok\n"


ROUTES = [livez, readyz]
