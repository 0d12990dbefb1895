"""The records of the catalog journal: msgpack by position, the tag first. Version 1.

Fields are added at the end with a default and tags are never used twice, so that what an earlier version wrote
is read as it is. A record whose effect is there already changes nothing, because what was staged when the
journal was compacted follows the snapshot once more.

=== =================== =====================================================================================
tag record              says
=== =================== =====================================================================================
1   TopicCreated        a topic exists from here on, and with it the places above it
2   TopicDeleted        a topic is gone, with its settings and producers; its folder is to be removed
3   TopicAltered        a typed topic has one more version of its schema
4   PlaceCreated        a tenant, product or component exists, and those above it
5   PlaceRemoved        a place is gone, with everything below it
6   SettingsChanged     own settings of a place or a topic: some set, some unset
7   ProducerRegistered  a producer of a topic, with its access and how its lease stands
8   ProducerRemoved     it is gone; later epochs of the topic are above the one named
9   ProducerGranted     the lease of a single-access producer went to another instance
10  ProducerSeen        it was open until then; whether its lease is free
=== =================== =====================================================================================
"""

from __future__ import annotations

import msgspec

from headpond.model.topic_settings import Value


class TopicCreated(msgspec.Struct, array_like=True, frozen=True, tag=1):
    name: str
    uuid: bytes
    shard_power: int
    created_at_us: int
    durability: str = "sync"
    """The durability at creation; ``settings`` wins."""
    schema: bytes | None = None
    """The first version of a typed topic's schema."""
    settings: dict[str, Value] = msgspec.field(default_factory=dict)


class TopicDeleted(msgspec.Struct, array_like=True, frozen=True, tag=2):
    uuid: bytes


class TopicAltered(msgspec.Struct, array_like=True, frozen=True, tag=3):
    uuid: bytes
    version: int
    """Of the schema; one that the topic has already is passed over."""
    schema: bytes


class PlaceCreated(msgspec.Struct, array_like=True, frozen=True, tag=4):
    name: str
    """Whole: one part for a tenant, two for a product, three for a component."""
    created_at_us: int
    settings: dict[str, Value] = msgspec.field(default_factory=dict)


class PlaceRemoved(msgspec.Struct, array_like=True, frozen=True, tag=5):
    name: str


class SettingsChanged(msgspec.Struct, array_like=True, frozen=True, tag=6):
    name: str
    """Of a place, or of a topic (four parts)."""
    set: dict[str, Value]
    unset: list[str] = []


class ProducerRegistered(msgspec.Struct, array_like=True, frozen=True, tag=7):
    topic: bytes
    producer: str
    access: str
    at_us: int
    epoch: int = 0
    holder: str = ""
    instance: bytes = b""
    """Of the holder; empty where the lease is free."""
    seen_us: int = 0


class ProducerRemoved(msgspec.Struct, array_like=True, frozen=True, tag=8):
    topic: bytes
    producer: str
    epoch: int


class ProducerGranted(msgspec.Struct, array_like=True, frozen=True, tag=9):
    topic: bytes
    producer: str
    epoch: int
    holder: str
    instance: bytes
    at_us: int


class ProducerSeen(msgspec.Struct, array_like=True, frozen=True, tag=10):
    topic: bytes
    producer: str
    at_us: int
    instance: bytes
    free: bool
    """Whether that instance gave its lease back."""


ProducerChange = ProducerRegistered | ProducerRemoved | ProducerGranted | ProducerSeen
CatalogChange = (
    TopicCreated | TopicDeleted | TopicAltered | PlaceCreated | PlaceRemoved | SettingsChanged | ProducerChange
)
