"""Messages, one batch at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    """The first ``rows`` of a batch; a time that many of them share is computed once."""
    when = cache(from_micros)
    return (message_row(message, when) for message in batch.messages()[:rows])


def message_row(message: Message, when: Callable[[int], datetime] = from_micros) -> Row:
    """One message; ``when`` makes a datetime of microseconds."""
    return Row(
        message.topic,
        message.shard,
        message.entry,
        message.id,
        readable(message.key),
        readable(message.value),
        message.headers,
        when(message.sent_at_us),
        when(message.origin.stored_at_us),
        message.node,
        str(message.identity),
        message.attempt,
    )
