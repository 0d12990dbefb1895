"""A dead message; places are those of the original."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypedDict

from headpond.shapes.times import iso_exact

if TYPE_CHECKING:
    from headpond.model.message import Message


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
    from headpond.wire.readable import readable

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
