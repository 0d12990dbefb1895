"""The Disk protocol: everything that the node asks of storage, small enough to implement in memory.

``os_disk.py`` is the real disk; ``memory_disk.py`` is the one for tests, which can lose, tear and flip bytes.
Paths are relative, ``/``-separated text below the disk's root. Errors are ``OSError`` with the errno a real
disk gives. ``SalvagedFile`` reads a file around the places that its disk can no longer read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from errno import EDQUOT, EIO, ENOSPC
from typing import Protocol

from headpond.model.ranges import RangeSet


def is_disk_full(error: OSError) -> bool:
    """Whether a write failed for lack of room."""
    return error.errno in (ENOSPC, EDQUOT)


class DiskFile(Protocol):
    """One open file."""

    @property
    def path(self) -> str: ...

    def size(self) -> int:
        """The length of the file, preallocated room included."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer only at the file's end."""

    def write_at(self, offset: int, parts: Sequence[bytes]) -> int:
        """Writes all the parts, one behind the other, from ``offset``; returns the number of bytes.

        Not durable before ``sync``. An error may leave any part of them written.
        """

    def preallocate(self, size: int) -> None:
        """Reserves room up to ``size`` bytes, reading as zeros; a disk that cannot does nothing."""

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Returns when everything written to this file before is durable (``fdatasync``)."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A folder tree on which files live."""

    @property
    def ordered(self) -> bool:
        """Whether changes of all files become durable together and in their order, without a sync each."""

    def create(self, path: str) -> DiskFile:
        """Creates a file for reading and writing, and its folders; fails if the file exists."""

    def open(self, path: str, *, writable: bool = False) -> DiskFile:
        """Opens an existing file."""

    def list(self, folder: str) -> list[str]:
        """The names in a folder, sorted; empty if there is no such folder."""

    def exists(self, path: str) -> bool: ...

    def rename(self, path: str, new_path: str) -> None:
        """Replaces ``new_path`` atomically."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, folder: str) -> None:
        """Removes a folder and everything below it; does nothing if there is none."""

    def sync_folder(self, folder: str) -> None:
        """Returns when creations, renames and removals in ``folder``, and the folder itself, are durable."""

    def free_bytes(self) -> int:
        """Free space."""


class MeasuredDisk(Disk, Protocol):
    """The disk of a node. ``free_bytes`` is the last measurement, so that the loop never waits for it."""

    def measure(self, after_s: float = 0.0) -> None:
        """Measures the free room, unless the last measurement is younger than ``after_s``."""

    def when_durable(self, then: Callable[[OSError | None], None]) -> None:
        """Calls ``then``, in any thread, when everything that was changed and synced before is durable."""

    def paths(self) -> list[str]:
        """The paths of all files."""


SALVAGE_BYTES = 4096
"""A disk reads a sector whole or not at all."""


class SalvagedFile:
    """A ``DiskFile`` whose reads do not fail at a bad sector.

    A read that fails with ``EIO`` is repeated sector by sector. A sector that fails again reads as bytes of
    ones: no frame begins with them and they contain no zeros, so a reader that checks frames finds damage
    there, never a clean end and never a torn write. ``unreadable`` names those bytes. Other errors go to the
    caller.
    """

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
                if error.errno != EIO:
                    raise
        return self._read_around(offset, min(offset + size, self.inner.size()))

    def _read_around(self, offset: int, end: int) -> bytes:
        """The bytes up to ``end``, sector by sector; a sector that failed once is not read again."""
        found = bytearray(b"\xff" * max(0, end - offset))
        for start, stop in self.unreadable.missing(offset, end):
            at = start
            while at < stop:
                upto = min((at // SALVAGE_BYTES + 1) * SALVAGE_BYTES, stop)
                try:
                    found[at - offset : upto - offset] = self.inner.read_at(at, upto - at)
                except OSError as error:
                    if error.errno != EIO:
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


class Lock(Protocol):
    """A folder that this process holds."""

    def release(self) -> None: ...


class LockableDisk(Disk, Protocol):
    """A disk whose folders one process at a time may hold."""

    def lock_folder(self, folder: str) -> Lock:
        """Locks a folder, created if needed; ``RefillInUse`` names the process that holds it."""


def read_whole(disk: Disk, path: str) -> bytes:
    file = disk.open(path)
    try:
        return file.read_at(0, file.size())
    finally:
        file.close()
