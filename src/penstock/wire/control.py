"""The conversation between a client and a node: one struct a frame type, msgpack by position.

Fields may be added at the end with a default, so an older peer still reads a newer one. ``consumer`` is a
number that the client chose, unique on its connection; ``block`` names a producer's run.
"""

from __future__ import annotations

from typing import Any, TypeVar, get_type_hints

import msgspec

from penstock.model.errors import BadFrame, BadRequest, LimitReached, PenstockError, from_code
from penstock.wire.frame import CONTROL_BYTES_MAX, RESPONSE_BYTES_MAX, FrameType, encode

PROTOCOL_VERSION = 1

Span = tuple[int, int]
"""Entries ``start <= n < end``."""


class Control(msgspec.Struct, array_like=True, frozen=True):
    """The base of all conversation frames."""


# --- greeting ---------------------------------------------------------------------------------------


class Hello(Control, frozen=True):
    """The client's first frame."""

    versions: list[int]
    client: str
    token: str | None = None


class Welcome(Control, frozen=True):
    """The node's answer: the version both will speak, who the node is, and its limits."""

    version: int
    node: str
    software: str
    segment_bytes_max: int
    control_bytes_max: int
    window_bytes_max: int
    """How many bytes of unacknowledged segments the node takes from one connection before it stops reading."""


class Error(Control, frozen=True):
    """Something was refused. With no reference it concerns the connection, which then closes."""

    code: str
    message: str
    hint: str
    retryable: bool
    request: int | None = None
    consumer: int | None = None
    block: bytes | None = None

    def as_exception(self) -> PenstockError:
        return from_code(self.code, self.message, self.hint)


class Ping(Control, frozen=True):
    number: int


class Pong(Control, frozen=True):
    number: int


# --- requests ---------------------------------------------------------------------------------------


class OpenTopic(Control, frozen=True, tag="open_topic"):
    """Reads a topic's settings; creates it if asked to and the node allows creation on first use."""

    topic: str
    create: bool = False


class CreateTopic(Control, frozen=True, tag="create_topic"):
    topic: str
    shards: int = 1
    exist_ok: bool = False


class ShowTopic(Control, frozen=True, tag="show_topic"):
    topic: str


class ListTopics(Control, frozen=True, tag="list_topics"):
    pass


class DeleteTopic(Control, frozen=True, tag="delete_topic"):
    topic: str


class ListSubscriptions(Control, frozen=True, tag="list_subscriptions"):
    topic: str


class DeleteSubscription(Control, frozen=True, tag="delete_subscription"):
    topic: str
    subscription: str


class ShowNode(Control, frozen=True, tag="show_node"):
    """Counters, limits and what recovery found."""


Operation = (
    OpenTopic
    | CreateTopic
    | ShowTopic
    | ListTopics
    | DeleteTopic
    | ListSubscriptions
    | DeleteSubscription
    | ShowNode
)


class Request(Control, frozen=True):
    number: int
    operation: Operation


class Response(Control, frozen=True):
    """The answer to a request: plain data, documented with each ``*Info`` struct below."""

    number: int
    result: Any


class ShardInfo(msgspec.Struct, frozen=True):
    shard: int
    incarnation: int
    entry_first: int
    """The first entry that is still kept."""
    entry_next: int
    """One past the last durable entry."""
    bytes: int
    damaged: list[Span]
    """Entries that failed their checksum or are missing; they are never served."""


class TopicInfo(msgspec.Struct, frozen=True):
    topic: str
    uuid: bytes
    shards: int
    created_at_us: int
    durability: str
    schema: bytes | None = None
    shard_list: list[ShardInfo] = []


class SubscriptionInfo(msgspec.Struct, frozen=True):
    subscription: str
    topic: str
    kind: str
    mode: str
    consumers: list[str]
    settled: int
    """Entries settled, in all shards."""
    unsettled: int
    """Entries neither settled nor lost: available or in flight."""
    in_flight: int
    unacked: int
    """Entries that were negatively acknowledged and wait to be offered again."""
    lost: int
    """Entries that cannot be delivered any more (damaged)."""
    positions: list[int]
    """The first entry of each shard that is not settled."""


# --- producing --------------------------------------------------------------------------------------
# TITLE sets the block, then SEGMENT frames follow; the node answers with ACK.


class AckItem(Control, frozen=True):
    segment: int
    outcome: str
    """stored | duplicate | rejected"""
    first_entry: int | None = None
    """Where row 0 stands; None where it is not known (rejected, or a duplicate of a dropped entry)."""
    code: str = ""
    message: str = ""
    expected: int | None = None
    """Of a ``gap``: the segment to go back to."""


class Ack(Control, frozen=True):
    block: bytes
    shard: int
    durability: str
    items: list[AckItem]


class Hole(Control, frozen=True):
    """The sender has nothing between what was admitted and ``segment``: admission goes on from there."""

    block: bytes
    shard: int
    segment: int


class BlockEnd(Control, frozen=True):
    """The producer closed: no segment follows in this block. ``segments_next`` by shard."""

    block: bytes
    segments_next: dict[int, int]


# --- consuming --------------------------------------------------------------------------------------


class Subscribe(Control, frozen=True):
    consumer: int
    topic: str
    subscription: str
    kind: str
    mode: str
    start: str | int
    """``earliest``, ``latest`` or an entry (of every shard); used only when the subscription is created."""
    credit_bytes: int
    name: str = ""
    create_topic: bool = False
    topic_uuid: bytes | None = None
    """The topic that the consumer read before it reconnected; another one of that name is refused."""


class Subscribed(Control, frozen=True):
    """The consumer is attached. The effective values are the subscription's, whoever created it."""

    consumer: int
    topic: str
    topic_uuid: bytes
    shards: int
    kind: str
    mode: str
    positions: list[int]
    schema: bytes | None = None


class Unsubscribe(Control, frozen=True):
    """The consumer leaves. ``seen`` holds (shard, start, end) of what its application was handed.

    Anything else that was delivered was only sent ahead, and does not count as an attempt. None: all was seen.
    """

    consumer: int
    seen: list[tuple[int, int, int]] | None = None


class Unsubscribed(Control, frozen=True):
    """The consumer is detached; everything it settled before is durable."""

    consumer: int


class Credit(Control, frozen=True):
    """The consumer can take this many bytes more."""

    consumer: int
    bytes: int


class Deliver(Control, frozen=True):
    """``records`` SEGMENT frames follow at once, as stored. Of their rows only ``spans`` are meant."""

    consumer: int
    shard: int
    records: int
    attempt: int
    spans: list[Span]


class Settle(Control, frozen=True):
    """What became of entries. Idempotent; ``number`` comes back in SETTLED once it is on the node's disk.

    An empty one is a flush. ``nacked`` holds (entry, delay in seconds or None for the policy's backoff).
    """

    consumer: int
    number: int
    shard: int
    acked: list[Span] = []
    skipped: list[Span] = []
    nacked: list[tuple[int, float | None]] = []


class Settled(Control, frozen=True):
    """Every settlement up to and with ``number`` is durable."""

    consumer: int
    number: int
    late: int = 0
    """How many of the entries in it had been settled before."""


class Lost(Control, frozen=True):
    """Entries that this subscription will not get: ``reason`` is damaged (rot, or a file gone)."""

    consumer: int
    shard: int
    spans: list[Span]
    reason: str


CONTROL_TYPES: dict[type[Control], FrameType] = {
    Hello: FrameType.HELLO,
    Welcome: FrameType.WELCOME,
    Error: FrameType.ERROR,
    Ping: FrameType.PING,
    Pong: FrameType.PONG,
    Request: FrameType.REQUEST,
    Response: FrameType.RESPONSE,
    Ack: FrameType.ACK,
    Hole: FrameType.HOLE,
    BlockEnd: FrameType.BLOCK_END,
    Subscribe: FrameType.SUBSCRIBE,
    Subscribed: FrameType.SUBSCRIBED,
    Unsubscribe: FrameType.UNSUBSCRIBE,
    Unsubscribed: FrameType.UNSUBSCRIBED,
    Credit: FrameType.CREDIT,
    Deliver: FrameType.DELIVER,
    Settle: FrameType.SETTLE,
    Settled: FrameType.SETTLED,
    Lost: FrameType.LOST,
}

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[int, msgspec.msgpack.Decoder[Any]] = {
    int(type_): msgspec.msgpack.Decoder(kind) for kind, type_ in CONTROL_TYPES.items()
}

Info = TypeVar("Info")


def check_fields(message: msgspec.Struct) -> None:
    """Refuses values of a type that the other side could not read, in the caller's own words."""
    for name, kind in get_type_hints(type(message)).items():
        value = getattr(message, name)
        try:
            msgspec.convert(value, kind)
        except msgspec.ValidationError as error:
            raise BadRequest(f"{name} cannot be {value!r:.60}: {error}") from None


def encode_control(message: Control) -> bytes:
    """The whole frame of a conversation message."""
    body = _encoder.encode(message)
    limit = RESPONSE_BYTES_MAX if type(message) is Response else CONTROL_BYTES_MAX
    if len(body) > limit:
        raise LimitReached(f"a {type(message).__name__} of {len(body):,} bytes; the limit is {limit:,}")
    return encode(CONTROL_TYPES[type(message)], body)


def decode_control(frame_type: int, body: bytes) -> Control:
    """The message in a frame of a conversation type; anything unreadable is a ``BadFrame``."""
    try:
        message: Control = _decoders[frame_type].decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"a {FrameType(frame_type).name} frame that cannot be read: {error}") from error
    return message


def read_result(result: Any, kind: type[Info]) -> Info:
    """A response's plain data as one of the ``*Info`` structs (or a list of them)."""
    return msgspec.convert(result, kind)
