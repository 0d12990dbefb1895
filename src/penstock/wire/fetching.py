"""The part of the conversation that is about reading by position, without a subscription.

A position is (topic uuid, shard, incarnation, entry). ``fetch`` is answered by a FETCHED frame and the records
behind it, byte for byte as they stand in the log; the other requests by a RESPONSE.
"""

from __future__ import annotations

import msgspec

from penstock.wire.conversation import Control

TOPICS_MAX = 1024
"""Topics in one question."""
WAIT_S_MAX = 30.0


class ReadEnds(Control, frozen=True, tag="read_ends"):
    """How far topics reach; the answer is a list of ``Ends``, in the order of the names.

    With ``known`` (the next entry of every shard, by topic) the answer waits, for ``wait_s`` at most, until one
    of them has grown, or one of the topics is deleted or altered.
    """

    topics: list[str]
    known: list[list[int]] | None = None
    wait_s: float = 0.0


class ShardEnds(msgspec.Struct, frozen=True, array_like=True):
    incarnation: int
    entry_first: int
    """The first entry that is still kept."""
    entry_next: int
    """One past the last durable entry."""
    bytes: int
    stored_at_us: int = 0
    """When the last of them was stored, or later; 0 where that is not told.

    Stored times never fall within a shard, so whoever has read up to ``entry_next`` recognises an old copy of
    the log however far it has grown: something before that place was stored later than this.
    """


class Ends(msgspec.Struct, frozen=True):
    topic: str
    uuid: bytes | None
    """None: there is no topic of that name."""
    schema_version: int | None
    shards: list[ShardEnds]


class FindTime(Control, frozen=True, tag="find_time"):
    """The first entry of each shard that was stored at a time (µs since 1970) or later: a list of entries."""

    topic: bytes
    at_us: int


class FetchEntries(Control, frozen=True, tag="fetch"):
    """Reads stored records from ``entry`` up to ``end``, as many as fit into ``bytes_max``, at least one."""

    topic: bytes
    """Its uuid: another topic of the same name is not read by mistake."""
    shard: int
    entry: int
    end: int | None = None
    """None: to the last durable entry."""
    incarnation: int | None = None
    """The shard's incarnation that the entries are of; None takes the present one."""
    bytes_max: int = 1024 * 1024
    filter: str = ""
    """Which rows are wanted (wire/filter.py); bytes are counted before it."""
    columns: list[str] | None = None
    """Of the messages, those that are wanted: the node leaves the others out, and signs what is left anew."""
    named: bool = False
    """Whether the names of the records' producers are to be told."""


class Fetched(Control, frozen=True):
    """``records`` SEGMENT frames follow at once, as stored. The first may begin before the entry asked for."""

    number: int
    """Of the request."""
    records: int
    entry_next: int
    """Where to read on."""
    entry_end: int
    """One past the last durable entry."""
    lost: list[tuple[int, int, str]] = msgspec.field(default_factory=list)
    """(start, end, reason) of entries that cannot be had: ``retention`` or ``damaged``."""
    masks: list[bytes] | None = None
    """With a filter: of each record a bit a row, as Arrow packs them; records without any set are left out."""
    compacted: bytes = b""
    """Which entries of the records were taken out of a state topic, as a bitmap: their rows are nobody's."""
    producers: dict[bytes, str] = msgspec.field(default_factory=dict)
    """If asked for: by block, the name of who sent it, as far as it has one that the node still knows."""


class AdvanceSubscription(Control, frozen=True, tag="advance_subscription"):
    """Everything before these positions, one a shard, is acknowledged; what was settled before stays so."""

    topic: str
    subscription: str
    positions: list[int]
    topic_uuid: bytes | None = None
    """Another topic of the same name is refused."""
