"""The node's links to other nodes: each is dialled, carried and dialled again, for as long as it is there.

It makes no decisions about records; those are the core's (broker/links/requests.py). A link is one connection,
opened by the node that has the link, in whatever direction messages go; so a node that nobody can reach may
still give.
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
from headpond.node.links.ends import HereNode, ThereNode
from headpond.node.links.flow import PeerFlow

logger = logging.getLogger("headpond.peers")

BACKOFF = Backoff(0.1, 15.0)
STEADY_S = 10.0
"""A connection that lasted this long was a good one."""


class Peers:
    """``drain`` carries out what the core asks for."""

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
        """Runs the links that there are, and no others."""
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
                    said = shown(error.message[:MESSAGE_LENGTH_MAX])
                    logger.warning("link %s to %s: %s; trying again", made.name, made.url, said)
                status.wait(error)
            except* Exception as errors:
                logger.exception("link %s failed", made.name)
                status.wait(HeadpondError(f"a fault of this node: {errors.exceptions[0]}"))
            if made.name not in self._running or self._running[made.name][1] is not task:
                return  # it was cancelled: a task group that fails at that moment swallows that
            attempts = 0 if loop.time() - began_s >= STEADY_S else attempts + 1
            await asyncio.sleep(self._backoff.delay_s(attempts))

    async def _connect(self, made: LinkMade, status: LinkStatus, number: int) -> None:
        """One connection, until it ends."""
        link = Link(
            parse_addresses(made.url),
            client=f"node {self._core.context.node[:12]}, link {made.name}",
            token=made.token,
            options=LinkOptions(backoff=self._backoff),
        )
        here = HereNode(self._core, number, self._drain)
        try:
            await link.open()
            there = ThereNode(link)
            if there.id == here.id:
                raise PeerItself(f"{made.url} is this node itself")
            status.connected(there.id)
            logger.info("link %s is connected to node %s at %s", made.name, there.id, link.destination)
            async with asyncio.TaskGroup() as tasks:
                if made.pulls:
                    tasks.create_task(self._flow(made, "pull", status, number, here, there).run())
                if made.pushes:
                    tasks.create_task(self._flow(made, "push", status, number, here, there).run())
        finally:
            self._release(number)
            here.close()
            await link.close()

    def _flow(
        self,
        made: LinkMade,
        direction: str,
        status: LinkStatus,
        number: int,
        here: HereNode,
        there: ThereNode,
    ) -> PeerFlow:
        source, sink = (there, here) if direction == "pull" else (here, there)
        claims = self._core.peering.claims

        def claim(topic: str) -> bool:
            return claims.setdefault((direction, there.id, topic), number) == number

        def release(topic: str) -> None:
            if claim(topic):
                del claims[direction, there.id, topic]

        return PeerFlow(made, direction, source, sink, status, claim, release)

    def _release(self, number: int) -> None:
        claims = self._core.peering.claims
        for key in [key for key, owner in claims.items() if owner == number]:
            del claims[key]


def _first(errors: BaseExceptionGroup[HeadpondError]) -> HeadpondError:
    """What happened first, of what ended a link."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    assert isinstance(error, HeadpondError)
    return error
