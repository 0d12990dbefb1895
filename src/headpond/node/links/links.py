"""The node's links to other nodes: each one is dialled, runs, and is dialled again, until it is removed.

A link is one connection, opened by the node that has the link, whichever direction messages take; so a node
that no other can reach may still be copied. Which records a node takes is decided by the core
(broker/links/requests.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from headpond.broker.core import NodeCore
from headpond.broker.links.link_table import LinkMade
from headpond.broker.links.status import MESSAGE_LENGTH_MAX, LinkStatus
from headpond.broker.session import shown
from headpond.client.link.dialling import Backoff
from headpond.client.link.link import Link, LinkOptions
from headpond.model.address import parse_addresses
from headpond.model.errors import HeadpondError, PeerItself
from headpond.node.links.ends import Direction, OtherNode, ThisNode
from headpond.node.links.flow import PeerFlow

logger = logging.getLogger("headpond.peers")

BACKOFF = Backoff(0.1, 15.0)
STEADY_S = 10.0
"""A connection that lasted this long resets the backoff."""


class Peers:
    """``drain`` carries out the effects of the core."""

    def __init__(self, core: NodeCore, drain: Callable[[], None], backoff: Backoff = BACKOFF) -> None:
        self._core = core
        self._drain = drain
        self._backoff = backoff
        self._running: dict[str, tuple[LinkMade, asyncio.Task[None]]] = {}
        self._numbers = 0
        self._ending: set[asyncio.Task[None]] = set()

    def start(self) -> None:
        self._core.peering.on_links = self.follow_links
        self.follow_links()

    async def stop(self) -> None:
        self._core.peering.on_links = lambda: None
        tasks = [*self._ending, *(task for _, task in self._running.values())]
        self._running.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def follow_links(self) -> None:
        """Starts the links that were added, and stops those that were removed or changed."""
        links = self._core.peering.links.links
        for name, (made, task) in list(self._running.items()):
            if links.get(name) != made:
                del self._running[name]
                task.cancel()
                self._ending.add(task)
                task.add_done_callback(self._ending.discard)
        for name, made in links.items():
            if name not in self._running:
                self._numbers += 1
                running = self._run(made, self._core.peering.status(name), -self._numbers)
                task = asyncio.get_running_loop().create_task(running)
                self._running[name] = (made, task)

    # --- one link -----------------------------------------------------------------------------------

    async def _run(self, made: LinkMade, status: LinkStatus, number: int) -> None:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        attempts = 0
        while True:
            status.connecting()
            began_s = loop.time()
            try:
                await self._connect(made, status, number)
            except* HeadpondError as errors:
                error = _first(errors)
                if status.error is None or status.error.message != error.message:
                    text = shown(error.message[:MESSAGE_LENGTH_MAX])
                    logger.warning("link %s to %s: %s; trying again", made.name, made.url, text)
                status.wait(error)
            except* Exception as errors:
                logger.exception("link %s failed", made.name)
                status.wait(HeadpondError(f"an internal fault of this node: {errors.exceptions[0]}"))
            if made.name not in self._running or self._running[made.name][1] is not task:
                return  # it was cancelled while its task group failed, which hides the cancellation
            attempts = 0 if loop.time() - began_s >= STEADY_S else attempts + 1
            await asyncio.sleep(self._backoff.delay_s(attempts))

    async def _connect(self, made: LinkMade, status: LinkStatus, number: int) -> None:
        """Runs one connection until it ends."""
        link = Link(
            parse_addresses(made.url),
            client=f"node {self._core.context.node[:12]}, link {made.name}",
            token=made.token,
            options=LinkOptions(backoff=self._backoff),
        )
        here = ThisNode(self._core, number, self._drain)
        try:
            await link.open()
            there = OtherNode(link)
            if there.id == here.id:
                raise PeerItself(f"{made.url} is this node itself")
            status.connected(there.id)
            logger.info("link %s is connected to node %s at %s", made.name, there.id, link.destination)
            shared = (status, number, self._core.peering.claims)
            async with asyncio.TaskGroup() as tasks:
                if made.pulls:
                    tasks.create_task(PeerFlow(Direction(made, "pull", there, here, *shared)).run())
                if made.pushes:
                    tasks.create_task(PeerFlow(Direction(made, "push", here, there, *shared)).run())
        finally:
            claims = self._core.peering.claims
            for key in [key for key, owner in claims.items() if owner == number]:
                del claims[key]
            here.close()
            await link.close()


def _first(errors: BaseExceptionGroup[HeadpondError]) -> HeadpondError:
    """The first error of those that ended a link."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, HeadpondError)
    return error
