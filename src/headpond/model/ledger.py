"""The ledger's arithmetic: accounts of producers and subscriptions, whether they balance, R and UR of a hop.

Each state is counted where an identity enters it; the total that the counts must add up to comes from another
source (ranges of segment numbers, positions in the log). So a balance is a proof, not a definition:
``difference`` is 0, or the number of identities missing (above 0) or counted twice (below 0).

A producer's hop, in segments::

    announced = stored + refused + pending + holes          R = stored / announced
                                                            UR = stored / (stored + duplicates)

A subscription's hop, in entries since its start::

    stored = acknowledged + skipped + dead + retention + damaged + expired + compacted + passed + unknown
             + in flight + available + unacked + dying      R = reached / stored
                                                            UR = reached / copies delivered
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import msgspec

COUNT_MAX = 2**53
"""The largest total. Announcements are claims, and their sum must be a number that can be stored and sent."""

REASONS_MAX = 32
"""Reasons with a separate count; all further ones share a count."""
OTHERS = "(others)"

EXACT = "exact"
AT_LEAST = "at least"
AT_MOST = "at most"


class Ratio(msgspec.Struct, frozen=True):
    """A share, from counts and not from estimates."""

    part: int
    whole: int
    bound: str = EXACT
    """``exact``; ``at least`` or ``at most`` if one of its counts is a lower bound."""

    @property
    def value(self) -> float | None:
        """None if ``whole`` is 0."""
        return None if self.whole <= 0 else self.part / self.whole

    def __str__(self) -> str:
        if self.value is None:
            return "-"
        # A share below 1 must not print as 1.
        digits = f"{self.value:.6f}"
        if digits == "1.000000" and self.part != self.whole:
            digits = "0.999999+" if self.part < self.whole else digits
        return {AT_LEAST: "≥", AT_MOST: "≤"}.get(self.bound, "") + digits


class ProducerAccount(msgspec.Struct):
    """The segments of a producer by outcome: of one block, or of all blocks of one name."""

    producer: str = ""
    blocks: int = 0
    open: int = 0
    """Blocks that a connected client uses: more segments may follow."""
    unclosed: int = 0
    """Blocks that were never closed and that no client uses: their unsent segments are unknown."""
    announced: int = 0
    stored: int = 0
    messages: int = 0
    """Messages in the stored segments."""
    refused: dict[str, int] = {}
    """Refused for good, by reason: the number is used, nothing is stored."""
    pending: int = 0
    """Announced and neither stored, refused nor a hole: in transit, or with the producer."""
    holes: int = 0
    """Declared missing by the sender, or lost to damage here, and not filled since."""
    late: int = 0
    """Stored segments that filled a hole."""
    duplicates: int = 0
    """Segments that arrived again and were not stored again."""
    conflicts: int = 0
    """Segment numbers that arrived again with other content, which was not stored."""
    gaps: int = 0
    """Segments rejected because an earlier one was missing."""
    rejected: dict[str, int] = {}
    """Temporary rejections by reason; a segment may be rejected more than once."""
    run: int = 0
    """The node's run in which counting started."""
    counted: bool = True
    """False if damage took the record of where counting started."""
    exact: bool = True
    """Whether duplicates, conflicts, gaps and rejections are exact; else they are lower bounds."""

    @property
    def difference(self) -> int:
        return self.announced - self.stored - sum(self.refused.values()) - self.pending - self.holes

    @property
    def reliability(self) -> Ratio:
        """R: the share of announced segments that is stored."""
        return Ratio(self.stored, self.announced, AT_MOST if self.unclosed else EXACT)

    @property
    def use_ratio(self) -> Ratio:
        """UR: the share of arrivals that were not repeats."""
        return Ratio(self.stored, self.stored + self.duplicates, EXACT if self.exact else AT_MOST)


class SubscriptionAccount(msgspec.Struct):
    """The entries of a subscription by outcome, since its start or its last seek."""

    subscription: str = ""
    stored: int = 0
    """Entries from its start to the end of the log."""
    acknowledged: int = 0
    skipped: int = 0
    dead: int = 0
    """Dead: too many attempts."""
    retention: int = 0
    """Lost: deleted by retention before they were read."""
    damaged: int = 0
    """Lost: unreadable or missing."""
    expired: int = 0
    """Their time to live ended before their delivery."""
    compacted: int = 0
    """Superseded by a later message with their key."""
    passed: int = 0
    """Skipped by a seek."""
    unknown: int = 0
    """Settled, and damage took the record of how."""
    in_flight: int = 0
    available: int = 0
    unacked: int = 0
    """Refused, timed out or lost with a consumer; they await redelivery."""
    dying: int = 0
    """Too many attempts; about to become dead."""
    reached: int = 0
    """Entries that a consumer got at least once, as far as is known."""
    since_run: int = 0
    """The node's run in which counting copies started: its first, or the one after its last crash."""
    reached_since: int = 0
    """Entries that first reached a consumer since then, as far as is known."""
    delivered: int = 0
    """Copies delivered since then."""
    redelivered: int = 0
    """Those of them that were redeliveries."""
    unseen: int = 0
    """Those of them that a consumer prefetched and gave back unopened; they do not count as copies."""
    elsewhere: int = 0
    """Entries settled or held since then by a consumer that had not got them since then."""
    late: int = 0
    """Entries settled since then that were already settled."""
    delivered_before: int = 0
    """Copies delivered before then, opened or not; a lower bound."""
    exact: bool = True
    """Whether ``reached`` is exact; after a crash of the node it is a lower bound."""

    @property
    def settled(self) -> int:
        lost = self.retention + self.damaged + self.expired + self.compacted
        return self.acknowledged + self.skipped + self.dead + lost + self.passed + self.unknown

    @property
    def unsettled(self) -> int:
        return self.in_flight + self.available + self.unacked + self.dying

    @property
    def difference(self) -> int:
        return self.stored - self.settled - self.unsettled

    @property
    def reliability(self) -> Ratio:
        """R: the share of stored entries that reached a consumer."""
        known = self.exact and not self.unknown
        return Ratio(self.reached, self.stored, EXACT if known else AT_LEAST)

    @property
    def use_ratio(self) -> Ratio:
        """UR: the share of copies that were not repeats."""
        return Ratio(self.reached_since, self.delivered - self.unseen)


class LogAccount(msgspec.Struct):
    """The messages in a topic's shards, compared with those in the accounts of its producers."""

    entries: int = 0
    """Entries assigned since counting started."""
    messages: int = 0
    """Messages stored for all producers."""
    lost: int = 0
    """Entries damaged before they were counted for a producer."""
    before: int = 0
    """Entries stored before counting started: damage took the counts of older files."""

    @property
    def difference(self) -> int:
        return self.entries - self.messages - self.lost


Account = ProducerAccount | SubscriptionAccount | LogAccount


def balance(account: Account) -> str:
    """``balances``, or the exact difference."""
    difference = account.difference
    if difference == 0:
        return "balances"
    many = abs(difference)
    return f"{many:,} missing" if difference > 0 else f"{many:,} counted twice"


def sum_producers(name: str, accounts: Iterable[ProducerAccount]) -> ProducerAccount:
    """One account for several."""
    parts = list(accounts)
    total = ProducerAccount(name, **_sums(parts))
    total.run = min((one.run for one in parts), default=0)
    if (excess := total.announced - COUNT_MAX) > 0:  # it still balances: claims are pending or holes
        total.announced -= excess
        total.pending, excess = max(total.pending - excess, 0), max(excess - total.pending, 0)
        total.holes -= excess
    return total


def sum_shards(name: str, accounts: Iterable[SubscriptionAccount]) -> SubscriptionAccount:
    """One account of a subscription, from one per shard."""
    parts = list(accounts)
    total = SubscriptionAccount(name, **_sums(parts))
    total.since_run = max((one.since_run for one in parts), default=0)
    return total


_fields = cache(msgspec.structs.fields)


def _sums(parts: Sequence[ProducerAccount] | Sequence[SubscriptionAccount]) -> dict[str, Any]:
    """Every field but the name: numbers and counts by reason added up, flags true if all are."""
    found: dict[str, Any] = {}
    for field in _fields(type(parts[0]))[1:] if parts else ():
        values = [getattr(one, field.name) for one in parts]
        if field.type is bool:
            found[field.name] = all(values)
        elif field.type is int:
            found[field.name] = sum(values)
        else:
            total: dict[str, int] = {}
            found[field.name] = total
            for counts in values:
                for reason, count in counts.items():
                    count_reason(total, reason, count)
    return found


def count_reason(counts: dict[str, int], reason: str, by: int = 1) -> None:
    if reason not in counts and len(counts) >= REASONS_MAX:
        reason = OTHERS
    counts[reason] = counts.get(reason, 0) + by
