"""A message as a consumer gets it.

``Origin`` holds what all rows of a segment share; a ``Message`` adds its row. A consumer makes hundreds of
thousands of messages per second, so both are msgspec structs, and properties compute what is rarely used.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Generic

import msgspec
from typing_extensions import TypeVar

from headpond.model.identity import Identity

ValueT = TypeVar("ValueT", default=bytes)
"""The type of a message's value, as the program named it."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_micros(micros: int) -> datetime:
    """Microseconds since 1970 as an aware datetime."""
    return _EPOCH + timedelta(microseconds=micros)


def to_micros(at: datetime) -> int:
    """The inverse of ``from_micros``, exact; a float of seconds would not be."""
    return (at - _EPOCH) // timedelta(microseconds=1)


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where a stored segment came from, and its position."""

    topic: str
    shard: int
    first_entry: int
    block: bytes
    segment: int
    stored_at_us: int
    node: str
    count: int = 0
    """Rows of the whole segment; 0 if unknown."""
    life: int = 0
    """How many incarnations of the topic its consumer had met before it."""


class Message(msgspec.Struct, Generic[ValueT], gc=False):
    """One message: ``value``, ``key``, ``id``, ``headers`` from the producer, the rest from the node.

    ``attempt`` is 1 if no program got the message before, as far as its node knows, and 2 or more otherwise.
    """

    value: ValueT
    key: bytes | None
    id: str | None
    entry: int
    attempt: int
    origin: Origin
    sent_at_us: int
    header_items: list[tuple[str, str]] | None

    @property
    def headers(self) -> dict[str, str]:
        return dict(self.header_items) if self.header_items else {}

    @property
    def topic(self) -> str:
        return self.origin.topic

    @property
    def shard(self) -> int:
        return self.origin.shard

    @property
    def node(self) -> str:
        return self.origin.node

    @property
    def sent_at(self) -> datetime:
        return from_micros(self.sent_at_us)

    @property
    def stored_at(self) -> datetime:
        return from_micros(self.origin.stored_at_us)

    @property
    def identity(self) -> Identity:
        origin = self.origin
        return Identity(origin.block, origin.shard, origin.segment, self.entry - origin.first_entry)
