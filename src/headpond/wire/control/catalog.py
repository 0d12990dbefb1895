"""Messages about topics and about the places that hold them: tenants, products and components.

``level`` is tenant, product, component or topic; ``place`` is a name of that level, bare or whole.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

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
from headpond.wire.control.operation import (
    ADMIN,
    USE,
    OperationOf,
    Page,
    Rule,
    changed_settings,
    inside_tenant,
    new_settings,
    place_of,
    topic_of,
)

# --- places -----------------------------------------------------------------------------------------


class PlaceInfo(msgspec.Struct, frozen=True):
    place: str
    level: str
    created_at_us: int
    settings: list[SettingInfo]
    """Every setting, as a topic directly below this place would inherit it."""
    places: int
    """Places below it, without topics."""
    topics: int
    topic_list: list[str] = []
    """The topics below it, only in ``show_place``; at most 10,000."""
    place_list: list[str] = []
    entries: int = 0
    """Entries stored in these topics. This field and those after it are only in ``show_place``."""
    bytes: int = 0
    subscriptions: int = 0
    producers: int = 0
    connections: int = 0
    """For a tenant: connections that use its topics now."""
    quota_slowed: int = 0
    """For a tenant: how often a quota slowed down a connection, since the node started."""
    quota_refused: int = 0
    """For a tenant: connections and segments that a quota refused, since the node started."""


class CreatePlace(OperationOf[PlaceInfo], frozen=True, tag="create_place"):
    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(ADMIN, on=inside_tenant, at=place_of, also=new_settings, logged=True)
    level: Word
    place: TopicText
    settings: SettingValues = msgspec.field(default_factory=dict)
    exist_ok: bool = False


class ListPlaces(OperationOf[list[PlaceInfo]], frozen=True, tag="list_places"):
    rule: ClassVar[Rule] = Rule(USE, listing=True)

    level: Word


class ShowPlace(OperationOf[PlaceInfo], frozen=True, tag="show_place"):
    rule: ClassVar[Rule] = Rule(USE, on=place_of)

    level: Word
    place: TopicText


class PlaceDeleted(msgspec.Struct, frozen=True):
    """The answer to ``delete_place``: the places and topics that were deleted."""

    place: str
    level: str
    places: list[str]
    topics: list[str]


class DeletePlace(OperationOf[PlaceDeleted], frozen=True, tag="delete_place"):
    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(ADMIN, on=inside_tenant, at=place_of, logged=True)
    level: Word
    place: TopicText
    recursive: bool = False
    """Whether to delete a place that is not empty, with everything in it."""


class ChangeSettings(OperationOf[Any], frozen=True, tag="change_settings"):
    """Sets and unsets settings of a place in one step; the answer is a ``PlaceInfo``, or a ``TopicInfo``."""

    rule: ClassVar[Rule] = Rule(ADMIN, on=place_of, also=changed_settings, logged=True)

    level: Word
    place: TopicText
    set: SettingValues = msgspec.field(default_factory=dict)
    unset: Annotated[list[Word], msgspec.Meta(max_length=64)] = msgspec.field(default_factory=list)


class SettingInfo(msgspec.Struct, frozen=True):
    name: Word
    value: SettingValue
    """In seconds, bytes, a number, a word; None for no limit."""
    origin: Word
    """``topic``, ``component``, ``product``, ``tenant``, ``node`` or ``default``: the level that sets it."""
    place: TopicText
    """The full name of that place; empty for ``node`` and ``default``."""


# --- topics ---------------------------------------------------------------------------------------


class TopicInfo(msgspec.Struct, frozen=True):
    topic: TopicText
    uuid: Uuid
    shards: Shards
    created_at_us: TimeUs
    durability: Word
    schema: SchemaBytes | None = None
    """For a typed topic: its newest columns, as an Arrow IPC schema."""
    shard_list: Annotated[list[ShardInfo], msgspec.Meta(max_length=SHARDS_MAX)] = []
    schema_version: Count | None = None
    """For a typed topic: the number of its newest schema; the first is 1."""
    schemas: SchemaList = []
    """Every version, oldest first; not in a list of topics."""
    message_bytes_max: ByteCount | None = None
    """The largest value of a message in bytes; None: no limit but the segment's."""
    settings: Annotated[list[SettingInfo], msgspec.Meta(max_length=256)] = []
    """Every setting with its origin; not in a list of topics, nor in the answer to ``open_topic``."""
    state: bool | None = None
    """Whether it is a state topic: every message has a key, and a message without a value deletes its key."""
    entries: Total | None = None
    """Entries that it holds now; only in a list of topics."""
    bytes: Total | None = None
    """The size of its logs; only in a list of topics."""


class OpenTopic(OperationOf[TopicInfo], frozen=True, tag="open_topic"):
    """Reads a topic's settings; with ``create``, creates the topic if the node allows that on first use."""

    rule: ClassVar[Rule] = Rule(USE, on=topic_of)

    topic: TopicText
    create: bool = False


class CreateTopic(OperationOf[TopicInfo], frozen=True, tag="create_topic"):
    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(ADMIN, on=topic_of, also=new_settings, logged=True)
    topic: TopicText
    shards: Shards = 1
    exist_ok: bool = False
    schema: SchemaBytes | None = None
    """Makes the topic typed: its columns, as an Arrow IPC schema."""
    settings: SettingValues = msgspec.field(default_factory=dict)
    """The topic's own settings; it inherits the others."""


class AlterTopic(OperationOf[TopicInfo], frozen=True, tag="alter_topic"):
    """Gives a typed topic a new version of its schema: added nullable columns and wider numbers only."""

    rule: ClassVar[Rule] = Rule(ADMIN, on=topic_of, logged=True)

    topic: TopicText
    schema: SchemaBytes


class ShowTopic(OperationOf[TopicInfo], frozen=True, tag="show_topic"):
    rule: ClassVar[Rule] = Rule(USE, on=topic_of)

    topic: TopicText


class ListTopics(OperationOf[list[TopicInfo]], frozen=True, tag="list_topics"):
    rule: ClassVar[Rule] = Rule(USE, listing=True)

    page: Page | None = None
    """None: all topics, without their shards and settings."""


class DeleteTopic(OperationOf[Any], frozen=True, tag="delete_topic"):
    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(ADMIN, on=topic_of, logged=True)
    topic: TopicText


class TopicCompaction(msgspec.Struct, frozen=True):
    topic: str
    shards: list[ShardCompaction]


class CompactTopic(OperationOf[TopicCompaction], frozen=True, tag="compact_topic"):
    """Removes superseded messages from a state topic's files now; the node answers when it is done."""

    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(ADMIN, on=topic_of, logged=True)

    topic: TopicText


class ShardInfo(msgspec.Struct, frozen=True):
    shard: Shard
    incarnation: Total
    entry_first: Entry
    """The first entry that is still stored."""
    entry_next: Entry
    """One past the last durable entry."""
    bytes: Total
    damaged: Spans
    """Entries that failed their checksum or are missing; they are never served."""
    compacted: Total = 0
    """Entries between the two that compaction removed; they count as settled in every subscription."""


class ShardCompaction(msgspec.Struct, frozen=True):
    shard: int
    bytes_before: int
    bytes_after: int
    compacted: int
    """Entries removed."""


_PlaceOperation = CreatePlace | ListPlaces | ShowPlace | DeletePlace | ChangeSettings
_TopicOperation = OpenTopic | CreateTopic | AlterTopic | ShowTopic | ListTopics | DeleteTopic | CompactTopic
CatalogOperation = _PlaceOperation | _TopicOperation
