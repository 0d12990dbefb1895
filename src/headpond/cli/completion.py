"""Names that the shell offers after TAB.

At a prompt nothing may be printed: after a failure (no node, no access, no answer in time) nothing is offered.
The request goes over a bare socket, because loading the client takes longer than a person waits.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from importlib import import_module
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from headpond.model.address import Address
    from headpond.wire.control.codec import Operation

SECONDS_MAX = 0.3
"""For all addresses together, until the whole answer is there."""
_READ_BYTES = 256 * 1024

Completer = Callable[[typer.Context, str], list[str]]


def quietly(find: Callable[[typer.Context, str], Iterable[str]]) -> Completer:
    """The results of ``find`` that start with the typed text; nothing if it fails."""

    def complete(ctx: typer.Context, incomplete: str) -> list[str]:
        try:
            return sorted({each for each in find(ctx, incomplete) if each.startswith(incomplete)})
        except Exception:  # noqa: BLE001  # nothing may be printed at a prompt
            return []

    return complete


@quietly
def topics(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    from headpond.model.names import TopicName
    from headpond.wire.control.catalog import ListTopics

    names = [each["topic"] for each in _ask(ctx, ListTopics())]
    # Short names, unless the person started to type a long one.
    return names if "/" in incomplete else [TopicName.parse(name).short for name in names]


def listed(module: str, operation: str, key: str, *, of_topic: bool = False) -> Completer:
    """The names in a list of the node; ``of_topic``: of the topic argument before it."""

    @quietly
    def find(ctx: typer.Context, incomplete: str) -> Iterable[str]:
        make = getattr(import_module(f"headpond.wire.control.{module}"), operation)
        return [each[key] for each in _ask(ctx, make(_topic(ctx)) if of_topic else make())]

    return find


def words(*known: str) -> Completer:
    return quietly(lambda ctx, incomplete: known)


subscriptions = listed("consuming", "ListSubscriptions", "subscription", of_topic=True)
producers = listed("producing", "ListProducers", "producer", of_topic=True)
writers = listed("staging", "ListWriters", "writer")
peers = listed("links", "ListPeers", "name")
starts = words("earliest", "latest")
accesses = words("single", "multiple")
directions = words("pull", "push", "both")


@quietly
def places(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """Full names of tenants, products or components: the group of the command says which."""
    from headpond.wire.control.catalog import ListPlaces

    level = ctx.parent.info_name if ctx.parent is not None else None
    return [each["place"] for each in _ask(ctx, ListPlaces(level or "tenant"))]


@quietly
def error_codes(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    from headpond.model.errors import CATALOGUE

    return CATALOGUE


@quietly
def setting_names(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    from headpond.model.topic_settings import SETTINGS

    return SETTINGS


@quietly
def assignments(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    from headpond.model.topic_settings import SETTINGS

    return [f"{name}=" for name in SETTINGS]


@quietly
def slots(ctx: typer.Context, incomplete: str) -> Iterable[str]:
    """The slots on this disk that have refill files."""
    from headpond.cli.data.refill_files import all_files, root_of

    return [path.parent.name for path in all_files(root_of(ctx.params.get("state")))]


# --- asking -------------------------------------------------------------------------------------------


def _topic(ctx: typer.Context) -> str:
    from headpond.model.names import TopicName

    # After an option that still lacks its value, nothing was parsed.
    return str(TopicName.parse(ctx.params.get("topic") or ctx.args[0]))


def _ask(ctx: typer.Context, operation: Operation) -> Any:
    """The answer of the node as plain values; raises whatever prevents it."""
    from time import monotonic

    from headpond.model.address import parse_addresses

    deadline = monotonic() + SECONDS_MAX

    def left() -> float:
        return max(deadline - monotonic(), 0.001)  # 0 would make the socket non-blocking

    first, *others = parse_addresses(ctx.params["url"])
    token = ctx.params.get("token")
    for address in others:
        with contextlib.suppress(OSError):
            return _ask_one(first, token, operation, left)
        first = address
    return _ask_one(first, token, operation, left)


def _ask_one(address: Address, token: str | None, operation: Operation, left: Callable[[], float]) -> Any:
    import socket

    from headpond.client.link.tls import TlsOptions
    from headpond.wire.connection import ClientSide, ConnectionFault
    from headpond.wire.control.codec import Request, Response, encode_control
    from headpond.wire.control.greeting import Welcome

    side = ClientSide(client="completion", token=token)
    with contextlib.ExitStack() as stack:
        connection = stack.enter_context(socket.create_connection((address.host, address.port), left()))
        if address.tls:
            wrapped = TlsOptions().context().wrap_socket(connection, server_hostname=address.host)
            connection = stack.enter_context(wrapped)
        connection.sendall(b"".join(side.data_to_send()))
        while True:
            connection.settimeout(left())
            data = connection.recv(_READ_BYTES)
            for event in side.receive(data):
                if isinstance(event, Welcome):
                    connection.sendall(encode_control(Request(1, operation)))
                elif isinstance(event, Response):
                    return event.result
                elif isinstance(event, ConnectionFault):
                    raise event.error
            if not data:
                raise ConnectionError
