"""A subscription, its policy, what it lost, what is unacked in it and what was skipped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from headpond.shapes.times import iso_exact, iso_time

if TYPE_CHECKING:
    from headpond.model.message import Message
    from headpond.wire.control.codec import SubscriptionInfo, UnackedEntry


class PolicyShape(TypedDict):
    deadline: float | None
    backoff: float
    backoff_max: float
    redelivery: str
    max_attempts: int | None
    dead_letter: str | None
    failover_after: int
    lease: float


class LostRangeShape(TypedDict):
    shard: int
    first: int
    end: int
    reason: str
    at: str


class SubscriptionShape(TypedDict):
    subscription: str
    topic: str
    kind: str
    mode: str
    consumers: list[str]
    settled: int
    unsettled: int
    in_flight: int
    unacked: int
    lost: int
    positions: list[int]
    policy: PolicyShape | None
    paused: bool
    created_at: str
    acked: int
    skipped: int
    dead: int
    nacked: int
    late: int
    delivered: int
    redelivered: int
    redriven: int
    dead_entries: list[list[int]]
    expired: int
    lost_ranges: list[LostRangeShape]
    seen_at: str | None
    compacted: int
    bury_fault: str
    passive: bool
    node: str
    link: str
    epoch: int
    behind: int | None
    told_at: str | None
    ignored: int
    elsewhere: str


class UnackedShape(TypedDict):
    shard: int
    entry: int
    attempts: int
    waits_for: str
    due_at: str | None
    bound: int | None


class SkippedShape(TypedDict):
    shard: int
    first: int
    end: int


def unacked_object(entry: UnackedEntry) -> UnackedShape:
    return {
        "shard": entry.shard,
        "entry": entry.entry,
        "attempts": entry.attempts,
        "waits_for": entry.waits_for,
        "due_at": iso_time(entry.due_at_us) if entry.due_at_us else None,
        "bound": entry.bound or None,
    }


def skipped_object(skipped: tuple[int, int, int]) -> SkippedShape:
    shard, first, end = skipped
    return {"shard": shard, "first": first, "end": end}


def subscription_object(info: SubscriptionInfo) -> SubscriptionShape:
    import msgspec

    plain: dict[str, Any] = msgspec.to_builtins(info)
    plain["created_at"] = iso_time(plain.pop("created_at_us"))
    seen_at_us = plain.pop("seen_at_us")
    plain["seen_at"] = iso_time(seen_at_us) if seen_at_us else None
    told_at_us = plain.pop("told_at_us")
    plain["told_at"] = iso_time(told_at_us) if told_at_us else None
    plain["lost_ranges"] = [
        {"shard": shard, "first": start, "end": end, "reason": reason, "at": iso_time(at_us)}
        for shard, start, end, reason, at_us in info.lost_ranges
    ]
    return plain  # type: ignore[return-value]  # tests/cli/test_json.py compares it with the page


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


def _count(text: str) -> int | None:
    """Anybody may write to a dead-letter topic, so it may say anything."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 20 else None


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
