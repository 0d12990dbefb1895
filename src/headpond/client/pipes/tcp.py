"""A pipe between two processes, over TCP.

The receiving side listens, the sending side connects, and connects again for as long as it is open. What was on
its way over a lost connection is sent again by the pipe, if the pipe is one that does.

A program that is started again is recognised by its session: a sender by its ``name`` and a higher epoch, so
that its numbers count from the beginning; a receiver by the epoch in its answers. A sender that does not name
itself is the only one of its receiver.

A ``stream`` has its storage at the listening side: in memory, for as long as the receiver is open, or in the
folder ``store``, where the next process finds it.
"""

from __future__ import annotations

from pathlib import Path
from ssl import SSLContext

from headpond.calculus.composition import check_composition
from headpond.client.backoff import Backoff
from headpond.client.pipes.frames import NAME_MAX
from headpond.client.pipes.receiver import Receiver
from headpond.client.pipes.sender import Sender
from headpond.client.pipes.store import StreamStore
from headpond.client.pipes.tcp_listener import TcpListener
from headpond.client.pipes.tcp_route import TcpRoute
from headpond.io.os_disk import OsDisk
from headpond.model.errors import BadRequest
from headpond.pipes.compose import parse_drivable


def listen(
    route: str,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    epoch: int | None = None,
    ssl: SSLContext | None = None,
    store: Path | str | None = None,
) -> Receiver:
    """The receiving end of a pipe, to be opened with ``async with``; ``receiver.address`` tells the port.

    ``store`` is a folder for the messages of a ``stream``: each is confirmed to its sender when it is synced,
    and stays there until ``receiver.confirm``. One process uses it at a time.

    Anybody who reaches the port can send: listen on loopback, or give an ``ssl`` context that asks for
    certificates.
    """
    parsed = parse_drivable(route)
    check_composition(parsed)
    if store is not None and not parsed.stages[0].settings.get("commit"):
        raise BadRequest(f"a store is for a stream that commits, and this is {route}", hint="Write stream | …")
    kept = None if store is None else StreamStore(OsDisk(Path(store)))
    return Receiver(route, TcpListener(parsed, host, port, epoch=epoch, context=ssl, store=kept))


def connect(
    route: str,
    host: str,
    port: int,
    *,
    name: str = "",
    epoch: int | None = None,
    connect_timeout: float = 10.0,
    backoff: Backoff | None = None,
    ssl: SSLContext | None = None,
) -> Sender:
    """The sending end of a pipe, to be opened with ``async with``.

    Opening waits up to ``connect_timeout`` seconds for the receiver. ``epoch`` must be higher each time a
    sender of this name starts; by default it is the clock's reading.
    """
    if len(name) > NAME_MAX:
        raise BadRequest(f"a sender's name has at most {NAME_MAX} characters")
    way = TcpRoute(
        parse_drivable(route),
        host,
        port,
        connect_timeout=connect_timeout,
        backoff=backoff or Backoff(),
        context=ssl,
    )
    return Sender(route, way, name=name, epoch=epoch)
