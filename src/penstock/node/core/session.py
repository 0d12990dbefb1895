"""One connection as the node knows it: its conversation, its producer's context, its consumers."""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.model.errors import PenstockError
from penstock.node.core.subscription import Subscription
from penstock.node.core.topics import Topic
from penstock.wire.connection import NodeSide
from penstock.wire.title import Predecessor


@dataclass(slots=True)
class BlockContext:
    """What a TITLE set: the segments that follow belong to this block."""

    block: bytes
    title_crc: int
    """Of the frame, to tell a title that only switches from one that says something new."""
    topic_name: str
    topic: Topic | None
    refusal: PenstockError | None = None
    """Why segments of this block are turned away, if they are."""
    predecessor: Predecessor | None = None
    """The block that must be complete before this one goes on; None once it is."""


@dataclass(slots=True)
class Session:
    connection: int
    side: NodeSide
    blocks: dict[bytes, BlockContext] = field(default_factory=dict)
    current: BlockContext | None = None
    """The block that SEGMENT frames belong to now."""
    consumers: dict[int, Subscription] = field(default_factory=dict)
    greeted: bool = False
    writable: bool = True
    """Whether the connection has room for more."""
    unacked_bytes: int = 0
    """Bytes of segments that were taken in and are not answered yet."""
