"""The lossy link of ``headpond up``: what it does to messages, and how much. No other node has these routes."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import get, patch
from litestar.params import JSONBody

from headpond.node.http.request import FromCaller, HttpRequest, state_of
from headpond.node.lossy_link import LossyLink
from headpond.wire.control.status import ShowNode

DELAY_S_MAX = 0.5
Share = Annotated[float, msgspec.Meta(ge=0, le=0.5)]


class FaultsBody(msgspec.Struct, forbid_unknown_fields=True):
    """Faults to change; the others stay."""

    loss: Share | msgspec.UnsetType = msgspec.UNSET
    duplicates: Share | msgspec.UnsetType = msgspec.UNSET
    delay_s: Annotated[float, msgspec.Meta(ge=0, le=DELAY_S_MAX)] | msgspec.UnsetType = msgspec.UNSET


@get("/lossy-link", tags=["lossy link"])
async def show_lossy_link(request: HttpRequest, caller: FromCaller) -> dict[str, Any]:
    """The faults of the link, and its counts of segments (to the node) and deliveries (to consumers)."""
    return _shown(await _link(request, caller))


@patch("/lossy-link", tags=["lossy link"])
async def change_lossy_link(
    request: HttpRequest, caller: FromCaller, data: JSONBody[FaultsBody]
) -> dict[str, Any]:
    """Change the faults of the link. They hold from the next frame on."""
    link = await _link(request, caller)
    for name, value in msgspec.structs.asdict(data).items():
        if value is not msgspec.UNSET:
            setattr(link.faults, name, value)
    return _shown(link)


async def _link(request: HttpRequest, caller: FromCaller) -> LossyLink:
    await caller.ask(ShowNode())  # refused unless the caller is an admin of everything
    link = state_of(request).lossy_link
    assert link is not None, "the application has these routes only with a link"
    return link


def _shown(link: LossyLink) -> dict[str, Any]:
    harm, counts = link.harm, msgspec.to_builtins
    return {
        "topic": link.topic,
        "subscription": link.subscription,
        "faults": counts(link.faults),
        "segments": counts(harm.segments),
        "deliveries": counts(harm.deliveries),
        "cuts": harm.cuts,
    }
