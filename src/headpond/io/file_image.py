"""A file of the disk in memory: its bytes as they are seen, and as a power cut would leave them."""

from __future__ import annotations

import random
from typing import Literal

from headpond.model.ranges import RangeSet

SECTOR_BYTES = 512
"""What a disk writes whole or not at all."""

Keep = Literal["none", "all", "some"]
"""What a power cut keeps of what was not durable; ``some`` is drawn sector by sector."""


class FileImage:
    """A file's bytes, as seen and as durable. Room behind ``data`` up to ``size`` reads as zeros."""

    __slots__ = ("data", "dirty", "durable", "durable_size", "size", "spoilt")

    def __init__(self) -> None:
        self.data = bytearray()
        self.size = 0
        self.durable = bytearray()
        self.durable_size = 0
        self.dirty = RangeSet()
        self.spoilt = RangeSet()
        """Bytes that cannot be read until they are written again."""

    def is_spoilt(self, start: int, end: int) -> bool:
        return start < end and self.spoilt.missing(start, end) != [(start, end)]

    def read(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self.size - offset))
        found = bytes(self.data[offset : offset + size])
        return found + bytes(size - len(found))

    def write(self, offset: int, data: bytes) -> None:
        if not data:
            return
        end = offset + len(data)
        self.spoilt.discard(offset, end)
        if len(self.data) < offset:
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:end] = data
        self.size = max(self.size, end)
        self.dirty.add(offset, end)

    def truncate(self, size: int) -> None:
        if size < self.size:
            self.dirty.add(size, self.size)
            del self.data[size:]
        self.size = size

    def sync(self) -> None:
        for start, end in self.dirty:
            self._persist(start, end)
        self.dirty = RangeSet()
        self.durable_size = self.size
        del self.durable[self.size :]

    def crash(self, keep: Keep, draw: random.Random) -> None:
        """What a power cut leaves is all there is."""
        if keep == "all":
            self.sync()
        elif keep == "some":
            for start, end in self.dirty:
                for sector in range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
                    if draw.random() < 0.5:
                        at = sector * SECTOR_BYTES
                        self._persist(max(at, start), min(at + SECTOR_BYTES, end))
            self.durable_size = draw.choice((self.durable_size, self.size, max(self.size, self.durable_size)))
            del self.durable[self.durable_size :]
        self.dirty = RangeSet()
        self.size = self.durable_size
        self.data = bytearray(self.durable[: self.size])

    def _persist(self, start: int, end: int) -> None:
        """Copies what is seen between two offsets to what is durable."""
        if start >= min(end, self.size):
            return
        if len(self.durable) < start:
            self.durable.extend(bytes(start - len(self.durable)))
        end = min(end, self.size)
        self.durable[start:end] = self.read(start, end - start)
