"""Topics, places, producers, writers, subscriptions, tokens, peers and ledgers as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypedDict, cast

import msgspec

from headpond.model.ledger import balance
from headpond.model.policy import Policy
from headpond.shapes.convert import derive, iso_exact, iso_time, shape_of
from headpond.wire.control.access import AdminRecord, TokenInfo
from headpond.wire.control.catalog import (
    PlaceDeleted,
    PlaceInfo,
    SettingInfo,
    ShardCompaction,
    ShardInfo,
    TopicCompaction,
    TopicInfo,
)
from headpond.wire.control.consuming import SubscriptionInfo, UnackedEntry
from headpond.wire.control.links import PeerInfo, PeerSubscriptionInfo, PeerTopicInfo

if TYPE_CHECKING:
    from headpond.model.ledger import ProducerAccount, Ratio, SubscriptionAccount
    from headpond.model.message import Message
    from headpond.wire.control.ledger import LedgerInfo
    from headpond.wire.control.producing import ProducerInfo
    from headpond.wire.control.staging import WriterInfo


class LostRangeShape(TypedDict):
    shard: int
    first: int
    end: int
    reason: str
    at: str


if TYPE_CHECKING:
    ShardShape = dict[str, Any]
    CompactedShardShape = dict[str, Any]
    SubscriptionShape = dict[str, Any]
    AdministeredShape = dict[str, Any]
    PeerTopicShape = dict[str, Any]
    PeerSubscriptionShape = dict[str, Any]
else:
    ShardShape = shape_of("ShardShape", ShardInfo, damaged=list[list[int]])
    CompactedShardShape = shape_of("CompactedShardShape", ShardCompaction)
    PolicyShape = shape_of("PolicyShape", Policy, ("deadline", "max_attempts", "dead_letter"))
    SubscriptionShape = shape_of(
        "SubscriptionShape",
        SubscriptionInfo,
        ("policy", "seen_at", "behind", "told_at", "advanced_at"),
        policy=PolicyShape,
        dead_entries=list[list[int]],
        lost_ranges=list[LostRangeShape],
    )
    AdministeredShape = shape_of("AdministeredShape", AdminRecord, ("token", "name"))
    PeerTopicShape = shape_of("PeerTopicShape", PeerTopicInfo, ("code", "message"))
    PeerSubscriptionShape = shape_of("PeerSubscriptionShape", PeerSubscriptionInfo, ("message",))


# --- topics -----------------------------------------------------------------------------------------


class SettingShape(TypedDict):
    value: bool | int | float | str | None
    origin: str
    place: str | None


class ColumnShape(TypedDict):
    name: str
    type: str
    nullable: bool


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
    """These fields are only in ``show``; ``list`` has entries and bytes too."""

    settings: dict[str, SettingShape]
    entries: int
    bytes: int
    shard_list: list[ShardShape]


class CompactionShape(TypedDict):
    topic: str
    shards: list[CompactedShardShape]


def settings_object(settings: Sequence[SettingInfo]) -> dict[str, SettingShape]:
    """By name."""
    return {
        each.name: {"value": each.value, "origin": each.origin, "place": each.place or None}
        for each in settings
    }


def topic_object(info: TopicInfo) -> TopicShape:
    columns = columns_object(info.schema) if info.schema is not None else None
    found = derive(TopicShape, info, state=bool(info.state), schema=columns)
    if info.settings:
        found["settings"] = settings_object(info.settings)
    if info.entries is not None and info.bytes is not None:
        found["entries"], found["bytes"] = info.entries, info.bytes
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
    found: CompactionShape = msgspec.to_builtins(compaction)
    return found


def entries_of(info: TopicInfo) -> int:
    """Entries that the topic holds now."""
    return sum(each.entry_next - each.entry_first for each in info.shard_list)


def bytes_of(info: TopicInfo) -> int:
    return sum(each.bytes for each in info.shard_list)


# --- tenants, products, components ------------------------------------------------------------------


class PlaceListed(TypedDict):
    created_at: str
    places: int
    topics: int
    settings: dict[str, SettingShape]


class PlaceShape(PlaceListed, total=False):
    """One of the first three fields is its full name."""

    tenant: str
    product: str
    component: str
    entries: int
    bytes: int
    subscriptions: int
    producers: int
    place_list: list[str]
    topic_list: list[str]
    connections: int
    quota_slowed: int
    quota_refused: int


class PlaceDeletedShape(TypedDict):
    deleted: str
    places: list[str]
    topics: list[str]


def place_object(info: PlaceInfo, *, whole: bool = False) -> PlaceShape:
    """``whole`` adds the places and topics below it, and their sizes."""
    below = ("entries", "bytes", "subscriptions", "producers", "place_list", "topic_list") if whole else ()
    usage = ("connections", "quota_slowed", "quota_refused") if whole and info.level == "tenant" else ()
    rest = derive(PlaceShape, info, *below, *usage, settings=settings_object(info.settings))
    return cast(PlaceShape, {info.level: info.place, **rest})


def place_deleted_object(gone: PlaceDeleted) -> PlaceDeletedShape:
    return {"deleted": gone.place, "places": gone.places, "topics": gone.topics}


# --- producers and writers --------------------------------------------------------------------------


class ProducerShape(TypedDict):
    producer: str
    topic: str
    access: str
    registered_at: str
    seen_at: str | None
    epoch: int
    holder: str | None
    lapses_in_s: float | None
    clients: list[str]
    connections: list[int]


class StageShape(TypedDict):
    stage: str
    topic: str
    rows: int
    bytes: int
    finished: bool
    opened_at: str


class WriterListed(TypedDict):
    writer: str
    batch: int | None
    committed_at: str | None
    created_at: str | None
    publishing: bool
    holder: str | None
    batches: int
    rows: int
    bytes: int
    topics: list[str]
    stages: int
    staged_bytes: int


class WriterShape(WriterListed, total=False):
    stage_list: list[StageShape]


class WriterDeletedShape(TypedDict):
    deleted: str
    stages: int


def producer_object(info: ProducerInfo) -> ProducerShape:
    return derive(ProducerShape, info)


def writer_object(info: WriterInfo, *, whole: bool = False) -> WriterShape:
    """``whole`` adds every stage."""
    found = derive(WriterShape, info, bytes=info.size_bytes)
    if whole:
        found["stage_list"] = [derive(StageShape, each, bytes=each.size_bytes) for each in info.stage_list]
    return found


# --- subscriptions and dead messages ----------------------------------------------------------------


class UnackedShape(TypedDict):
    shard: int
    entry: int
    attempts: int
    waits_for: str
    due_at: str | None
    bound: int | None
    reason: str | None


class SkippedShape(TypedDict):
    shard: int
    first: int
    end: int


class DeadShape(TypedDict):
    topic: str | None
    subscription: str | None
    shard: int
    entry: int
    identity: str | None
    reason: str | None
    attempts: int | None
    died_at: str | None
    sent_at: str
    id: str | None
    key: Any
    value: Any
    headers: dict[str, str]


def subscription_object(info: SubscriptionInfo) -> SubscriptionShape:
    lost: list[LostRangeShape] = [
        {"shard": shard, "first": start, "end": end, "reason": reason, "at": iso_time(at_us)}
        for shard, start, end, reason, at_us in info.lost_ranges
    ]
    return derive(SubscriptionShape, info, policy=msgspec.to_builtins(info.policy), lost_ranges=lost)


def unacked_object(entry: UnackedEntry) -> UnackedShape:
    return derive(UnackedShape, entry, bound=entry.bound or None, reason=entry.reason or None)


def skipped_object(skipped: tuple[int, int, int]) -> SkippedShape:
    shard, first, end = skipped
    return {"shard": shard, "first": first, "end": end}


def dead_object(message: Message) -> DeadShape:
    from headpond.wire.typed.values import readable

    headers = message.headers
    return {
        "topic": headers.get("dead.topic"),
        "subscription": headers.get("dead.subscription"),
        "shard": int(headers.get("dead.shard", 0)),
        "entry": int(headers.get("dead.entry", 0)),
        "identity": headers.get("dead.identity"),
        "reason": headers.get("dead.reason"),
        "attempts": _count(headers.get("dead.attempts", "")),
        "died_at": iso_exact(message.stored_at) if "dead.reason" in headers else None,
        "sent_at": iso_exact(message.sent_at),
        "id": message.id,
        "key": readable(message.key),
        "value": readable(message.value),
        "headers": {name: text for name, text in headers.items() if not name.startswith("dead.")},
    }


def _count(text: str) -> int | None:
    """Any client may write to a dead-letter topic, so the header may hold anything."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


# --- tokens and the log of administration -----------------------------------------------------------


class TokenListed(TypedDict):
    token: str
    name: str
    rights: list[str]
    scopes: list[str]
    producer: str | None
    subscription: str | None
    created_at: str
    created_by: str | None
    expires_at: str | None
    revoked_at: str | None
    used_at: str | None
    connections: int


class TokenShape(TokenListed, total=False):
    secret: str
    """Only in the answer that created the token."""


class RevokedShape(TypedDict):
    token: str
    revoked: bool


def token_object(info: TokenInfo) -> TokenShape:
    return derive(TokenShape, info)


def administered_object(record: AdminRecord) -> AdministeredShape:
    return derive(AdministeredShape, record)


# --- peers ------------------------------------------------------------------------------------------


class PeerListed(TypedDict):
    peer: str
    url: str
    topics: list[str]
    direction: str
    subscriptions: list[str]
    made_at: str
    made_by: str | None
    has_token: bool
    state: str
    since: str
    node: str | None
    lag: int
    following: int
    refused: int
    error: str | None
    error_code: str | None
    counts: dict[str, int]


class PeerShape(PeerListed, total=False):
    topic_list: list[PeerTopicShape]
    subscription_list: list[PeerSubscriptionShape]


class RemovedPeerShape(TypedDict):
    peer: str
    removed: bool


def peer_object(info: PeerInfo, *, whole: bool = False) -> PeerShape:
    """``whole`` adds every topic and subscription of the link."""
    found = derive(PeerShape, info, peer=info.name)
    if whole:
        found["topic_list"] = [derive(PeerTopicShape, each) for each in info.topic_list]
        found["subscription_list"] = [derive(PeerSubscriptionShape, each) for each in info.subscription_list]
    return found


# --- the ledger of a topic --------------------------------------------------------------------------


def ledger_object(info: LedgerInfo) -> dict[str, Any]:
    return {
        "topic": info.topic,
        "at": iso_time(info.at_us),
        "run": info.run,
        "crashed": info.crashed,
        "balanced": info.balanced,
        "log": msgspec.structs.asdict(info.log) | {"balance": balance(info.log)},
        "producers": [_account(account) for account in info.producers],
        "subscriptions": [
            _account(one.account)
            | {"kind": one.kind, "mode": one.mode, "consumers": one.consumers}
            | {"lost_ranges": [_lost_range(lost) for lost in one.lost_ranges]}
            for one in info.subscriptions
        ],
        "blocks": [
            {"block": block.block.hex(), "closed": block.closed, "last": iso_time(block.touched_at_us)}
            | _account(block.account)
            for block in info.blocks
        ],
        "blocks_left_out": info.blocks_left_out,
    }


def _account(account: ProducerAccount | SubscriptionAccount) -> dict[str, Any]:
    return msgspec.structs.asdict(account) | {
        "balance": balance(account),
        "difference": account.difference,
        "r": _ratio(account.reliability),
        "ur": _ratio(account.use_ratio),
    }


def _ratio(ratio: Ratio) -> dict[str, Any]:
    return {"value": ratio.value, "part": ratio.part, "whole": ratio.whole, "bound": ratio.bound}


def _lost_range(lost: tuple[int, int, int, str, int]) -> dict[str, Any]:
    shard, start, end, reason, at_us = lost
    return {"shard": shard, "start": start, "end": end, "reason": reason, "at": iso_time(at_us)}
