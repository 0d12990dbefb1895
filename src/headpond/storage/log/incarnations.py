"""Which runs of a node wrote a log: an incarnation each, with the first entry that is its own.

A run begins an incarnation in a log with the first record that it stores there; so does opening a log that lost
entries at its end, from the first of them on. An incarnation is named by the time of its beginning (µs since
1970), so a run on an old copy of a folder has another one than the run that first had those entries.

A position (incarnation, entry) is good while the log up to the entry is what that incarnation had: it is one of
the log's, and the next one began at the entry or behind it. After a restart in good order all positions are.
"""

from __future__ import annotations

import struct
from bisect import bisect_left

from headpond.model.bounds import ENTRY_MAX

NONE = 0
"""The incarnation of a log before its first record."""
KEPT_MAX = 1024
"""A position that is older than so many runs with records is refused."""
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
        """Begins an incarnation, under a name that no other of this log has; returns the name."""
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
        """The last one did not become durable."""
        self._names.pop()
        self._firsts.pop()

    def at(self, entry: int) -> int:
        """The incarnation that has the entry before ``entry``: with it, ``entry`` is a position."""
        number = bisect_left(self._firsts, entry) - 1
        return self._names[number] if number >= 0 else NONE

    def end_of(self, name: int) -> int:
        """The last entry that is a position of an incarnation: any, of the newest; -1, of a foreign one."""
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
