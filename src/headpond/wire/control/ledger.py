"""Messages about the ledger of a topic: what producers sent, what the log has, what consumers settled."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from headpond.model.bounds import Name, TopicText
from headpond.model.ledger import LogAccount, ProducerAccount, SubscriptionAccount
from headpond.wire.control.operation import USE, OperationOf, Rule, topic_of

BLOCKS_MAX = 1000
"""Blocks in one answer; the answer counts those it leaves out, the longest silent ones."""
RANGES_MAX = 1000
SEGMENT_RANGES_MAX = 100_000
"""Ranges of segments in one answer; the answer counts the blocks it leaves out."""


class LedgerInfo(msgspec.Struct, frozen=True):
    topic: str
    at_us: int
    run: int
    """How often the node has started with this data."""
    crashed: int
    """The latest run that did not end cleanly; 0: none."""
    log: LogAccount
    producers: list[ProducerAccount]
    """By name; they include forgotten blocks."""
    subscriptions: list[SubscriptionLedger]
    blocks: list[BlockAccount] = []
    blocks_left_out: int = 0

    @property
    def balanced(self) -> bool:
        """Whether every account adds up."""
        differences = [self.log.difference, *(account.difference for account in self.producers)]
        differences += [one.account.difference for one in self.subscriptions]
        return not any(differences)


class ShowLedger(OperationOf[LedgerInfo], frozen=True, tag="show_ledger"):
    rule: ClassVar[Rule] = Rule(USE, on=topic_of, whole=True)

    topic: TopicText
    producer: Name | None = None
    """Only this producer."""
    subscription: Name | None = None
    """Only this subscription."""
    blocks: bool = False
    """Whether to list every block."""
    segments: bool = False
    """Whether to list for every block its known segments, and those stored or refused."""


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
    """Whether its producer declared its end."""
    touched_at_us: int
    """When the node last received something of it."""
    segments: list[BlockSegments] = []
    """By shard, if requested."""


class SubscriptionLedger(msgspec.Struct, frozen=True):
    account: SubscriptionAccount
    kind: str
    mode: str
    consumers: int
    lost_ranges: list[tuple[int, int, int, str, int]]
    """(shard, start, end, reason, time) of entries it will not get."""
