"""The producers' side of the ledger for one shard: what each block announced, and how much of it was stored.

The book counts records when they are appended, and again when they are replayed: segments stored, refused and
late, and messages. Everything else (the producer of a block, announced and declared segments, duplicates,
rejected segments) goes into a small event before the next record, always the whole tally of the block, so that
replaying an event twice does no harm. The head of every log file holds the whole book, behind the marks. When a
block is forgotten, its account is added to that of its producer.

This costs nothing per message and a few additions per segment. Senders choose blocks and numbers, so everything
that they can make the book remember has a limit: blocks without a stored segment, reasons, and announced sums
(model/ledger.py).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from headpond.model.bounds import UNDECODABLE
from headpond.model.ledger import OTHERS, ProducerAccount, count_reason, sum_producers
from headpond.model.ranges import RangeSet

FOLDED_MAX = 200
"""How many producers have an account of their forgotten blocks; the others share one."""
ALONE_MAX = 1000
"""How many blocks without a stored segment the book remembers separately."""
NAMES_MAX = 1000
"""How many forgotten blocks keep the name of their producer, for the readers of their messages."""


class BlockTally(msgspec.Struct, array_like=True):
    """One block in one shard."""

    producer: str = ""
    run: int = 0
    """The run of the node in which it began; 0 for a block that was not counted from its beginning."""
    touched_us: int = 0
    announced: int = 0
    """One past the highest segment that its sender has shown to exist."""
    declared: int = 0
    """Its sender has no unstored segment before this number."""
    closed: bool = False
    """Whether its producer declared ``announced`` as the end."""
    sparse: bool = False
    """Whether numbers are chosen rather than consecutive: the numbers between are no holes."""
    duplicates: int = 0
    conflicts: int = 0
    gaps: int = 0
    rejected: dict[str, int] = {}
    stored: int = 0
    messages: int = 0
    refused: dict[str, int] = {}
    late: int = 0

    @property
    def came(self) -> bool:
        """Whether a segment of it is stored or refused."""
        return self.stored > 0 or any(self.refused.values())

    def account(self, admitted: RangeSet, under_way: list[int]) -> ProducerAccount:
        """Its account. ``under_way`` holds the rows of each stored segment that is not durable yet."""
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
    """The book at the head of a log file."""

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
        """The accounts of forgotten blocks, by producer."""
        self.counted_from = 0
        """The entry from which the book counts messages."""
        self.lost = 0
        """Entries from there on that were lost before the book counted them."""
        self.dirty: dict[bytes, None] = {}
        """Blocks whose tally has changed since it was last staged."""
        self._alone: dict[bytes, None] = {}
        """Blocks without a stored or refused segment, the longest silent first."""
        self._names: dict[bytes, str] = {}
        """The producers of forgotten blocks, the latest last."""

    def producer_of(self, block: bytes) -> str:
        """The producer of a block; empty if it has no name or is no longer known."""
        tally = self.tallies.get(block)
        return tally.producer if tally is not None else self._names.get(block, "")

    # --- what the log shows -------------------------------------------------------------------------

    def admitted(self, block: bytes, count: int, code: str, *, late: bool, at_us: int) -> None:
        """Counts an appended segment; ``code`` is the reason of a refusal, which has no rows."""
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
        """Counts messages of a stub whose blocks, and so producers, are no longer known."""
        others = self.folded.setdefault(OTHERS, ProducerAccount(OTHERS, counted=False))
        others.messages += messages

    def withdrawn(self, block: bytes, segment: int, count: int, code: str, *, late: bool) -> None:
        """Undoes ``admitted``: the segment exists, but is not stored."""
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
        """The tally of a block, which a sender has named; begins it if needed."""
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
        """The sender has numbered its segments up to ``end``."""
        self._announce(block, self.tallies[block], end)

    def _announce(self, block: bytes, tally: BlockTally, end: int) -> None:
        if end > tally.announced:
            tally.announced = end
            tally.closed = False  # the producer continues past the end that it declared
            self.dirty[block] = None

    def declare(self, block: bytes, end: int) -> None:
        """The sender has no unstored segment before ``end``."""
        tally = self.tallies[block]
        if end > tally.declared:
            tally.declared = end
            self.dirty[block] = None

    def close(self, block: bytes, end: int) -> None:
        """The producer has no segment from ``end`` on."""
        tally = self.tallies[block]
        self._announce(block, tally, end)
        if not tally.closed and tally.announced == end:
            tally.closed = True
            self.dirty[block] = None

    def repeated(self, block: bytes) -> None:
        self.tallies[block].duplicates += 1
        self.dirty[block] = None

    def rejected(self, block: bytes, segment: int, code: str) -> None:
        """Counts a rejected segment, which shows that it exists."""
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
        """The blocks whose tally has changed, each with its encoded tally."""
        dirty, self.dirty = self.dirty, {}
        for block in dirty:
            if (tally := self.tallies.get(block)) is not None:
                yield block, _encoder.encode(tally)

    def restore(self, block: bytes, body: bytes) -> None:
        """Takes the tally of a block from an event in the log."""
        try:
            tally = _decoder.decode(body)
        except UNDECODABLE:
            return
        counted = self.tallies.get(block, BlockTally())  # from the records themselves
        tally.stored, tally.messages = counted.stored, counted.messages
        tally.refused, tally.late = counted.refused, counted.late
        self.tallies[block] = tally
        if not tally.came:
            self._alone[block] = None

    # --- forgetting ---------------------------------------------------------------------------------

    def fold(self, block: bytes, admitted: RangeSet) -> None:
        """Forgets a block: adds its account to that of its producer."""
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
        """Forgets blocks without a stored segment: the silent ones, and the oldest past the limit."""
        excess = len(self._alone) - ALONE_MAX
        for number, block in enumerate(list(self._alone)):
            if number < excess or self.tallies[block].touched_us <= before_us:
                self.fold(block, RangeSet())

    # --- bytes --------------------------------------------------------------------------------------

    def image(self) -> BookImage:
        folded = [list(msgspec.structs.astuple(account)) for account in self.folded.values()]
        return BookImage(self.tallies, folded, self.counted_from, self.lost, self._names)

    def bytes_of(self, block: bytes) -> int:
        """The size of a block in the image."""
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


def refusal_code(body: bytes) -> str:
    """The reason of a refusal, from the body of its record."""
    try:
        code = msgspec.msgpack.decode(body)[0]
    except (*UNDECODABLE, IndexError, TypeError, KeyError):
        return "unknown"
    return code[:64] if isinstance(code, str) else "unknown"
