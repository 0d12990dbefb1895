"""What a reader of several nodes has seen: each message once, whichever node brings it first. No IO.

A message is known by its identity (block/shard/segment/row), the same on every node; where it stands is a
node's own. So what is seen is kept as ranges by block and shard, and beside it, for the segments that are not
wholly settled, where each node has them.

- The first node to give a row *leads* it: the row is handed out.
- A node that gives it the first time, after another one did, gives a copy. It is held while the message is in
  hand and settled with it; of a settled message it is settled at once. A node that was lost may give again what
  was held of it, and that is a copy as before.
- A node that gives again what it gave before means it (refused, deadline, set back): the row passes, unless
  another one leads it.
- A refused row comes again from the node that leads it; when that is lost, from one that holds a copy.

What a node may still bring must stay known: a node forgets a block a day after its end or after 30 days of
silence, this side after 31 days of silence. Two limits bound the memory; what they made this side forget is
counted, and may come twice.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from headpond.model.bounds import Span
from headpond.model.message import Origin
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


FORGET_AFTER_S = 31 * 86_400.0
BLOCKS_MAX = 65_536
"""Blocks and shards that are remembered; each takes a few hundred bytes, however much it brought."""
OPEN_MAX = 65_536
"""Segments that are not wholly settled, or of which not all rows came."""
LOOK_MAX = 64
"""How many of them are looked at to find one that nobody has in hand."""


class Arrival(NamedTuple):
    """What to do with entries that a node gave; what is in neither is held."""

    passed: list[Span]
    settled: list[Span]
    """Copies of messages that are settled: so are they, at once."""


class There(NamedTuple):
    """Entries of a shard at a node."""

    place: str
    shard: int
    spans: list[Span]


class Seen:
    def __init__(self, *, blocks_max: int = BLOCKS_MAX, open_max: int = OPEN_MAX) -> None:
        self.copies = 0
        """Messages that came and were not handed out, since another node brought them first."""
        self.forgotten = 0
        """Blocks and segments that a limit made this side forget: what comes of them may be a repeat."""
        self._blocks_max, self._open_max = blocks_max, open_max
        self._blocks: dict[tuple[bytes, int], SeenBlock] = {}
        """The one that was silent longest first."""
        self._open: dict[Key, SeenSegment] = {}
        self._index: dict[tuple[str, int], list[tuple[int, Key]]] = {}
        """By node and shard, its first entries of open segments, in order."""
        self._refused: set[Key] = set()
        self._up: set[str] = set()

    # --- what nodes give ----------------------------------------------------------------------------

    def arrive(self, origin: Origin, spans: list[Span], now_s: float) -> Arrival:
        """A node gave these entries, all of one segment."""
        key = (origin.block, origin.shard, origin.segment)
        block = self._touch(key[:2], now_s)
        segment = self._open.get(key)
        if segment is None and origin.segment in block.done:
            if not self._gave_whole(block, origin, spans):
                self.copies += sum(end - start for start, end in spans)
                return Arrival([], spans)
            block.done.discard(origin.segment, origin.segment + 1)  # its own node wants it done again
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
        self, segment: SeenSegment, place: str, span: Span, passed: list[Span], settled: list[Span]
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

    def _leaderless(self, segment: SeenSegment, rows: Span) -> list[Span]:
        """Rows to come again whose node is lost: whoever gives them next leads."""
        found: list[Span] = []
        for start, end in segment.refused.overlap(*rows):
            rows_at = range(start, end)
            found += [(row, row + 1) for row in rows_at if segment.leader(row) not in self._up]
        return found

    def _gave_whole(self, block: SeenBlock, origin: Origin, spans: list[Span]) -> bool:
        """Of a segment that is done: whether this node gave these before; else it has now."""
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

    # --- what becomes of them -----------------------------------------------------------------------

    def settle(self, place: str, shard: int, spans: Iterable[Span]) -> list[There]:
        """Entries of a node were settled; returns the copies that are settled with them."""
        found: list[There] = []
        for span in spans:
            for key, segment, (start, end) in list(self._at(place, shard, span)):
                new = segment.settled.missing(start, end)
                for part in new:
                    found += self._copies_of(segment, place, shard, part)
                segment.settle(start, end)
                if new:
                    self._close_if_done(key, segment)
        return found

    def refuse(self, place: str, shard: int, spans: Iterable[Span]) -> list[There]:
        """Entries are to come again; returns which node is to be told that."""
        found: list[There] = []
        for span in spans:
            for key, segment, (start, end) in list(self._at(place, shard, span)):
                for row in range(start, end):
                    found += self._ask_again(key, segment, place, row)
        return found

    def _ask_again(self, key: Key, segment: SeenSegment, place: str, row: int) -> list[There]:
        """The node that the message came from, or one that is there and has a copy; else any that comes."""
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
        return [There(target, key[1], [(entry, entry + 1)])]

    def unread(self, place: str, shard: int, spans: Iterable[Span]) -> list[There]:
        """A node gave entries that nobody was handed, and may give them to others: as if they had never come.

        Returns the copies that were held: those nodes are to offer them again.
        """
        found: list[There] = []
        for span in spans:
            for key, segment, (start, end) in list(self._at(place, shard, span)):
                for rows in segment.led.get(place, RangeSet()).overlap(start, end):
                    found += self._copies_of(segment, place, shard, rows)
                    segment.forget(*rows)
                if not any(rows for _, rows in segment.given.values()) and not segment.settled:
                    self._drop(key)
        return found

    def dead(self, place: str, shard: int, spans: Iterable[Span]) -> list[There]:
        """A node put messages aside; returns the copies that are not wanted any more, if it led them."""
        found: list[There] = []
        for span in spans:
            for _, segment, (start, end) in list(self._at(place, shard, span)):
                for part in segment.led.get(place, RangeSet()).overlap(start, end):
                    found += self._copies_of(segment, place, shard, part)
                    segment.forget(*part)  # offered again, it is a new one
                segment.given[place][1].discard(start, end)
        return found

    def lost(self, place: str, shard: int, spans: Iterable[Span]) -> list[There]:
        """A node cannot give entries any more; returns what is to come again from others."""
        found: list[There] = []
        for span in spans:
            for key, segment, (start, end) in list(self._at(place, shard, span)):
                led = segment.led.get(place, RangeSet())
                again = [part for rows in segment.refused.overlap(start, end) for part in led.overlap(*rows)]
                segment.given[place][1].discard(start, end)
                for row in (row for part in again for row in range(*part)):
                    found += self._ask_again(key, segment, place, row)
        return found

    # --- nodes come and go --------------------------------------------------------------------------

    def up(self, place: str) -> None:
        self._up.add(place)

    def down(self, place: str) -> list[There]:
        """A node cannot be reached; returns what it was to bring again and others are to bring now."""
        self._up.discard(place)
        found: list[There] = []
        for key in list(self._refused):
            segment = self._open[key]
            led = segment.led.get(place, RangeSet())
            for row in [row for part in segment.refused for rows in led.overlap(*part) for row in range(*rows)]:
                having = [at for at, (_, rows) in segment.given.items() if row in rows and at in self._up]
                if having:
                    found += self._ask_again(key, segment, having[0], row)
        return found

    def gone(self, place: str) -> list[There]:
        """A node is not read any more, and knows nothing of what it gave if it is read again."""
        found = self.down(place)
        for segment in self._open.values():
            if place in segment.given:
                segment.unwanted[place] = segment.given[place][1].copy()
            if (led := segment.led.pop(place, None)) is not None:  # what is in hand is led by nobody now
                refused = [part for rows in segment.refused for part in led.overlap(*rows)]
                segment.led[place] = RangeSet(refused)
        for block in self._blocks.values():
            block.given.pop(place, None)
            for part in [at for at in block.part if at[0] == place]:
                del block.part[part]
        return found

    def clear(self) -> list[There]:
        """Somebody set the subscription anew: all may come again. Returns the copies that were held."""
        found = [There(place, shard, [span]) for place in self._places() for shard, span in self.held(place)]
        for kept in (self._blocks, self._open, self._index, self._refused):
            kept.clear()
        return found

    def behind(self, place: str) -> bool:
        """Whether something is settled that this node has not given: its copies may be on their way."""
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
        """Copies that wait for what becomes of the message, by shard."""
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
        """A node may give again the copies that wait, whatever becomes of them meanwhile. Returns them."""
        dropped = self.held(place)
        for shard, span in dropped:
            for _, segment, rows in self._at(place, shard, span):
                segment.unwanted.setdefault(place, RangeSet()).add(*rows)
        return dropped

    # --- within -------------------------------------------------------------------------------------

    def _places(self) -> set[str]:
        return {place for place, _ in self._index}

    def _at(self, place: str, shard: int, span: Span) -> Iterator[tuple[Key, SeenSegment, Span]]:
        """The open segments that a node has at these entries, and the rows meant."""
        index = self._index.get((place, shard), [])
        at = max(bisect_right(index, (span[0], (b"\xff" * 17, 0, 0))) - 1, 0)
        for first, key in index[at:]:
            if first >= span[1]:
                return
            segment = self._open[key]
            start, end = max(span[0] - first, 0), min(span[1] - first, segment.given[place][1].end)
            if start < end:
                yield key, segment, (start, end)

    def _copies_of(self, segment: SeenSegment, place: str, shard: int, rows: Span) -> list[There]:
        found = []
        for other, (first, given) in segment.given.items():
            if other != place and (spans := given.overlap(*rows)):
                found.append(There(other, shard, [(first + start, first + end) for start, end in spans]))
        return found

    def _touch(self, name: tuple[bytes, int], now_s: float) -> SeenBlock:
        block = self._blocks.pop(name, None)
        if block is None:
            block = SeenBlock(now_s)
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

    def _begin(self, key: Key, count: int) -> SeenSegment:
        if len(self._open) >= self._open_max:
            first = [key for key, _ in zip(self._open, range(LOOK_MAX), strict=False)]
            self._drop(next((key for key in first if self._open[key].quiet), first[0]))
            self.forgotten += 1
        segment = self._open[key] = SeenSegment(count)
        return segment

    def _drop(self, key: Key) -> None:
        segment = self._open.pop(key)
        self._refused.discard(key)
        for place, (first, _) in segment.given.items():
            index = self._index.get((place, key[1]), [])
            at = bisect_right(index, (first, key)) - 1
            if at >= 0 and index[at] == (first, key):
                del index[at]

    def _close_if_done(self, key: Key, segment: SeenSegment) -> None:
        """A segment whose rows are all settled is one number in a range from now on."""
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
