"""A message as a consumer sees it.

What all rows of a segment share stands once, in ``Origin``; a ``Message`` adds its row. Messages are made by
the hundred thousand a second, so both are msgspec structs and the rarer views are computed when asked for.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from headpond.model.identity import Identity

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def from_micros(micros: int) -> datetime:
    """Microseconds since 1970 as an aware datetime."""
    return _EPOCH + timedelta(microseconds=micros)


def to_micros(at: datetime) -> int:
    """The way back, to the last one of them, which a float of seconds does not have in later centuries."""
    return (at - _EPOCH) // timedelta(microseconds=1)


class Origin(msgspec.Struct, frozen=True, gc=False):
    """Where a stored segment came from and where it stands."""

    topic: str
    shard: int
    first_entry: int
    block: bytes
    segment: int
    stored_at_us: int
    node: str
    count: int = 0
    """Rows of the whole segment; 0 where that is not known."""
    life: int = 0
    """How often its consumer had met another incarnation of the topic when it came."""


class Message(msgspec.Struct, gc=False):
    """One message: ``value``, ``key``, ``id``, ``headers`` from the producer, the rest from the node.

    ``attempt`` is 1 if no program had the message before, as far as its node knows, and 2 or more otherwise.
    """

    value: Any
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
