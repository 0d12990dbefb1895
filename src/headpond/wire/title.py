"""TITLE sets the context of the frames after it, on a connection and in a file.

::

    block: 16 bytes | shard power u8 | msgpack of Title's other fields, by position

A connection may carry several producers; each TITLE switches to its block. A repeated TITLE of a known block
only switches.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headpond.model.bounds import (
    UNDECODABLE,
    Block,
    Epoch,
    Name,
    SchemaBytes,
    SchemaList,
    SegmentEnds,
    TopicText,
)
from headpond.model.errors import BadFrame
from headpond.model.identity import BLOCK_BYTES, SHARD_POWER_MAX


class Predecessor(msgspec.Struct, frozen=True, array_like=True):
    """The previous block of a producer, and one past its last segment in each shard."""

    block: Block
    segments_next: SegmentEnds


class Title(msgspec.Struct, frozen=True, array_like=True):
    topic: TopicText
    topic_uuid: Annotated[bytes, msgspec.Meta(max_length=16)]
    """16 bytes, from the node's answer when the topic was opened."""
    producer: Name = ""
    epoch: Epoch = 0
    """The epoch of the producer's lease with single access; else 0."""
    schema: SchemaBytes | None = None
    """For a typed topic: the columns of the block's encoder, as an Arrow IPC schema; else None.

    They are the topic's own columns, without the envelope (key, id, headers, time).
    """
    predecessor: Predecessor | None = None
    schemas: SchemaList = []
    """In a log file of a typed topic: all its schemas, oldest first, so that the file is self-contained."""
    late: bool = False
    """Segments of a fenced instance, sent on purpose: the node ignores the producer's epoch."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Title)


def encode_title(block: bytes, shard_power: int, title: Title) -> bytes:
    """The body of a TITLE frame."""
    assert len(block) == BLOCK_BYTES and 0 <= shard_power <= SHARD_POWER_MAX
    return block + bytes((shard_power,)) + _encoder.encode(title)


def decode_title(body: bytes) -> tuple[bytes, int, Title]:
    """Block, shard power and the rest of a TITLE frame's body."""
    if len(body) <= BLOCK_BYTES + 1:
        raise BadFrame(f"a title of {len(body)} bytes is too short")
    power = body[BLOCK_BYTES]
    if power > SHARD_POWER_MAX:
        raise BadFrame(f"a title with shard power {power}; at most {SHARD_POWER_MAX} is allowed")
    try:
        title = _decoder.decode(body[BLOCK_BYTES + 1 :])
    except UNDECODABLE as error:
        raise BadFrame(f"a title that cannot be read: {error}") from error
    return body[:BLOCK_BYTES], power, title
