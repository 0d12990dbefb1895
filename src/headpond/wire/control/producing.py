"""Messages about producers: registration, leases, and the answers to segments.

A producer sends TITLE, which names its block, and then SEGMENT frames; the node answers them with ACK.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headpond.model.bounds import (
    Block,
    Entry,
    Epoch,
    Name,
    Seconds,
    Segment,
    SegmentEnd,
    SegmentEnds,
    Shard,
    Text,
    TopicText,
    Uuid,
    Word,
)
from headpond.wire.control.greeting import Control

# --- registered producers -------------------------------------------------------------------------


class CreateProducer(Control, frozen=True, tag="create_producer"):
    topic: TopicText
    producer: Name
    access: Word = "multiple"
    exist_ok: bool = False


class ListProducers(Control, frozen=True, tag="list_producers"):
    topic: TopicText
    """An empty name asks for those of all topics."""


class ShowProducer(Control, frozen=True, tag="show_producer"):
    topic: TopicText
    producer: Name


class DeleteProducer(Control, frozen=True, tag="delete_producer"):
    topic: TopicText
    producer: Name


class OpenProducer(Control, frozen=True, tag="open_producer"):
    """A named producer begins to send over this connection; for single access this asks for the lease.

    It is asked again on each new connection, with the epoch that it was granted.
    """

    topic: TopicText
    producer: Name
    instance: Uuid
    """16 random bytes that name one opened producer over all its connections."""
    access: Word = ""
    """Empty: as it is registered, else ``multiple``."""
    epoch: Epoch = 0
    """The epoch it holds; 0 before it was granted one."""
    elsewhere: bool = False
    """The lease is held at another node, the first destination: here the epoch is only raised to that one."""


class CloseProducer(Control, frozen=True, tag="close_producer"):
    """The producer was closed in good order: its lease is free at once."""

    topic: TopicText
    producer: Name
    instance: Uuid


class ProducerOpened(msgspec.Struct, frozen=True):
    """The answer to ``open_producer``."""

    access: Word
    epoch: Epoch
    """Goes into every TITLE; 0 with multiple access."""
    lease_s: Seconds
    """How long the lease stands after its holder was last heard of; 0 with multiple access."""
    registered: bool


class ProducerInfo(msgspec.Struct, frozen=True):
    topic: str
    producer: str
    access: str
    registered_at_us: int
    seen_at_us: int
    """When it was last opened, closed or lost; 0 for never."""
    epoch: int
    """How often the lease was granted to another instance; 0 with multiple access."""
    holder: str
    """Of single access: the client that holds the lease; empty if it is free."""
    connections: list[int]
    """The numbers of the node's connections that it is open on."""
    lapses_in_s: float | None = None
    """Of a holder whose connection was lost: when its lease lapses."""
    clients: list[str] = []
    """The names of the clients it is open at."""


# --- segments -------------------------------------------------------------------------------------


class AckItem(Control, frozen=True):
    segment: Segment
    outcome: Word
    """stored | duplicate | rejected"""
    first_entry: Entry | None = None
    """Where row 0 stands; None where it is not known (rejected, or a duplicate of a dropped entry)."""
    code: Word = ""
    message: Text = ""
    expected: SegmentEnd | None = None
    """Of a ``gap``: the segment to go back to."""


class Ack(Control, frozen=True):
    block: Block
    shard: Annotated[int, msgspec.Meta(ge=0, lt=2**16, description="as in the frame that it answers")]
    durability: Word
    items: Annotated[list[AckItem], msgspec.Meta(max_length=1024)]


class Hole(Control, frozen=True):
    """The sender has nothing between what was admitted and ``segment``: admission goes on from there."""

    block: Block
    shard: Shard
    segment: Segment


class BlockEnd(Control, frozen=True):
    """The producer closed: no segment follows in this block. ``segments_next`` by shard."""

    block: Block
    segments_next: SegmentEnds
