"""The part of the conversation that is about subscriptions: consuming, and looking after them.

``consumer`` is a number that the client chose, unique on its connection.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from headpond.model.bounds import (
    SHARDS_MAX,
    SPANS_MAX,
    Block,
    ByteCount,
    Count,
    Entry,
    Framed,
    Name,
    Number,
    SchemaBytes,
    SchemaList,
    Seconds,
    Segment,
    Shard,
    ShardEntries,
    Shards,
    ShardSpans,
    ShardTotals,
    Spans,
    Start,
    TimeUs,
    TopicText,
    Total,
    Uuid,
    Word,
)
from headpond.model.policy import Policy
from headpond.wire.control.greeting import Control

Refusals = Annotated[list[tuple[Entry, Seconds | None]], msgspec.Meta(max_length=SPANS_MAX)]
"""Entry, and the delay after which it comes again; None for the policy's backoff."""

# --- requests ---------------------------------------------------------------------------------------


class CreateSubscription(Control, frozen=True, tag="create_subscription"):
    """Makes a subscription that nobody reads yet: from now on it holds what is stored."""

    topic: TopicText
    subscription: Name
    kind: Word = "unique"
    mode: Word = "non_resilient"
    start: Start = "earliest"
    policy: Policy | None = None
    exist_ok: bool = False
    positions: ShardEntries | None = None
    """Where to start in each shard, in the place of ``start``."""
    incarnations: ShardTotals | None = None
    """Of the positions: a log that is another one up to there is refused as incarnation-changed."""


class ListSubscriptions(Control, frozen=True, tag="list_subscriptions"):
    topic: TopicText
    """An empty name asks for those of all topics."""


class ShowSubscription(Control, frozen=True, tag="show_subscription"):
    topic: TopicText
    subscription: Name


PAGE_MAX = 1000
"""Entries or ranges in one answer to ``list_unacked`` and ``list_skipped``."""
PageLimit = Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)]


class ListUnacked(Control, frozen=True, tag="list_unacked"):
    """Entries that a consumer had and did not settle, and that come again; ``UnackedPage`` is the answer."""

    topic: TopicText
    subscription: Name
    shard: Shard = 0
    entry: Entry = 0
    """Where to begin: this entry of this shard."""
    limit: PageLimit = PAGE_MAX


class UnackedEntry(msgspec.Struct, frozen=True):
    shard: int
    entry: int
    attempts: int
    """How often it was delivered."""
    due_at_us: int
    """It does not come again before this time of day; 0: its time has come."""
    bound: int
    """It comes again when everything before this entry is settled; 0: it does not wait for that."""

    @property
    def waits_for(self) -> str:
        """``time``, ``backlog``, or ``consumer``: it is offered to the next one with room."""
        return "time" if self.due_at_us else "backlog" if self.bound else "consumer"


class UnackedPage(msgspec.Struct, frozen=True):
    entries: list[UnackedEntry]
    next: tuple[int, int] | None = None
    """Shard and entry at which the next page begins; None: this is the last one."""


class ListSkipped(Control, frozen=True, tag="list_skipped"):
    """Entries that consumers skipped, as ranges; ``SkippedPage`` is the answer."""

    topic: TopicText
    subscription: Name
    shard: Shard = 0
    entry: Entry = 0
    limit: PageLimit = PAGE_MAX


class SkippedPage(msgspec.Struct, frozen=True):
    ranges: list[tuple[int, int, int]]
    """Shard, start and end."""
    next: tuple[int, int] | None = None


class DeleteSubscription(Control, frozen=True, tag="delete_subscription"):
    topic: TopicText
    subscription: Name


class SeekSubscription(Control, frozen=True, tag="seek_subscription"):
    """What lies before ``to`` counts as settled, what lies behind it comes (again). Attempts begin anew."""

    topic: TopicText
    subscription: Name
    to: Start
    """``earliest``, ``latest``, an entry or a time."""
    shard: Shard | None = None
    """None: every shard."""


class PauseSubscription(Control, frozen=True, tag="pause_subscription"):
    topic: TopicText
    subscription: Name
    paused: bool


class Redrive(Control, frozen=True, tag="redrive"):
    """Offers dead entries again, to their own subscription alone, with attempts counted anew."""

    topic: TopicText
    subscription: Name
    entries: ShardSpans | None = None
    """(shard, start, end); None: all that are dead."""


class Browse(Control, frozen=True, tag="browse"):
    """Reads stored records without a subscription; ``Browsed`` is the answer."""

    topic: TopicText
    shard: Shard
    entry: Entry
    bytes_max: ByteCount = 1024 * 1024


class Browsed(msgspec.Struct, frozen=True):
    records: Annotated[list[Framed], msgspec.Meta(max_length=SPANS_MAX)]
    """Whole SEGMENT frames, as stored; the first one holds the entry that was asked for."""
    entry_next: Entry
    """Where to read on."""
    entry_end: Entry
    """One past the last durable entry."""
    lost: Spans
    compacted: Framed = b""
    """Which entries of the records were taken out of a state topic, as a bitmap: their rows are nobody's."""


class SubscriptionInfo(msgspec.Struct, frozen=True):
    subscription: str
    topic: str
    kind: str
    mode: str
    consumers: list[str]
    """The active one of a failover subscription first."""
    settled: int
    """Entries settled, in all shards."""
    unsettled: int
    """Entries neither settled nor lost: available or in flight."""
    in_flight: int
    unacked: int
    """Entries that a consumer had and did not settle, and that wait to be offered again."""
    lost: int
    """Entries that cannot be delivered any more: damaged, or deleted by retention before they were read."""
    positions: list[int]
    """The first entry of each shard that is not settled."""
    policy: Policy | None = None
    """With every default filled in."""
    paused: bool = False
    created_at_us: int = 0
    acked: int = 0
    skipped: int = 0
    dead: int = 0
    """Entries that were tried too often and were not re-driven since."""
    nacked: int = 0
    late: int = 0
    """Settlements of entries that had been settled before, since the node was started."""
    delivered: int = 0
    """Since the node was started."""
    redelivered: int = 0
    redriven: int = 0
    dead_entries: list[tuple[int, int, int]] = []
    """(shard, start, end) of dead entries, in ``show_subscription`` alone; at most 10,000."""
    expired: int = 0
    """Messages whose own time to live was over before they were delivered."""
    lost_ranges: list[tuple[int, int, int, str, int]] = []
    """(shard, start, end, reason, when in µs) of lost entries, in ``show_subscription`` alone; the latest
    1,000.

    The reason is ``retention`` (deleted before they were read) or ``damaged``.
    """
    seen_at_us: int = 0
    compacted: int = 0
    """Messages of a state topic that were superseded before it came to them: they count as settled."""
    """When a consumer was last connected; 0 where that is not known."""
    bury_fault: str = ""
    """Why messages that were tried too often cannot be put aside now; it is tried again and again."""
    passive: bool = False
    """It is a copy of another node's subscription, until it is promoted."""
    node: str = ""
    """The id of the node that it is a copy of, or was."""
    link: str = ""
    """The link that brings, or brought, what is settled there."""
    epoch: int = 0
    """How often it was promoted."""
    behind: int | None = None
    """Of a copy: entries of which the other node had more to tell when it last did; None: not heard of yet."""
    told_at_us: int = 0
    """When that was; 0: not since this node was started."""
    ignored: int = 0
    """Settlements that came from the other node after this one was promoted; since the node was started."""
    elsewhere: str = ""
    """The id of a node on which a copy of this was promoted, while this is active: both hand out messages."""


# --- consuming --------------------------------------------------------------------------------------


class KnownRecord(msgspec.Struct, frozen=True, array_like=True):
    """A stored record as a consumer knows it: in a log that was restored from an old copy it is not there."""

    shard: Shard
    first_entry: Entry
    block: Block
    segment: Segment
    stored_at_us: TimeUs


class Subscribe(Control, frozen=True):
    consumer: Number
    topic: TopicText
    subscription: Name
    kind: Word
    mode: Word
    start: Start
    """``earliest``, ``latest``, an entry (of every shard) or a time; of use only to a new subscription."""
    credit_bytes: Total
    """0 for one that comes back: it settles first, and CREDIT follows."""
    name: Name = ""
    create_topic: bool = False
    topic_uuid: Uuid | None = None
    """The topic that the consumer read before it reconnected; another one of that name is refused."""
    policy: Policy | None = None
    """Used only when the subscription is created."""
    instance: Annotated[bytes, msgspec.Meta(max_length=64)] = b""
    """The same for one consumer over all its connections: its lease is its own also after a reconnect."""
    keeps: bool = False
    """Whether it keeps the last record that came alone on a shard in key_shared subscriptions too."""
    seen: ShardSpans | None = None
    """Of a consumer that comes back: (shard, start, end) of what its application has in hand.

    What else it was sent before, it dropped: that counts as no attempt. None: all of it may have been seen.
    """
    known: Annotated[list[KnownRecord], msgspec.Meta(max_length=SHARDS_MAX)] = msgspec.field(
        default_factory=list
    )
    """The last record of each shard that the consumer knows. Where others stand in their places, ERROR
    incarnation-changed is the answer: its entries mean other messages."""


class Subscribed(Control, frozen=True):
    """The consumer is attached. The effective values are the subscription's, whoever created it.

    It comes again whenever something of it changes, and in answer to RENEW.
    """

    consumer: Number
    topic: TopicText
    topic_uuid: Uuid
    shards: Shards
    kind: Word
    mode: Word
    positions: ShardEntries
    schema: SchemaBytes | None = None
    schemas: SchemaList = msgspec.field(default_factory=list)
    """Every version of a typed topic's schema, oldest first. With a new one SUBSCRIBED comes again."""
    policy: Policy | None = None
    active: bool = True
    """False while the consumer stands by: what it was sent and has not handed out is void."""
    paused: bool = False
    lease_s: Seconds = 0.0
    """For how long after its last RENEW the consumer may hand out messages; 0: there is no lease."""
    renewal: Number = 0
    """The number of the last RENEW."""
    recall: bool = False
    """The consumer is to give back what it has not handed out. Nothing is sent to it before it has answered."""


class Unsubscribe(Control, frozen=True):
    """The consumer leaves. ``seen`` holds (shard, start, end) of what its application was handed.

    Anything else that was delivered was only sent ahead, and does not count as an attempt. None: all was seen.
    """

    consumer: Number
    seen: ShardSpans | None = None


class Unsubscribed(Control, frozen=True):
    """The consumer is detached; everything it settled before is durable."""

    consumer: Number


class Credit(Control, frozen=True):
    """The consumer can take this many bytes more."""

    consumer: Number
    bytes: ByteCount


class Deliver(Control, frozen=True):
    """``records`` SEGMENT frames follow at once, as stored. Of their rows only ``spans`` are meant.

    With ``records`` 0 the rows are those of the last record that came alone on that shard.
    """

    consumer: Number
    shard: Shard
    records: Count
    attempt: Count
    spans: Spans


class Settle(Control, frozen=True):
    """What became of entries. Idempotent; ``number`` comes back in SETTLED once it is on the node's disk.

    An empty one is a flush. ``nacked`` holds (entry, delay in seconds or None for the policy's backoff).
    """

    consumer: Number
    number: Number
    shard: Shard
    acked: Spans = msgspec.field(default_factory=list)
    skipped: Spans = msgspec.field(default_factory=list)
    nacked: Refusals = msgspec.field(default_factory=list)
    upto: Entry | None = None
    """Everything before this entry is acknowledged; not in shared and key_shared subscriptions."""


class Settled(Control, frozen=True):
    """Every settlement up to and with ``number`` is durable."""

    consumer: Number
    number: Number
    late: Total = 0
    """How many entries of the settlements that it confirms had been settled before."""


class Extend(Control, frozen=True):
    """The consumer needs longer: the deadline of what it holds of ``spans`` is ``seconds`` from now.

    None: the policy's deadline from now.
    """

    consumer: Number
    shard: Shard
    spans: Spans
    seconds: Seconds | None = None


class GiveBack(Control, frozen=True):
    """Entries that were only sent ahead: they go to whoever can take them, and count as no attempt."""

    consumer: Number
    shard: Shard
    spans: Spans
    done: bool = False
    """Ends the answer to a recall: whatever the consumer still holds, its application has."""


class Renew(Control, frozen=True):
    """The consumer lives: its lease begins anew. SUBSCRIBED with this number answers."""

    consumer: Number
    number: Number


class Lost(Control, frozen=True):
    """Entries that this subscription will not get.

    ``reason`` is damaged (rot, or a file gone), retention (deleted before they were read), expired (their own
    time to live is over), dead (tried too often; the dead-letter topic has a copy) or settled (another consumer
    settled them while this one held them or waited for them).
    """

    consumer: Number
    shard: Shard
    spans: Spans
    reason: Word
