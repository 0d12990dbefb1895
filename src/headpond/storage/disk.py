"""The Disk protocol: everything that the node asks of storage, small enough to implement in memory.

``os_disk.py`` is the real disk; ``memory_disk.py`` is the one for tests, which can lose, tear and flip bytes.
Paths are relative, ``/``-separated text below the disk's root. Errors are ``OSError`` with the errno a real
disk gives.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

ENOSPC = 28
EDQUOT = 122


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
