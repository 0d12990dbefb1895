"""One connection of a client: its protocol state, its producer's context, its consumers, its token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.subscriptions.attachment import Attachment
from headpond.broker.subscriptions.subscription import Subscription
from headpond.model.errors import HeadpondError
from headpond.model.grant import NONE, Grant
from headpond.storage.commit_lane import CommitLane
from headpond.wire.connection import NodeSide
from headpond.wire.control.consuming import Subscribe
from headpond.wire.control.producing import Ack
from headpond.wire.title import Predecessor


def shown(text: str) -> str:
    """A text from a client, fit for a line of a log."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "?" for each in text)


@dataclass(slots=True)
class BlockContext:
    """What a TITLE set: the segments that follow belong to this block."""

    block: bytes
    title_crc: int
    """Of the frame: an equal title only switches to this block."""
    topic_name: str
    topic: Topic | None
    refusal: HeadpondError | None = None
    """Why segments of this block are turned away, if they are."""
    producer: str = ""
    epoch: int = 0
    """Of the producer's lease, with single access."""
    late: bool = False
    """Sent on purpose after its producer was taken over."""
    predecessor: Predecessor | None = None
    """The block that must be complete before this one continues; None once it is."""
    schema: pa.Schema | None = None
    """Of a typed topic's block: the columns it was encoded with."""
    snapshot_faults: dict[int, str] = field(default_factory=dict)
    """By shard: the fault of the last snapshot, if it had one."""


class SessionConsumer(NamedTuple):
    topic: Topic
    subscription: Subscription
    attachment: Attachment


@dataclass(slots=True)
class Session:
    connection: int
    side: NodeSide
    take_ack: Callable[[Ack], None] | None = None
    """Of a client in the node's process: takes acknowledgements as objects instead of frames."""
    blocks: dict[bytes, BlockContext] = field(default_factory=dict)
    current: BlockContext | None = None
    """The block that SEGMENT frames belong to now."""
    consumers: dict[int, SessionConsumer] = field(default_factory=dict)
    """By the client's number."""
    subscribing: dict[int, Subscribe] = field(default_factory=dict)
    """By number: SUBSCRIBE frames without an answer yet."""
    greeted: bool = False
    client: str = ""
    """The name that the client gives itself."""
    grant: Grant = NONE
    """What it may do; nothing before its HELLO."""
    token: str = ""
    """The id of the token that it was opened with."""
    token_name: str = ""
    expires_us: int | None = None
    """When that token expires, by the time of day."""
    tenants: set[str] = field(default_factory=set)
    """The tenants whose topics it uses."""
    rates: dict[str, int] = field(default_factory=dict)
    """By setting: how far its clock of that rate has run, in µs."""
    resume_us: int = 0
    """The node reads nothing from it before this time: it sent more than its quota allows."""
    producers: dict[tuple[bytes, str, bytes], None] = field(default_factory=dict)
    """Topic, name and instance of each of its producers."""
    gone: bool = False
    """Whether the connection ended; its requests may still be under way."""
    writable: bool = True
    """Whether the connection has room for more."""
    unacked_bytes: int = 0
    """Bytes of segments and settlements that the node has not answered yet."""
    heard_us: int = 0
    """When bytes last came."""
    unread: bool = False
    """Whether the node does not read from it now; then its silence means nothing."""


def hold_unacked(
    context: Context, session: Session, size: int, lane: CommitLane, *, hurry: bool = True
) -> None:
    """Counts bytes as unanswered until a lane has them on disk, also against the connection's window."""
    session.unacked_bytes += size
    context.unacked_bytes += size

    def durable(error: HeadpondError | None) -> None:
        session.unacked_bytes -= size
        context.unacked_bytes -= size

    lane.wait(durable, hurry=hurry)
