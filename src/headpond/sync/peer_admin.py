"""Questions about links to other nodes, and changes to them."""

from __future__ import annotations

from collections.abc import Sequence

from headpond.client.admin import Admin as AsyncAdmin
from headpond.sync.background import Background
from headpond.wire.peering import PeerInfo


class PeerAdmin:
    """The part of ``client.admin`` that is about links between nodes."""

    _admin: AsyncAdmin
    _background: Background

    def add_peer(
        self,
        url: str,
        topics: Sequence[str],
        *,
        direction: str = "pull",
        name: str = "",
        token: str | None = None,
        subscriptions: Sequence[str] = (),
    ) -> PeerInfo:
        """Links the node to the one at ``url``: topics that match follow, those made later too."""
        added = self._admin.add_peer(
            url, topics, direction=direction, name=name, token=token, subscriptions=subscriptions
        )
        return self._background.run(added)

    def list_peers(self) -> list[PeerInfo]:
        """The links of the node, and how each does."""
        return self._background.run(self._admin.list_peers())

    def show_peer(self, name: str) -> PeerInfo:
        """One link, with its topics."""
        return self._background.run(self._admin.show_peer(name))

    def remove_peer(self, name: str) -> None:
        """Ends a link. What it brought stays."""
        self._background.run(self._admin.remove_peer(name))
