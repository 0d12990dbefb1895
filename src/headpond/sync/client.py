"""The blocking client: a connection to one service, what uses it, and the reader by position."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar, Unpack, overload

from headpond.client import connect as aio
from headpond.client.arguments import checked
from headpond.client.codecs import Codec, codec_of
from headpond.client.link.dialling import Backoff
from headpond.client.link.link import REQUEST_TIMEOUT_S
from headpond.client.options import ConsumerKeywords, ConsumerOptions, ProducerKeywords, ProducerOptions
from headpond.client.reader import Part
from headpond.client.reader import Reader as AsyncReader
from headpond.client.writer import TIMEOUT_S
from headpond.model.errors import HeadpondError
from headpond.sync.admin import Admin
from headpond.sync.background import Background, Mirror, ScopeTwin, blocking, mirrored
from headpond.sync.consumer import Consumer, DecodingConsumer, LockedSettler
from headpond.sync.producer import LockedBatcher, Producer
from headpond.sync.writer import Writer
from headpond.wire.control.catalog import TopicInfo
from headpond.wire.typed.versions import SchemaVersions

log = logging.getLogger("headpond.client")

Item = TypeVar("Item")


def connect(
    url: str | Sequence[str] | None = None,
    token: aio.Tokens = None,
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
    """Connects, or raises ``Unavailable``. Close the client, best by ``with``. See ``headpond.connect``."""
    client = aio.connect(
        url,
        token,
        ca=ca,
        cert=cert,
        key=key,
        name=name,
        connect_timeout=connect_timeout,
        ping_after=ping_after,
        dead_after=dead_after,
        request_timeout=request_timeout,
        backoff=backoff,
        wait=wait,
        redirects=redirects,
    )
    return Client(client)


class Client(ScopeTwin[aio.Client]):
    """The blocking client. ``connect`` makes one."""

    def __init__(self, client: aio.Client) -> None:
        super().__init__(client, Background())
        self._closed = False
        try:
            self._background.run(client.open())
        except BaseException:
            self._background.stop()
            raise
        atexit.register(self._at_exit)

    def close(self) -> None:
        """Closes producers and consumers that are still open, then the connection."""
        self.__exit__(None, None, None)

    def _at_exit(self) -> None:
        """The program ends with the client open: the client still sends posted messages."""
        log.warning("the program left a headpond client open; it sends the posted messages and closes")
        try:
            self.close()
        except HeadpondError as error:
            log.error("closing it failed: %s", error.message)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._closed:
            return
        self._closed = True
        atexit.unregister(self._at_exit)
        try:
            super().__exit__(kind, error, trace)
        finally:
            self._background.stop()

    @property
    def admin(self) -> Admin:
        """Topics, subscriptions and the node itself."""
        return Admin(self._twin, self._background)

    connected: Mirror[bool] = mirrored(aio.Client.connected)
    reconnects: Mirror[int] = mirrored(aio.Client.reconnects)

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
        """An open producer of ``topic``; the options are those of ``ProducerOptions``.

        With ``value``, a type or a ``Codec``, it sends values of that type.
        """
        producer = self._twin.add_producer(topic, name, value, ProducerOptions(**options), LockedBatcher)
        self._background.run(producer.open())
        return Producer(producer, self._background)

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
        self,
        topic: str,
        subscription: str,
        *,
        value: Any = bytes,
        name: str | None = None,
        **options: Any,
    ) -> Consumer[Any]:
        """An open consumer of a subscription; the options are those of ``ConsumerOptions``.

        With ``value``, a type or a ``Codec``, messages have values of that type; one that does not decode is a
        ``BadValue``.
        """
        settings, codec = ConsumerOptions(**options), codec_of(value)
        consumer = self._twin.add_consumer(topic, subscription, name, bytes, settings, LockedSettler)
        self._background.run(consumer.open())
        if codec is None:
            return Consumer(consumer, self._background)
        return DecodingConsumer(codec, consumer, self._background)

    @checked
    def reader(
        self,
        topic: str,
        *,
        uuid: bytes | None = None,
        schema_version: int | None = None,
        subscription: str = "",
    ) -> Reader:
        """An open reader of ``topic`` by position; a token bound to ``subscription`` may read in its name."""
        reader = self._twin.reader(topic, uuid=uuid, schema_version=schema_version, subscription=subscription)
        return Reader(self._background.run(reader.open()), self._background)

    @checked
    def writer(self, name: str, *, timeout: float = TIMEOUT_S, create: bool = True) -> Writer:
        """An open writer of staged batches; the node counts batches by ``name``."""
        writer = self._twin.writer(name, timeout=timeout, create=create)
        self._background.run(writer.open())
        return Writer(writer, self._background)


class Reader(ScopeTwin[AsyncReader]):
    """Any range of a topic by position. ``client.reader`` makes one."""

    def __init__(self, reader: AsyncReader, background: Background) -> None:
        super().__init__(reader, background)

    close = blocking(AsyncReader.close)
    ends = blocking(AsyncReader.ends)
    entries_at = blocking(AsyncReader.entries_at)

    def fetch(self, shard: int, entry: int, end: int | None = None, **options: Any) -> Part:
        """The messages from ``entry`` up to ``end``, as far as ``bytes_max`` goes; also ``incarnation``."""
        return self._background.run(self._twin.fetch(shard, entry, end, **options))

    def read(self, shard: int, start: int, end: int, **options: Any) -> Iterator[Part]:
        """All messages of a range, part by part; it fetches the next part while the caller has one."""
        parts = self._twin.read(shard, start, end, **options)

        async def following() -> Part | None:
            return await anext(parts, None)

        while (part := self._background.run(following())) is not None:
            yield part

    @property
    def topic(self) -> str:
        return self._twin.topic

    info: Mirror[TopicInfo] = mirrored(AsyncReader.info)
    uuid: Mirror[bytes] = mirrored(AsyncReader.uuid)
    shards: Mirror[int] = mirrored(AsyncReader.shards)
    schemas: Mirror[SchemaVersions | None] = mirrored(AsyncReader.schemas)
