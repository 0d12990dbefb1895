"""A topic; its shards and settings only where the node told of them (``show``)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, TypedDict

from headpond.shapes.times import iso_time

if TYPE_CHECKING:
    from headpond.wire.control.codec import SettingInfo, TopicCompaction, TopicInfo


class SettingShape(TypedDict):
    value: bool | int | float | str | None
    origin: str
    place: str | None


def settings_object(settings: Sequence[SettingInfo]) -> dict[str, SettingShape]:
    """By name."""
    return {
        each.name: {"value": each.value, "origin": each.origin, "place": each.place or None}
        for each in settings
    }


class ColumnShape(TypedDict):
    name: str
    type: str
    nullable: bool


class ShardShape(TypedDict):
    shard: int
    incarnation: int
    entry_first: int
    entry_next: int
    bytes: int
    damaged: list[list[int]]
    compacted: int


class TopicListed(TypedDict):
    topic: str
    uuid: str
    shards: int
    durability: str
    created_at: str
    state: bool
    schema_version: int | None
    schema: list[ColumnShape] | None


class TopicShape(TopicListed, total=False):
    settings: dict[str, SettingShape]
    entries: int
    bytes: int
    shard_list: list[ShardShape]


class CompactedShardShape(TypedDict):
    shard: int
    bytes_before: int
    bytes_after: int
    compacted: int


class CompactionShape(TypedDict):
    topic: str
    shards: list[CompactedShardShape]


def topic_object(info: TopicInfo) -> TopicShape:
    import msgspec

    found: TopicShape = {
        "topic": info.topic,
        "uuid": info.uuid.hex(),
        "shards": info.shards,
        "durability": info.durability,
        "created_at": iso_time(info.created_at_us),
        "state": bool(info.state),
        "schema_version": info.schema_version,
        "schema": columns_object(info.schema) if info.schema is not None else None,
    }
    if info.settings:
        found["settings"] = settings_object(info.settings)
    if info.shard_list:
        found["entries"] = entries_of(info)
        found["bytes"] = bytes_of(info)
        found["shard_list"] = msgspec.to_builtins(info.shard_list)
    return found


def columns_object(encoded: bytes) -> list[ColumnShape]:
    """The columns as ``--schema`` takes them from a file."""
    from headpond.wire.typed.schema import decode_schema

    schema = decode_schema(encoded)
    return [{"name": each.name, "type": str(each.type), "nullable": each.nullable} for each in schema]


def compaction_object(compaction: TopicCompaction) -> CompactionShape:
    import msgspec

    found: CompactionShape = msgspec.to_builtins(compaction)
    return found


def entries_of(info: TopicInfo) -> int:
    """Kept now."""
    return sum(each.entry_next - each.entry_first for each in info.shard_list)


def bytes_of(info: TopicInfo) -> int:
    return sum(each.bytes for each in info.shard_list)
