"""Questions about links to other nodes, and changes to them."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.client.arguments import checked_methods
from headpond.client.link import Link
from headpond.wire.control import read_result
from headpond.wire.peering import AddPeer, ListPeers, PeerInfo, RemovePeer, ShowPeer


@checked_methods
class PeerAdmin:
    """The part of ``client.admin`` that is about links between nodes."""

    _link: Link

    async def add_peer(
        self,
        url: str,
        topics: Sequence[str],
        *,
        direction: str = "pull",
        name: str = "",
        token: str | None = None,
        subscriptions: Sequence[str] = (),
    ) -> PeerInfo:
        """Links the node to the one at ``url``: topics that match follow, those made later too.

        ``direction`` is ``pull`` (the other's messages come here), ``push`` or ``both``. ``name`` is the
        address if none is given; the same name and URL again changes topics, direction and token. ``token`` is
        one of the other node: to consume for ``pull``, of an admin for ``push``. ``subscriptions`` names those
        that follow too: names, beginnings with a star, or ``*`` for all.
        """
        ask = AddPeer(url, list(topics), direction, name, token, list(subscriptions))
        return read_result(await self._link.request(ask), PeerInfo)

    async def list_peers(self) -> list[PeerInfo]:
        """The links of the node, and how each does."""
        return read_result(await self._link.request(ListPeers(), retry=True), list[PeerInfo])

    async def show_peer(self, name: str) -> PeerInfo:
        """One link, with its topics."""
        return read_result(await self._link.request(ShowPeer(name), retry=True), PeerInfo)

    async def remove_peer(self, name: str) -> None:
        """Ends a link. What it brought stays."""
        await self._link.request(RemovePeer(name))
