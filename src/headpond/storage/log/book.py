"""The producers' side of the ledger, for one shard: what each block announced, and what came of it.

What the log itself shows is counted as it is appended and again when it is replayed: segments stored and
refused, messages, late ones. The rest (who sends a block, what was announced or declared, duplicates, segments
turned away) is told in a small event beside the next record, the whole tally of the block each time, so that
reading one twice does no harm. All of it stands at the head of every log file, behind the marks. A block that
is forgotten leaves its account in that of its producer.

Nothing here costs a message anything, and a segment a few additions. Senders name blocks and numbers as they
like, so all that they can make the book remember has a bound: blocks of which nothing was stored, reasons, and
sums of what they announced (model/ledger.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from headpond.model.ledger import OTHERS, ProducerAccount, count_reason, sum_producers
from headpond.model.ranges import RangeSet

FOLDED_MAX = 200
"""Producers whose forgotten blocks are remembered by name; those of the others are one account."""
ALONE_MAX = 1000
"""Blocks of which nothing was stored yet that are remembered one by one."""
NAMES_MAX = 1000
"""Forgotten blocks whose producer's name is still known, so that a reader of their messages is told it."""


class BlockTally(msgspec.Struct, array_like=True):
    """One block in one shard."""

    producer: str = ""
    run: int = 0
    """The node's run in which it began; 0 for a block of a version that did not count."""
    touched_us: int = 0
    announced: int = 0
    """One past the highest segment that its sender showed to exist."""
    declared: int = 0
    """Up to here its sender has nothing that was not stored."""
    closed: bool = False
    """Whether ``announced`` is all there is: its producer said so."""
    sparse: bool = False
    """Numbers are chosen, not counted up: what lies between them was never meant to come."""
    duplicates: int = 0
    conflicts: int = 0
    gaps: int = 0
    rejected: dict[str, int] = {}
    stored: int = 0
    messages: int = 0
    refused: dict[str, int] = {}
    late: int = 0

    def shown_by_the_log(self, other: BlockTally) -> None:
        """Takes what ``other`` counted from records."""
        self.stored, self.messages, self.refused = other.stored, other.messages, other.refused
        self.late = other.late

    @property
    def came(self) -> bool:
        """Whether something of it is stored, or was refused for good."""
        return self.stored > 0 or any(self.refused.values())

    def account(self, admitted: RangeSet, under_way: list[int]) -> ProducerAccount:
        """Where its segments are. ``under_way`` holds the rows of each stored one that is not durable yet."""
        end = max(admitted.end, self.declared)
        announced = max(end, self.announced)
        holes = sum(stop - start for start, stop in admitted.missing(0, end))
        pending = announced - end
        if self.sparse:
            announced, holes, pending = admitted.count, 0, 0
        return ProducerAccount(
            self.producer,
            blocks=1,
            unclosed=0 if self.closed or self.sparse else 1,
            announced=announced,
            stored=self.stored - len(under_way),
            messages=self.messages - sum(under_way),
            refused={code: count for code, count in self.refused.items() if count},
            pending=pending + len(under_way),
            holes=holes,
            late=self.late,
            duplicates=self.duplicates,
            conflicts=self.conflicts,
            gaps=self.gaps,
            rejected=dict(self.rejected),
            run=self.run,
            counted=self.run > 0,
        )


class BookImage(msgspec.Struct, array_like=True, frozen=True):
    """All of it at the head of a log file."""

    tallies: dict[bytes, BlockTally]
    folded: list[list[Any]]
    """The fields of each account, in order."""
    counted_from: int
    lost: int
    names: dict[bytes, str] = {}


class Book:
    def __init__(self) -> None:
        self.tallies: dict[bytes, BlockTally] = {}
        self.folded: dict[str, ProducerAccount] = {}
        """Of blocks that were forgotten, by producer."""
        self.counted_from = 0
        """The entry from which on messages are counted."""
        self.lost = 0
        """Entries from there on that were lost before they were counted."""
        self.dirty: dict[bytes, None] = {}
        """Blocks of which something is not in the file yet."""
        self._alone: dict[bytes, None] = {}
        """Blocks of which nothing is stored or refused, the one longest unheard of first."""
        self._names: dict[bytes, str] = {}
        """Of producers whose block was forgotten, the latest last."""

    def producer_of(self, block: bytes) -> str:
        """Who sent a block; empty where that has no name, or is not known any more."""
        tally = self.tallies.get(block)
        return tally.producer if tally is not None else self._names.get(block, "")

    # --- what the log shows -------------------------------------------------------------------------

    def admitted(self, block: bytes, count: int, code: str, *, late: bool, at_us: int) -> None:
        """A segment was appended; ``code`` says why it was refused, where it has no rows."""
        tally = self.tallies.get(block)
        if tally is None:
            tally = self.tallies[block] = BlockTally()
        self._alone.pop(block, None)
        tally.touched_us = at_us
        tally.late += late
        if count:
            tally.stored += 1
            tally.messages += count
        else:
            count_reason(tally.refused, code)

    def stored_by_forgotten(self, messages: int) -> None:
        """Messages of which a compacted log keeps no more than that they were: whose is not known any more."""
        others = self.folded.setdefault(OTHERS, ProducerAccount(OTHERS, counted=False))
        others.messages += messages

    def withdrawn(self, block: bytes, segment: int, count: int, code: str, *, late: bool) -> None:
        """Undoes ``admitted``: the segment is known to exist, and not stored."""
        tally = self.tallies[block]
        tally.late -= late
        if count:
            tally.stored -= 1
            tally.messages -= count
        else:
            count_reason(tally.refused, code, -1)
        if not tally.came:
            self._alone[block] = None
        self._announce(block, tally, segment + 1)

    # --- what its sender shows ----------------------------------------------------------------------

    def tally(self, block: bytes, producer: str, run: int, now_us: int, *, sparse: bool = False) -> BlockTally:
        """The tally of a block that somebody speaks of."""
        tally = self.tallies.get(block)
        if tally is None:
            tally = self.tallies[block] = BlockTally(producer, run, sparse=sparse)
            self.dirty[block] = None
            self._alone[block] = None
            if len(self._alone) > ALONE_MAX:
                self.fold(next(iter(self._alone)), RangeSet())
        elif block in self._alone:
            self._alone[block] = self._alone.pop(block)
        if producer and not tally.producer:
            tally.producer = producer
            self.dirty[block] = None
        tally.touched_us = now_us
        return tally

    def announce(self, block: bytes, end: int) -> None:
        """Its sender has numbered its segments up to ``end``."""
        self._announce(block, self.tallies[block], end)

    def _announce(self, block: bytes, tally: BlockTally, end: int) -> None:
        if end > tally.announced:
            tally.announced = end
            tally.closed = False  # who has more than was said at the end did not end there
            self.dirty[block] = None

    def declare(self, block: bytes, end: int) -> None:
        """Its sender has nothing before ``end`` that was not stored."""
        tally = self.tallies[block]
        if end > tally.declared:
            tally.declared = end
            self.dirty[block] = None

    def close(self, block: bytes, end: int) -> None:
        """Its producer has nothing from ``end`` on."""
        tally = self.tallies[block]
        self._announce(block, tally, end)
        if not tally.closed and tally.announced == end:
            tally.closed = True
            self.dirty[block] = None

    def repeated(self, block: bytes) -> None:
        self.tallies[block].duplicates += 1
        self.dirty[block] = None

    def rejected(self, block: bytes, segment: int, code: str) -> None:
        """A segment was turned away; that it came shows that it exists."""
        tally = self.tallies[block]
        self._announce(block, tally, segment + 1)
        self.dirty[block] = None
        if code == "gap":
            tally.gaps += 1
        elif code == "conflict":
            tally.conflicts += 1
        else:
            count_reason(tally.rejected, code)

    # --- events -------------------------------------------------------------------------------------

    def take_dirty(self) -> Iterator[tuple[bytes, bytes]]:
        """Block and tally of each that is to be told of now."""
        dirty, self.dirty = self.dirty, {}
        for block in dirty:
            if (tally := self.tallies.get(block)) is not None:
                yield block, _encoder.encode(tally)

    def restore(self, block: bytes, body: bytes) -> None:
        """Takes the tally of a block from an event in the log."""
        tally = decode_tally(body)
        if tally is None:
            return
        tally.shown_by_the_log(self.tallies.get(block, BlockTally()))
        self.tallies[block] = tally
        if not tally.came:
            self._alone[block] = None

    # --- forgetting ---------------------------------------------------------------------------------

    def fold(self, block: bytes, admitted: RangeSet) -> None:
        """A block is forgotten: its account goes into its producer's."""
        tally = self.tallies.pop(block, None)
        self.dirty.pop(block, None)
        self._alone.pop(block, None)
        if tally is None:
            return
        name = tally.producer
        if name:
            self._names.pop(block, None)
            self._names[block] = name
            if len(self._names) > NAMES_MAX:
                del self._names[next(iter(self._names))]
        if name not in self.folded and len(self.folded) >= FOLDED_MAX:
            name = OTHERS
        before = [self.folded[name]] if name in self.folded else []
        self.folded[name] = sum_producers(name, [*before, tally.account(admitted, [])])

    def fold_alone(self, before_us: int) -> None:
        """Forgets blocks of which nothing is stored: those silent since, and the first of too many."""
        excess = len(self._alone) - ALONE_MAX
        for number, block in enumerate(list(self._alone)):
            if number < excess or self.tallies[block].touched_us <= before_us:
                self.fold(block, RangeSet())

    # --- bytes --------------------------------------------------------------------------------------

    def image(self) -> BookImage:
        folded = [list(msgspec.structs.astuple(account)) for account in self.folded.values()]
        return BookImage(self.tallies, folded, self.counted_from, self.lost, self._names)

    def bytes_of(self, block: bytes) -> int:
        """What a block takes of the image."""
        return len(block) + 2 + len(_encoder.encode(self.tallies[block])) if block in self.tallies else 0

    @classmethod
    def of(cls, image: BookImage) -> Book:
        book = cls()
        book.tallies = image.tallies
        book._alone = {block: None for block, tally in image.tallies.items() if not tally.came}
        accounts = [ProducerAccount(*fields) for fields in image.folded]
        book.folded = {account.producer: account for account in accounts}
        book.counted_from, book.lost = image.counted_from, image.lost
        book._names = image.names
        return book


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(BlockTally)


def decode_tally(body: bytes) -> BlockTally | None:
    try:
        return _decoder.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError):
        return None


def refusal_code(body: bytes) -> str:
    """Why a segment was refused, as its record tells."""
    try:
        code = msgspec.msgpack.decode(body)[0]
    except (msgspec.DecodeError, UnicodeDecodeError, IndexError, TypeError, KeyError):
        return "unknown"
    return code[:64] if isinstance(code, str) else "unknown"
