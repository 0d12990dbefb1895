"""Messages about producers: registration, leases, and the answers to segments.

A producer sends TITLE, which names its block, and then SEGMENT frames; the node answers them with ACK.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic

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
from headpond.wire.control.operation import (
    ADMIN,
    PRODUCE,
    Control,
    OperationOf,
    Page,
    Result,
    Rule,
    any_topic_of,
    topic_of,
)

# --- registered producers -------------------------------------------------------------------------


class ProducerInfo(msgspec.Struct, frozen=True):
    topic: str
    producer: str
    access: str
    registered_at_us: int
    seen_at_us: int
    """When it last opened, closed or lost its connection; 0: never."""
    epoch: int
    """How often the lease passed to another instance; 0 with multiple access."""
    holder: str
    """With single access: the client that holds the lease; empty if it is free."""
    connections: list[int]
    """The numbers of the connections it is open on."""
    lapses_in_s: float | None = None
    """For a holder that lost its connection: seconds until its lease lapses."""
    clients: list[str] = []
    """The names of the clients that have it open."""


class ProducerRequest(OperationOf[Result], Generic[Result], frozen=True):
    """The base of operations on one producer."""

    rule: ClassVar[Rule] = Rule(PRODUCE, on=topic_of, producer=True)

    topic: TopicText
    producer: Name


class CreateProducer(ProducerRequest[ProducerInfo], frozen=True, tag="create_producer"):
    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(ADMIN, on=topic_of, logged=True)
    access: Word = "multiple"
    exist_ok: bool = False


class ListProducers(OperationOf[list[ProducerInfo]], frozen=True, tag="list_producers"):
    rule: ClassVar[Rule] = Rule(PRODUCE, on=any_topic_of, producer=True, listing=True)

    topic: TopicText
    """Empty: all topics."""
    page: Page | None = None
    """None: all producers."""


class ShowProducer(ProducerRequest[ProducerInfo], frozen=True, tag="show_producer"):
    """Shows one registered producer."""


class DeleteProducer(ProducerRequest[Any], frozen=True, tag="delete_producer"):
    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(ADMIN, on=topic_of, logged=True)


class ProducerOpened(msgspec.Struct, frozen=True):
    access: Word
    epoch: Epoch
    """The producer repeats it in every TITLE; 0 with multiple access."""
    lease_s: Seconds
    """How long the lease lasts after the last sign of life of its holder; 0 with multiple access."""
    registered: bool


class OpenProducer(ProducerRequest[ProducerOpened], frozen=True, tag="open_producer"):
    """A named producer starts sending over this connection; with single access, it asks for the lease.

    The producer asks again on each new connection, with the epoch that the node granted.
    """

    instance: Uuid
    """16 random bytes that identify one open producer across its connections."""
    access: Word = ""
    """Empty: the registered access, or ``multiple`` if the producer is not registered."""
    epoch: Epoch = 0
    """The epoch it holds; 0 before it was granted one."""
    elsewhere: bool = False
    """The lease is held at another node, the first destination: here the epoch is only raised to that one."""


class CloseProducer(ProducerRequest[Any], frozen=True, tag="close_producer"):
    """The producer was closed in good order: its lease is free at once."""

    repeatable: ClassVar[bool] = False

    instance: Uuid


# --- segments -------------------------------------------------------------------------------------


class AckItem(Control, frozen=True):
    segment: Segment
    outcome: Word
    """stored | duplicate | rejected"""
    first_entry: Entry | None = None
    """The entry of row 0; None if it is unknown (rejected, or a duplicate of a deleted entry)."""
    code: Word = ""
    message: Text = ""
    expected: SegmentEnd | None = None
    """For a ``gap``: the segment to go back to."""


class Ack(Control, frozen=True):
    block: Block
    shard: Annotated[int, msgspec.Meta(ge=0, lt=2**16, description="as in the frame that it answers")]
    durability: Word
    items: Annotated[list[AckItem], msgspec.Meta(max_length=1024)]


class Hole(Control, frozen=True):
    """The sender has no segments between the last admitted one and ``segment``; admission continues there."""

    block: Block
    shard: Shard
    segment: Segment


class BlockEnd(Control, frozen=True):
    """The producer closed: no segment follows in this block. ``segments_next`` by shard."""

    block: Block
    segments_next: SegmentEnds


ProducerOperation = (
    CreateProducer | ListProducers | ShowProducer | DeleteProducer | OpenProducer | CloseProducer
)
