"""Messages about reading by position, without a subscription.

A position is (topic uuid, shard, incarnation, entry). The node answers ``fetch`` with a FETCHED frame followed
by records, byte for byte as in the log or as before they were packed, and the other requests with a RESPONSE.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from headpond.model.bounds import (
    SHARDS_MAX,
    SPANS_MAX,
    Block,
    ByteCount,
    Count,
    Entry,
    Framed,
    Name,
    Number,
    Shard,
    ShardEntries,
    ShardTotals,
    Text,
    TimeUs,
    TopicText,
    Total,
    Uuid,
    Wait,
    Word,
)
from headpond.wire.control.consuming import SubscriptionRequest
from headpond.wire.control.operation import CONSUME, Control, OperationOf, Rule, each_topic

TOPICS_MAX = 1024
"""Topics in one request."""


class Ends(msgspec.Struct, frozen=True):
    topic: TopicText
    uuid: Uuid | None
    """None: no topic has that name."""
    schema_version: Count | None
    shards: Annotated[list[ShardEnds], msgspec.Meta(max_length=SHARDS_MAX)]


class ReadEnds(OperationOf[list[Ends]], frozen=True, tag="read_ends"):
    """Asks for the ends of topics; the answer is a list of ``Ends``, in the order of the names.

    With ``known`` (the next entry of every shard, by topic) the answer waits, for ``wait_s`` at most, until one
    of them has grown, or one of the topics is deleted or altered.
    """

    rule: ClassVar[Rule] = Rule(CONSUME, also=each_topic, subscription=True)

    topics: Annotated[list[TopicText], msgspec.Meta(min_length=1, max_length=TOPICS_MAX)]
    known: Annotated[list[ShardEntries], msgspec.Meta(max_length=TOPICS_MAX)] | None = None
    wait_s: Wait = 0.0
    subscription: Name = ""
    """The subscription whose position the reader advances, if any: a token bound to it may read."""


class ShardEnds(msgspec.Struct, frozen=True, array_like=True):
    incarnation: Total
    """Of ``entry_next`` as a position: the incarnation of the last entry before it. A restart keeps it."""
    entry_first: Entry
    """The first entry that is still stored."""
    entry_next: Entry
    """One past the last durable entry."""
    bytes: Total
    stored_at_us: TimeUs = 0
    """When the last entry was stored, or a later time; 0 if unknown.

    Stored times never decrease within a shard. A reader that has read up to ``entry_next`` can therefore
    recognise an old copy of the log that has grown since: an entry before that position was stored later.
    """


class FindTime(OperationOf[list[int]], frozen=True, tag="find_time"):
    """The first entry of each shard that was stored at a time (µs since 1970) or later: a list of entries."""

    rule: ClassVar[Rule] = Rule(CONSUME, by_uuid=True, subscription=True)

    topic: Uuid
    at_us: TimeUs
    subscription: Name = ""
    """As in ``ReadEnds``."""


class FetchEntries(Control, frozen=True, tag="fetch"):
    """Reads stored records from ``entry`` up to ``end``, as many as fit into ``bytes_max``, at least one."""

    rule: ClassVar[Rule] = Rule(CONSUME, by_uuid=True, subscription=True)

    topic: Uuid
    """By uuid, so that a reader cannot mistake another topic with the same name for it."""
    shard: Shard
    entry: Entry
    end: Entry | None = None
    """None: to the last durable entry."""
    incarnation: Total | None = None
    """The incarnation of ``end``, or of ``entry`` without an end. If the log up to there is another one,
    such as an old copy that has grown, the node answers incarnation-changed. None: no check."""
    bytes_max: ByteCount = 1024 * 1024
    filter: Text = ""
    """Selects rows (wire/filter.py); ``bytes_max`` counts rows before the filter."""
    columns: Annotated[list[Name], msgspec.Meta(max_length=64)] | None = None
    """Columns of the messages to return: the node leaves out the others and computes new checksums."""
    named: bool = False
    """Whether to return the names of the records' producers."""
    subscription: Name = ""
    """As in ``ReadEnds``."""
    packed: bool = False
    """Whether the answer may have packed records (wire/plain/packed.py) in place of the segments that were
    received."""


class Fetched(Control, frozen=True):
    """``records`` SEGMENT frames follow at once, as stored. The first may begin before the entry requested."""

    number: Number
    """The number of the request."""
    records: Count
    entry_next: Entry
    """Where the next fetch starts."""
    entry_end: Entry
    """One past the last durable entry."""
    lost: Annotated[list[tuple[Entry, Entry, Word]], msgspec.Meta(max_length=2 * SPANS_MAX)] = msgspec.field(
        default_factory=list
    )
    """(start, end, reason) of entries that cannot be read: ``retention`` or ``damaged``."""
    masks: Annotated[list[Framed], msgspec.Meta(max_length=SPANS_MAX)] | None = None
    """With a filter: per record, one bit per row as Arrow packs them; records without a match are left out."""
    compacted: Framed = b""
    """A bitmap of the records' entries that compaction removed from a state topic; ignore their rows."""
    producers: Annotated[dict[Block, Name], msgspec.Meta(max_length=SPANS_MAX)] = msgspec.field(
        default_factory=dict
    )
    """If requested: the producer's name by block, where it has one that the node still knows."""
    incarnation: Total = 0
    """The incarnation of ``entry_next`` as a position."""


class AdvanceSubscription(SubscriptionRequest[dict[str, list[int]]], frozen=True, tag="advance_subscription"):
    """Acknowledges everything before these positions, one per shard; other settlements stay."""

    positions: ShardEntries
    topic_uuid: Uuid | None = None
    """The node refuses another topic with the same name."""
    incarnations: ShardTotals | None = None
    """Of the positions: if a log up to there is another one, the answer is incarnation-changed."""


ReadingOperation = ReadEnds | FindTime | FetchEntries | AdvanceSubscription
