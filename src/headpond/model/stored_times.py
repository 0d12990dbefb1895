"""When the entries of a log were stored, from memory: no file is read to know how old a backlog is.

It remembers when some entries were stored, at most ten a second; an entry between two of them counts as stored
with the one before it. If there are too many, it forgets those whose neighbour before is nearly as old. So an
age is at most a quarter too large (and 100 ms), however long the log is.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable

MARKS_MAX = 128
STEP_US = 100_000
RATIO = 1.25
"""Ages from 100 ms to a year take 90 marks."""


class StoredTimes:
    __slots__ = ("_entries", "_times_us", "due_us")

    def __init__(self, known: Iterable[tuple[int, int]] = ()) -> None:
        """``known``: entries and when they were stored, in order."""
        self._entries = array("q")
        self._times_us = array("q")
        self.due_us = 0
        """An entry that is stored earlier need not be noted."""
        for entry, at_us in known:
            self.note(entry, at_us)

    def note(self, entry: int, at_us: int) -> None:
        """This entry is stored, and those behind it are stored later."""
        if at_us < self.due_us:
            return
        self._entries.append(entry)
        self._times_us.append(at_us)
        self.due_us = at_us + STEP_US
        if len(self._entries) > MARKS_MAX:
            self._thin(at_us)

    def _thin(self, now_us: int) -> None:
        kept = [0]
        for number in range(1, len(self._entries)):
            before_us, at_us = self._times_us[kept[-1]], self._times_us[number]
            if now_us - before_us > RATIO * (now_us - at_us):
                kept.append(number)
        self._entries = array("q", [self._entries[number] for number in kept])
        self._times_us = array("q", [self._times_us[number] for number in kept])

    def stored_us(self, entry: int) -> int | None:
        """When an entry was stored, or a little earlier; None before the first is noted.

        An entry before all that are known counts as stored with the first of them.
        """
        number = bisect_right(self._entries, entry) - 1
        return self._times_us[max(number, 0)] if self._times_us else None
