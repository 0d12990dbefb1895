"""The ledger's arithmetic: accounts of producers and subscriptions, whether they balance, R and UR of a hop.

Numbers are identities in their final state, counted one by one where they come to be; the whole they must add
up to is taken from elsewhere (ranges of segment numbers, positions in the log). So a balance is a proof, not a
definition: ``difference`` is 0, or says how much is missing (above 0) or counted twice (below 0).

A producer's hop, in segments::

    announced = stored + refused + pending + holes          R = stored / announced
                                                            UR = stored / (stored + duplicates)

A subscription's hop, in entries since its start::

    stored = acknowledged + skipped + dead + retention + damaged + expired + compacted + passed + unknown
             + in flight + available + unacked + dying      R = reached / stored
                                                            UR = reached / copies handed out
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

COUNT_MAX = 2**53
"""A total is no larger. What producers announce is a claim, and a sum of claims must be a number that can be
stored and sent."""

REASONS_MAX = 32
"""Reasons that are counted one by one; others are counted together."""
OTHERS = "(others)"

EXACT = "exact"
AT_LEAST = "at least"
AT_MOST = "at most"


class Ratio(msgspec.Struct, frozen=True):
    """A share that was counted, not estimated."""

    part: int
    whole: int
    bound: str = EXACT
    """``exact``; ``at least``, ``at most``: a count in it is a lower bound."""

    @property
    def value(self) -> float | None:
        """None where there is nothing to take a share of."""
        return None if self.whole <= 0 else self.part / self.whole

    def __str__(self) -> str:
        if self.value is None:
            return "-"
        # A share that is not 1 must not look like 1, however close it is.
        digits = f"{self.value:.6f}"
        if digits == "1.000000" and self.part != self.whole:
            digits = "0.999999+" if self.part < self.whole else digits
        return {AT_LEAST: "≥", AT_MOST: "≤"}.get(self.bound, "") + digits


class ProducerAccount(msgspec.Struct):
    """What became of a producer's segments: of one block, or of all blocks of one name."""

    producer: str = ""
    blocks: int = 0
    open: int = 0
    """Blocks that a connected client speaks of: more may follow."""
    unclosed: int = 0
    """Blocks that were never closed and that nobody speaks of: what they held in memory is not known."""
    announced: int = 0
    stored: int = 0
    messages: int = 0
    """In the stored segments."""
    refused: dict[str, int] = {}
    """For good, by reason: the number is used, nothing is stored."""
    pending: int = 0
    """Announced, and neither stored nor refused nor passed over: on its way, or with its producer."""
    holes: int = 0
    """Passed over: declared missing by the sender, or lost to damage here, and not filled since."""
    late: int = 0
    """Stored segments that filled a hole."""
    duplicates: int = 0
    """Segments that came once more and were not stored again."""
    conflicts: int = 0
    """Numbers that came again with other content; nothing of it was stored."""
    gaps: int = 0
    """Segments turned away because one before them had not come."""
    rejected: dict[str, int] = {}
    """Segments turned away for now, by reason; the same one may have been turned away more than once."""
    run: int = 0
    """The node's run in which counting began."""
    counted: bool = True
    """False where some of it was stored by a version that did not count: by then by whom is not known."""
    exact: bool = True
    """Whether duplicates, conflicts, gaps and rejections are exact; else they are lower bounds."""

    @property
    def difference(self) -> int:
        return self.announced - self.stored - sum(self.refused.values()) - self.pending - self.holes

    @property
    def reliability(self) -> Ratio:
        """R: how much of what was announced is stored."""
        return Ratio(self.stored, self.announced, AT_MOST if self.unclosed else EXACT)

    @property
    def use_ratio(self) -> Ratio:
        """UR: how much of what arrived was not a repeat."""
        return Ratio(self.stored, self.stored + self.duplicates, EXACT if self.exact else AT_MOST)


class SubscriptionAccount(msgspec.Struct):
    """What became of the entries since a subscription's start, or since its place was last set."""

    subscription: str = ""
    stored: int = 0
    """Entries from its start to the end of the log."""
    acknowledged: int = 0
    skipped: int = 0
    dead: int = 0
    """Tried too often, and put aside."""
    retention: int = 0
    """Lost: dropped before anybody read them."""
    damaged: int = 0
    """Lost: they cannot be read, or are missing."""
    expired: int = 0
    """Their own time to live was over before they were handed out."""
    compacted: int = 0
    """Not the latest of their key any more."""
    passed: int = 0
    """Passed over when its place was set."""
    unknown: int = 0
    """Settled in a version that did not count by kind."""
    in_flight: int = 0
    available: int = 0
    unacked: int = 0
    """Refused, timed out or lost with a consumer, and waiting to be offered again."""
    dying: int = 0
    """Tried too often, and about to be put aside."""
    reached: int = 0
    """Entries that a consumer was handed at least once, as far as is known."""
    since_run: int = 0
    """The node's run in which counting copies began: its first, or the one after it was last killed."""
    reached_since: int = 0
    """Entries that reached a consumer since then, and had not before, as far as is known."""
    delivered: int = 0
    """Copies handed out since then."""
    redelivered: int = 0
    """Those of them that were a further attempt."""
    unseen: int = 0
    """Those of them that a consumer was sent ahead and gave back unopened: they count as no copies."""
    elsewhere: int = 0
    """Entries settled since then by somebody who was not handed them since then."""
    late: int = 0
    """Entries settled since then that had been settled before."""
    delivered_before: int = 0
    """Copies handed out before then, opened or not: at least so many."""
    exact: bool = True
    """Whether ``reached`` is exact; else (the node was killed since it began) it is a lower bound."""

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
        """R: how much of what is stored reached a consumer."""
        known = self.exact and not self.unknown
        return Ratio(self.reached, self.stored, EXACT if known else AT_LEAST)

    @property
    def use_ratio(self) -> Ratio:
        """UR: how much of what was handed out was not a repeat."""
        return Ratio(self.reached_since, self.delivered - self.unseen)


class LogAccount(msgspec.Struct):
    """What a topic's shards hold against what its producers are said to have stored, in messages."""

    entries: int = 0
    """Given out since counting began."""
    messages: int = 0
    """Of all producers."""
    lost: int = 0
    """Entries that no producer can be asked about: damaged before they were counted."""
    before: int = 0
    """Entries stored before counting began, by a version that did not count."""

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
    """One account for all of them."""
    total = ProducerAccount(name, run=-1)
    for one in accounts:
        for field in (
            *("blocks", "open", "unclosed", "announced", "stored", "messages", "pending", "holes"),
            *("late", "duplicates", "conflicts", "gaps"),
        ):
            setattr(total, field, getattr(total, field) + getattr(one, field))
        total.refused = _added(total.refused, one.refused)
        total.rejected = _added(total.rejected, one.rejected)
        total.run = one.run if total.run < 0 else min(total.run, one.run)
        total.counted &= one.counted
        total.exact &= one.exact
    total.run = max(total.run, 0)
    if (excess := total.announced - COUNT_MAX) > 0:  # it still balances: what is claimed is pending or missing
        total.announced -= excess
        total.pending, excess = max(total.pending - excess, 0), max(excess - total.pending, 0)
        total.holes -= excess
    return total


def sum_shards(name: str, accounts: Iterable[SubscriptionAccount]) -> SubscriptionAccount:
    """One account of a subscription, from one a shard."""
    total = SubscriptionAccount(name)
    for one in accounts:
        for field in total.__struct_fields__:
            if field == "exact":
                total.exact &= one.exact
            elif field == "since_run":
                total.since_run = max(total.since_run, one.since_run)
            elif field != "subscription":
                setattr(total, field, getattr(total, field) + getattr(one, field))
    return total


def _added(counts: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    total = dict(counts)
    for reason, count in more.items():
        count_reason(total, reason, count)
    return total


def count_reason(counts: dict[str, int], reason: str, by: int = 1) -> None:
    if reason not in counts and len(counts) >= REASONS_MAX:
        reason = OTHERS
    counts[reason] = counts.get(reason, 0) + by
