"""The part of the conversation that is about the tree of topics, inherited settings and registered producers.

``level`` is tenant, product, component or topic; ``place`` is a name of that level, bare or whole.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headpond.model.bounds import Epoch, Name, Seconds, SettingValue, SettingValues, TopicText, Uuid, Word
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


# --- producers --------------------------------------------------------------------------------------


class CreateProducer(Control, frozen=True, tag="create_producer"):
    topic: TopicText
    producer: Name
    access: Word = "multiple"
    exist_ok: bool = False


class ListProducers(Control, frozen=True, tag="list_producers"):
    topic: TopicText
    """An empty name asks for those of all topics."""


class ShowProducer(Control, frozen=True, tag="show_producer"):
    topic: TopicText
    producer: Name


class DeleteProducer(Control, frozen=True, tag="delete_producer"):
    topic: TopicText
    producer: Name


class OpenProducer(Control, frozen=True, tag="open_producer"):
    """A named producer begins to send over this connection; for single access this asks for the lease.

    It is asked again on each new connection, with the epoch that it was granted.
    """

    topic: TopicText
    producer: Name
    instance: Uuid
    """16 random bytes that name one opened producer over all its connections."""
    access: Word = ""
    """Empty: as it is registered, else ``multiple``."""
    epoch: Epoch = 0
    """The epoch it holds; 0 before it was granted one."""
    elsewhere: bool = False
    """The lease is held at another node, the first destination: here the epoch is only raised to that one."""


class CloseProducer(Control, frozen=True, tag="close_producer"):
    """The producer was closed in good order: its lease is free at once."""

    topic: TopicText
    producer: Name
    instance: Uuid


class ProducerOpened(msgspec.Struct, frozen=True):
    """The answer to ``open_producer``."""

    access: Word
    epoch: Epoch
    """Goes into every TITLE; 0 with multiple access."""
    lease_s: Seconds
    """How long the lease stands after its holder was last heard of; 0 with multiple access."""
    registered: bool


class ProducerInfo(msgspec.Struct, frozen=True):
    topic: str
    producer: str
    access: str
    registered_at_us: int
    seen_at_us: int
    """When it was last opened, closed or lost; 0 for never."""
    epoch: int
    """How often the lease was granted to another instance; 0 with multiple access."""
    holder: str
    """Of single access: the client that holds the lease; empty if it is free."""
    connections: list[int]
    """The numbers of the node's connections that it is open on."""
    lapses_in_s: float | None = None
    """Of a holder whose connection was lost: when its lease lapses."""
    clients: list[str] = []
    """The names of the clients it is open at."""
