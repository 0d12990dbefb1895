"""Messages that copy subscriptions from one node to another, after their messages.

Settlements name messages by identity (block, segment, rows), because entries differ between nodes. The source
answers ``follow_subscriptions`` (which subscriptions exist, which changed) and ``read_settled`` (settlements
since the last answer, in pieces); the sink answers ``open_copy`` and ``apply_settled``. The source sends no
settlements of records that the sink does not have yet: ``upto`` says how far it has them.
"""

from __future__ import annotations

from typing import Annotated, ClassVar

import msgspec

from headpond.model.bounds import (
    SHARDS_MAX,
    Block,
    Count,
    Entry,
    Epoch,
    Name,
    Number,
    Patterns,
    Segment,
    SegmentEnd,
    Shard,
    ShardEntries,
    TimeUs,
    TopicText,
    Total,
    Word,
)
from headpond.model.policy import Policy
from headpond.wire.control.consuming import SubscriptionInfo, SubscriptionRequest
from headpond.wire.control.greeting import Control, SinkRequest, SourceRequest
from headpond.wire.control.rule import ADMIN, CONSUME, Rule, topic_of

SUBSCRIPTIONS_MAX = 1000
"""Subscriptions that one link copies."""
SPANS_MAX = 16_384
"""Ranges of rows in one answer."""

SEGMENTS_MAX = 1024
"""Segments in one ``apply_settled``."""
DROPPED_MAX = 8192
"""Ranges of segments in one ``apply_dropped``."""

Rows = tuple[Count, Count]
"""First row, and one past the last, of a segment."""
RowSpans = Annotated[list[Rows], msgspec.Meta(max_length=SPANS_MAX, description="cut to the segment's rows")]
WholeSegments = tuple[Block, Segment, SegmentEnd]
"""Block, first segment, and one past the last: all their rows are settled."""


class PromoteSubscription(SubscriptionRequest[SubscriptionInfo], frozen=True, tag="promote_subscription"):
    """Makes the copy of another node's subscription active."""

    rule: ClassVar[Rule] = Rule(ADMIN, on=topic_of, logged=True)


# --- requests to a source -----------------------------------------------------------------------------


class FollowSubscriptions(Control, frozen=True, tag="follow_subscriptions"):
    """Lists the active subscriptions of matching topics, as ``FollowedSubscription``."""

    rule: ClassVar[Rule] = Rule(CONSUME, unbound=True)

    topics: Patterns
    subscriptions: Patterns
    """Names, or prefixes with a star."""


class FollowedSubscription(msgspec.Struct, frozen=True, array_like=True):
    topic: TopicText
    subscription: Name
    kind: Word
    mode: Word
    policy: Policy
    created_at_us: TimeUs
    """The same in all copies; distinguishes them from another subscription with that name."""
    epoch: Epoch
    """How often it was promoted; the highest one wins."""
    generation: Epoch
    """How often settlements were taken back, by a seek or a redrive."""
    consumers: Count
    stamps: Annotated[list[Count], msgspec.Meta(max_length=SHARDS_MAX)]
    """One per shard; a stamp changes with the shard's settlements."""


class ReadSettled(SourceRequest, frozen=True, tag="read_settled"):
    """Asks for new settlements in a shard, of entries before ``upto``."""

    subscription: Name
    shard: Shard
    created_at_us: TimeUs
    generation: Epoch
    upto: Entry
    """The sink has every entry before it."""
    floor: Entry
    """The sink has settled everything before it. Only used if ``number`` is 0."""
    number: Number = 0
    """The number of the last answer on this connection that the sink applied; 0: send all settlements."""


class PartlySettled(msgspec.Struct, frozen=True, array_like=True):
    """A segment with some rows settled or delivered."""

    block: Block
    segment: Segment
    settled: RowSpans
    dead: RowSpans
    """The settled rows that are dead."""
    returned: Annotated[list[tuple[Count, Count, Count]], msgspec.Meta(max_length=SPANS_MAX)]
    """First row, one past the last, and attempts, of rows that were delivered and are not settled."""


class Settlements(msgspec.Struct, frozen=True):
    number: Number
    whole: Annotated[list[WholeSegments], msgspec.Meta(max_length=SPANS_MAX)] = []
    parts: Annotated[list[PartlySettled], msgspec.Meta(max_length=SPANS_MAX)] = []
    floor: Entry = 0
    """After this is applied, everything before it is settled."""
    left: Total = 0
    """Entries whose settlements are still to be sent, now or when the sink has them."""
    more: bool = False
    """Whether to ask again at once."""


class ReadDropped(SourceRequest, frozen=True, tag="read_dropped"):
    """Asks for the segments that retention deleted from a shard, as a list of ``WholeSegments``."""

    shard: Shard


class TellPromoted(SourceRequest, frozen=True, tag="tell_promoted"):
    """Another node promoted a copy of this subscription, which is active here."""

    subscription: Name
    created_at_us: TimeUs
    epoch: Epoch
    node: Word


# --- requests to a sink -------------------------------------------------------------------------------


class OpenCopy(SinkRequest, frozen=True, tag="open_copy"):
    """Finds or creates the copy of a source's subscription; the answer is ``CopyOpened``."""

    node: Word
    """The source's id."""
    subscription: Name
    kind: Word
    mode: Word
    policy: Policy
    created_at_us: TimeUs
    epoch: Epoch
    generation: Epoch
    link: Name
    url: Name = ""
    """The URL of the source, if known."""


class CopyOpened(msgspec.Struct, frozen=True):
    state: Word
    """``following``; ``promoted``: it is active here and stays so; ``own``: another one has that name."""
    floors: ShardEntries = []
    """By shard: everything before this entry of the source's log is settled at the sink."""
    epoch: Epoch = 0


class CopyRequest(SinkRequest, frozen=True):
    """The base of requests that settle entries in a shard of a copy; the answer is ``CopyApplied``."""

    node: Word
    subscription: Name
    shard: Shard
    created_at_us: TimeUs
    epoch: Epoch
    generation: Epoch


class ApplySettled(CopyRequest, frozen=True, tag="apply_settled"):
    """Applies the source's settlements to the copy; the sink answers when they are durable."""

    whole: Annotated[list[WholeSegments], msgspec.Meta(max_length=SEGMENTS_MAX)]
    parts: Annotated[list[PartlySettled], msgspec.Meta(max_length=SEGMENTS_MAX)]
    floor: Entry
    left: Total
    consumers: Count


class ApplyDropped(CopyRequest, frozen=True, tag="apply_dropped"):
    """Settles in a copy the segments that the source deleted."""

    ranges: Annotated[list[WholeSegments], msgspec.Meta(max_length=DROPPED_MAX)]


class CopyApplied(msgspec.Struct, frozen=True):
    state: Word
    """``following``, or ``ignored``: it is no longer a copy of that subscription."""
    settled: Total = 0
    """Entries that this request settled."""
    unknown: Total = 0
    """Segments that this node never had."""


FollowOperation = (
    PromoteSubscription
    | FollowSubscriptions
    | ReadSettled
    | ReadDropped
    | TellPromoted
    | OpenCopy
    | ApplySettled
    | ApplyDropped
)
