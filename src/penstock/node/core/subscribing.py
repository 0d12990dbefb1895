"""What a consumer may ask for when it comes, and may say when it leaves; checked before anything is made."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.model.errors import BadRequest, LimitReached, NotSupported, PenstockError, ProtocolError
from penstock.model.ranges import RangeSet
from penstock.model.topic import TopicName
from penstock.node.core.session import Session
from penstock.node.core.topics import Topic
from penstock.wire.control import Subscribe

CONSUMERS_MAX = 1024
ENTRY_MAX = 2**63
SEEN_MAX = 4096

KINDS = ("unique", "shared", "failover", "key_shared")
MODES = ("resilient", "non_resilient")
OFFERED = ("unique", "non_resilient")


def check_subscribe(session: Session, ask: Subscribe) -> None:
    """Refuses what cannot be a consumer before anything is made for it."""
    if ask.kind not in KINDS:
        raise BadRequest(f"kind {ask.kind!r} is none of {', '.join(KINDS)}")
    if ask.mode not in MODES:
        raise BadRequest(f"mode {ask.mode!r} is none of {', '.join(MODES)}")
    if (ask.kind, ask.mode) != OFFERED:
        raise NotSupported(
            f"a {ask.kind}, {ask.mode} subscription is not offered by this version",
            hint="Use kind='unique' and mode='non_resilient'.",
        )
    _check_name(ask.subscription, "subscription")
    if len(ask.name) > 256:
        raise BadRequest("a consumer's name is at most 256 characters long")
    if ask.consumer in session.consumers:
        raise ProtocolError(f"consumer {ask.consumer} is open already on this connection")
    if len(session.consumers) >= CONSUMERS_MAX:
        raise LimitReached(f"a connection holds at most {CONSUMERS_MAX} consumers")
    if ask.credit_bytes <= 0:
        raise BadRequest("a consumer needs credit for at least one byte")


def _check_name(name: str, what: str) -> None:
    """Subscription names follow the rule of a topic name's part."""
    try:
        if "/" in name:
            raise ValueError
        TopicName.parse(name)
    except (PenstockError, ValueError):
        raise BadRequest(
            f"{what} name {name[:80]!r} is not allowed",
            hint="Use 1-128 of letters, digits, '.', '_' or '-', starting with a letter or digit.",
        ) from None


def seen_by_shard(seen: list[tuple[int, int, int]]) -> dict[int, RangeSet]:
    if len(seen) > SEEN_MAX or any(not 0 <= start < end <= ENTRY_MAX for _, start, end in seen):
        raise ProtocolError("a consumer that leaves names entries that cannot be, or too many spans of them")
    by_shard: dict[int, RangeSet] = {}
    for shard, start, end in seen:
        by_shard.setdefault(shard, RangeSet()).add(start, end)
    return by_shard


def start_entry(topic: Topic, shard: int, start: str | int) -> int:
    """The first entry that a new subscription reads of a shard."""
    log = topic.shards[shard].log
    if start == "earliest":
        return log.entry_first
    if start == "latest":
        return log.entry_durable
    if isinstance(start, str) and start.isascii() and start.isdigit() and len(start) < 20:
        start = int(start)
    if isinstance(start, int):
        if start < 0:
            raise BadRequest(f"start {start} is not an entry: entries count from 0")
        return min(max(start, log.entry_first), log.entry_durable)
    try:
        time = datetime.fromisoformat(start)
    except ValueError:
        raise BadRequest(
            f"start {start!r} is none of earliest, latest, an entry number or a time",
            hint="Write a time as 2026-01-31T12:00:00+00:00.",
        ) from None
    time = time if time.tzinfo is not None else time.replace(tzinfo=UTC)
    return log.find_time(round(time.timestamp() * 1e6))
