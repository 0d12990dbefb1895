"""The client: a connection to one service, and the producers, consumers and writers that use it."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Self, TypeVar, Unpack, overload
from weakref import WeakSet

from headpond.client import tracing
from headpond.client.admin import Admin
from headpond.client.arguments import checked
from headpond.client.codecs import Codec, codec_of
from headpond.client.consume.consumer import Consumer
from headpond.client.consume.decoding import DecodingConsumer
from headpond.client.consume.settler import Settler
from headpond.client.contexts import service_in_use
from headpond.client.link.dialling import REDIRECTS, Backoff
from headpond.client.link.group_links import GroupLinks
from headpond.client.link.link import REQUEST_TIMEOUT_S, Link, LinkOptions
from headpond.client.link.tls import TlsOptions
from headpond.client.options import ConsumerKeywords, ConsumerOptions, ProducerKeywords, ProducerOptions
from headpond.client.produce.batcher import Batcher
from headpond.client.produce.encoding import encoding
from headpond.client.produce.producer import Producer
from headpond.client.reader import Reader
from headpond.client.scope import AsyncScope
from headpond.client.writer import TIMEOUT_S, Writer
from headpond.model.address import Address, parse_addresses
from headpond.model.errors import BadRequest, Closed

Item = TypeVar("Item")
Member = TypeVar("Member", Producer[Any], Consumer[Any], Writer)
Tokens = str | Mapping[str, str] | None
"""One token for all services, or one per URL: a token belongs to one node, so copies have others."""


class Client(AsyncScope):
    """A connection to a service, kept up until it is closed. ``connect`` makes one."""

    internal = AsyncScope.internal | {"add", "add_consumer", "add_producer", "link", "links", "tracing"}

    def __init__(
        self,
        url: str | Sequence[str],
        token: Tokens,
        name: str,
        options: LinkOptions,
        *,
        wait: bool = True,
    ) -> None:
        self.tracing = tracing.active
        """What makes the spans of its messages; None: nothing does."""
        self._addresses = parse_addresses(url)
        self._token = token
        self._name = name
        self._options = options
        self._wait = wait
        self._link: Link | None = None
        self._copies: dict[str, Link] = {}
        """Links to further destinations, by service."""
        self._groups = GroupLinks(self._new_group_link, options.redirects)
        self._members: WeakSet[Producer[Any] | Consumer[Any] | Writer] = WeakSet()

    async def open(self) -> Self:
        """Connects, or raises ``Unavailable`` with the answer of each address; ``async with`` does this."""
        link = self._new_link(self._addresses)
        await link.open(wait=self._wait)
        self._link = link
        return self

    def _new_link(self, addresses: Sequence[Address]) -> Link:
        return self._new_group_link(addresses, None)

    def _new_group_link(self, addresses: Sequence[Address], service: str | None) -> Link:
        """A link that goes to other groups of its cluster; ``service`` is the one that a node named it for."""
        return Link(
            addresses,
            client=self._name,
            token=self._token_for(addresses),
            options=self._options,
            elsewhere=self._groups.link_to,
            service=service,
        )

    def _token_for(self, addresses: Sequence[Address]) -> str | None:
        """The token of the URL with these addresses, or else of one with some of them: a node may name more."""
        if self._token is None or isinstance(self._token, str):
            return self._token
        services = [(parse_addresses(url), token) for url, token in self._token.items()]
        same = (token for named, token in services if named == list(addresses))
        some = (token for named, token in services if not set(named).isdisjoint(addresses))
        return next(same, None) or next(some, None)

    def links(self, copies: Sequence[str]) -> list[Link]:
        """The links to this service and to further ones, which connect in the background."""
        found = [self.link]
        for url in copies:
            link = self._new_link(parse_addresses(url))
            if any(address in each.addresses for each in found for address in link.addresses):
                raise BadRequest(
                    f"{link.service} is a destination already", hint="Give each copy another service."
                )
            found.append(self._copies.setdefault(link.service, link))
        return found

    async def close(self) -> None:
        """Closes producers, consumers and writers that are still open, then the connection."""
        link = self._link
        if link is None:
            return
        link.check_loop()
        self._link = None
        try:
            closing = [member.close() for member in self._members]
            results = await asyncio.gather(*closing, return_exceptions=True)
        finally:
            copies = [copy.close() for copy in self._copies.values()]
            await asyncio.gather(link.close(), *copies, self._groups.close())
            self._copies.clear()
        for result in results:
            if isinstance(result, BaseException):
                raise result

    @property
    def shown(self) -> str:
        return "the client"

    def __await__(self) -> Generator[Any, None, Self]:
        return self.open().__await__()

    @property
    def admin(self) -> Admin:
        """Topics, subscriptions and the node itself."""
        return Admin(self.link)

    @property
    def connected(self) -> bool:
        """Whether a node answers now; if not, the client is reconnecting."""
        return self._link is not None and self._link.up

    @property
    def reconnects(self) -> int:
        """How often the client reconnected; its knowledge of the node before that may be out of date."""
        return 0 if self._link is None else self._link.reconnects

    @overload
    def producer(
        self, topic: str, name: str | None = None, **options: Unpack[ProducerKeywords]
    ) -> Producer: ...

    @overload
    def producer(
        self,
        topic: str,
        name: str | None = None,
        *,
        value: type[Item] | Codec[Item],
        **options: Unpack[ProducerKeywords],
    ) -> Producer[Item]: ...

    @checked
    def producer(
        self, topic: str, name: str | None = None, *, value: Any = bytes, **options: Unpack[ProducerKeywords]
    ) -> Producer[Any]:
        """A producer of ``topic``, to be opened with ``async with``; see ``ProducerOptions``.

        With ``value``, a type or a ``Codec``, it sends values of that type.
        """
        return self.add_producer(topic, name, value, ProducerOptions(**options))

    def add_producer(
        self,
        topic: str,
        name: str | None,
        value: Any,
        options: ProducerOptions,
        batcher: type[Batcher] = Batcher,
    ) -> Producer[Any]:
        """A producer to this service and its copies, to be opened; ``batcher`` is the twin's."""
        codec = codec_of(value)
        if codec is not None:
            batcher = encoding(batcher, codec)
        links = self.links(options.copies)
        return self.add(Producer(links, topic, name, options, batcher, self.tracing))

    @overload
    def consumer(self, topic: str, subscription: str, **options: Unpack[ConsumerKeywords]) -> Consumer: ...

    @overload
    def consumer(
        self,
        topic: str,
        subscription: str,
        *,
        value: type[Item] | Codec[Item],
        **options: Unpack[ConsumerKeywords],
    ) -> Consumer[Item]: ...

    @checked
    def consumer(
        self, topic: str, subscription: str, *, value: Any = bytes, name: str | None = None, **options: Any
    ) -> Consumer[Any]:
        """A consumer of ``topic``, to be opened with ``async with``; see ``ConsumerOptions``.

        With ``value``, a type or a ``Codec``, messages have values of that type; one that does not decode is a
        ``BadValue``.
        """
        return self.add_consumer(topic, subscription, name, value, ConsumerOptions(**options))

    def add_consumer(
        self,
        topic: str,
        subscription: str,
        name: str | None,
        value: Any,
        options: ConsumerOptions,
        make_settler: Callable[[int, int], Settler] = Settler,
    ) -> Consumer[Any]:
        """A consumer of this service and its copies, to be opened; ``make_settler`` is the twin's."""
        codec = codec_of(value)
        given = (self.links(options.copies), topic, subscription, name, options, make_settler)
        return self.add(Consumer(*given) if codec is None else DecodingConsumer(codec, *given))

    @checked
    def reader(
        self,
        topic: str,
        *,
        uuid: bytes | None = None,
        schema_version: int | None = None,
        subscription: str = "",
    ) -> Reader:
        """A reader of ``topic`` by position, without a subscription; to be opened with ``async with``.

        With ``uuid``, another topic of that name is a ``TopicMismatch``. Rows of a typed topic come in
        ``schema_version``, or in the newest. A token bound to ``subscription`` may read in its name.
        """
        return Reader(self.link, topic, uuid, schema_version, subscription)

    @checked
    def writer(self, name: str, *, timeout: float = TIMEOUT_S, create: bool = True) -> Writer:
        """A writer of staged batches, to be opened with ``async with``; the node counts batches by ``name``.

        ``timeout`` is how many seconds it waits for a lost or refusing node.
        """
        return self.add(Writer(self.link, name, timeout=timeout, create=create, tracing=self.tracing))

    def add(self, member: Member) -> Member:
        """Closes ``member`` with the client, if it is still open then."""
        self._members.add(member)
        return member

    @property
    def link(self) -> Link:
        """The link that everything open here uses."""
        if self._link is None:
            raise Closed("the client is not open", hint="Use it inside `async with headpond.connect(...)`.")
        return self._link


@checked
def connect(
    url: str | Sequence[str] | None = None,
    token: Tokens = None,
    *,
    ca: str | None = None,
    cert: str | None = None,
    key: str | None = None,
    name: str | None = None,
    connect_timeout: float = 5.0,
    ping_after: float = 10.0,
    dead_after: float = 30.0,
    request_timeout: float = REQUEST_TIMEOUT_S,
    backoff: Backoff | None = None,
    wait: bool = True,
    redirects: str = "listed",
) -> Client:
    """A client of the service at ``url``: ``headpond://HOST:PORT``, several separated by commas, or a list.

    Without ``url`` it is the service of HEADPOND_URL, with HEADPOND_TOKEN, else of the context in use
    (``headpond context``), else headpond://127.0.0.1:7411.

    Use it as ``async with headpond.connect(url) as client``. The client tries several addresses in order, and
    reconnects after a loss while it is open. With ``wait=False`` it also starts without a node: producers spill
    until a node answers. A request without an answer within ``request_timeout`` seconds raises ``TimedOut``.

    ``headponds://`` is the same with TLS: ``ca`` names a file of authorities to trust instead of the system's,
    ``cert`` and ``key`` the client's certificate, for a node that asks for one; HEADPOND_CA, HEADPOND_CERT and
    HEADPOND_KEY are their defaults. The client sends ``token`` to every service, ``copies`` too; a mapping from
    URLs gives each service its own.

    A node that stops may name the one that replaces it. ``redirects`` says whether the client follows: to
    ``listed`` addresses of this URL, to ``any`` (which then gets the token, too), or to ``none``. In a
    cluster of several groups the client goes to the group of a topic's tenant, listed or not, unless ``none``.
    """
    if redirects not in REDIRECTS:
        raise BadRequest(f"redirects is {redirects!r}", hint=f"It is one of {', '.join(REDIRECTS)}.")
    if url is None:
        service = service_in_use()
        url, token = service.url, service.token if token is None else token
        ca, cert, key = ca or service.ca, cert or service.cert, key or service.key
    options = LinkOptions(
        connect_timeout_s=connect_timeout,
        ping_after_s=ping_after,
        dead_after_s=dead_after,
        request_timeout_s=request_timeout,
        backoff=backoff or Backoff(),
        tls=TlsOptions(ca=ca, cert=cert, key=key),
        redirects=redirects,
    )
    return Client(url, token, name or f"{socket.gethostname()}/{os.getpid()}", options, wait=wait)
