"""A producer registered at a topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from headpond.shapes.times import iso_time

if TYPE_CHECKING:
    from headpond.wire.control.codec import ProducerInfo


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


def producer_object(info: ProducerInfo) -> ProducerShape:
    return {
        "producer": info.producer,
        "topic": info.topic,
        "access": info.access,
        "registered_at": iso_time(info.registered_at_us),
        "seen_at": iso_time(info.seen_at_us) if info.seen_at_us else None,
        "epoch": info.epoch,
        "holder": info.holder or None,
        "lapses_in_s": info.lapses_in_s,
        "clients": info.clients,
        "connections": info.connections,
    }
