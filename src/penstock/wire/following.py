"""The part of the conversation in which subscriptions follow their data from one node to another.

What was settled is told by identity (block, segment, rows), since entries are each node's own. The source is
asked ``follow_subscriptions`` (which there are, and which of them changed) and ``read_settled`` (what became of
their entries since it was last asked, a piece at a time); the sink ``open_copy`` and ``apply_settled``. Nothing
is told of records that the sink does not have yet: how far it has them stands in ``upto``.
"""

from __future__ import annotations

import msgspec

from penstock.model.policy import Policy
from penstock.wire.conversation import Control

SUBSCRIPTIONS_MAX = 1000
"""That one link follows."""
SPANS_MAX = 16_384
"""Rows in pieces, in one answer."""

DROPPED_MAX = 8192
"""Ranges of segments in one ``apply_dropped``."""

Rows = tuple[int, int]
"""From and to, of a segment."""
WholeSegments = tuple[bytes, int, int]
"""Block, first segment and one past the last: all of their rows are settled."""


class PromoteSubscription(Control, frozen=True, tag="promote_subscription"):
    """Makes the copy of another node's subscription an active one; ``SubscriptionInfo`` is the answer."""

    topic: str
    subscription: str


# --- what a source is asked ---------------------------------------------------------------------------


class FollowSubscriptions(Control, frozen=True, tag="follow_subscriptions"):
    """The active subscriptions of topics that match; a list of ``FollowedSubscription`` is the answer."""

    topics: list[str]
    subscriptions: list[str]
    """Names, or beginnings of names with a star."""


class FollowedSubscription(msgspec.Struct, frozen=True, array_like=True):
    topic: str
    subscription: str
    kind: str
    mode: str
    policy: Policy
    created_at_us: int
    """It is the same in all copies, and tells them from another subscription of that name."""
    epoch: int
    """How often it was promoted: what was promoted last is the one that counts."""
    generation: int
    """How often something was taken back: its place was set, or dead entries were offered again."""
    consumers: int
    stamps: list[int]
    """Of each shard; another one says that something changed."""


class ReadSettled(Control, frozen=True, tag="read_settled"):
    """What became of the entries of a shard before ``upto``, as far as it was not told yet."""

    topic: bytes
    subscription: str
    shard: int
    created_at_us: int
    generation: int
    upto: int
    """Everything before it is at the sink."""
    floor: int
    """Everything before it is settled, and applied at the sink. Of use where ``number`` is 0."""
    number: int = 0
    """Of the last answer on this connection that was applied; 0: everything is to be told anew."""


class PartlySettled(msgspec.Struct, frozen=True, array_like=True):
    """A segment some rows of which are settled, or were delivered."""

    block: bytes
    segment: int
    settled: list[Rows]
    dead: list[Rows]
    """Those of the settled that were tried too often."""
    returned: list[tuple[int, int, int]]
    """From, to, and how often they were delivered: not settled, came back or is with a consumer."""


class Settlements(msgspec.Struct, frozen=True):
    number: int
    whole: list[WholeSegments] = []
    parts: list[PartlySettled] = []
    floor: int = 0
    """Everything before it is settled, once this is applied."""
    left: int = 0
    """Entries that there is something more to tell of, now or when the sink has them."""
    more: bool = False
    """Whether to ask again at once."""


class ReadDropped(Control, frozen=True, tag="read_dropped"):
    """What a shard had and retention took out; a list of ``WholeSegments`` is the answer."""

    topic: bytes
    shard: int


class TellPromoted(Control, frozen=True, tag="tell_promoted"):
    """A copy of this subscription was promoted on another node, while it is active here."""

    topic: bytes
    subscription: str
    created_at_us: int
    epoch: int
    node: str


# --- what a sink is asked -----------------------------------------------------------------------------


class OpenCopy(Control, frozen=True, tag="open_copy"):
    """Finds the copy of a source's subscription, or makes it; ``CopyOpened`` is the answer."""

    topic: bytes
    node: str
    """The source's id."""
    subscription: str
    kind: str
    mode: str
    policy: Policy
    created_at_us: int
    epoch: int
    generation: int
    link: str
    url: str = ""
    """Where the source is, if that is known here."""


class CopyOpened(msgspec.Struct, frozen=True):
    state: str
    """``following``; ``promoted``: it is active here, and stays so; ``own``: another one of that name is."""
    floors: list[int] = []
    """By shard: everything before this entry of the source's log is settled here."""
    epoch: int = 0


class ApplySettled(Control, frozen=True, tag="apply_settled"):
    """Settles here what was settled there; answered by ``CopyApplied`` when it is durable."""

    topic: bytes
    node: str
    subscription: str
    shard: int
    created_at_us: int
    epoch: int
    generation: int
    whole: list[WholeSegments]
    parts: list[PartlySettled]
    floor: int
    left: int
    consumers: int


class ApplyDropped(Control, frozen=True, tag="apply_dropped"):
    """Settles in a copy what the source has no more; answered by ``CopyApplied``."""

    topic: bytes
    node: str
    subscription: str
    shard: int
    created_at_us: int
    epoch: int
    generation: int
    ranges: list[WholeSegments]


class CopyApplied(msgspec.Struct, frozen=True):
    state: str
    """``following``, or ``ignored``: it is no copy of that subscription any more."""
    settled: int = 0
    """Entries that were not settled before."""
    unknown: int = 0
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
