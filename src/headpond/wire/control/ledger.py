"""The part of the conversation that is about what became of everything: the ledger of a topic."""

from __future__ import annotations

import msgspec

from headpond.model.bounds import Name, TopicText
from headpond.model.ledger import LogAccount, ProducerAccount, SubscriptionAccount
from headpond.wire.control.greeting import Control

BLOCKS_MAX = 1000
"""Blocks in one answer; the longest silent are left out, and counted."""
RANGES_MAX = 1000
SEGMENT_RANGES_MAX = 100_000
"""Ranges of segments in one answer; blocks beyond that are left out, and counted."""


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
