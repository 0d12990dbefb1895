"""Why consumers refused entries of one shard: the last reason given for each, for lists and dead letters.

The node keeps the reasons of the latest ``REASONS_MAX`` entries. It drops older ones, and remembers of which
entries: they are counted, and they are listed and die with ``DROPPED`` as their reason.
"""

from __future__ import annotations

from headpond.model.entry_set import EntrySet

REASONS_MAX = 4096
DROPPED = f"not kept: the node keeps the reasons of the latest {REASONS_MAX:,} messages refused in a shard"


class RefusalReasons:
    def __init__(self) -> None:
        self._by_entry: dict[int, str] = {}
        """In the order of refusal."""
        self.dropped = EntrySet()
        """Entries whose reason was dropped."""

    def __bool__(self) -> bool:
        return bool(self._by_entry or self.dropped)

    def add(self, entry: int, reason: str) -> None:
        self._by_entry.pop(entry, None)
        self._by_entry[entry] = reason
        self.dropped.discard(entry, entry + 1)
        if len(self._by_entry) > REASONS_MAX:
            oldest = next(iter(self._by_entry))
            del self._by_entry[oldest]
            self.dropped.add(oldest, oldest + 1)

    def of(self, entry: int) -> str:
        """Empty if none was given."""
        return DROPPED if entry in self.dropped else self._by_entry.get(entry, "")

    def items(self) -> list[tuple[int, str]]:
        return list(self._by_entry.items())

    def discard(self, start: int, end: int) -> None:
        """Entries are settled."""
        if end - start <= len(self._by_entry):
            for entry in range(start, end):
                self._by_entry.pop(entry, None)
        else:
            self._by_entry = {entry: why for entry, why in self._by_entry.items() if not start <= entry < end}
        self.dropped.discard(start, end)

    def exclude(self, entries: EntrySet) -> None:
        """Entries are settled."""
        self._by_entry = {entry: why for entry, why in self._by_entry.items() if entry not in entries}
        self.dropped.exclude(entries)
