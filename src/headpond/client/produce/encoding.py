"""A producer of values of one type: it encodes each value before it takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headpond.client.codecs import Codec
from headpond.client.link.link import Link
from headpond.client.options import ProducerOptions
from headpond.client.produce.batcher import Batcher, SentT
from headpond.client.produce.producer import Producer
from headpond.client.produce.promise import Promise
from headpond.client.tracing import Tracing


class EncodingProducer(Producer[SentT]):
    def __init__(
        self,
        codec: Codec[Any],
        links: Sequence[Link],
        topic: str,
        name: str | None,
        options: ProducerOptions,
        make_batcher: type[Batcher] = Batcher,
        tracing: Tracing | None = None,
    ) -> None:
        super().__init__(links, topic, name, options, make_batcher, tracing)
        self.codec = codec

    def _take(
        self,
        value: SentT | None,
        key: bytes | str | None,
        id: str | None,
        headers: Mapping[str, str] | None,
        ttl: float | None,
    ) -> Promise:
        data: Any = None if value is None else self.codec.to_bytes(value)
        return super()._take(data, key, id, headers, ttl)
