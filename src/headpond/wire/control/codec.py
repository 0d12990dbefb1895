"""The conversation between a client and a node: one struct a frame type, msgpack by position.

Fields may be added at the end with a default, so an older peer still reads a newer one. ``block`` names a
producer's run. What is about subscriptions stands in consuming.py, about reading by position in fetching.py,
about tenants and producers in tenancy.py, about staged writes in staging.py, about tokens in access.py,
about links between nodes in peering.py.
"""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple, TypeVar, get_args

import msgspec

from headpond.model.bounds import (
    NUMBER_MAX,
    SHARDS_MAX,
    Block,
    ByteCount,
    Count,
    Entry,
    Number,
    SchemaBytes,
    SchemaList,
    Segment,
    SegmentEnd,
    SegmentEnds,
    SettingValues,
    Shard,
    Shards,
    Spans,
    Text,
    TimeUs,
    TopicText,
    Total,
    Uuid,
    Word,
    check_values,
)
from headpond.model.bounds import check_fields as check_fields
from headpond.model.errors import BadFrame, BadRequest, HeadpondError, LimitReached
from headpond.wire.control.access import AccessOperation
from headpond.wire.control.catalog import ChangeSettings as ChangeSettings
from headpond.wire.control.catalog import CloseProducer as CloseProducer
from headpond.wire.control.catalog import CreatePlace as CreatePlace
from headpond.wire.control.catalog import CreateProducer as CreateProducer
from headpond.wire.control.catalog import DeletePlace as DeletePlace
from headpond.wire.control.catalog import DeleteProducer as DeleteProducer
from headpond.wire.control.catalog import ListPlaces as ListPlaces
from headpond.wire.control.catalog import ListProducers as ListProducers
from headpond.wire.control.catalog import OpenProducer as OpenProducer
from headpond.wire.control.catalog import PlaceDeleted as PlaceDeleted
from headpond.wire.control.catalog import PlaceInfo as PlaceInfo
from headpond.wire.control.catalog import ProducerInfo as ProducerInfo
from headpond.wire.control.catalog import ProducerOpened as ProducerOpened
from headpond.wire.control.catalog import SettingInfo as SettingInfo
from headpond.wire.control.catalog import ShowPlace as ShowPlace
from headpond.wire.control.catalog import ShowProducer as ShowProducer
from headpond.wire.control.consuming import Browse as Browse
from headpond.wire.control.consuming import Browsed as Browsed
from headpond.wire.control.consuming import CreateSubscription as CreateSubscription
from headpond.wire.control.consuming import Credit as Credit
from headpond.wire.control.consuming import DeleteSubscription as DeleteSubscription
from headpond.wire.control.consuming import Deliver as Deliver
from headpond.wire.control.consuming import Extend as Extend
from headpond.wire.control.consuming import GiveBack as GiveBack
from headpond.wire.control.consuming import ListSkipped as ListSkipped
from headpond.wire.control.consuming import ListSubscriptions as ListSubscriptions
from headpond.wire.control.consuming import ListUnacked as ListUnacked
from headpond.wire.control.consuming import Lost as Lost
from headpond.wire.control.consuming import PauseSubscription as PauseSubscription
from headpond.wire.control.consuming import Redrive as Redrive
from headpond.wire.control.consuming import Renew as Renew
from headpond.wire.control.consuming import SeekSubscription as SeekSubscription
from headpond.wire.control.consuming import Settle as Settle
from headpond.wire.control.consuming import Settled as Settled
from headpond.wire.control.consuming import ShowSubscription as ShowSubscription
from headpond.wire.control.consuming import SkippedPage as SkippedPage
from headpond.wire.control.consuming import Subscribe as Subscribe
from headpond.wire.control.consuming import Subscribed as Subscribed
from headpond.wire.control.consuming import SubscriptionInfo as SubscriptionInfo
from headpond.wire.control.consuming import UnackedEntry as UnackedEntry
from headpond.wire.control.consuming import UnackedPage as UnackedPage
from headpond.wire.control.consuming import Unsubscribe as Unsubscribe
from headpond.wire.control.consuming import Unsubscribed as Unsubscribed
from headpond.wire.control.greeting import Control as Control
from headpond.wire.control.greeting import Error as Error
from headpond.wire.control.greeting import Hello as Hello
from headpond.wire.control.greeting import Span as Span
from headpond.wire.control.greeting import Welcome as Welcome
from headpond.wire.control.ledger import LedgerInfo as LedgerInfo
from headpond.wire.control.ledger import ShowLedger as ShowLedger
from headpond.wire.control.ledger import ShowTop as ShowTop
from headpond.wire.control.ledger import TopInfo as TopInfo
from headpond.wire.control.links import PeerOperation
from headpond.wire.control.reading import AdvanceSubscription as AdvanceSubscription
from headpond.wire.control.reading import Ends as Ends
from headpond.wire.control.reading import Fetched as Fetched
from headpond.wire.control.reading import FetchEntries as FetchEntries
from headpond.wire.control.reading import FindTime as FindTime
from headpond.wire.control.reading import ReadEnds as ReadEnds
from headpond.wire.control.reading import ShardEnds as ShardEnds
from headpond.wire.control.staging import AbortStages as AbortStages
from headpond.wire.control.staging import BatchInfo as BatchInfo
from headpond.wire.control.staging import CommitBatch as CommitBatch
from headpond.wire.control.staging import DeleteWriter as DeleteWriter
from headpond.wire.control.staging import FinishStage as FinishStage
from headpond.wire.control.staging import ListWriters as ListWriters
from headpond.wire.control.staging import OpenStage as OpenStage
from headpond.wire.control.staging import ShowWriter as ShowWriter
from headpond.wire.control.staging import StageInfo as StageInfo
from headpond.wire.control.staging import StageOpened as StageOpened
from headpond.wire.control.staging import WriterInfo as WriterInfo
from headpond.wire.frame import CONTROL_BYTES_MAX, RESPONSE_BYTES_MAX, FrameType, encode

PROTOCOL_VERSION = 1


# --- greeting ---------------------------------------------------------------------------------------


class Ping(Control, frozen=True):
    number: Number


class Pong(Control, frozen=True):
    number: Number


# --- requests ---------------------------------------------------------------------------------------


class OpenTopic(Control, frozen=True, tag="open_topic"):
    """Reads a topic's settings; creates it if asked to and the node allows creation on first use."""

    topic: TopicText
    create: bool = False


class CreateTopic(Control, frozen=True, tag="create_topic"):
    topic: TopicText
    shards: Shards = 1
    exist_ok: bool = False
    schema: SchemaBytes | None = None
    """Makes the topic typed: its columns, as an Arrow IPC schema."""
    settings: SettingValues = msgspec.field(default_factory=dict)
    """What the topic itself says; anything else is inherited."""


class AlterTopic(Control, frozen=True, tag="alter_topic"):
    """Gives a typed topic a new version of its schema: added nullable columns and wider numbers only."""

    topic: TopicText
    schema: SchemaBytes


class ShowTopic(Control, frozen=True, tag="show_topic"):
    topic: TopicText


class ListTopics(Control, frozen=True, tag="list_topics"):
    pass


class DeleteTopic(Control, frozen=True, tag="delete_topic"):
    topic: TopicText


class CompactTopic(Control, frozen=True, tag="compact_topic"):
    """Takes superseded messages out of a state topic's files now; answered when it is done."""

    topic: TopicText


class ShowNode(Control, frozen=True, tag="show_node"):
    """Counters, limits and what recovery found."""


Operation = (
    OpenTopic
    | CreateTopic
    | AlterTopic
    | ShowTopic
    | ListTopics
    | DeleteTopic
    | CompactTopic
    | CreateSubscription
    | ListSubscriptions
    | ShowSubscription
    | ListUnacked
    | ListSkipped
    | DeleteSubscription
    | SeekSubscription
    | PauseSubscription
    | Redrive
    | Browse
    | ReadEnds
    | FindTime
    | FetchEntries
    | AdvanceSubscription
    | CreatePlace
    | ListPlaces
    | ShowPlace
    | DeletePlace
    | ChangeSettings
    | CreateProducer
    | ListProducers
    | ShowProducer
    | DeleteProducer
    | OpenProducer
    | CloseProducer
    | OpenStage
    | FinishStage
    | CommitBatch
    | AbortStages
    | ListWriters
    | ShowWriter
    | DeleteWriter
    | AccessOperation
    | PeerOperation
    | ShowNode
    | ShowLedger
    | ShowTop
)


class Request(Control, frozen=True):
    number: Number
    operation: Operation


class Response(Control, frozen=True):
    """The answer to a request: plain data, documented with each ``*Info`` struct below."""

    number: Number
    result: Any


class ShardInfo(msgspec.Struct, frozen=True):
    shard: Shard
    incarnation: Total
    entry_first: Entry
    """The first entry that is still kept."""
    entry_next: Entry
    """One past the last durable entry."""
    bytes: Total
    damaged: Spans
    """Entries that failed their checksum or are missing; they are never served."""
    compacted: Total = 0
    """How many of the entries between the two compaction took out; every subscription has settled them."""


class ShardCompaction(msgspec.Struct, frozen=True):
    shard: int
    bytes_before: int
    bytes_after: int
    compacted: int
    """How many entries were taken out."""


class TopicCompaction(msgspec.Struct, frozen=True):
    topic: str
    shards: list[ShardCompaction]


class TopicInfo(msgspec.Struct, frozen=True):
    topic: TopicText
    uuid: Uuid
    shards: Shards
    created_at_us: TimeUs
    durability: Word
    schema: SchemaBytes | None = None
    """Of a typed topic: its newest columns, as an Arrow IPC schema."""
    shard_list: Annotated[list[ShardInfo], msgspec.Meta(max_length=SHARDS_MAX)] = []
    schema_version: Count | None = None
    """Of a typed topic: the number of its newest schema; the first is 1."""
    schemas: SchemaList = []
    """Every version, oldest first; not in a list of topics."""
    message_bytes_max: ByteCount | None = None
    """Bytes that one message's value may take, if the topic says so."""
    settings: Annotated[list[SettingInfo], msgspec.Meta(max_length=256)] = []
    """Every setting with its origin; not in a list of topics, nor for who only opens it."""
    state: bool | None = None
    """Whether it is a state topic: every message has a key, and one without a value deletes it."""


# --- producing --------------------------------------------------------------------------------------
# TITLE sets the block, then SEGMENT frames follow; the node answers with ACK.


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
    Extend: FrameType.EXTEND,
    Renew: FrameType.RENEW,
    GiveBack: FrameType.GIVE_BACK,
    Fetched: FrameType.FETCHED,
}

_encoder = msgspec.msgpack.Encoder()
_decoders: dict[int, msgspec.msgpack.Decoder[Any]] = {
    int(type_): msgspec.msgpack.Decoder(kind) for kind, type_ in CONTROL_TYPES.items()
}

Info = TypeVar("Info")


def encode_control(message: Control) -> bytes:
    """The whole frame of a conversation message."""
    body = _encoder.encode(message)
    limit = RESPONSE_BYTES_MAX if type(message) is Response else CONTROL_BYTES_MAX
    if len(body) > limit:
        raise LimitReached(f"a {type(message).__name__} of {len(body):,} bytes; the limit is {limit:,}")
    return encode(CONTROL_TYPES[type(message)], body)


def encode_refusal(error: HeadpondError, *, request: int | None = None, consumer: int | None = None) -> bytes:
    """The whole frame that tells of an error, of a request or a consumer."""
    return encode_control(Error(error.code, error.message, error.hint, error.retryable, request, consumer))


def decode_control(frame_type: int, body: bytes) -> Control:
    """The message in a frame of a conversation type; anything unreadable is a ``BadFrame``."""
    try:
        message: Control = _decoders[frame_type].decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"a {FrameType(frame_type).name} frame that cannot be read: {error}") from error
    return message


class Misfit(NamedTuple):
    """A message that cannot be taken as it is. Its sender is told which; the conversation goes on."""

    kind: type[Control]
    number: int
    """Of the request or the consumer."""
    error: BadRequest


_ANSWERED: dict[int, type[Control]] = {int(CONTROL_TYPES[kind]): kind for kind in (Request, Subscribe, Settle)}
"""Messages that can be refused by the number in their first field, without ending the connection."""
_OPERATIONS: dict[Any, type[Control]] = {kind.__struct_config__.tag: kind for kind in get_args(Operation)}


def read_misfit(frame_type: int, body: bytes) -> Misfit | None:
    """What is wrong with a body that ``decode_control`` refused, if its sender can be told by a number."""
    kind = _ANSWERED.get(frame_type)
    try:
        match msgspec.msgpack.decode(body):
            case [int(number), *_] as values if kind is not None and 0 <= number <= NUMBER_MAX:
                return Misfit(kind, number, _misfit_error(kind, values))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, TypeError):
        pass
    return None


def _misfit_error(kind: type[Control], values: list[Any]) -> BadRequest:
    match values:
        case [_, [tag, *fields], *_] if kind is Request and tag in _OPERATIONS:
            kind, values = _OPERATIONS[tag], fields
    try:
        check_values(kind, values)
    except BadRequest as error:
        return error
    return BadRequest(f"a {kind.__name__} that has too few fields, or is not known here")


def read_result(result: Any, kind: type[Info]) -> Info:
    """A response's plain data as one of the ``*Info`` structs (or a list of them)."""
    return msgspec.convert(result, kind)
