"""What is known of one segment, and of one shard of a block, by a reader of several nodes (seen.py)."""

from __future__ import annotations

from headpond.model.ranges import RangeSet

Key = tuple[bytes, int, int]
"""Block, shard, segment."""


class SeenBlock:
    """One shard of a block: its segments that are done with."""

    __slots__ = ("done", "given", "part", "touched_s")

    def __init__(self, now_s: float) -> None:
        self.touched_s = now_s
        self.done = RangeSet()
        self.given: dict[str, RangeSet] = {}
        """By node, those that it gave whole."""
        self.part: dict[tuple[str, int], RangeSet] = {}
        """Rows that it gave of others."""


class SeenSegment:
    """A segment that is not wholly settled. Numbers in it are rows."""

    __slots__ = ("count", "given", "led", "refused", "settled", "unwanted")

    def __init__(self, count: int) -> None:
        self.count = count
        self.given: dict[str, tuple[int, RangeSet]] = {}
        """By node: the entry of row 0, and the rows that it gave."""
        self.led: dict[str, RangeSet] = {}
        """In hand, by the node that leads them."""
        self.refused = RangeSet()
        """Of those: to come again."""
        self.settled = RangeSet()
        self.unwanted: dict[str, RangeSet] = {}
        """By node: what it may give again as a copy. It was lost and had given them before, or it was asked for
        them before another one was."""

    def leader(self, row: int) -> str | None:
        return next((place for place, rows in self.led.items() if row in rows), None)

    def known(self, row_start: int, row_end: int) -> RangeSet:
        """The rows of the span that came from anywhere, or are settled."""
        found = RangeSet(self.settled.overlap(row_start, row_end))
        for _, rows in self.given.values():
            for span in rows.overlap(row_start, row_end):
                found.add(*span)
        return found

    def wanted_of(self, place: str) -> RangeSet:
        """What a node gave, less what it would give again in vain."""
        rows = self.given[place][1]
        if (unwanted := self.unwanted.get(place)) is not None and unwanted:
            rows = rows.copy()
            for span in unwanted:
                rows.discard(*span)
        return rows

    def lead(self, place: str, row_start: int, row_end: int) -> None:
        for rows in self.led.values():
            rows.discard(row_start, row_end)
        self.led.setdefault(place, RangeSet()).add(row_start, row_end)
        self.settled.discard(row_start, row_end)
        self.refused.discard(row_start, row_end)

    def settle(self, row_start: int, row_end: int) -> None:
        self.settled.add(row_start, row_end)
        self.refused.discard(row_start, row_end)
        for rows in self.led.values():
            rows.discard(row_start, row_end)

    def forget(self, row_start: int, row_end: int) -> None:
        """As if they had never come."""
        self.refused.discard(row_start, row_end)
        for rows in (*self.led.values(), *(rows for _, rows in self.given.values())):
            rows.discard(row_start, row_end)

    @property
    def quiet(self) -> bool:
        """Whether all that came is settled."""
        return not any(self.settled.missing(*span) for _, rows in self.given.values() for span in rows)
