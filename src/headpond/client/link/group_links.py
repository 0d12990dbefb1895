"""The links of a client to further groups of its cluster: one for each, opened when a node names the group.

A client is connected to one group. For a tenant on another one, the node refuses with ``WrongGroup`` and names
the addresses of that group, which the client then uses for what it was asked. It goes

- also to addresses that it was not given: nodes know the other groups from the servers of their cluster, and
  whoever can write there can change everything anyway;
- never from TLS to an address without TLS;
- nowhere with ``redirects="none"``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from headpond.client.link.link import Link
from headpond.model.address import Address, parse_addresses
from headpond.model.errors import BadURL, WrongGroup

log = logging.getLogger("headpond.client")

LINKS_MAX = 64


class GroupLinks:
    def __init__(self, make_link: Callable[[Sequence[Address], str], Link], redirects: str) -> None:
        """``make_link`` gets the addresses of a group, and the name of the service that the program gave."""
        self._make_link = make_link
        self._redirects = redirects
        self._services: list[Link] = []
        """Links to addresses that the program gave, and from which a node sent it to another group."""
        self._links: list[Link] = []
        self._opening = asyncio.Lock()

    async def link_to(self, at: Link, error: WrongGroup) -> Link:
        """The link to the group that ``error`` names; raises it if the client does not go there."""
        named = self._named(at, error)
        async with self._opening:
            if at not in (*self._services, *self._links):
                self._services.append(at)
            for link in (*self._services, *self._links):
                if any(address in link.addresses for address in named):
                    if link in self._links:
                        link.readdress(named)
                    return link
            if len(self._links) == LINKS_MAX:
                raise error
            link = self._make_link(named, at.service)
            log.info("%s; connecting", error.message)
            await link.open(wait=False)
            self._links.append(link)
            return link

    def _named(self, at: Link, error: WrongGroup) -> list[Address]:
        try:
            named = parse_addresses(error.successor) if error.successor else []
        except BadURL:
            named = []
        if not named or self._redirects == "none":
            raise error
        if any(address.tls for address in at.addresses) and not all(address.tls for address in named):
            log.warning("%s; not followed: it has no TLS, and this connection does", error.message)
            raise error
        return named

    async def close(self) -> None:
        links, self._links = self._links, []
        await asyncio.gather(*(link.close() for link in links))
