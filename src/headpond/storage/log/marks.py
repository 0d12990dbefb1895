"""Marks: which segments of each block a shard has admitted.

They are ranges, not a high-water mark, so the log can tell a repeat from a segment that was declared a hole and
comes later by another path. They move in the same step as the append, are stored at the head of every log file,
and move back when a sync fails.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import BadFrame
from headpond.model.ranges import RangeSet
from headpond.storage.log.book import Book, BookImage

RECENT_MAX = 1024
"""How many segments of each block have their place in memory; older ones are looked up in the files."""
RECENT_STORED_MAX = 32
"""How many of them the head of a log file repeats: those that a sender may still repeat."""

FOLDED_BYTES = 64
"""The rough size of a new account of forgotten blocks."""

DAY_US = 24 * 60 * 60 * 1_000_000


Stored = tuple[int, int, int]
"""An admitted segment: origin_crc, first entry, count."""


@dataclass(slots=True)
class BlockMarks:
    """The marks of one block."""

    touched_us: int = 0
    admitted: RangeSet = field(default_factory=RangeSet)
    recent: dict[int, Stored] = field(default_factory=dict)
    pending: int = 0
    """How many of the latest in ``recent`` are not durable. They stay in memory: no file has them yet."""
    ended_us: int | None = None


class _BlockImage(msgspec.Struct, array_like=True, frozen=True):
    """A block in a MARKS frame, msgpack by position."""

    block: bytes
    admitted: list[tuple[int, int]]
    recent: list[tuple[int, int, int, int]]
    """(segment, origin_crc, first_entry, count)"""
    touched_us: int
    ended_us: int | None
    book: BookImage | None = None
    """Only in the last image, which is no block: the ledger's counts of all blocks."""


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_BlockImage])


class Marks:
    """The marks of one shard, by block."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, BlockMarks] = {}
        self.book = Book()
        self.held: frozenset[bytes] = frozenset()
        """Blocks that are never forgotten: a writer still publishes a batch to them."""

    def get(self, block: bytes) -> BlockMarks | None:
        return self._blocks.get(block)

    def next(self, block: bytes) -> int:
        """One past the highest segment admitted; 0 for an unknown block."""
        known = self._blocks.get(block)
        return 0 if known is None else known.admitted.end

    def admit(
        self, block: bytes, segment: int, stored: Stored, at_us: int, code: str = ""
    ) -> tuple[bool, int | None]:
        """Admits a new segment; call ``settle`` when it is durable. ``code`` is the reason of a refusal.

        Returns whether it fills a hole, and, if the block had ended, the time of that end: it is open again.
        """
        known = self._blocks.get(block)
        if known is None:
            known = self._blocks[block] = BlockMarks()
        late = segment < known.admitted.end
        self.book.admitted(block, stored[2], code, late=late, at_us=at_us)
        known.admitted.add(segment, segment + 1)
        known.touched_us = at_us
        ended_us, known.ended_us = known.ended_us, None  # the producer continues a block that it had closed
        known.recent[segment] = stored
        known.pending += 1
        return late, ended_us

    def settle(self, blocks: Iterable[bytes]) -> None:
        """The oldest pending segment of each block is durable: the files have it from now on."""
        for block in blocks:
            known = self._blocks.get(block)
            if known is None:
                continue
            known.pending = max(known.pending - 1, 0)
            recent = known.recent
            while len(recent) > max(RECENT_MAX, known.pending):
                del recent[next(iter(recent))]

    def withdraw(self, block: bytes, segment: int, code: str = "", *, late: bool = False) -> None:
        """Undoes an ``admit`` whose sync failed."""
        known = self._blocks.get(block)
        if known is None:
            return
        known.admitted.discard(segment, segment + 1)
        if (stored := known.recent.pop(segment, None)) is not None:
            self.book.withdrawn(block, segment, stored[2], code, late=late)
            known.pending = max(known.pending - 1, 0)
        if not known.admitted and known.ended_us is None:
            del self._blocks[block]

    def end(self, block: bytes, at_us: int) -> None:
        """The producer closed the block."""
        known = self._blocks.get(block)
        if known is None:
            known = self._blocks[block] = BlockMarks(at_us)
        known.ended_us = at_us

    def reopen(self, block: bytes) -> None:
        """Undoes an ``end`` whose sync failed."""
        known = self._blocks.get(block)
        if known is None:
            return
        known.ended_us = None
        if not known.admitted:
            del self._blocks[block]

    def forget(self, now_us: int, after_end_us: int, after_silence_us: int, keep: bytes | None = None) -> int:
        """Drops blocks that have been closed or silent for long enough; returns how many.

        ``keep`` is a block that is being appended to; blocks with pending segments stay too.
        """
        gone = [
            block
            for block, known in self._blocks.items()
            if block != keep
            and block not in self.held
            and not known.pending
            and (
                (known.ended_us is not None and now_us - known.ended_us >= after_end_us)
                or now_us - known.touched_us >= after_silence_us
            )
        ]
        for block in gone:
            self._drop(block)
        self.book.fold_alone(now_us - after_silence_us)
        return len(gone)

    def _drop(self, block: bytes) -> None:
        self.book.fold(block, self._blocks.pop(block).admitted)

    def segment_totals(self) -> tuple[int, int, int]:
        """Segments announced, stored and repeated, over all blocks, forgotten ones included."""
        announced = stored = duplicates = 0
        for account in self.book.folded.values():
            announced, stored = announced + account.announced, stored + account.stored
            duplicates += account.duplicates
        for block, tally in self.book.tallies.items():
            admitted = self._blocks[block].admitted if block in self._blocks else RangeSet()
            shown = max(admitted.end, tally.declared, tally.announced)
            announced += admitted.count if tally.sparse else shown
            stored, duplicates = stored + tally.stored, duplicates + tally.duplicates
        return announced, stored, duplicates

    def under_way(self, block: bytes) -> list[int]:
        """The rows of each stored segment of a block that is not durable yet."""
        known = self._blocks.get(block)
        if known is None or not known.pending:
            return []
        return [count for _, _, count in list(known.recent.values())[-known.pending :] if count]

    def encode(self) -> bytes:
        """All blocks, for the head of a log file."""
        images = [_image(block, known) for block, known in self._blocks.items()]
        images.append(_BlockImage(b"", [], [], 0, None, self.book.image()))
        return _encoder.encode(images)

    def encode_within(self, bytes_max: int, keep: bytes | None = None) -> tuple[bytes, int]:
        """The same in at most ``bytes_max``, and how many of the longest silent blocks it forgot for that."""
        data = self.encode()
        excess = len(data) - bytes_max
        if excess <= 0:
            return data, 0
        excess += FOLDED_BYTES
        gone = []
        for block, known in sorted(self._blocks.items(), key=lambda item: item[1].touched_us):
            if excess <= 0:
                break
            if block != keep and block not in self.held and not known.pending:
                gone.append(block)
                excess -= len(_encoder.encode(_image(block, known))) + self.book.bytes_of(block)
        for block in gone:
            self._drop(block)
        return self.encode(), len(gone)

    @classmethod
    def decode(cls, data: bytes) -> Marks:
        try:
            images = _decoder.decode(data)
        except UNDECODABLE as error:
            raise BadFrame(f"the marks of a log file cannot be decoded: {error}") from error
        book = images.pop().book if images else None
        if book is None:
            raise BadFrame("the marks of a log file have no counts")
        marks = cls()
        marks.book = Book.of(book)
        for image in images:
            recent = {segment: (crc, first, count) for segment, crc, first, count in image.recent}
            known = BlockMarks(image.touched_us, RangeSet(image.admitted), recent, ended_us=image.ended_us)
            marks._blocks[image.block] = known
        return marks

    def admitted(self) -> dict[bytes, list[tuple[int, int]]]:
        """The admitted ranges of every block, as plain values."""
        return {block: list(known.admitted) for block, known in self._blocks.items()}

    def blocks(self) -> frozenset[bytes]:
        return frozenset(self._blocks)

    def __contains__(self, block: bytes) -> bool:
        return block in self._blocks

    def __len__(self) -> int:
        return len(self._blocks)


def _image(block: bytes, known: BlockMarks) -> _BlockImage:
    recent = [(segment, *known.recent[segment]) for segment in list(known.recent)[-RECENT_STORED_MAX:]]
    return _BlockImage(block, list(known.admitted), recent, known.touched_us, known.ended_us)
