"""Which runs of a node wrote a log: one incarnation per run, with its first entry.

A run begins an incarnation in a log with the first record that it stores there. Opening a log that lost entries
at its end also begins one, from the first lost entry on. The name of an incarnation is the time of its
beginning (µs since 1970), so a run on an old copy of a folder has another incarnation than the run that first
had those entries.

A position (incarnation, entry) is valid while the log up to the entry is the log that the incarnation had: the
log knows the incarnation, and the next one began at the entry or behind it. After a clean restart all positions
are valid.
"""

from __future__ import annotations

import struct
from bisect import bisect_left

from headpond.model.bounds import ENTRY_MAX

NONE = 0
"""The incarnation of a log before its first record."""
KEPT_MAX = 1024
"""The log refuses a position that is older than this many runs with records."""
_ONE = struct.Struct("<QQ")
ONE_BYTES = _ONE.size


class Incarnations:
    __slots__ = ("_firsts", "_names")

    def __init__(self) -> None:
        self._names: list[int] = []
        self._firsts: list[int] = []

    def __len__(self) -> int:
        return len(self._names)

    def begin(self, now_us: int, first: int) -> int:
        """Begins an incarnation under a name that is unique in this log; returns the name."""
        name = max(now_us, NONE + 1)
        while name in self._names:
            name += 1
        self.add(name, first)
        return name

    def add(self, name: int, first: int) -> None:
        self._names.append(name)
        self._firsts.append(first)
        del self._names[:-KEPT_MAX], self._firsts[:-KEPT_MAX]

    def take_back(self) -> None:
        """Removes the last incarnation, which did not become durable."""
        self._names.pop()
        self._firsts.pop()

    def at(self, entry: int) -> int:
        """The incarnation of the entry before ``entry``: together they are a position."""
        number = bisect_left(self._firsts, entry) - 1
        return self._names[number] if number >= 0 else NONE

    def end_of(self, name: int) -> int:
        """The last valid position of an incarnation: no limit for the newest, -1 for an unknown one."""
        if name == NONE:
            number = 0
        elif name in self._names:
            number = self._names.index(name) + 1
        else:
            return -1
        return self._firsts[number] if number < len(self._firsts) else ENTRY_MAX

    def encode(self) -> bytes:
        return b"".join(map(_ONE.pack, self._names, self._firsts))

    @classmethod
    def decode(cls, data: bytes) -> Incarnations:
        found = cls()
        for name, first in _ONE.iter_unpack(data):
            found.add(name, first)
        return found
