"""The part of the conversation that is about what became of everything: the ledger of a topic."""

from __future__ import annotations

from typing import Annotated

import msgspec

from headpond.model.bounds import Name, TopicText
from headpond.model.ledger import LogAccount, ProducerAccount, SubscriptionAccount
from headpond.wire.control.greeting import Control

BLOCKS_MAX = 1000
"""Blocks in one answer; the longest silent are left out, and counted."""
RANGES_MAX = 1000
SEGMENT_RANGES_MAX = 100_000
"""Ranges of segments in one answer; blocks beyond that are left out, and counted."""


class ShowNode(Control, frozen=True, tag="show_node"):
    """Counters, limits and what recovery found."""


class ShowLedger(Control, frozen=True, tag="show_ledger"):
    """The answer is a ``LedgerInfo``."""

    topic: TopicText
    producer: Name | None = None
    """Of one producer alone."""
    subscription: Name | None = None
    """Of one subscription alone."""
    blocks: bool = False
    """Whether every block is told of by itself."""
    segments: bool = False
    """Whether of every block it is told which of its segments exist, and which came to be stored or refused."""


class BlockSegments(msgspec.Struct, frozen=True, array_like=True):
    """The segments of one block in one shard, as ranges of their numbers."""

    shard: int
    announced: list[tuple[int, int]]
    """Known to exist."""
    admitted: list[tuple[int, int]]
    """Stored, or refused for good."""


class BlockAccount(msgspec.Struct, frozen=True):
    block: bytes
    account: ProducerAccount
    closed: bool
    """Whether its producer said that nothing follows."""
    touched_at_us: int
    """When something of it last came."""
    segments: list[BlockSegments] = []
    """By shard, if that was asked for."""


class SubscriptionLedger(msgspec.Struct, frozen=True):
    account: SubscriptionAccount
    kind: str
    mode: str
    consumers: int
    lost_ranges: list[tuple[int, int, int, str, int]]
    """(shard, start, end, reason, when) of what it will not get."""


class LedgerInfo(msgspec.Struct, frozen=True):
    topic: str
    at_us: int
    run: int
    """How often the node has been started with this data."""
    crashed: int
    """The last of these runs that did not end in good order; 0 for none."""
    log: LogAccount
    producers: list[ProducerAccount]
    """By name; blocks that were forgotten are in them."""
    subscriptions: list[SubscriptionLedger]
    blocks: list[BlockAccount] = []
    blocks_left_out: int = 0

    @property
    def balanced(self) -> bool:
        """Whether every account adds up."""
        differences = [self.log.difference, *(account.difference for account in self.producers)]
        differences += [one.account.difference for one in self.subscriptions]
        return not any(differences)


# The part of the conversation that is about how busy a node is: totals, from which a reader makes rates.
#
# Two readings make a rate. Totals begin with the node's run: one that is below the reading before means that
# the node, or the topic, began anew.

ROWS_MAX = 1000


class ShowTop(Control, frozen=True, tag="show_top"):
    """The answer is a ``TopInfo``."""

    pattern: Annotated[str, msgspec.Meta(max_length=600)] = ""
    """Topics whose whole name, or short one, has this form (``*`` and ``?``); empty for all."""
    limit: Annotated[int, msgspec.Meta(ge=1, le=ROWS_MAX)] = 50
    """Topics, and subscriptions, in the answer; those with the most to show are kept."""


class TopNode(msgspec.Struct, frozen=True):
    node: str
    software: str
    clock_us: int
    """What rates are measured with; it is never set back while the node runs."""
    uptime_us: int
    connections: int
    topics: int
    subscriptions: int
    messages_stored: int
    messages_delivered: int
    unacked_bytes: int
    """Of segments taken in and not answered yet."""
    disk_free_bytes: int
    disk_full: bool = False
    """Whether sends are refused for lack of room."""
    cpu_us: int | None = None
    """Time of the processor that the node has used."""
    rss_bytes: int | None = None


class TopTopic(msgspec.Struct, frozen=True):
    topic: str
    messages_in: int
    """Entries given out, ever."""
    bytes_in: int
    """Written to its logs in this run."""
    stored: int
    """Entries that are kept."""
    bytes: int
    lag: int
    """Of the subscription that is furthest behind."""
    announced: int = 0
    """Segments that its producers are known to have made."""
    segments: int = 0
    """Those of them that are stored: R of the hop is ``segments / announced``."""
    duplicates: int = 0
    """Segments that came again: UR of the hop is ``segments / (segments + duplicates)``."""


class TopSubscription(msgspec.Struct, frozen=True):
    topic: str
    subscription: str
    lag: int
    """Entries that are not settled."""
    delivered: int
    settled: int
    in_flight: int
    unacked: int
    redelivered: int
    dead: int
    consumers: int
    paused: bool
    entries: int = 0
    """From its start to the end of the log."""
    reached: int = 0
    """Those of them that a consumer was handed: R of the hop is ``reached / entries``."""
    copies: int = 0
    """Handed out and opened, since the node was last killed."""
    first_copies: int = 0
    """Those of them that were no repeat: UR of the hop is ``first_copies / copies``."""


class TopLink(msgspec.Struct, frozen=True):
    """A link to another node, in short."""

    link: str
    state: str
    lag: int
    refused: int
    """Topics that it cannot bring."""
    messages: int = 0
    """Brought since the node was started: R of the hop is ``messages / (messages + lag)``."""
    records: int = 0
    duplicates: int = 0
    """Records that came again: UR of the hop is ``records / (records + duplicates)``."""


class TopInfo(msgspec.Struct, frozen=True):
    node: TopNode
    topics: list[TopTopic]
    subscriptions: list[TopSubscription]
    """The furthest behind first."""
    topics_left_out: int = 0
    subscriptions_left_out: int = 0
    links: list[TopLink] = []
