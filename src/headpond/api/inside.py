"""A client of the node in the same process: the same conversation, through a pair of sockets instead of a port.

So the node knows the door's callers as it knows any client, by their token, with nothing to configure: no
address, no certificate, no port that might be taken.
"""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable, Sequence

from headpond.client.connect import Client
from headpond.client.connection import Connection
from headpond.client.link import Link, LinkOptions
from headpond.model.address import DEFAULT_URL, Address
from headpond.wire.connection import ClientSide

Accept = Callable[[socket.socket], Awaitable[None]]
"""What a node does with its end of a pair of sockets."""


class InsideConnection(Connection):
    accept: Accept

    async def _dial(self) -> None:
        ours, theirs = socket.socketpair()
        for end in (ours, theirs):
            end.setblocking(False)
        try:
            await self.accept(theirs)
            await self._loop.create_unix_connection(lambda: self, sock=ours)
        except BaseException:
            ours.close()
            theirs.close()
            raise


class InsideLink(Link):
    accept: Accept

    def _new_connection(self, address: Address) -> Connection:
        connection = InsideConnection(
            address,
            ClientSide(client=self._client, token=self._token),
            on_event=self._on_event,
            on_end=lambda error: self._on_down(connection, error),
            on_writable=self._on_writable,
        )
        connection.accept = self.accept
        return connection


class InsideClient(Client):
    """Opened like any client: ``async with InsideClient(accept, token, "http") as client``."""

    def __init__(self, accept: Accept, token: str | None, name: str) -> None:
        super().__init__(DEFAULT_URL, token, name, LinkOptions())  # an address stands for the one node there is
        self._accept = accept

    def _new_link(self, addresses: Sequence[Address]) -> Link:
        link = InsideLink(addresses, client=self._name, token=self._token_for(addresses), options=self._options)
        link.accept = self._accept
        return link
