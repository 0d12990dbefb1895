"""What of a refill file cannot be read, and which segments were lost with it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes ``offset <= n < end`` of the file, and the segments that are lost because of them."""

    offset: int
    end: int
    why: str
    shard: int | None = None
    """None where no segment is lost, or where it is not known which."""
    first: int = 0
    segments_end: int = 0
    """The segments ``first <= n < segments_end`` of the shard."""
    unnamed: int = 0
    """How many segments are lost of which the numbers are not known."""

    @property
    def lost(self) -> str:
        """For a person: which segments."""
        if self.shard is not None:
            last = self.segments_end - 1
            which = f"segment {last:,}" if last == self.first else f"segments {self.first:,}–{last:,}"
            return f"{which} of shard {self.shard}"
        if self.unnamed:
            return f"{self.unnamed:,} segment{'s' if self.unnamed > 1 else ''} of unknown number"
        return "no segment"

    def __str__(self) -> str:
        return f"bytes {self.offset:,}–{max(self.offset, self.end - 1):,}: {self.why}; lost: {self.lost}"
