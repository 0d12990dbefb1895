"""Messages about topics and about the places that hold them: tenants, products and components.

``level`` is tenant, product, component or topic; ``place`` is a name of that level, bare or whole.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headpond.model.bounds import (
    SHARDS_MAX,
    ByteCount,
    Count,
    Entry,
    SchemaBytes,
    SchemaList,
    SettingValue,
    SettingValues,
    Shard,
    Shards,
    Spans,
    TimeUs,
    TopicText,
    Total,
    Uuid,
    Word,
)
from headpond.wire.control.greeting import Control

# --- places -----------------------------------------------------------------------------------------


class CreatePlace(Control, frozen=True, tag="create_place"):
    level: Word
    place: TopicText
    settings: SettingValues = msgspec.field(default_factory=dict)
    exist_ok: bool = False


class ListPlaces(Control, frozen=True, tag="list_places"):
    level: Word


class ShowPlace(Control, frozen=True, tag="show_place"):
    level: Word
    place: TopicText


class DeletePlace(Control, frozen=True, tag="delete_place"):
    level: Word
    place: TopicText
    recursive: bool = False
    """Without it a place that holds something is not deleted."""


class ChangeSettings(Control, frozen=True, tag="change_settings"):
    """Sets and unsets what a place says, in one step; the answer is a ``PlaceInfo``, or a topic's info."""

    level: Word
    place: TopicText
    set: SettingValues = msgspec.field(default_factory=dict)
    unset: Annotated[list[Word], msgspec.Meta(max_length=64)] = msgspec.field(default_factory=list)


class SettingInfo(msgspec.Struct, frozen=True):
    name: Word
    value: SettingValue
    """In seconds, bytes, a number, a word; None for no limit."""
    origin: Word
    """``topic``, ``component``, ``product``, ``tenant``, ``node`` or ``default``: where it was said."""
    place: TopicText
    """The whole name of that place; empty for a node's or the default."""


class PlaceInfo(msgspec.Struct, frozen=True):
    place: str
    level: str
    created_at_us: int
    settings: list[SettingInfo]
    """Every setting as a topic right here would have it."""
    places: int
    """Places below it, topics left out."""
    topics: int
    topic_list: list[str] = []
    """The topics below it, in ``show_place`` alone; at most 10,000."""
    place_list: list[str] = []
    entries: int = 0
    """Kept in these topics; in ``show_place`` alone, as are the rest."""
    bytes: int = 0
    subscriptions: int = 0
    producers: int = 0
    connections: int = 0
    """Of a tenant: connections that use its topics now."""
    quota_slowed: int = 0
    """Of a tenant: how often a connection was slowed down by a quota, since the node was started."""
    quota_refused: int = 0
    """Of a tenant: connections and segments that a quota refused, since the node was started."""


class PlaceDeleted(msgspec.Struct, frozen=True):
    """The answer to ``delete_place``: what is gone."""

    place: str
    level: str
    places: list[str]
    topics: list[str]


# --- topics ---------------------------------------------------------------------------------------


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
