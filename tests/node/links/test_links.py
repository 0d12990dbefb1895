"""Links of a node: they end when it stops, whatever they are doing."""

from __future__ import annotations

import asyncio

from headpond.broker.links.link_table import LinkMade
from headpond.broker.links.status import LinkStatus
from headpond.model.errors import Unavailable
from headpond.node.links.links import Peers
from tests.broker.links.peer_world import MemoryNode

MADE = LinkMade("west", "headpond://127.0.0.1:1", ["*"], "both", None, 0, "")


class FailingPeers(Peers):
    """Its first connection fails at the very moment at which it is cancelled, as a task group may show it."""

    failed = False

    async def _connect(self, made: LinkMade, status: LinkStatus, number: int) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if self.failed:
                raise
            self.failed = True
            raise ExceptionGroup("of the link", [Unavailable("the other node went away")]) from None


async def test_a_link_that_fails_while_it_is_stopped_ends() -> None:
    node = MemoryNode("a")
    peering = node.shell.core.peering
    peering.links.links[MADE.name] = MADE
    peers = FailingPeers(node.shell.core, node.drain)
    peers.follow_links()
    await asyncio.sleep(0)
    await asyncio.wait_for(peers.stop(), 5)
