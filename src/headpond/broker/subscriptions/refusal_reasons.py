"""Why consumers refused entries of one shard: the last reason given for each, for lists and dead letters.

The node keeps the reasons of the latest ``REASONS_MAX`` entries; an entry whose reason is gone is listed and
dies without one.
"""

from __future__ import annotations

from headpond.model.entry_set import EntrySet

REASONS_MAX = 4096


class RefusalReasons:
    def __init__(self) -> None:
        self._by_entry: dict[int, str] = {}
        """In the order of refusal."""

    def __bool__(self) -> bool:
        return bool(self._by_entry)

    def add(self, entry: int, reason: str) -> None:
        self._by_entry.pop(entry, None)
        self._by_entry[entry] = reason
        if len(self._by_entry) > REASONS_MAX:
            del self._by_entry[next(iter(self._by_entry))]

    def of(self, entry: int) -> str:
        """Empty if none is known."""
        return self._by_entry.get(entry, "")

    def items(self) -> list[tuple[int, str]]:
        return list(self._by_entry.items())

    def discard(self, start: int, end: int) -> None:
        """Entries are settled."""
        if end - start <= len(self._by_entry):
            for entry in range(start, end):
                self._by_entry.pop(entry, None)
        else:
            self._by_entry = {entry: why for entry, why in self._by_entry.items() if not start <= entry < end}

    def exclude(self, entries: EntrySet) -> None:
        """Entries are settled."""
        self._by_entry = {entry: why for entry, why in self._by_entry.items() if entry not in entries}
