"""Key-shared subscriptions: as shared, but a key has one consumer at a time, and its messages come in order.

Keys are slots: a key's hash, folded to 16 bits, so memory is bounded. Two keys of one slot share its consumer;
with 65,535 slots that is rare. For each slot in use a ``KeyTable`` has its consumer, the number of its
delivered entries, and the entries that wait: passed over, or come back and not delivered again.

An entry is offered if no earlier entry of its slot waits, and its slot is free or its consumer has room (in
resilient mode: free). Otherwise it is parked, and reading continues: a stuck key delays no other key.

A slot moves to another consumer when it is free: all its delivered entries were settled or came back, and none
is in transit. A consumer that gives back prefetched entries was recalled before (``Subscription.welcome``) and
is sent nothing until it has answered.

In resilient mode a key's next message follows each settlement. A consumer keeps the last record that it was
sent of a shard, so the next message of that record costs a short frame and no read.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import ClassVar

import pyarrow as pa
from xxhash import xxh3_64_intdigest

from headpond.broker.subscriptions.attachment import Attachment
from headpond.broker.subscriptions.kinds import SPANS_MAX, Shared
from headpond.broker.subscriptions.subscription import Offer, ReadRequest, first_of
from headpond.model.entry_set import EntrySet, Span
from headpond.model.errors import HeadpondError
from headpond.model.ranges import runs
from headpond.storage.log.read import ReadResult, StoredRecord, segment_of
from headpond.wire.typed.record import stored_rows
from headpond.wire.typed.versions import SchemaVersions

SLOTS = 65_535
NO_KEY = 65_535
"""Of rows without a key: they wait for nothing."""
PARKED_MAX = 4_000_000
"""Entries of one shard; with more nothing new is read until some key continues."""


def slots_of(record: StoredRecord, schemas: SchemaVersions | None) -> array[int]:
    """The slot of each row. A record that cannot be read has no keys: its consumer reports it."""
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


class RecordSlots:
    """The slots of records with unsettled entries: two bytes per row."""

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._slots: dict[int, array[int]] = {}

    def of_record(self, record: StoredRecord, schemas: SchemaVersions | None) -> array[int]:
        first = record.header.first_entry
        slots = self._slots.get(first)
        if slots is None:
            slots = self._slots[first] = slots_of(record, schemas)
            insort(self._firsts, first)
        return slots

    def of(self, entry: int) -> int | None:
        """The slot of an entry; None where its record is not known."""
        index = bisect_right(self._firsts, entry) - 1
        if index < 0:
            return None
        first = self._firsts[index]
        slots = self._slots[first]
        return slots[entry - first] if entry - first < len(slots) else None

    def by_slot(self, entries: EntrySet) -> dict[int, list[int]]:
        """The entries by slot, without those that have no key or whose record is not known."""
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
        """Records that end before ``entry`` are settled."""
        done = 0
        for first in self._firsts:
            if first + len(self._slots[first]) > entry:
                break
            del self._slots[first]
            done += 1
        del self._firsts[:done]


class KeyTable:
    """The slots of one shard."""

    def __init__(self, shard: int) -> None:
        self._shard = shard
        self.known = RecordSlots()
        self.owner: dict[int, Attachment] = {}
        """The consumer that has a slot."""
        self._delivered: dict[int, int] = {}
        """How many entries of a slot its consumer holds."""
        self.waiting: dict[int, EntrySet] = {}
        """The entries of a slot that wait; never an empty set."""
        self.avoided: dict[int, Attachment] = {}
        """The consumer that let the slot's last message expire: another one is tried next."""

    def deliver(self, slot: int, entry: int, owner: Attachment) -> None:
        self.owner[slot] = owner
        owner.slots.add((self._shard, slot))
        self.avoided.pop(slot, None)
        self._delivered[slot] = self._delivered.get(slot, 0) + 1
        self.no_longer_waiting(slot, [entry])

    def return_entries(self, entries: EntrySet) -> dict[int, list[int]]:
        """Entries are no longer with a consumer; returns them by slot. A slot may become free by that."""
        by_slot = self.known.by_slot(entries)
        for slot, some in by_slot.items():
            left = self._delivered.get(slot, 0) - len(some)
            if left > 0:
                self._delivered[slot] = left
                continue
            self._delivered.pop(slot, None)
            if (owner := self.owner.pop(slot, None)) is not None:
                owner.slots.discard((self._shard, slot))
        return by_slot

    def wait(self, slot: int, entries: list[int]) -> None:
        self.waiting.setdefault(slot, EntrySet()).include(EntrySet.of_entries(entries))

    def no_longer_waiting(self, slot: int, entries: list[int]) -> None:
        waiting = self.waiting.get(slot)
        if waiting is not None:
            waiting.exclude(EntrySet.of_entries(entries))
            if not waiting:
                del self.waiting[slot]


class KeyShared(Shared):
    settling_frees: ClassVar[bool] = True
    reads_packed: ClassVar[bool] = False
    tables: list[KeyTable]
    """By shard."""

    def reset(self) -> None:
        self.tables = [KeyTable(shard) for shard in range(len(self.cursors))]

    # --- offering -----------------------------------------------------------------------------------

    def _release_refused(self, ends: list[int]) -> None:
        for shard, (end, cursor) in enumerate(zip(self._ends(ends), self.cursors, strict=True)):
            for slot in self.tables[shard].known.by_slot(cursor.release(end, read_all=True)):
                self._unpark(shard, slot)

    def _ends(self, ends: list[int]) -> list[int]:
        """The shards' ends, up to which new entries are read."""
        return [
            end if len(cursor.parked) < PARKED_MAX else cursor.offered
            for end, cursor in zip(ends, self.cursors, strict=True)
        ]

    def next_read(self, receivers: list[Attachment], ends: list[int], bytes_max: int) -> ReadRequest | None:
        return super().next_read(receivers, self._ends(ends), bytes_max)

    def offer(self, shard: int, run: ReadResult, entry: int | None) -> list[Offer]:
        table, cursor = self.tables[shard], self.cursors[shard]
        at = first_of(run, entry)
        offers: list[Offer] = []
        for record in run.records:
            receivers = self._in_turn()
            if not receivers:
                return offers
            first, end = record.header.first_entry, record.header.end_entry
            if cursor.ahead.bits and cursor.ahead.count(first, end):
                self._restore_waiting(shard, record)
            spans = cursor.available(at, end, SPANS_MAX)
            if spans:
                slots = table.known.of_record(record, self.schemas())
                pairs = [(number, slots[number - first]) for number in _entries(spans)]
                offers += self._deal(shard, pairs, receivers, record)
            cursor.advance(at, spans[-1][1] if len(spans) == SPANS_MAX else end)
            if len(spans) == SPANS_MAX:
                return offers
            at = end
        cursor.advance(at, run.next_entry)
        return offers

    def _restore_waiting(self, shard: int, record: StoredRecord) -> None:
        """Entries that were refused or dying when the node started hold up the rest of their key."""
        table, cursor, header = self.tables[shard], self.cursors[shard], record.header
        table.known.of_record(record, self.schemas())
        for entries in (cursor.unacked_log.entries, cursor.dying):
            part = entries.within(header.first_entry, header.end_entry)
            for slot, some in table.known.by_slot(part).items():
                table.wait(slot, some)

    def offer_cached(self, ends: list[int]) -> list[Offer]:
        """The next message of each free key whose consumer has the record already."""
        if not self.strict or not any(cursor.ready.bits for cursor in self.cursors):
            return []
        receivers = self._in_turn()
        offers: list[Offer] = []
        for shard, cursor in enumerate(self.cursors):
            cached = {each.cached[shard] for each in receivers if shard in each.cached}
            if cursor.ready.bits and cached:
                pairs = self._cached_entries(shard, sorted(cached))
                offers += self._deal(shard, pairs, receivers, None)
        return offers

    def _cached_entries(self, shard: int, cached: list[Span]) -> list[tuple[int, int]]:
        """Ready entries of cached records, with their slots; those without a key are read."""
        known, ready = self.tables[shard].known, self.cursors[shard].ready
        spans = (span for each in cached for span in islice(ready.spans(*each), SPANS_MAX))
        found = ((entry, known.of(entry)) for entry in _entries(spans))
        return [(entry, slot) for entry, slot in found if slot is not None and slot != NO_KEY]

    def _deal(
        self,
        shard: int,
        entries: list[tuple[int, int]],
        receivers: list[Attachment],
        record: StoredRecord | None,
    ) -> list[Offer]:
        """Offers entries, given with their slots, to the consumers of their keys; parks those that must wait.

        They are in ``record``; None: in one that their consumer may have cached.
        """
        table, cursor = self.tables[shard], self.cursors[shard]
        dealt: dict[Attachment, list[int]] = {}
        parked: dict[int, list[int]] = {}
        delivered: set[int] = set()
        for entry, slot in entries:
            receiver = None if slot in parked else self._receiver(table, slot, entry, receivers)
            if receiver is None:
                parked.setdefault(slot, []).append(entry)
            elif record is not None or receiver.caches(shard, entry):
                dealt.setdefault(receiver, []).append(entry)
                if slot != NO_KEY:
                    table.deliver(slot, entry, receiver)
                    delivered.add(slot)
        for slot, some in parked.items():
            table.wait(slot, some)
            cursor.park(EntrySet.of_entries(some))
        if record is not None and self.strict:
            self._cache([each for each in dealt if each.keeps], shard, record)
        offers: list[Offer] = []
        for receiver, some in dealt.items():
            offers += self._give(receiver, shard, runs(some), [] if record is None else [record])
        for slot in delivered:
            self._unpark(shard, slot)
        return offers

    def _receiver(
        self, table: KeyTable, slot: int, entry: int, receivers: list[Attachment]
    ) -> Attachment | None:
        """The consumer that gets an entry; None where the entry is to be parked."""
        if slot == NO_KEY:
            receivers.append(receivers.pop(0))
            self._last = receivers[-1]
            return receivers[-1]
        waiting = table.waiting.get(slot)
        if waiting is not None and waiting.bits.min() < entry:
            return None
        owner = table.owner.get(slot)
        if owner is not None:
            return owner if self._continues(table, slot, owner) else None
        usual = self.attachments[slot % len(self.attachments)]
        avoided = table.avoided.get(slot)
        if usual.open and not usual.overdue and usual is not avoided:
            return usual
        others = [each for each in receivers if each is not avoided] or receivers
        return others[slot % len(others)]

    def _continues(self, table: KeyTable, slot: int, owner: Attachment) -> bool:
        """Whether the consumer that has a slot is sent more of it; if not, the slot waits until it is free."""
        if self.strict:
            return False
        return owner.open and not owner.overdue and table.avoided.get(slot) is not owner

    def _unpark(self, shard: int, slot: int) -> None:
        """A slot's parked entries become ready, up to one that waits; in resilient mode only the first."""
        table, cursor = self.tables[shard], self.cursors[shard]
        waiting, owner = table.waiting.get(slot), table.owner.get(slot)
        if waiting is None or not cursor.parked.bits:
            return
        first = int(waiting.bits.min())
        if self.strict:
            if owner is None and first not in cursor.unacked_log.entries and first not in cursor.dying:
                cursor.unpark(EntrySet.of_entries([first]))
        elif owner is None or self._continues(table, slot, owner):
            stuck = [waiting.common(each).first for each in (cursor.unacked_log.entries, cursor.dying)]
            end = min((each for each in stuck if each is not None), default=waiting.end)
            cursor.unpark(waiting.within(first, end))

    def gained_room(self, attachment: Attachment) -> None:
        for shard, slot in attachment.slots:
            if slot in self.tables[shard].waiting:
                self._unpark(shard, slot)

    # --- settling and coming back -------------------------------------------------------------------

    def _settle(self, shard: int, start: int, end: int, by: Attachment | None, kind: str) -> int:
        table, cursor = self.tables[shard], self.cursors[shard]
        touched = table.return_entries(cursor.held.within(start, end))
        for entries in (cursor.ready, cursor.unacked_log.entries, cursor.parked, cursor.dying):
            if entries.bits and (part := entries.within(start, end)):
                for slot, some in table.known.by_slot(part).items():
                    table.no_longer_waiting(slot, some)
                    touched.setdefault(slot, some)
        settled = super()._settle(shard, start, end, by, kind)
        table.known.forget_before(cursor.cursor)
        for slot in touched:
            self._unpark(shard, slot)
        return settled

    def came_back(self, shard: int, entries: EntrySet) -> None:
        by_slot = self.tables[shard].return_entries(entries)
        for slot, some in by_slot.items():
            self.tables[shard].wait(slot, some)
        for slot in by_slot:
            self._unpark(shard, slot)

    def expired(self, attachment: Attachment, shard: int, entries: EntrySet) -> None:
        """A consumer that lets a message expire gets no more of its key; the key waits until it is free."""
        table = self.tables[shard]
        table.avoided.update(dict.fromkeys(table.known.by_slot(entries), attachment))
        self.came_back(shard, entries)


def _entries(spans: Iterable[Span]) -> Iterator[int]:
    for start, end in spans:
        yield from range(start, end)
