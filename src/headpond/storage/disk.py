"""The Disk protocol: all that the node asks of storage, small enough for a twin in memory.

``storage/os_disk.py`` is the real one; ``storage/memory_disk.py`` is the twin that can lose, tear and flip
bytes. Paths are relative, ``/``-separated text below the disk's root. Errors are ``OSError`` with the errno
a real disk gives.
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
        """How long the file is, preallocated room included."""

    def read_at(self, offset: int, size: int) -> bytes:
        """Up to ``size`` bytes from ``offset``; fewer only at the file's end."""

    def write_at(self, offset: int, parts: Sequence[bytes]) -> int:
        """Writes all the parts, one behind the other, from ``offset``; returns how many bytes that were.

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
        """Makes a new file for reading and writing (and its folders); fails if it exists."""

    def open(self, path: str, *, writable: bool = False) -> DiskFile:
        """Opens a file that exists."""

    def list(self, folder: str) -> list[str]:
        """The names in a folder, sorted; empty where there is no such folder."""

    def exists(self, path: str) -> bool: ...

    def rename(self, path: str, new_path: str) -> None:
        """Replaces ``new_path`` at once, or not at all."""

    def remove(self, path: str) -> None: ...

    def remove_tree(self, folder: str) -> None:
        """Removes a folder and all below it; nothing to do where there is none."""

    def sync_folder(self, folder: str) -> None:
        """Returns when creations, renames and removals in ``folder``, and the folder itself, are durable."""

    def free_bytes(self) -> int:
        """How much room is left."""
