"""The copy tracker: which messages of several nodes to hand out, hold, settle and ask for again. No IO.

A message is known by its identity (block/shard/segment/row), the same on every node; its entry is the node's
own. So the tracker keeps ranges of rows by block and shard and, for the segments that are not wholly settled,
where each node has them.

- The first node to give a row *leads* it: the program gets the row.
- A node that gives the row for the first time after that gives a copy. The tracker holds it while the program
  has the message, and settles it with the message; a copy of a settled message is settled at once. A node that
  was lost may give a held copy again: it is a copy as before.
- A node that gives again what it gave before means it (refused, deadline, moved back): the row passes, unless
  another node leads it.
- A refused row comes again from the node that leads it; if that one is lost, from one that holds a copy.

The tracker must know what a node may still bring: a node forgets a block a day after its end or after 30 days
of silence, the tracker after 31 days of silence. Two limits bound the memory; the tracker counts what they made
it forget, which may come twice.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from headpond.client.consume.batch import NodeEntries
from headpond.model.bounds import Span
from headpond.model.message import Origin
from headpond.model.ranges import RangeSet

Key = tuple[bytes, int, int]
"""Block, shard, segment."""


class TrackedBlock:
    """One shard of a block: its segments that are wholly settled."""

    __slots__ = ("done", "given", "part", "touched_s")

    def __init__(self, now_s: float) -> None:
        self.touched_s = now_s
        self.done = RangeSet()
        self.given: dict[str, RangeSet] = {}
        """By node: those that it gave whole."""
        self.part: dict[tuple[str, int], RangeSet] = {}
        """By node and segment: rows that it gave of others."""


class TrackedSegment:
    """A segment that is not wholly settled. Numbers in it are rows."""

    __slots__ = ("count", "given", "led", "refused", "settled", "unwanted")

    def __init__(self, count: int) -> None:
        self.count = count
        self.given: dict[str, tuple[int, RangeSet]] = {}
        """By node: the entry of row 0, and the rows that it gave."""
        self.led: dict[str, RangeSet] = {}
        """In hand, by the node that leads them."""
        self.refused = RangeSet()
        """The rows of those that are to come again."""
        self.settled = RangeSet()
        self.unwanted: dict[str, RangeSet] = {}
        """By node: rows that it may give again as a copy. It had given them and was lost, or it was asked for
        them before another node was."""

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
        """The rows that a node gave, less its unwanted ones."""
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


FORGET_AFTER_S = 31 * 86_400.0
BLOCKS_MAX = 65_536
"""Blocks and shards that are remembered; each takes a few hundred bytes, however much it brought."""
OPEN_MAX = 65_536
"""Segments that are not wholly settled, or of which not all rows came."""
LOOK_MAX = 64
"""How many of them are looked at to find one that nobody has in hand."""


class Arrival(NamedTuple):
    """What to do with entries that a node gave; entries in neither list are held."""

    passed: list[Span]
    settled: list[Span]
    """Copies of settled messages, to be settled at once."""


class CopyTracker:
    def __init__(self, *, blocks_max: int = BLOCKS_MAX, open_max: int = OPEN_MAX) -> None:
        self.copies = 0
        """Messages that came and were not handed out, since another node had brought them."""
        self.forgotten = 0
        """Blocks and segments that a limit made the tracker forget: messages of them may come twice."""
        self._blocks_max, self._open_max = blocks_max, open_max
        self._blocks: dict[tuple[bytes, int], TrackedBlock] = {}
        """The one that was silent longest comes first."""
        self._open: dict[Key, TrackedSegment] = {}
        self._index: dict[tuple[str, int], list[tuple[int, Key]]] = {}
        """By node and shard, its first entries of open segments, in order."""
        self._refused: set[Key] = set()
        self._up: set[str] = set()

    # --- arrivals ----------------------------------------------------------------------------

    def arrive(self, origin: Origin, spans: list[Span], now_s: float) -> Arrival:
        """A node gave these entries, all of one segment."""
        key = (origin.block, origin.shard, origin.segment)
        block = self._touch(key[:2], now_s)
        segment = self._open.get(key)
        if segment is None and origin.segment in block.done:
            if not self._gave_whole(block, origin, spans):
                self.copies += sum(end - start for start, end in spans)
                return Arrival([], spans)
            block.done.discard(origin.segment, origin.segment + 1)  # the node delivers it again on purpose
            for places in block.given.values():
                places.discard(origin.segment, origin.segment + 1)
        if segment is None:
            segment = self._begin(key, origin.count)
        place, first = origin.node, origin.first_entry
        if place not in segment.given:
            segment.given[place] = (first, RangeSet())
            insort(self._index.setdefault((place, origin.shard), []), (first, key))
        passed: list[Span] = []
        settled: list[Span] = []
        for start, end in spans:
            self._judge(segment, place, (start - first, end - first), passed, settled)
            segment.given[place][1].add(start - first, end - first)
        held = sum(b - a for a, b in spans) - sum(b - a for a, b in passed)
        self.copies += held
        if passed == [(start - first, end - first) for start, end in spans]:
            return Arrival(spans, [])
        if not segment.refused:
            self._refused.discard(key)
        self._close_if_done(key, segment)
        return Arrival(_joined(passed, first), _joined(settled, first))

    def _judge(
        self, segment: TrackedSegment, place: str, span: Span, passed: list[Span], settled: list[Span]
    ) -> None:
        known = segment.known(*span)
        fresh = known.missing(*span)
        mine = segment.wanted_of(place)
        again = [part for rows in segment.settled.overlap(*span) for part in mine.overlap(*rows)]
        copies = [part for rows in segment.settled.overlap(*span) for part in mine.missing(*rows)]
        in_hand = [part for rows in known for part in segment.settled.missing(*rows)]
        led = [part for rows in in_hand for part in segment.led.get(place, RangeSet()).overlap(*rows)]
        lost = [part for rows in in_hand for part in self._leaderless(segment, rows)]
        for part in (*fresh, *again, *led, *lost):
            segment.lead(place, *part)
            passed.append(part)
        settled += copies
        if (unwanted := segment.unwanted.get(place)) is not None:
            unwanted.discard(*span)

    def _leaderless(self, segment: TrackedSegment, rows: Span) -> list[Span]:
        """Refused rows whose leader is lost: the next node to give them leads."""
        found: list[Span] = []
        for start, end in segment.refused.overlap(*rows):
            rows_at = range(start, end)
            found += [(row, row + 1) for row in rows_at if segment.leader(row) not in self._up]
        return found

    def _gave_whole(self, block: TrackedBlock, origin: Origin, spans: list[Span]) -> bool:
        """For a segment that is done: whether this node gave these entries before; from now on it has."""
        place, segment, first = origin.node, origin.segment, origin.first_entry
        if segment in block.given.get(place, ()):
            return True
        part = block.part.setdefault((place, segment), RangeSet())
        if all(part.overlap(start - first, end - first) for start, end in spans):
            del block.part[place, segment]
            return True
        for start, end in spans:
            part.add(start - first, end - first)
        if not part.missing(0, origin.count):
            del block.part[place, segment]
            block.given.setdefault(place, RangeSet()).add(segment, segment + 1)
        return False

    # --- settlements and losses -----------------------------------------------------------------------

    def settle(self, place: str, shard: int, spans: Iterable[Span]) -> list[NodeEntries]:
        """The program settled entries of a node; returns the copies to settle with them."""
        found: list[NodeEntries] = []
        for key, segment, (start, end) in self._at(place, shard, spans):
            new = segment.settled.missing(start, end)
            for part in new:
                found += self._copies_of(segment, place, shard, part)
            segment.settle(start, end)
            if new:
                self._close_if_done(key, segment)
        return found

    def refuse(self, place: str, shard: int, spans: Iterable[Span]) -> list[NodeEntries]:
        """The program refused entries of a node; returns what to refuse, at a node that can bring it again."""
        found: list[NodeEntries] = []
        for key, segment, (start, end) in self._at(place, shard, spans):
            for row in range(start, end):
                found += self._ask_again(key, segment, place, row)
        return found

    def _ask_again(self, key: Key, segment: TrackedSegment, place: str, row: int) -> list[NodeEntries]:
        """Asks the node that the message came from, else one that is up and has a copy, else the next one."""
        having = [at for at, (_, rows) in segment.given.items() if row in rows]
        asked = [at for at in sorted(having, key=lambda at: at != place) if at in self._up]
        if not asked and place not in having:
            segment.forget(row, row + 1)
            return []
        target = asked[0] if asked else place
        before = segment.leader(row)
        if before not in (None, target) and row in segment.refused:
            segment.unwanted.setdefault(before, RangeSet()).add(row, row + 1)
        segment.lead(target, row, row + 1)
        segment.refused.add(row, row + 1)
        self._refused.add(key)
        entry = segment.given[target][0] + row
        return [NodeEntries(target, key[1], [(entry, entry + 1)])]

    def unread(self, place: str, shard: int, spans: Iterable[Span]) -> list[NodeEntries]:
        """The program did not get entries that a node gave and may give to others: as if they had never come.

        Returns the held copies of them: their nodes must offer them again.
        """
        found: list[NodeEntries] = []
        for key, segment, (start, end) in self._at(place, shard, spans):
            for rows in segment.led.get(place, RangeSet()).overlap(start, end):
                found += self._copies_of(segment, place, shard, rows)
                segment.forget(*rows)
            if not any(rows for _, rows in segment.given.values()) and not segment.settled:
                self._drop(key)
        return found

    def dead(self, place: str, shard: int, spans: Iterable[Span]) -> list[NodeEntries]:
        """A node counts messages as dead; returns the copies to skip, of those that it led."""
        found: list[NodeEntries] = []
        for _, segment, (start, end) in self._at(place, shard, spans):
            for part in segment.led.get(place, RangeSet()).overlap(start, end):
                found += self._copies_of(segment, place, shard, part)
                segment.forget(*part)  # a redriven message is a new one
            segment.given[place][1].discard(start, end)
        return found

    def lost(self, place: str, shard: int, spans: Iterable[Span]) -> list[NodeEntries]:
        """A node lost entries; returns the refused ones among them that others must bring."""
        found: list[NodeEntries] = []
        for key, segment, (start, end) in self._at(place, shard, spans):
            led = segment.led.get(place, RangeSet())
            again = [part for rows in segment.refused.overlap(start, end) for part in led.overlap(*rows)]
            segment.given[place][1].discard(start, end)
            for row in (row for part in again for row in range(*part)):
                found += self._ask_again(key, segment, place, row)
        return found

    # --- nodes come and go --------------------------------------------------------------------------

    def up(self, place: str) -> None:
        self._up.add(place)

    def down(self, place: str) -> list[NodeEntries]:
        """A node is away; returns the refused entries that others must bring in its place."""
        self._up.discard(place)
        found: list[NodeEntries] = []
        for key in list(self._refused):
            segment = self._open[key]
            led = segment.led.get(place, RangeSet())
            for row in [row for part in segment.refused for rows in led.overlap(*part) for row in range(*rows)]:
                having = [at for at, (_, rows) in segment.given.items() if row in rows and at in self._up]
                if having:
                    found += self._ask_again(key, segment, having[0], row)
        return found

    def gone(self, place: str) -> list[NodeEntries]:
        """A node is no longer read; if it is read again, it may give again what it gave."""
        found = self.down(place)
        for segment in self._open.values():
            if place in segment.given:
                segment.unwanted[place] = segment.given[place][1].copy()
            if (led := segment.led.pop(place, None)) is not None:  # nobody leads what the program has
                refused = [part for rows in segment.refused for part in led.overlap(*rows)]
                segment.led[place] = RangeSet(refused)
        for block in self._blocks.values():
            block.given.pop(place, None)
            for part in [at for at in block.part if at[0] == place]:
                del block.part[part]
        return found

    def clear(self) -> list[NodeEntries]:
        """Somebody moved the subscription: everything may come again. Returns the held copies."""
        found = [
            NodeEntries(place, shard, [span]) for place in self._places() for shard, span in self.held(place)
        ]
        for kept in (self._blocks, self._open, self._index, self._refused):
            kept.clear()
        return found

    def behind(self, place: str) -> bool:
        """Whether messages are settled that this node has not given: their copies may be on their way."""
        for block in self._blocks.values():
            given = block.given.get(place, RangeSet())
            if any(given.missing(*span) for span in block.done):
                return True
        for segment in self._open.values():
            rows = segment.wanted_of(place) if place in segment.given else RangeSet()
            if any(rows.missing(*span) for span in segment.settled):
                return True
        return False

    def held(self, place: str) -> list[tuple[int, Span]]:
        """Copies that wait for the settlement of their message, by shard."""
        found: list[tuple[int, Span]] = []
        for (_, shard, _), segment in self._open.items():
            if place not in segment.given:
                continue
            first, rows = segment.given[place]
            for span in rows:
                for part in segment.settled.missing(*span):
                    for start, end in segment.led.get(place, RangeSet()).missing(*part):
                        found.append((shard, (first + start, first + end)))
        return found

    def drop_held(self, place: str) -> list[tuple[int, Span]]:
        """A node may give its held copies again, whatever happens to the message meanwhile. Returns them."""
        dropped = self.held(place)
        for shard, span in dropped:
            for _, segment, rows in self._at(place, shard, [span]):
                segment.unwanted.setdefault(place, RangeSet()).add(*rows)
        return dropped

    # --- within -------------------------------------------------------------------------------------

    def _places(self) -> set[str]:
        return {place for place, _ in self._index}

    def _at(self, place: str, shard: int, spans: Iterable[Span]) -> Iterator[tuple[Key, TrackedSegment, Span]]:
        """The open segments that a node has at these entries, and their rows."""
        index = self._index.get((place, shard), [])
        for span in spans:
            found: list[tuple[Key, TrackedSegment, Span]] = []  # the caller may drop what it gets
            at = max(bisect_right(index, (span[0], (b"\xff" * 17, 0, 0))) - 1, 0)
            for first, key in islice(index, at, None):
                if first >= span[1]:
                    break
                segment = self._open[key]
                start, end = max(span[0] - first, 0), min(span[1] - first, segment.given[place][1].end)
                if start < end:
                    found.append((key, segment, (start, end)))
            yield from found

    def _copies_of(self, segment: TrackedSegment, place: str, shard: int, rows: Span) -> list[NodeEntries]:
        found = []
        for other, (first, given) in segment.given.items():
            if other != place and (spans := given.overlap(*rows)):
                found.append(NodeEntries(other, shard, [(first + start, first + end) for start, end in spans]))
        return found

    def _touch(self, name: tuple[bytes, int], now_s: float) -> TrackedBlock:
        block = self._blocks.pop(name, None)
        if block is None:
            block = TrackedBlock(now_s)
            while self._blocks:
                oldest = next(iter(self._blocks))
                silent = now_s - self._blocks[oldest].touched_s >= FORGET_AFTER_S
                if not silent and len(self._blocks) < self._blocks_max:
                    break
                self.forgotten += not silent
                del self._blocks[oldest]
        self._blocks[name] = block
        block.touched_s = now_s
        return block

    def _begin(self, key: Key, count: int) -> TrackedSegment:
        if len(self._open) >= self._open_max:
            first = [key for key, _ in zip(self._open, range(LOOK_MAX), strict=False)]
            self._drop(next((key for key in first if self._open[key].quiet), first[0]))
            self.forgotten += 1
        segment = self._open[key] = TrackedSegment(count)
        return segment

    def _drop(self, key: Key) -> None:
        segment = self._open.pop(key)
        self._refused.discard(key)
        for place, (first, _) in segment.given.items():
            index = self._index.get((place, key[1]), [])
            at = bisect_right(index, (first, key)) - 1
            if at >= 0 and index[at] == (first, key):
                del index[at]

    def _close_if_done(self, key: Key, segment: TrackedSegment) -> None:
        """Keeps a segment whose rows are all settled as one number in a range."""
        if not segment.refused:
            self._refused.discard(key)
        if not segment.count or segment.settled.missing(0, segment.count):
            return
        self._drop(key)
        block = self._blocks.get(key[:2])
        if block is None:
            return
        block.done.add(key[2], key[2] + 1)
        for place in segment.given:
            rows = segment.wanted_of(place)
            if not rows.missing(0, segment.count):
                block.given.setdefault(place, RangeSet()).add(key[2], key[2] + 1)
            elif rows:
                block.part[place, key[2]] = rows


def _joined(spans: list[Span], first: int) -> list[Span]:
    """Rows as entries, in order."""
    return [(first + start, first + end) for start, end in RangeSet(spans)]
