"""``/v1/peers``: the links of the node to other nodes. A link's token is taken, and never told."""

from __future__ import annotations

import msgspec
from litestar import delete, get, post
from litestar.params import FromPath, JSONBody

from headpond.model.bounds import Name, Patterns, TopicText, Word
from headpond.node.http.asking import Called
from headpond.shapes.resources import PeerShape, RemovedPeerShape, peer_object


class PeerBody(msgspec.Struct, forbid_unknown_fields=True):
    url: TopicText
    """The other node: headpond://HOST:PORT."""
    topics: Patterns
    direction: Word = "pull"
    """pull, push or both."""
    name: Word = ""
    token: Name | None = None
    """A token of the other node."""
    subscriptions: Patterns = []
    """Subscriptions that follow too: names, beginnings with a star, or * for all."""


@get("/peers", tags=["peers"])
async def list_peers(caller: Called) -> list[PeerShape]:
    """List the links of the node, and how each does."""
    return [peer_object(info) for info in await caller.client.admin.list_peers()]


@post("/peers", tags=["peers"])
async def add_peer(caller: Called, data: JSONBody[PeerBody]) -> PeerShape:
    """Link the node to another; the same name and URL again changes topics, direction and token."""
    info = await caller.client.admin.add_peer(
        data.url,
        data.topics,
        direction=data.direction,
        name=data.name,
        token=data.token,
        subscriptions=data.subscriptions,
    )
    return peer_object(info)


@get("/peers/{peer:str}", tags=["peers"])
async def show_peer(caller: Called, peer: FromPath[str]) -> PeerShape:
    """Show a link: its state, what it carried, and every topic that it is about."""
    return peer_object(await caller.client.admin.show_peer(peer), whole=True)


@delete("/peers/{peer:str}", status_code=200, tags=["peers"])
async def remove_peer(caller: Called, peer: FromPath[str]) -> RemovedPeerShape:
    """End a link. What it brought stays."""
    await caller.client.admin.remove_peer(peer)
    return {"peer": peer, "removed": True}


ROUTES = [list_peers, add_peer, show_peer, remove_peer]
