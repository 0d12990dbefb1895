"""Messages, one batch at a time."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from functools import cache
from typing import Any

import msgspec

from headpond.client.consume.batch import Batch
from headpond.model.message import Message, from_micros
from headpond.wire.typed.values import readable


class Row(msgspec.Struct, gc=False):
    """A message, as ``consume --json`` prints it."""

    topic: str
    shard: int
    entry: int
    id: str | None
    key: Any
    value: Any
    headers: dict[str, str]
    sent_at: datetime
    stored_at: datetime
    node: str
    """The id of the node that the message was read from."""
    identity: str
    attempt: int


def batch_rows(batch: Batch, rows: int | None = None) -> Iterator[Row]:
    """The first ``rows`` of a batch; values that all of them share are computed once."""
    origin = batch.origin
    identity = f"{origin.block.hex()}/{origin.shard}/{origin.segment}/"
    stored_at = from_micros(origin.stored_at_us)
    sent_at = cache(from_micros)
    return (
        Row(
            origin.topic,
            origin.shard,
            message.entry,
            message.id,
            readable(message.key),
            readable(message.value),
            message.headers,
            sent_at(message.sent_at_us),
            stored_at,
            origin.node,
            f"{identity}{message.entry - origin.first_entry}",
            message.attempt,
        )
        for message in batch.messages()[:rows]
    )


def message_row(message: Message) -> Row:
    """One message."""
    return Row(
        message.topic,
        message.shard,
        message.entry,
        message.id,
        readable(message.key),
        readable(message.value),
        message.headers,
        message.sent_at,
        message.stored_at,
        message.node,
        str(message.identity),
        message.attempt,
    )
