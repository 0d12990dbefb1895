"""The part of the conversation that is about reading by position, without a subscription.

A position is (topic uuid, shard, incarnation, entry). ``fetch`` is answered by a FETCHED frame and the records
behind it, byte for byte as they stand in the log; the other requests by a RESPONSE.
"""

from __future__ import annotations

from typing import Annotated

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
from headpond.wire.control.greeting import Control

TOPICS_MAX = 1024
"""Topics in one question."""


class ReadEnds(Control, frozen=True, tag="read_ends"):
    """How far topics reach; the answer is a list of ``Ends``, in the order of the names.

    With ``known`` (the next entry of every shard, by topic) the answer waits, for ``wait_s`` at most, until one
    of them has grown, or one of the topics is deleted or altered.
    """

    topics: Annotated[list[TopicText], msgspec.Meta(min_length=1, max_length=TOPICS_MAX)]
    known: Annotated[list[ShardEntries], msgspec.Meta(max_length=TOPICS_MAX)] | None = None
    wait_s: Wait = 0.0
    subscription: Name = ""
    """Whose place the reader keeps, if it keeps one: a token bound to that one may read in its name."""


class ShardEnds(msgspec.Struct, frozen=True, array_like=True):
    incarnation: Total
    """Of ``entry_next`` as a position: that of the last entry before it. It stays good after a restart."""
    entry_first: Entry
    """The first entry that is still kept."""
    entry_next: Entry
    """One past the last durable entry."""
    bytes: Total
    stored_at_us: TimeUs = 0
    """When the last of them was stored, or later; 0 where that is not told.

    Stored times never fall within a shard, so whoever has read up to ``entry_next`` recognises an old copy of
    the log however far it has grown: something before that place was stored later than this.
    """


class Ends(msgspec.Struct, frozen=True):
    topic: TopicText
    uuid: Uuid | None
    """None: there is no topic of that name."""
    schema_version: Count | None
    shards: Annotated[list[ShardEnds], msgspec.Meta(max_length=SHARDS_MAX)]


class FindTime(Control, frozen=True, tag="find_time"):
    """The first entry of each shard that was stored at a time (µs since 1970) or later: a list of entries."""

    topic: Uuid
    at_us: TimeUs
    subscription: Name = ""
    """As in ``ReadEnds``."""


class FetchEntries(Control, frozen=True, tag="fetch"):
    """Reads stored records from ``entry`` up to ``end``, as many as fit into ``bytes_max``, at least one."""

    topic: Uuid
    """Its uuid: another topic of the same name is not read by mistake."""
    shard: Shard
    entry: Entry
    end: Entry | None = None
    """None: to the last durable entry."""
    incarnation: Total | None = None
    """Of ``end``, or of ``entry`` without one. Another log than that incarnation's up to there, as an old copy
    that went on, is refused as incarnation-changed. None: whatever stands there now."""
    bytes_max: ByteCount = 1024 * 1024
    filter: Text = ""
    """Which rows are wanted (wire/filter.py); bytes are counted before it."""
    columns: Annotated[list[Name], msgspec.Meta(max_length=64)] | None = None
    """Of the messages, those that are wanted: the node leaves the others out, and signs what is left anew."""
    named: bool = False
    """Whether the names of the records' producers are to be told."""
    subscription: Name = ""
    """As in ``ReadEnds``."""


class Fetched(Control, frozen=True):
    """``records`` SEGMENT frames follow at once, as stored. The first may begin before the entry asked for."""

    number: Number
    """Of the request."""
    records: Count
    entry_next: Entry
    """Where to read on."""
    entry_end: Entry
    """One past the last durable entry."""
    lost: Annotated[list[tuple[Entry, Entry, Word]], msgspec.Meta(max_length=2 * SPANS_MAX)] = msgspec.field(
        default_factory=list
    )
    """(start, end, reason) of entries that cannot be had: ``retention`` or ``damaged``."""
    masks: Annotated[list[Framed], msgspec.Meta(max_length=SPANS_MAX)] | None = None
    """With a filter: of each record a bit a row, as Arrow packs them; records without any set are left out."""
    compacted: Framed = b""
    """Which entries of the records were taken out of a state topic, as a bitmap: their rows are nobody's."""
    producers: Annotated[dict[Block, Name], msgspec.Meta(max_length=SPANS_MAX)] = msgspec.field(
        default_factory=dict
    )
    """If asked for: by block, the name of who sent it, as far as it has one that the node still knows."""
    incarnation: Total = 0
    """Of ``entry_next`` as a position."""


class AdvanceSubscription(Control, frozen=True, tag="advance_subscription"):
    """Everything before these positions, one a shard, is acknowledged; what was settled before stays so."""

    topic: TopicText
    subscription: Name
    positions: ShardEntries
    topic_uuid: Uuid | None = None
    """Another topic of the same name is refused."""
    incarnations: ShardTotals | None = None
    """Of the positions: a log that is another one up to there is refused as incarnation-changed."""
