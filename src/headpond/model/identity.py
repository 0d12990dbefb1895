"""The identity of a message: its producer assigns it, and it is the same on every path and every node.

A **block** is 16 random bytes that name one unbroken run of a producer. Inside a block each shard's segments
are numbered 0, 1, 2, …; ``block/shard/segment/row`` is a message's identity.
"""

from __future__ import annotations

from typing import NamedTuple

BLOCK_BYTES = 16
SHARD_POWER_MAX = 12
SEGMENT_NUMBER_MAX = 2**32 - 1


class SegmentKey(NamedTuple):
    """One segment inside a block."""

    shard: int
    segment: int


class Identity(NamedTuple):
    block: bytes
    shard: int
    segment: int
    row: int

    def __str__(self) -> str:
        return f"{self.block.hex()}/{self.shard}/{self.segment}/{self.row}"

    @classmethod
    def parse(cls, text: str) -> Identity:
        """Parses the result of ``str``; anything else is a ``ValueError``."""
        block, shard, segment, row = text.split("/")
        found = cls(bytes.fromhex(block), int(shard), int(segment), int(row))
        # Python parses more than it prints (spaces, underscores, signs), so the result must print the same.
        if len(found.block) != BLOCK_BYTES or min(found[1:]) < 0 or str(found) != text:
            raise ValueError(f"not an identity: {text!r}")
        return found
