"""The part of the conversation that is about links between nodes.

A node that gives (the *source*) is asked for ``follow_topics``, ``read_heads`` and ``fetch``; one that takes
(the *sink*) for ``open_feed``, ``offer_heads``, then PEER frames and ``admit_records``. Whoever dialled the
connection asks both kinds, so one connection carries a link in both directions.

The body of a PEER frame (shard and segment stand in its header)::

    topic uuid: 16 bytes | a stored segment, as in a log (record.py)

Settlements follow their data by further requests: following.py.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from google_crc32c import extend, value

from headpond.model.bounds import (
    SHARDS_MAX,
    Block,
    Count,
    Entry,
    Name,
    Number,
    Patterns,
    SchemaList,
    Segment,
    SettingValues,
    Shard,
    Shards,
    TimeUs,
    TopicText,
    Total,
    Uuid,
    Wait,
    Word,
)
from headpond.model.errors import BadFrame
from headpond.wire.control.following import FollowOperation
from headpond.wire.control.greeting import Control
from headpond.wire.frame import HEADER, TRAILER, FrameType
from headpond.wire.record import RecordHeader, decode_record_header

UUID_BYTES = 16
HEADS_MAX = 1024
"""Records that one ``read_heads`` tells of, and one ``offer_heads`` asks about."""
WANTED, KNOWN, CONFLICTING = 0, 1, 2
"""What a sink says of a head."""
REFUSAL_BYTES_MAX = 4096
"""Why a segment was refused."""

# --- links, for who administers a node ----------------------------------------------------------------


class AddPeer(Control, frozen=True, tag="add_peer"):
    """Makes a link to another node; ``PeerInfo`` is the answer. The same one again changes nothing."""

    url: TopicText
    topics: Patterns
    direction: Word = "pull"
    """``pull``: the other's messages come here; ``push``: those of this node go there; ``both``."""
    name: Word = ""
    """Empty: the address."""
    secret: Name | None = None
    """For the other node. It is kept, since it is needed at every connection, and never shown."""
    subscriptions: Patterns = msgspec.field(default_factory=list)
    """Subscriptions that follow: names, or beginnings of names with a star; none: messages alone."""

    def __repr__(self) -> str:
        return f"AddPeer(url={self.url!r}, topics={self.topics!r}, name={self.name!r})"


class ListPeers(Control, frozen=True, tag="list_peers"):
    pass


class ShowPeer(Control, frozen=True, tag="show_peer"):
    """One link, with its topics."""

    peer: Name


class RemovePeer(Control, frozen=True, tag="remove_peer"):
    """Ends a link. What it brought stays."""

    peer: Name


class PeerTopicInfo(msgspec.Struct, frozen=True):
    """A topic of a link, in one direction."""

    topic: str
    direction: str
    """``pull`` or ``push``"""
    state: str
    """``opening``, ``following``, ``catching up``, ``refused``, ``elsewhere`` (another link has it)"""
    lag: int
    """Entries that the one side has and the other has not looked at."""
    code: str = ""
    """Of what keeps it from following."""
    message: str = ""


class PeerSubscriptionInfo(msgspec.Struct, frozen=True):
    """A subscription that a link follows, in one direction."""

    topic: str
    subscription: str
    direction: str
    state: str
    """``following``; ``catching up``; ``promoted``: the copy is active, and so is the one that it followed;
    ``own``: there is another one of that name; ``refused``; ``orphan``: its source is gone"""
    behind: int
    """Entries that there is more to tell of."""
    message: str = ""


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
    """When it came into that state."""
    node: str = ""
    """The other node's id, once it was reached."""
    lag: int = 0
    following: int = 0
    """Topics that follow, a direction at a time."""
    refused: int = 0
    error: str = ""
    """What kept it from being connected last."""
    error_code: str = ""
    counts: dict[str, int] = {}
    """Since the node was started: records, messages and bytes in and out, duplicates, conflicts, late, holes,
    lost, unreadable, rewinds, connections"""
    topic_list: list[PeerTopicInfo] = []
    """Not in a list of links; at most 1,000, those that do not follow first."""
    subscriptions: list[str] = []
    """Which subscriptions follow, by name or pattern."""
    subscription_list: list[PeerSubscriptionInfo] = []
    """Not in a list of links."""


# --- what a source is asked ---------------------------------------------------------------------------


class FollowTopics(Control, frozen=True, tag="follow_topics"):
    """The topics that match and that changed since ``seen``; waits, ``wait_s`` at most, until there is one."""

    topics: Patterns
    seen: Number = 0
    """The highest stamp that was told on this connection."""
    wait_s: Wait = 0.0


class Followed(msgspec.Struct, frozen=True):
    topic: TopicText
    uuid: Uuid | None
    """None: it was deleted."""
    stamp: Number
    schema_version: Count | None
    shards: Annotated[list[tuple[Entry, Entry]], msgspec.Meta(max_length=SHARDS_MAX)]
    """First kept and next durable entry of each."""


class ReadHeads(Control, frozen=True, tag="read_heads"):
    """What stands in a shard from the record of ``entry`` on, without its rows."""

    topic: Uuid
    shard: Shard
    entry: Entry


class RecordHead(msgspec.Struct, frozen=True, array_like=True):
    first_entry: Entry
    count: Count
    """0: the segment was refused for good; ``refusal`` says why."""
    block: Block
    segment: Segment
    origin_crc: Count
    size: Count
    stored_at_us: TimeUs = 0
    """At the source: the same record stored once more, as after restoring an old copy, has another one."""
    refusal: Annotated[bytes, msgspec.Meta(max_length=REFUSAL_BYTES_MAX)] = b""

    @property
    def end_entry(self) -> int:
        return self.first_entry + self.count


COMPACTED_AWAY = msgspec.msgpack.encode(["compacted", "every row of it was superseded"])
"""The refusal of a state topic's segment without rows: whoever follows uses its number and stores nothing."""


class BlockName(msgspec.Struct, frozen=True, array_like=True):
    producer: Name = ""
    sparse: bool = False
    """Its numbers are chosen, not counted up, so that what lies between them is no hole."""


HeadList = Annotated[list[RecordHead], msgspec.Meta(max_length=HEADS_MAX)]
BlockNames = Annotated[dict[Block, BlockName], msgspec.Meta(max_length=HEADS_MAX)]


class Heads(msgspec.Struct, frozen=True):
    heads: HeadList
    blocks: BlockNames
    entry_next: Entry
    """Where to read on."""
    entry_end: Entry
    """One past the last durable entry."""
    lost: Annotated[list[tuple[Entry, Entry]], msgspec.Meta(max_length=HEADS_MAX)] = []
    """Entries on the way that cannot be had any more: dropped or damaged."""


# --- what a sink is asked -----------------------------------------------------------------------------


class SourcePosition(msgspec.Struct, frozen=True, array_like=True):
    """How far a sink has a source's shard."""

    uuid: Uuid
    """The source's topic."""
    entry: Entry
    last: RecordHead | None = None
    """The last record before it, by which another log of the same name is told from this one."""


class OpenFeed(Control, frozen=True, tag="open_feed"):
    """Finds a topic that records are to come for, or makes it like the source's; answered by ``FeedOpened``."""

    topic: TopicText
    node: Word
    """The source's id."""
    uuid: Uuid
    """Of the topic at the source."""
    shards: Shards
    schemas: SchemaList = msgspec.field(default_factory=list)
    state: bool = False
    settings: SettingValues = msgspec.field(default_factory=dict)
    """What the source's topic says itself; used where it is made."""


class FeedOpened(msgspec.Struct, frozen=True):
    uuid: Uuid
    places: Annotated[list[SourcePosition | None], msgspec.Meta(max_length=SHARDS_MAX)]
    """Of each shard, as far as is known."""


class OfferHeads(Control, frozen=True, tag="offer_heads"):
    """Which of these records are wanted: a list of WANTED, KNOWN or CONFLICTING."""

    topic: Uuid
    shard: Shard
    heads: HeadList
    blocks: BlockNames


class AdmitRecords(Control, frozen=True, tag="admit_records"):
    """All that came for a shard since the last such request; ``Admitted`` is the answer, when it is durable."""

    topic: Uuid
    shard: Shard
    node: Word
    place: SourcePosition


class Admitted(msgspec.Struct, frozen=True):
    records: Total = 0
    messages: Total = 0
    bytes: Total = 0
    duplicates: Total = 0
    late: Total = 0
    holes: Total = 0
    """Segments that the source has nothing of."""
    unreadable: Total = 0
    """Records that are none; they were not taken."""
    conflicts: Total = 0
    """Records whose number was used for something else between the offer and now; they were not taken."""


PeerOperation = (
    AddPeer
    | ListPeers
    | ShowPeer
    | RemovePeer
    | FollowTopics
    | ReadHeads
    | OpenFeed
    | OfferHeads
    | AdmitRecords
    | FollowOperation
)


def peer_parts(topic: bytes, shard: int, segment: int, record: bytes) -> list[bytes]:
    """The PEER frame of a stored record, in pieces, so that the record is not copied."""
    lead = HEADER.pack(FrameType.PEER, shard, segment, UUID_BYTES + len(record)) + topic
    return [lead, record, TRAILER.pack(extend(value(lead), record))]


def decode_peer(body: bytes) -> tuple[bytes, RecordHeader, bytes]:
    """Topic, header and record of a PEER frame's body."""
    if len(body) <= UUID_BYTES:
        raise BadFrame(f"a PEER frame of {len(body)} bytes is too short")
    record = body[UUID_BYTES:]
    return body[:UUID_BYTES], decode_record_header(record), record
