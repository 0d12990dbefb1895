"""The keys of stored records as slots: a key's hash, folded to 16 bits, so that memory has a bound whatever the
keys.

Two keys of one slot share their fate; with 65,535 slots that is rare. A record's slots take two bytes a row and
are kept for as long as one of its entries is not settled.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort

import pyarrow as pa
from xxhash import xxh3_64_intdigest

from headpond.model.entry_set import EntrySet
from headpond.model.errors import HeadpondError
from headpond.node.core.log_reader import StoredRecord, segment_of
from headpond.wire.schema_versions import SchemaVersions
from headpond.wire.typed_record import stored_rows

SLOTS = 65_535
NO_KEY = 65_535
"""Of rows without a key: they are in nobody's way."""


def slots_of(record: StoredRecord, schemas: SchemaVersions | None) -> array[int]:
    """The slot of each row. A record that cannot be read has no keys: its consumer finds out."""
    count = record.header.count
    try:
        rows = stored_rows(segment_of(record), schemas)
    except HeadpondError:
        return array("H", [NO_KEY]) * count
    place = rows.schema.get_field_index("key")
    if place < 0 or rows.num_rows != count:
        return array("H", [NO_KEY]) * count
    coded = rows.column(place).cast(pa.binary()).dictionary_encode()
    slots = [xxh3_64_intdigest(key) % SLOTS for key in coded.dictionary.to_pylist()]
    return array("H", [NO_KEY if index is None else slots[index] for index in coded.indices.to_pylist()])


class KnownSlots:
    """The slots of the records that are under way, by entry."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._slots: dict[int, array[int]] = {}

    def add(self, first: int, slots: array[int]) -> None:
        if first not in self._slots:
            insort(self._firsts, first)
            self._slots[first] = slots

    def get(self, first: int) -> array[int] | None:
        return self._slots.get(first)

    def of(self, entry: int) -> int | None:
        """The slot of an entry; None where its record is not known."""
        index = bisect_right(self._firsts, entry) - 1
        if index < 0:
            return None
        first = self._firsts[index]
        slots = self._slots[first]
        return slots[entry - first] if entry - first < len(slots) else None

    def by_slot(self, entries: EntrySet) -> dict[int, list[int]]:
        """The entries by their keys' slots, less those without a key, or of a record that is not known."""
        found: dict[int, list[int]] = {}
        numbers, at = entries.numbers(), 0
        while at < len(numbers):
            index = bisect_right(self._firsts, numbers[at]) - 1
            first = self._firsts[index] if index >= 0 else numbers[at]
            slots = self._slots[first] if index >= 0 else array("H")
            behind = self._firsts[index + 1] if index + 1 < len(self._firsts) else 2**63
            end = bisect_left(numbers, behind, at)
            for number in numbers[at : bisect_left(numbers, first + len(slots), at, end)]:
                found.setdefault(slots[number - first], []).append(number)
            at = end
        found.pop(NO_KEY, None)
        return found

    def forget_before(self, entry: int) -> None:
        """Records that end before ``entry`` are not asked for any more."""
        done = 0
        for first in self._firsts:
            if first + len(self._slots[first]) > entry:
                break
            del self._slots[first]
            done += 1
        del self._firsts[:done]

    def __len__(self) -> int:
        return len(self._firsts)
