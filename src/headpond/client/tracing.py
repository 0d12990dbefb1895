"""What makes spans, as clients see it. ``headpond.otel`` implements it; other programs load none of that."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:  # Spark's side asks whether tracing is on, and loads no Arrow for that
    from headpond.client.produce.batcher import Batcher
    from headpond.client.produce.promise import BatchReceipt
    from headpond.model.address import Address
    from headpond.model.errors import HeadpondError
    from headpond.model.message import Message
    from headpond.wire.control.staging import BatchInfo


class SendTracing(Protocol):
    """Makes the spans of one producer."""

    def batcher(self, kind: type[Batcher]) -> type[Batcher]:
        """The same batcher, with a span for each message that is added."""

    async def table(self, send: Callable[[Mapping[str, str]], Awaitable[BatchReceipt]]) -> BatchReceipt:
        """Sends a table in one span; ``send`` gets the headers that carry its context."""


class Tracing(Protocol):
    def sends(self, topic: str, addresses: Sequence[Address]) -> SendTracing:
        """The spans of a producer of ``topic`` at a service with these addresses."""

    def around(
        self, handle: Callable[[Message[Any]], Awaitable[Any]], subscription: str
    ) -> Callable[[Message[Any]], Awaitable[Any]]:
        """The same handler, in a span for each message."""

    def unreadable(self, message: Message[Any], subscription: str, error: HeadpondError) -> None:
        """Makes the span of a message that no handler gets."""

    async def commit(
        self, writer: str, batch: int, topics: Sequence[str], publish: Callable[[], Awaitable[BatchInfo]]
    ) -> BatchInfo:
        """Commits a batch of staged rows in one span."""

    def query_batch(
        self, query: str, number: int, topics: Sequence[str], rows: int, began_ms: int, took_ms: int
    ) -> None:
        """Makes the span of a batch of a query of Spark, which has ended."""


active: Tracing | None = None
"""What clients that connect from now on use; None: nothing makes spans."""
