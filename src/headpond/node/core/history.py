"""What a subscription missed, and when somebody last read from it; both survive a restart.

Ranges that touch and have the same reason are one. Past ``RANGES_MAX`` the oldest ones are let go of; their
entries stay counted.
"""

from __future__ import annotations

from headpond.model.entry_set import Span
from headpond.node.core.cursor import ShardCursor

RANGES_MAX = 1000

LostRange = tuple[int, int, int, str, int]
"""(shard, start, end, reason, when)"""


class History:
    __slots__ = ("compacted", "expired", "lost", "seen_us")

    def __init__(self) -> None:
        self.lost: list[LostRange] = []
        self.expired = 0
        """Messages whose own time to live was over before they were delivered."""
        self.compacted = 0
        """Messages of a state topic that were superseded before it came to them."""
        self.seen_us = 0
        """When a consumer was last attached; 0 where that is not known."""

    def add(self, shard: int, spans: list[Span], reason: str, at_us: int) -> None:
        for start, end in spans:
            self._add(shard, start, end, reason, at_us)
        del self.lost[:-RANGES_MAX]

    def _add(self, shard: int, start: int, end: int, reason: str, at_us: int) -> None:
        for number in range(len(self.lost) - 1, -1, -1):
            its_shard, first, last, its_reason, _ = self.lost[number]
            if (its_shard, its_reason) == (shard, reason) and start <= last and first <= end:
                # Told once more, as when a record is read twice, it is the same range.
                self.lost[number] = (shard, min(first, start), max(last, end), reason, at_us)
                return
        self.lost.append((shard, start, end, reason, at_us))


def unread(cursor: ShardCursor, start: int, end: int) -> list[Span]:
    """Entries that were neither settled nor are with a consumer."""
    return [
        span
        for missing in cursor.settled.missing(max(start, cursor.cursor), end)
        for span in cursor.held.missing(*missing)
        if span[0] < span[1]
    ]
