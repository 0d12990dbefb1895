"""The part of the conversation in which subscriptions follow their data from one node to another.

What was settled is told by identity (block, segment, rows), since entries are each node's own. The source is
asked ``follow_subscriptions`` (which there are, and which of them changed) and ``read_settled`` (what became of
their entries since it was last asked, a piece at a time); the sink ``open_copy`` and ``apply_settled``. Nothing
is told of records that the sink does not have yet: how far it has them stands in ``upto``.
"""

from __future__ import annotations

from typing import Annotated

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
    Uuid,
    Word,
)
from headpond.model.policy import Policy
from headpond.wire.control.greeting import Control

SUBSCRIPTIONS_MAX = 1000
"""That one link follows."""
SPANS_MAX = 16_384
"""Rows in pieces, in one answer."""

SEGMENTS_MAX = 1024
"""Segments that one ``apply_settled`` names."""
DROPPED_MAX = 8192
"""Ranges of segments in one ``apply_dropped``."""

Rows = tuple[Count, Count]
"""From and to, of a segment."""
RowSpans = Annotated[list[Rows], msgspec.Meta(max_length=SPANS_MAX, description="cut to the segment's rows")]
WholeSegments = tuple[Block, Segment, SegmentEnd]
"""Block, first segment and one past the last: all of their rows are settled."""


class PromoteSubscription(Control, frozen=True, tag="promote_subscription"):
    """Makes the copy of another node's subscription an active one; ``SubscriptionInfo`` is the answer."""

    topic: TopicText
    subscription: Name


# --- what a source is asked ---------------------------------------------------------------------------


class FollowSubscriptions(Control, frozen=True, tag="follow_subscriptions"):
    """The active subscriptions of topics that match; a list of ``FollowedSubscription`` is the answer."""

    topics: Patterns
    subscriptions: Patterns
    """Names, or beginnings of names with a star."""


class FollowedSubscription(msgspec.Struct, frozen=True, array_like=True):
    topic: TopicText
    subscription: Name
    kind: Word
    mode: Word
    policy: Policy
    created_at_us: TimeUs
    """It is the same in all copies, and tells them from another subscription of that name."""
    epoch: Epoch
    """How often it was promoted: what was promoted last is the one that counts."""
    generation: Epoch
    """How often something was taken back: its place was set, or dead entries were offered again."""
    consumers: Count
    stamps: Annotated[list[Count], msgspec.Meta(max_length=SHARDS_MAX)]
    """Of each shard; another one says that something changed."""


class ReadSettled(Control, frozen=True, tag="read_settled"):
    """What became of the entries of a shard before ``upto``, as far as it was not told yet."""

    topic: Uuid
    subscription: Name
    shard: Shard
    created_at_us: TimeUs
    generation: Epoch
    upto: Entry
    """Everything before it is at the sink."""
    floor: Entry
    """Everything before it is settled, and applied at the sink. Of use where ``number`` is 0."""
    number: Number = 0
    """Of the last answer on this connection that was applied; 0: everything is to be told anew."""


class PartlySettled(msgspec.Struct, frozen=True, array_like=True):
    """A segment some rows of which are settled, or were delivered."""

    block: Block
    segment: Segment
    settled: RowSpans
    dead: RowSpans
    """Those of the settled that were tried too often."""
    returned: Annotated[list[tuple[Count, Count, Count]], msgspec.Meta(max_length=SPANS_MAX)]
    """From, to, and how often they were delivered: not settled, came back or is with a consumer."""


class Settlements(msgspec.Struct, frozen=True):
    number: Number
    whole: Annotated[list[WholeSegments], msgspec.Meta(max_length=SPANS_MAX)] = []
    parts: Annotated[list[PartlySettled], msgspec.Meta(max_length=SPANS_MAX)] = []
    floor: Entry = 0
    """Everything before it is settled, once this is applied."""
    left: Total = 0
    """Entries that there is something more to tell of, now or when the sink has them."""
    more: bool = False
    """Whether to ask again at once."""


class ReadDropped(Control, frozen=True, tag="read_dropped"):
    """What a shard had and retention took out; a list of ``WholeSegments`` is the answer."""

    topic: Uuid
    shard: Shard


class TellPromoted(Control, frozen=True, tag="tell_promoted"):
    """A copy of this subscription was promoted on another node, while it is active here."""

    topic: Uuid
    subscription: Name
    created_at_us: TimeUs
    epoch: Epoch
    node: Word


# --- what a sink is asked -----------------------------------------------------------------------------


class OpenCopy(Control, frozen=True, tag="open_copy"):
    """Finds the copy of a source's subscription, or makes it; ``CopyOpened`` is the answer."""

    topic: Uuid
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
    """Where the source is, if that is known here."""


class CopyOpened(msgspec.Struct, frozen=True):
    state: Word
    """``following``; ``promoted``: it is active here, and stays so; ``own``: another one of that name is."""
    floors: ShardEntries = []
    """By shard: everything before this entry of the source's log is settled here."""
    epoch: Epoch = 0


class ApplySettled(Control, frozen=True, tag="apply_settled"):
    """Settles here what was settled there; answered by ``CopyApplied`` when it is durable."""

    topic: Uuid
    node: Word
    subscription: Name
    shard: Shard
    created_at_us: TimeUs
    epoch: Epoch
    generation: Epoch
    whole: Annotated[list[WholeSegments], msgspec.Meta(max_length=SEGMENTS_MAX)]
    parts: Annotated[list[PartlySettled], msgspec.Meta(max_length=SEGMENTS_MAX)]
    floor: Entry
    left: Total
    consumers: Count


class ApplyDropped(Control, frozen=True, tag="apply_dropped"):
    """Settles in a copy what the source has no more; answered by ``CopyApplied``."""

    topic: Uuid
    node: Word
    subscription: Name
    shard: Shard
    created_at_us: TimeUs
    epoch: Epoch
    generation: Epoch
    ranges: Annotated[list[WholeSegments], msgspec.Meta(max_length=DROPPED_MAX)]


class CopyApplied(msgspec.Struct, frozen=True):
    state: Word
    """``following``, or ``ignored``: it is no copy of that subscription any more."""
    settled: Total = 0
    """Entries that were not settled before."""
    unknown: Total = 0
    """Segments that this node does not have and never had."""


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
