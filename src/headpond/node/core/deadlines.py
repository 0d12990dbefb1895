"""When entries that are out must be settled: by time, in steps, so that a million of them cost a few bitmaps.

An entry's place is not looked for when it is settled: whoever takes what is due asks which of it is still held.
One that is handed out again, or extended, leaves the place it had.
"""

from __future__ import annotations

from heapq import heappop, heappush

from headpond.model.entry_set import EntrySet
from headpond.node.core.attachment import Attachment

STEP_US_MIN = 20_000
STEPS = 50
"""A deadline is cut into at least this many steps, and at most twice as many.

A step is ``STEP_US_MIN`` doubled some number of times: so consumers that ask for any number of different
extensions share a few thousand points in time, and cannot make up one for each frame.
"""

Due = tuple[Attachment, int, EntrySet]


class Deadlines:
    def __init__(self) -> None:
        self._times: list[int] = []
        self._due: dict[int, dict[tuple[Attachment, int], EntrySet]] = {}

    def set(self, attachment: Attachment, shard: int, entries: EntrySet, now_us: int, seconds: float) -> None:
        """The entries are to be settled within ``seconds``; an earlier deadline of theirs is void."""
        wait_us = round(seconds * 1e6)
        step_us = STEP_US_MIN << (wait_us // (2 * STEPS * STEP_US_MIN)).bit_length()
        due_us = -(-(now_us + wait_us) // step_us) * step_us
        key = (attachment, shard)
        for by_holder in self._due.values():
            if (earlier := by_holder.get(key)) is not None:
                earlier.exclude(entries)
        if due_us not in self._due:
            self._due[due_us] = {}
            heappush(self._times, due_us)
        self._due[due_us].setdefault(key, EntrySet()).include(entries)

    def take(self, now_us: int) -> list[Due]:
        """What was to be settled by now; whether it was is the caller's to see."""
        due: list[Due] = []
        while self._times and self._times[0] <= now_us:
            for (attachment, shard), entries in self._due.pop(heappop(self._times)).items():
                due.append((attachment, shard, entries))
        return due

    def forget(self, attachment: Attachment) -> None:
        """The consumer is gone."""
        for by_holder in self._due.values():
            for key in [key for key in by_holder if key[0] is attachment]:
                del by_holder[key]

    @property
    def due_us(self) -> int | None:
        return self._times[0] if self._times else None
