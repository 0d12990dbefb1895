"""Reads a file around the places that its disk can no longer read.

A read that fails with ``EIO`` is repeated sector by sector. A sector that fails again reads as bytes of ones:
no frame begins with them and they contain no zeros, so a reader that checks frames finds damage there, never
a clean end and never a torn write. ``unreadable`` names those bytes. Other errors go to the caller.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence

from headpond.model.ranges import RangeSet
from headpond.storage.disk import Disk, DiskFile

SALVAGE_BYTES = 4096
"""A disk reads a sector whole or not at all."""
FILL = b"\xff"


class SalvagedFile:
    """A ``DiskFile`` whose reads do not fail at a bad sector."""

    def __init__(self, file: DiskFile) -> None:
        self.inner = file
        self.unreadable = RangeSet()

    @property
    def path(self) -> str:
        return self.inner.path

    def size(self) -> int:
        return self.inner.size()

    def read_at(self, offset: int, size: int) -> bytes:
        if not self.unreadable:
            try:
                return self.inner.read_at(offset, size)
            except OSError as error:
                if error.errno != errno.EIO:
                    raise
        return self._read_around(offset, min(offset + size, self.inner.size()))

    def _read_around(self, offset: int, end: int) -> bytes:
        """The bytes up to ``end``, sector by sector; a sector that failed once is not read again."""
        found = bytearray(FILL * max(0, end - offset))
        for start, stop in self.unreadable.missing(offset, end):
            at = start
            while at < stop:
                upto = min((at // SALVAGE_BYTES + 1) * SALVAGE_BYTES, stop)
                try:
                    found[at - offset : upto - offset] = self.inner.read_at(at, upto - at)
                except OSError as error:
                    if error.errno != errno.EIO:
                        raise
                    self.unreadable.add(at, upto)
                at = upto
        return bytes(found)

    def write_at(self, offset: int, parts: Sequence[bytes]) -> int:
        return self.inner.write_at(offset, parts)

    def preallocate(self, size: int) -> None:
        self.inner.preallocate(size)

    def truncate(self, size: int) -> None:
        self.inner.truncate(size)

    def sync(self) -> None:
        self.inner.sync()

    def close(self) -> None:
        self.inner.close()

    def __enter__(self) -> SalvagedFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.inner.close()


def open_salvaged(disk: Disk, path: str, *, writable: bool = False) -> SalvagedFile:
    """Opens a file so that reads return whatever its disk can still read."""
    return SalvagedFile(disk.open(path, writable=writable))
