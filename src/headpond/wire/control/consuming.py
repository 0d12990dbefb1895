"""Messages about subscriptions: administering them, and consuming from them.

``consumer`` is a number that the client chooses, unique on its connection.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic

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
    Reason,
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
from headpond.wire.control.operation import (
    ADMIN,
    CONSUME,
    Control,
    OperationOf,
    Page,
    Result,
    Rule,
    any_topic_of,
    dead_letter_of_policy,
    topic_of,
)

Refusals = Annotated[list[tuple[Entry, Seconds | None]], msgspec.Meta(max_length=SPANS_MAX)]
"""Entry, and the delay in seconds before its redelivery; None: the policy's backoff."""
Reasons = Annotated[list[tuple[Entry, Reason]], msgspec.Meta(max_length=SPANS_MAX)]
"""Entry, and why a consumer refused it."""

# --- requests ---------------------------------------------------------------------------------------


class SubscriptionInfo(msgspec.Struct, frozen=True):
    subscription: str
    topic: str
    kind: str
    mode: str
    consumers: list[str]
    """In a failover subscription the active consumer comes first."""
    settled: int
    """Entries settled, in all shards."""
    unsettled: int
    """Entries neither settled nor lost: available or in flight."""
    in_flight: int
    unacked: int
    """Entries that a consumer got and did not settle, and that await redelivery."""
    lost: int
    """Entries that can no longer be delivered: damaged, or deleted by retention before they were read."""
    positions: list[int]
    """The first entry of each shard that is not settled."""
    policy: Policy | None = None
    """With every default filled in."""
    paused: bool = False
    created_at_us: int = 0
    acked: int = 0
    skipped: int = 0
    dead: int = 0
    """Entries that reached their maximum of attempts and were not redriven since."""
    nacked: int = 0
    late: int = 0
    """Settlements of entries that were already settled, since the node started."""
    delivered: int = 0
    """Since the node started."""
    redelivered: int = 0
    redriven: int = 0
    dead_entries: list[tuple[int, int, int]] = []
    """(shard, start, end) of dead entries, only in ``show_subscription``; at most 10,000."""
    expired: int = 0
    """Messages whose time to live ended before their delivery."""
    lost_ranges: list[tuple[int, int, int, str, int]] = []
    """(shard, start, end, reason, time in µs) of the latest 1,000 losses, only in ``show_subscription``.

    The reason is ``retention`` (deleted before they were read) or ``damaged``.
    """
    seen_at_us: int = 0
    """When a consumer was last connected; 0 if unknown."""
    compacted: int = 0
    """Messages of a state topic that were superseded before their delivery; they count as settled."""
    bury_fault: str = ""
    """Why dead messages cannot be copied to the dead-letter topic now; the node keeps trying."""
    passive: bool = False
    """Whether it is a copy of another node's subscription that was not promoted."""
    node: str = ""
    """The id of the node that it is, or was, a copy of."""
    link: str = ""
    """The link that copies, or copied, the settlements of that node."""
    epoch: int = 0
    """How often it was promoted."""
    behind: int | None = None
    """For a copy: entries whose settlements were not copied yet at the last contact; None: no contact."""
    told_at_us: int = 0
    """When that contact was; 0: not since this node started."""
    ignored: int = 0
    """Settlements that the other node sent after this copy was promoted, since the node started."""
    elsewhere: str = ""
    """The id of a node that promoted a copy of this active subscription: both nodes deliver messages."""
    reasons_dropped: int = 0
    """Refused entries whose reason the node did not keep: it keeps the latest 4,096 of each shard."""
    advanced_by: str = ""
    """The client that last moved it by position in this run of the node, such as a source of Spark."""
    advanced_at_us: int = 0


class SubscriptionRequest(OperationOf[Result], Generic[Result], frozen=True):
    """The base of operations on one subscription."""

    rule: ClassVar[Rule] = Rule(CONSUME, on=topic_of, subscription=True)

    topic: TopicText
    subscription: Name


class CreateSubscription(SubscriptionRequest[SubscriptionInfo], frozen=True, tag="create_subscription"):
    """Creates a subscription without a consumer: the node keeps messages for it from now on."""

    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(
        CONSUME, on=topic_of, subscription=True, also=dead_letter_of_policy, logged=True
    )

    kind: Word = "unique"
    mode: Word = "non_resilient"
    start: Start = "earliest"
    policy: Policy | None = None
    exist_ok: bool = False
    positions: ShardEntries | None = None
    """Where to start in each shard, instead of ``start``."""
    incarnations: ShardTotals | None = None
    """Of the positions: if a log up to there is another one, the answer is incarnation-changed."""


class ListSubscriptions(OperationOf[list[SubscriptionInfo]], frozen=True, tag="list_subscriptions"):
    rule: ClassVar[Rule] = Rule(CONSUME, on=any_topic_of, subscription=True, listing=True)

    topic: TopicText
    """Empty: all topics."""
    page: Page | None = None
    """None: all subscriptions."""
    dead: bool = False
    """Only those that have dead messages."""
    advanced: bool = False
    """Only those that a reader moved by position in this run of the node."""


class ShowSubscription(SubscriptionRequest[SubscriptionInfo], frozen=True, tag="show_subscription"):
    """Shows one subscription."""


PAGE_MAX = 1000
"""Entries or ranges in one answer to ``list_unacked`` and ``list_skipped``."""


class UnackedPage(msgspec.Struct, frozen=True):
    entries: list[UnackedEntry]
    next: tuple[int, int] | None = None
    """Shard and entry where the next page starts; None: this is the last page."""


class PageRequest(SubscriptionRequest[Result], Generic[Result], frozen=True):
    """The base of lists in pages."""

    shard: Shard = 0
    entry: Entry = 0
    """The list starts at this entry of this shard."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=PAGE_MAX)] = PAGE_MAX


class ListUnacked(PageRequest[UnackedPage], frozen=True, tag="list_unacked"):
    """Lists entries that await redelivery: a consumer got them and did not settle them."""


class UnackedEntry(msgspec.Struct, frozen=True):
    shard: int
    entry: int
    attempts: int
    """How often it was delivered."""
    due_at_us: int
    """Not redelivered before this time of day; 0: due now."""
    bound: int
    """Redelivered when everything before this entry is settled; 0: it does not wait for that."""
    reason: str = ""
    """The last reason that a consumer gave for refusing it; empty if none is known."""

    @property
    def waits_for(self) -> str:
        """What its redelivery waits for: ``time``, ``backlog``, or ``consumer`` (the next one with credit)."""
        return "time" if self.due_at_us else "backlog" if self.bound else "consumer"


class SkippedPage(msgspec.Struct, frozen=True):
    ranges: list[tuple[int, int, int]]
    """Shard, start and end."""
    next: tuple[int, int] | None = None


class ListSkipped(PageRequest[SkippedPage], frozen=True, tag="list_skipped"):
    """Lists the entries that consumers skipped."""


class DeleteSubscription(SubscriptionRequest[Any], frozen=True, tag="delete_subscription"):
    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(ADMIN, on=topic_of, logged=True)


class SeekSubscription(SubscriptionRequest[SubscriptionInfo], frozen=True, tag="seek_subscription"):
    """Entries before ``to`` count as settled; the node delivers later ones (again), as first attempts."""

    rule: ClassVar[Rule] = Rule(CONSUME, on=topic_of, subscription=True, logged=True)

    to: Start
    """``earliest``, ``latest``, an entry or a time."""
    shard: Shard | None = None
    """None: every shard."""


class PauseSubscription(SubscriptionRequest[SubscriptionInfo], frozen=True, tag="pause_subscription"):
    rule: ClassVar[Rule] = Rule(CONSUME, on=topic_of, subscription=True, logged=True)

    paused: bool


class Redrive(SubscriptionRequest[dict[str, int]], frozen=True, tag="redrive"):
    """Delivers dead entries again, only to their own subscription, as first attempts."""

    repeatable: ClassVar[bool] = False
    rule: ClassVar[Rule] = Rule(CONSUME, on=topic_of, subscription=True, logged=True)

    entries: ShardSpans | None = None
    """(shard, start, end); None: all dead entries."""


class Browsed(msgspec.Struct, frozen=True):
    records: Annotated[list[Framed], msgspec.Meta(max_length=SPANS_MAX)]
    """Whole SEGMENT frames, as stored; the first one holds the requested entry."""
    entry_next: Entry
    """Where the next read starts."""
    entry_end: Entry
    """One past the last durable entry."""
    lost: Spans
    compacted: Framed = b""
    """A bitmap of the records' entries that compaction removed from a state topic; ignore their rows."""


class Browse(OperationOf[Browsed], frozen=True, tag="browse"):
    """Reads stored records without a subscription."""

    rule: ClassVar[Rule] = Rule(CONSUME, on=topic_of, unbound=True)

    topic: TopicText
    shard: Shard
    entry: Entry
    bytes_max: ByteCount = 1024 * 1024


# --- consuming --------------------------------------------------------------------------------------


class KnownRecord(msgspec.Struct, frozen=True, array_like=True):
    """A stored record that a consumer knows; a log restored from an old copy does not have it."""

    shard: Shard
    first_entry: Entry
    block: Block
    segment: Segment
    stored_at_us: TimeUs


class Subscribe(Control, frozen=True):
    rule: ClassVar[Rule] = Rule(CONSUME, on=topic_of, subscription=True, also=dead_letter_of_policy)

    consumer: Number
    topic: TopicText
    subscription: Name
    kind: Word
    mode: Word
    start: Start
    """``earliest``, ``latest``, an entry (of every shard) or a time; only for a new subscription."""
    credit_bytes: Total
    """0 for a consumer that reconnects: it settles first and then sends CREDIT."""
    name: Name = ""
    create_topic: bool = False
    topic_uuid: Uuid | None = None
    """The topic that the consumer read before it reconnected; the node refuses another one with that name."""
    policy: Policy | None = None
    """Only for a new subscription."""
    instance: Annotated[bytes, msgspec.Meta(max_length=64)] = b""
    """Identifies a consumer across its connections, so that it keeps its lease when it reconnects."""
    keeps: bool = False
    """Whether it also keeps the last single record of a shard in key_shared subscriptions (see ``Deliver``)."""
    seen: ShardSpans | None = None
    """From a consumer that reconnects: (shard, start, end) of entries that its application holds.

    It dropped all other entries it was sent, which does not count as an attempt. None: the application may have
    seen all of them.
    """
    known: Annotated[list[KnownRecord], msgspec.Meta(max_length=SHARDS_MAX)] = msgspec.field(
        default_factory=list
    )
    """The last record of each shard that the consumer knows. If the log has other records there, the answer is
    ERROR incarnation-changed: the consumer's entries mean other messages."""
    refused: ShardSpans | None = None
    """Those of ``seen`` that the application has refused, while the node may not know of it yet."""


class Subscribed(Control, frozen=True):
    """The consumer is attached; the values are those of the subscription, even if SUBSCRIBE asked for others.

    The node sends it again when one of the values changes, and in answer to RENEW.
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
    """Every version of a typed topic's schema, oldest first."""
    policy: Policy | None = None
    active: bool = True
    """False for a standby: it discards entries that its application has not received."""
    paused: bool = False
    lease_s: Seconds = 0.0
    """How long after its last RENEW the consumer may pass on messages; 0: there is no lease."""
    renewal: Number = 0
    """The number of the last RENEW."""
    recall: bool = False
    """The consumer must give back entries that its application has not received; until then it gets nothing."""


class Unsubscribe(Control, frozen=True):
    """The consumer leaves. ``seen`` holds (shard, start, end) of entries that its application received.

    Other deliveries were prefetched and do not count as attempts. None: the application received all.
    """

    consumer: Number
    seen: ShardSpans | None = None


class Unsubscribed(Control, frozen=True):
    """The consumer is detached; all its settlements are durable."""

    consumer: Number


class Credit(Control, frozen=True):
    """The consumer can receive this many more bytes."""

    consumer: Number
    bytes: ByteCount


class Deliver(Control, frozen=True):
    """``records`` SEGMENT frames follow at once, as stored. Of their rows only ``spans`` are delivered.

    With ``records`` 0 the rows are in the last record that this shard delivered alone.
    """

    consumer: Number
    shard: Shard
    records: Count
    attempt: Count
    spans: Spans


class Settle(Control, frozen=True):
    """Settles entries. Idempotent; the node answers ``number`` in SETTLED once the settlement is durable.

    An empty one is a flush. ``nacked`` holds (entry, delay in seconds or None for the policy's backoff).
    """

    consumer: Number
    number: Number
    shard: Shard
    acked: Spans = msgspec.field(default_factory=list)
    skipped: Spans = msgspec.field(default_factory=list)
    nacked: Refusals = msgspec.field(default_factory=list)
    upto: Entry | None = None
    """Acknowledges everything before this entry; not in shared and key_shared subscriptions."""
    reasons: Reasons = msgspec.field(default_factory=list)
    """Why entries in ``nacked`` were refused; not all of them need a reason."""
    dead: Annotated[list[Entry], msgspec.Meta(max_length=SPANS_MAX)] = msgspec.field(default_factory=list)
    """Those of ``nacked`` that are not to be delivered again: they go to the dead-letter topic."""


class Settled(Control, frozen=True):
    """Every settlement up to and including ``number`` is durable."""

    consumer: Number
    number: Number
    late: Total = 0
    """Entries in the confirmed settlements that were already settled."""


class Extend(Control, frozen=True):
    """Extends the deadline of entries in ``spans`` that the consumer holds, to ``seconds`` from now.

    None: the policy's deadline from now.
    """

    consumer: Number
    shard: Shard
    spans: Spans
    seconds: Seconds | None = None


class GiveBack(Control, frozen=True):
    """Returns prefetched entries: they go to a consumer with credit, and do not count as attempts."""

    consumer: Number
    shard: Shard
    spans: Spans
    done: bool = False
    """Ends the answer to a recall: the application has all entries that the consumer still holds."""


class Renew(Control, frozen=True):
    """Renews the consumer's lease; the answer is SUBSCRIBED with this number."""

    consumer: Number
    number: Number


class Lost(Control, frozen=True):
    """Entries that the consumer will not get.

    ``reason`` is damaged (bit rot, or a lost file), retention (deleted before they were read), expired (their
    time to live is over), dead (too many attempts; the dead-letter topic has a copy) or settled (another
    consumer settled them while this one held or awaited them).
    """

    consumer: Number
    shard: Shard
    spans: Spans
    reason: Word


_Administration = CreateSubscription | DeleteSubscription | SeekSubscription | PauseSubscription | Redrive
_Inquiry = ListSubscriptions | ShowSubscription | ListUnacked | ListSkipped | Browse
SubscriptionOperation = _Administration | _Inquiry
