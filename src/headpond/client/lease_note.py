"""What a producer with single access notes beside its refill: which epochs were held from here, unbroken.

What was spilled under an epoch from ``first`` on is sent by whoever holds the lease next: nobody elsewhere sent
anything in between. What is older, or was spilled by an instance that was taken over, is *late*: it is kept,
told of, and sent by `headpond refill send --late` alone.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

import msgspec

LATE_BLOCKS_MAX = 10_000


class Noted(msgspec.Struct, array_like=True):
    first: int = 0
    """The first of the epochs that were held from here without another's in between."""
    last: int = 0
    late: list[bytes] = msgspec.field(default_factory=list)
    """Blocks of instances that were told that they had been taken over."""


class LeaseNote:
    """``path`` None keeps it in memory: there is no refill, so there is nothing to judge."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._noted = Noted()
        if path is not None:
            with suppress(OSError, msgspec.MsgspecError):
                self._noted = msgspec.msgpack.decode(path.read_bytes(), type=Noted)

    @property
    def exists(self) -> bool:
        """Whether a lease was ever held from here."""
        return self._noted.last > 0

    @property
    def last(self) -> int:
        """The last epoch that was held from here; 0: none."""
        return self._noted.last

    def granted(self, epoch: int) -> None:
        """The lease is held with this epoch."""
        noted = self._noted
        if epoch == noted.last:
            return
        if not noted.last or epoch != noted.last + 1:
            noted.first = epoch
        noted.last = epoch
        self._write()

    def taken_over(self, epoch: int, blocks: list[bytes]) -> None:
        """An instance here that held ``epoch`` was taken over: what it had not delivered comes too late."""
        noted = self._noted
        noted.first = max(noted.first, epoch + 1)
        noted.late = [*noted.late, *(block for block in blocks if block not in noted.late)][-LATE_BLOCKS_MAX:]
        self._write()

    def is_late(self, epoch: int, block: bytes, held: int) -> bool:
        """Of a refill file's epoch and block, when ``held`` is the epoch held now (0: not known yet)."""
        if block in self._noted.late:
            return True
        return epoch > 0 and (not held or epoch < self._noted.first)

    def _write(self) -> None:
        if self._path is None:
            return
        new = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        with suppress(OSError):  # without it what is spilled now is late when it is found
            self._path.parent.mkdir(exist_ok=True)
            new.write_bytes(msgspec.msgpack.encode(self._noted))
            new.replace(self._path)
