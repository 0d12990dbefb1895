"""Marks: which segments of each block a shard has admitted.

They are kept as ranges, not as a high-water mark, so a segment that was declared a hole and comes later by
another path is still told from a repeat. They move in the same step as the data is appended, are stored at
the head of every log file, and go back when a sync fails.
"""

from __future__ import annotations

import msgspec

from penstock.model.errors import BadFrame
from penstock.model.ranges import RangeSet

RECENT_MAX = 1024
"""Segments of each block whose place is held in memory; older ones are looked up in the files."""
RECENT_STORED_MAX = 32
"""How many of them the head of a log file repeats: the ones that a sender may still be unsure about."""

DAY_US = 24 * 60 * 60 * 1_000_000


Stored = tuple[int, int, int]
"""Of an admitted segment: origin_crc, first entry, count."""


class BlockMarks:
    """What is known of one block."""

    __slots__ = ("admitted", "ended_us", "recent", "touched_us")

    def __init__(self, touched_us: int = 0) -> None:
        self.admitted = RangeSet()
        self.recent: dict[int, Stored] = {}
        self.touched_us = touched_us
        self.ended_us: int | None = None


class _BlockImage(msgspec.Struct, array_like=True, frozen=True):
    """A block in a MARKS frame, msgpack by position."""

    block: bytes
    admitted: list[tuple[int, int]]
    recent: list[tuple[int, int, int, int]]
    """(segment, origin_crc, first_entry, count)"""
    touched_us: int
    ended_us: int | None


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[_BlockImage])


class Marks:
    """The marks of one shard, by block."""

    def __init__(self) -> None:
        self._blocks: dict[bytes, BlockMarks] = {}

    def get(self, block: bytes) -> BlockMarks | None:
        return self._blocks.get(block)

    def next(self, block: bytes) -> int:
        """One past the highest segment admitted; 0 for an unknown block."""
        known = self._blocks.get(block)
        return 0 if known is None else known.admitted.end

    def admit(
        self, block: bytes, segment: int, *, origin_crc: int, first_entry: int, count: int, at_us: int
    ) -> None:
        """Takes a segment as admitted; it was not before."""
        known = self._blocks.get(block)
        if known is None:
            known = self._blocks[block] = BlockMarks()
        known.admitted.add(segment, segment + 1)
        known.touched_us = at_us
        recent = known.recent
        recent[segment] = (origin_crc, first_entry, count)
        if len(recent) > RECENT_MAX:
            del recent[next(iter(recent))]

    def withdraw(self, block: bytes, segment: int) -> None:
        """Undoes an ``admit`` whose sync failed."""
        known = self._blocks.get(block)
        if known is None:
            return
        known.admitted.discard(segment, segment + 1)
        known.recent.pop(segment, None)
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

    def forget(
        self, now_us: int, *, after_end_us: int = DAY_US, after_silence_us: int = 30 * DAY_US
    ) -> list[bytes]:
        """Drops blocks that were closed or silent for long enough; returns them."""
        gone = [
            block
            for block, known in self._blocks.items()
            if (known.ended_us is not None and now_us - known.ended_us >= after_end_us)
            or now_us - known.touched_us >= after_silence_us
        ]
        for block in gone:
            del self._blocks[block]
        return gone

    def encode(self) -> bytes:
        """All blocks, for the head of a log file."""
        return _encoder.encode(
            [
                _BlockImage(
                    block,
                    list(known.admitted),
                    [(segment, *known.recent[segment]) for segment in list(known.recent)[-RECENT_STORED_MAX:]],
                    known.touched_us,
                    known.ended_us,
                )
                for block, known in self._blocks.items()
            ]
        )

    @classmethod
    def decode(cls, data: bytes) -> Marks:
        try:
            images = _decoder.decode(data)
        except (msgspec.DecodeError, msgspec.ValidationError) as error:
            raise BadFrame(f"marks that cannot be read: {error}") from error
        marks = cls()
        for image in images:
            known = marks._blocks[image.block] = BlockMarks(image.touched_us)
            known.admitted = RangeSet(image.admitted)
            known.recent = {segment: (crc, first, count) for segment, crc, first, count in image.recent}
            known.ended_us = image.ended_us
        return marks

    def admitted(self) -> dict[bytes, list[tuple[int, int]]]:
        """The admitted ranges of every block, as plain values."""
        return {block: list(known.admitted) for block, known in self._blocks.items()}

    def __contains__(self, block: bytes) -> bool:
        return block in self._blocks

    def __len__(self) -> int:
        return len(self._blocks)
