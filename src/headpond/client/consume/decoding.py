"""A consumer of values of one type: it decodes each message before it hands it out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headpond.client.codecs import Codec
from headpond.client.consume.consumer import Consumer
from headpond.client.consume.settler import Settler
from headpond.client.link.link import Link
from headpond.client.options import ConsumerOptions
from headpond.model.message import Message, ValueT


class DecodingConsumer(Consumer[ValueT]):
    """A value that cannot be decoded is a ``BadValue``, which has the message as ``raw``.

    The program settles it like any other, and continues with the next one. Batches are columns of bytes.
    """

    def __init__(
        self,
        codec: Codec[Any],
        links: Sequence[Link],
        topic: str,
        subscription: str,
        name: str | None,
        options: ConsumerOptions,
        make_settler: Callable[[int, int], Settler] = Settler,
    ) -> None:
        super().__init__(links, topic, subscription, name, options, make_settler)
        self._codec = codec

    async def __anext__(self) -> Message[ValueT]:
        message = await super().__anext__()
        self._codec.read(message)
        return message

    async def receive(self, timeout: float | None = None) -> Message[ValueT] | None:
        """The next message; None if none comes within ``timeout`` seconds, or the consumer was closed."""
        message = await super().receive(timeout)
        if message is not None:
            self._codec.read(message)
        return message
