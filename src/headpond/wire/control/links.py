"""Messages about links between nodes.

The node that has messages (the *source*) answers ``follow_topics``, ``read_heads`` and ``fetch``; the node that
copies them (the *sink*) answers ``open_feed`` and ``offer_heads``, takes PEER frames and answers
``admit_records``. The node that dialled sends both kinds, so one connection carries a link in both directions.

The body of a PEER frame (shard and segment are in its header)::

    topic uuid: 16 bytes | a stored segment, as in a log (record.py)

Copies of subscriptions follow their messages. Settlements name messages by identity (block, segment, rows),
because entries differ between nodes. The source answers ``follow_subscriptions`` (which subscriptions exist,
which changed) and ``read_settled`` (settlements since the last answer, in pieces); the sink answers
``open_copy`` and ``apply_settled``. The source sends no settlements of records that the sink does not have
yet: ``upto`` says how far it has them.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

import msgspec

from headpond.model.bounds import (
    SHARDS_MAX,
    SPANS_MAX,
    Block,
    Count,
    Entry,
    Epoch,
    Name,
    Number,
    Patterns,
    SchemaList,
    Segment,
    SegmentEnd,
    SettingValues,
    Shard,
    ShardEntries,
    Shards,
    TimeUs,
    TopicText,
    Total,
    Uuid,
    Wait,
    Word,
)
from headpond.model.errors import BadFrame
from headpond.model.policy import Policy
from headpond.wire.control.consuming import SubscriptionInfo, SubscriptionRequest
from headpond.wire.control.operation import (
    ADMIN,
    CONSUME,
    OperationOf,
    Rule,
    SinkRequest,
    SourceRequest,
    new_settings,
    topic_of,
    whole_node,
)
from headpond.wire.record import RecordHeader, decode_record_header

UUID_BYTES = 16
HEADS_MAX = 1024
"""Records in the answer to one ``read_heads``, and in one ``offer_heads``."""
WANTED, KNOWN, CONFLICTING = 0, 1, 2
"""A sink's answer to an offered head."""
REFUSAL_BYTES_MAX = 4096
"""The longest reason for a refused segment."""

SUBSCRIPTIONS_MAX = 1000
"""Subscriptions that one link copies."""
SEGMENTS_MAX = 1024
"""Segments in one ``apply_settled``."""
DROPPED_MAX = 8192
"""Ranges of segments in one ``apply_dropped``."""

Rows = tuple[Count, Count]
"""First row, and one past the last, of a segment."""
RowSpans = Annotated[list[Rows], msgspec.Meta(max_length=SPANS_MAX, description="cut to the segment's rows")]
WholeSegments = tuple[Block, Segment, SegmentEnd]
"""Block, first segment, and one past the last: all their rows are settled."""

# --- administration of links --------------------------------------------------------------------------


class PeerInfo(msgspec.Struct, frozen=True):
    name: str
    url: str
    topics: list[str]
    direction: str
    made_at_us: int
    made_by: str
    has_token: bool
    state: str
    """``connecting``, ``waiting`` (to try again), ``catching up`` or ``connected``"""
    since_us: int
    """When it entered that state."""
    node: str = ""
    """The other node's id, after the first contact."""
    lag: int = 0
    following: int = 0
    """Topics that follow, counted per direction."""
    refused: int = 0
    error: str = ""
    """The last error that prevented a connection."""
    error_code: str = ""
    counts: dict[str, int] = {}
    """Since the node started: records, messages and bytes in and out, duplicates, conflicts, late, holes,
    lost, unreadable, rewinds, connections"""
    topic_list: list[PeerTopicInfo] = []
    """Not in a list of links; at most 1,000, first those that do not follow."""
    subscriptions: list[str] = []
    """The subscriptions to copy, by name or pattern."""
    subscription_list: list[PeerSubscriptionInfo] = []
    """Not in a list of links."""
    lacking_us: int = 0
    """For how long it has lacked something, or had no connection; 0 while it lacks nothing."""


class AddPeer(OperationOf[PeerInfo], frozen=True, tag="add_peer"):
    """Adds a link to another node. Idempotent."""

    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(ADMIN, on=whole_node, logged=True)

    url: TopicText
    topics: Patterns
    direction: Word = "pull"
    """``pull``: from the other node to this one; ``push``: from this node to the other; ``both``."""
    name: Word = ""
    """Empty: the address."""
    secret: Name | None = None
    """The token for the other node. This node stores it, to connect again, and never shows it."""
    subscriptions: Patterns = msgspec.field(default_factory=list)
    """Subscriptions to copy: names, or prefixes with a star; none: only messages."""

    def __repr__(self) -> str:
        return f"AddPeer(url={self.url!r}, topics={self.topics!r}, name={self.name!r})"


class ListPeers(OperationOf[list[PeerInfo]], frozen=True, tag="list_peers"):
    rule: ClassVar[Rule] = Rule(ADMIN, on=whole_node)


class ShowPeer(OperationOf[PeerInfo], frozen=True, tag="show_peer"):
    """Shows one link with its topics."""

    rule: ClassVar[Rule] = Rule(ADMIN, on=whole_node)

    peer: Name


class RemovePeer(OperationOf[Any], frozen=True, tag="remove_peer"):
    """Removes a link. The messages that it copied stay."""

    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(ADMIN, on=whole_node, logged=True)

    peer: Name


class PeerTopicInfo(msgspec.Struct, frozen=True):
    """A topic of a link, in one direction."""

    topic: str
    direction: str
    """``pull`` or ``push``"""
    state: str
    """``opening``, ``following``, ``catching up``, ``refused``, ``elsewhere`` (another link has it)"""
    lag: int
    """Entries of the source that the sink has not compared yet."""
    code: str = ""
    """The code of the error that stops it."""
    message: str = ""


class PeerSubscriptionInfo(msgspec.Struct, frozen=True):
    """A subscription that a link copies, in one direction."""

    topic: str
    subscription: str
    direction: str
    state: str
    """``following``; ``catching up``; ``promoted``: both the copy and its source are active; ``own``: the sink
    has another subscription with that name; ``refused``; ``orphan``: its source is gone"""
    behind: int
    """Entries whose settlements were not copied yet."""
    message: str = ""


class PromoteSubscription(SubscriptionRequest[SubscriptionInfo], frozen=True, tag="promote_subscription"):
    """Makes the copy of another node's subscription active."""

    rule: ClassVar[Rule] = Rule(ADMIN, on=topic_of, logged=True)


# --- requests to a source -----------------------------------------------------------------------------


class Followed(msgspec.Struct, frozen=True):
    topic: TopicText
    uuid: Uuid | None
    """None: it was deleted."""
    stamp: Number
    schema_version: Count | None
    shards: Annotated[list[tuple[Entry, Entry]], msgspec.Meta(max_length=SHARDS_MAX)]
    """The first stored and the next durable entry of each."""


class FollowTopics(OperationOf[list[Followed]], frozen=True, tag="follow_topics"):
    """Lists matching topics that changed since ``seen``; waits up to ``wait_s`` until there is one."""

    rule: ClassVar[Rule] = Rule(CONSUME, unbound=True)

    topics: Patterns
    seen: Number = 0
    """The highest stamp received on this connection."""
    wait_s: Wait = 0.0


class RecordHead(msgspec.Struct, frozen=True, array_like=True):
    first_entry: Entry
    count: Count
    """0: the node refused the segment for good; ``refusal`` says why."""
    block: Block
    segment: Segment
    origin_crc: Count
    size: Count
    stored_at_us: TimeUs = 0
    """The time at the source: a record stored again, as after restoring an old copy, has another time."""
    refusal: Annotated[bytes, msgspec.Meta(max_length=REFUSAL_BYTES_MAX)] = b""

    @property
    def end_entry(self) -> int:
        return self.first_entry + self.count


COMPACTED_AWAY = msgspec.msgpack.encode(["compacted", "every row of it was superseded"])
"""The refusal of a state topic's segment without rows: a sink marks its number and stores nothing."""


class BlockName(msgspec.Struct, frozen=True, array_like=True):
    producer: Name = ""
    sparse: bool = False
    """Its segment numbers are not consecutive, so numbers between them are not holes."""


HeadList = Annotated[list[RecordHead], msgspec.Meta(max_length=HEADS_MAX)]
BlockNames = Annotated[dict[Block, BlockName], msgspec.Meta(max_length=HEADS_MAX)]


class Heads(msgspec.Struct, frozen=True):
    heads: HeadList
    blocks: BlockNames
    entry_next: Entry
    """Where the next read starts."""
    entry_end: Entry
    """One past the last durable entry."""
    lost: Annotated[list[tuple[Entry, Entry]], msgspec.Meta(max_length=HEADS_MAX)] = []
    """Entries in between that no longer exist: deleted or damaged."""


class ReadHeads(SourceRequest[Heads], frozen=True, tag="read_heads"):
    """Lists the records of a shard, from the one of ``entry`` on, without their rows."""

    shard: Shard
    entry: Entry


# --- copies of subscriptions: requests to a source ----------------------------------------------------


class FollowedSubscription(msgspec.Struct, frozen=True, array_like=True):
    topic: TopicText
    subscription: Name
    kind: Word
    mode: Word
    policy: Policy
    created_at_us: TimeUs
    """The same in all copies; distinguishes them from another subscription with that name."""
    epoch: Epoch
    """How often it was promoted; the highest one wins."""
    generation: Epoch
    """How often settlements were taken back, by a seek or a redrive."""
    consumers: Count
    stamps: Annotated[list[Count], msgspec.Meta(max_length=SHARDS_MAX)]
    """One per shard; a stamp changes with the shard's settlements."""


class FollowSubscriptions(OperationOf[list[FollowedSubscription]], frozen=True, tag="follow_subscriptions"):
    """Lists the active subscriptions of matching topics, as ``FollowedSubscription``."""

    rule: ClassVar[Rule] = Rule(CONSUME, unbound=True)

    topics: Patterns
    subscriptions: Patterns
    """Names, or prefixes with a star."""


class PartlySettled(msgspec.Struct, frozen=True, array_like=True):
    """A segment with some rows settled or delivered."""

    block: Block
    segment: Segment
    settled: RowSpans
    dead: RowSpans
    """The settled rows that are dead."""
    returned: Annotated[list[tuple[Count, Count, Count]], msgspec.Meta(max_length=SPANS_MAX)]
    """First row, one past the last, and attempts, of rows that were delivered and are not settled."""


class Settlements(msgspec.Struct, frozen=True):
    number: Number
    whole: Annotated[list[WholeSegments], msgspec.Meta(max_length=SPANS_MAX)] = []
    parts: Annotated[list[PartlySettled], msgspec.Meta(max_length=SPANS_MAX)] = []
    floor: Entry = 0
    """After this is applied, everything before it is settled."""
    left: Total = 0
    """Entries whose settlements are still to be sent, now or when the sink has them."""
    more: bool = False
    """Whether to ask again at once."""


class ReadSettled(SourceRequest[Settlements], frozen=True, tag="read_settled"):
    """Asks for new settlements in a shard, of entries before ``upto``."""

    subscription: Name
    shard: Shard
    created_at_us: TimeUs
    generation: Epoch
    upto: Entry
    """The sink has every entry before it."""
    floor: Entry
    """The sink has settled everything before it. Only used if ``number`` is 0."""
    number: Number = 0
    """The number of the last answer on this connection that the sink applied; 0: send all settlements."""


class ReadDropped(SourceRequest[list[WholeSegments]], frozen=True, tag="read_dropped"):
    """Asks for the segments that retention deleted from a shard, as a list of ``WholeSegments``."""

    shard: Shard


class TellPromoted(SourceRequest[dict[str, bool]], frozen=True, tag="tell_promoted"):
    """Another node promoted a copy of this subscription, which is active here."""

    subscription: Name
    created_at_us: TimeUs
    epoch: Epoch
    node: Word


# --- requests to a sink -------------------------------------------------------------------------------


class SourcePosition(msgspec.Struct, frozen=True, array_like=True):
    """How much of a source's shard a sink has."""

    uuid: Uuid
    """The topic at the source."""
    entry: Entry
    last: RecordHead | None = None
    """The last record before it, which identifies the log."""


class FeedOpened(msgspec.Struct, frozen=True):
    uuid: Uuid
    places: Annotated[list[SourcePosition | None], msgspec.Meta(max_length=SHARDS_MAX)]
    """By shard; None: unknown."""


class OpenFeed(OperationOf[FeedOpened], frozen=True, tag="open_feed"):
    """Finds the topic to copy records to, or creates it like the source's."""

    rule: ClassVar[Rule] = Rule(ADMIN, on=topic_of, also=new_settings, any_group=True)

    topic: TopicText
    node: Word
    """The source's id."""
    uuid: Uuid
    """The topic at the source."""
    shards: Shards
    schemas: SchemaList = msgspec.field(default_factory=list)
    state: bool = False
    settings: SettingValues = msgspec.field(default_factory=dict)
    """The own settings of the source's topic, for a topic that is created."""


class OfferHeads(SinkRequest[list[int]], frozen=True, tag="offer_heads"):
    """Asks which of these records to send: a list of WANTED, KNOWN or CONFLICTING."""

    shard: Shard
    heads: HeadList
    blocks: BlockNames


class Admitted(msgspec.Struct, frozen=True):
    records: Total = 0
    messages: Total = 0
    bytes: Total = 0
    duplicates: Total = 0
    late: Total = 0
    holes: Total = 0
    """Segments that the source does not have."""
    unreadable: Total = 0
    """Invalid records; the sink did not store them."""
    conflicts: Total = 0
    """Records whose number was used for another record since the offer; the sink did not store them."""


class AdmitRecords(SinkRequest[Admitted], frozen=True, tag="admit_records"):
    """Admits the PEER frames of a shard since the last request; ``Admitted`` once they are durable."""

    shard: Shard
    node: Word
    place: SourcePosition


# --- copies of subscriptions: requests to a sink ------------------------------------------------------


class CopyOpened(msgspec.Struct, frozen=True):
    state: Word
    """``following``; ``promoted``: it is active here and stays so; ``own``: another one has that name."""
    floors: ShardEntries = []
    """By shard: everything before this entry of the source's log is settled at the sink."""
    epoch: Epoch = 0


class OpenCopy(SinkRequest[CopyOpened], frozen=True, tag="open_copy"):
    """Finds or creates the copy of a source's subscription."""

    node: Word
    """The source's id."""
    subscription: Name
    kind: Word
    mode: Word
    policy: Policy
    created_at_us: TimeUs
    epoch: Epoch
    generation: Epoch
    link: Name
    url: Name = ""
    """The URL of the source, if known."""


class CopyApplied(msgspec.Struct, frozen=True):
    state: Word
    """``following``, or ``ignored``: it is no longer a copy of that subscription."""
    settled: Total = 0
    """Entries that this request settled."""
    unknown: Total = 0
    """Segments that this node never had."""


class CopyRequest(SinkRequest[CopyApplied], frozen=True):
    """The base of requests that settle entries in a shard of a copy."""

    node: Word
    subscription: Name
    shard: Shard
    created_at_us: TimeUs
    epoch: Epoch
    generation: Epoch


class ApplySettled(CopyRequest, frozen=True, tag="apply_settled"):
    """Applies the source's settlements to the copy; the sink answers when they are durable."""

    whole: Annotated[list[WholeSegments], msgspec.Meta(max_length=SEGMENTS_MAX)]
    parts: Annotated[list[PartlySettled], msgspec.Meta(max_length=SEGMENTS_MAX)]
    floor: Entry
    left: Total
    consumers: Count


class ApplyDropped(CopyRequest, frozen=True, tag="apply_dropped"):
    """Settles in a copy the segments that the source deleted."""

    ranges: Annotated[list[WholeSegments], msgspec.Meta(max_length=DROPPED_MAX)]


_Administration = AddPeer | ListPeers | ShowPeer | RemovePeer | PromoteSubscription
SourceOperation = FollowTopics | ReadHeads | FollowSubscriptions | ReadSettled | ReadDropped | TellPromoted
SinkOperation = OpenFeed | OfferHeads | AdmitRecords | OpenCopy | ApplySettled | ApplyDropped
PeerOperation = _Administration | SourceOperation | SinkOperation


def decode_peer(body: bytes) -> tuple[bytes, RecordHeader, bytes]:
    """Topic, header and record of a PEER frame's body."""
    if len(body) <= UUID_BYTES:
        raise BadFrame(f"a PEER frame of {len(body)} bytes is too short")
    record = body[UUID_BYTES:]
    return body[:UUID_BYTES], decode_record_header(record), record
