"""Key-shared subscriptions: as shared, but a key has one consumer at a time, and its messages come in order.

Keys are slots. For each slot with something under way it is known who has it, how many of its
entries are out, and which of its entries are behind: passed over, or come back and not out again. An entry is
offered if no earlier one of its slot is behind, and its slot is free or with a consumer that has room (in
resilient mode: free). Otherwise it is parked, and reading goes on: a stuck key parks itself and nobody else.

A slot changes hands when it is free: all of it that was out was settled or has come back, and nothing of it is
in transit. A consumer that gives back what it was sent ahead was recalled first (``Subscription.welcome``), and
is sent nothing until it has answered.

In resilient mode a key's next message follows each settlement. A consumer keeps the last record that it was
sent of a shard, so what follows in it costs a short frame: no reading, and no record that travels again.
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
from headpond.storage.log.read import ReadResult, StoredRecord, segment_of
from headpond.wire.typed.record import stored_rows
from headpond.wire.typed.versions import SchemaVersions

# The keys of stored records as slots: a key's hash, folded to 16 bits, so that memory has a bound whatever
# the keys.
#
# Two keys of one slot share their fate; with 65,535 slots that is rare. A record's slots take two bytes a row
# and are kept for as long as one of its entries is not settled.

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


PARKED_MAX = 4_000_000
"""Entries of one shard; with more nothing new is read until some key goes on."""


class KeyTable:
    """The slots of one shard."""

    def __init__(self) -> None:
        self.known = KnownSlots()
        self.owner: dict[int, Attachment] = {}
        self.out: dict[int, int] = {}
        self.behind: dict[int, EntrySet] = {}
        self.avoided: dict[int, Attachment] = {}
        """Who let the slot's last message expire: somebody else is tried next."""

    def went_out(self, slot: int, entry: int, owner: Attachment) -> None:
        self.owner[slot] = owner
        self.avoided.pop(slot, None)
        self.out[slot] = self.out.get(slot, 0) + 1
        self.no_longer_behind(slot, [entry])

    def came_in(self, slot: int, count: int) -> Attachment | None:
        """So many entries less are out; returns whose slot it was, if it is free now."""
        left = self.out.get(slot, 0) - count
        if left > 0:
            self.out[slot] = left
            return None
        self.out.pop(slot, None)
        return self.owner.pop(slot, None)

    def put_behind(self, slot: int, entries: list[int]) -> None:
        self.behind.setdefault(slot, EntrySet()).include(EntrySet.of_entries(entries))

    def no_longer_behind(self, slot: int, entries: list[int]) -> None:
        behind = self.behind.get(slot)
        if behind is not None:
            behind.exclude(EntrySet.of_entries(entries))
            if not behind:
                del self.behind[slot]


class _Dealt:
    """Entries by the consumer that gets them."""

    def __init__(self) -> None:
        self.by_receiver: dict[Attachment, list[int]] = {}
        self.slots: set[int] = set()

    def add(self, table: KeyTable, shard: int, slot: int, entry: int, receiver: Attachment) -> None:
        self.by_receiver.setdefault(receiver, []).append(entry)
        if slot != NO_KEY:
            table.went_out(slot, entry, receiver)
            receiver.slots.add((shard, slot))
            self.slots.add(slot)


class KeyShared(Shared):
    settling_frees: ClassVar[bool] = True
    tables: list[KeyTable]
    """By shard."""

    def reset(self) -> None:
        self.tables = [KeyTable() for _ in self.cursors]

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
        cursor = self.cursors[shard]
        at = first_of(run, entry)
        offers: list[Offer] = []
        for record in run.records:
            receivers = self._in_turn()
            if not receivers:
                return offers
            end = record.header.end_entry
            if cursor.ahead.count(record.header.first_entry, end):
                self._put_ahead_behind(shard, record)
            spans = cursor.available(at, end, SPANS_MAX)
            if spans:
                offers += self._offer_record(shard, record, spans, receivers)
            cursor.advance(at, spans[-1][1] if len(spans) == SPANS_MAX else end)
            if len(spans) == SPANS_MAX:
                return offers
            at = end
        cursor.advance(at, run.next_entry)
        return offers

    def _offer_record(
        self, shard: int, record: StoredRecord, spans: list[Span], receivers: list[Attachment]
    ) -> list[Offer]:
        table, header = self.tables[shard], record.header
        slots = self._slots(table, record)
        dealt = _Dealt()
        parked: dict[int, list[int]] = {}
        for entry in _entries(spans):
            slot = slots[entry - header.first_entry]
            receiver = None if slot in parked else self._receiver(table, slot, entry, receivers)
            if receiver is None:
                parked.setdefault(slot, []).append(entry)
            else:
                dealt.add(table, shard, slot, entry, receiver)
        self._park(shard, parked)
        if self.strict:
            self._cache([each for each in dealt.by_receiver if each.keeps], shard, record)
        return self._give_dealt(shard, dealt, [record])

    def _slots(self, table: KeyTable, record: StoredRecord) -> array[int]:
        slots = table.known.get(record.header.first_entry)
        if slots is None:
            slots = slots_of(record, self.schemas())
            table.known.add(record.header.first_entry, slots)
        return slots

    def _put_ahead_behind(self, shard: int, record: StoredRecord) -> None:
        """What was refused or dying when the node was started holds up the rest of its key."""
        table, cursor, header = self.tables[shard], self.cursors[shard], record.header
        self._slots(table, record)
        for entries in (cursor.unacked_log.entries, cursor.dying):
            waiting = entries.within(header.first_entry, header.end_entry)
            for slot, some in table.known.by_slot(waiting).items():
                table.put_behind(slot, some)

    def offer_cached(self, ends: list[int]) -> list[Offer]:
        """The next message of each free key whose consumer has the record already."""
        if not self.strict or not any(cursor.ready.bits for cursor in self.cursors):
            return []
        receivers = self._in_turn()
        offers: list[Offer] = []
        for shard, cursor in enumerate(self.cursors):
            if cursor.ready.bits and receivers:
                offers += self._offer_cached(shard, receivers)
        return offers

    def _offer_cached(self, shard: int, receivers: list[Attachment]) -> list[Offer]:
        table, cursor = self.tables[shard], self.cursors[shard]
        cached = {each.cached[shard] for each in receivers if shard in each.cached}
        dealt = _Dealt()
        parked: dict[int, list[int]] = {}
        for first, end in sorted(cached):
            for entry in _entries(islice(cursor.ready.spans(first, end), SPANS_MAX)):
                slot = table.known.of(entry)
                if slot is None or slot == NO_KEY:
                    continue  # read like anything else
                receiver = None if slot in parked else self._receiver(table, slot, entry, receivers)
                if receiver is None:
                    parked.setdefault(slot, []).append(entry)
                elif receiver.caches(shard, entry):
                    dealt.add(table, shard, slot, entry, receiver)
        self._park(shard, parked)
        return self._give_dealt(shard, dealt, [])

    def _park(self, shard: int, by_slot: dict[int, list[int]]) -> None:
        for slot, entries in by_slot.items():
            self.tables[shard].put_behind(slot, entries)
            self.cursors[shard].park(EntrySet.of_entries(entries))

    def _give_dealt(self, shard: int, dealt: _Dealt, records: list[StoredRecord]) -> list[Offer]:
        offers = [
            offer
            for receiver, entries in dealt.by_receiver.items()
            for offer in self._give(receiver, shard, _runs(entries), records)
        ]
        for slot in dealt.slots:
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
        behind = table.behind.get(slot)
        if behind is not None and behind.first != entry and _before(behind, entry):
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
        behind = table.behind.get(slot)
        if behind is None or not cursor.parked:
            return
        owner = table.owner.get(slot)
        first = behind.first
        assert first is not None, "the table has no empty set"
        if self.strict:
            if owner is None and first not in cursor.unacked_log.entries and first not in cursor.dying:
                cursor.unpark(EntrySet.of_entries([first]))
        elif owner is None or self._continues(table, slot, owner):
            stuck = [behind.common(each).first for each in (cursor.unacked_log.entries, cursor.dying)]
            end = min((each for each in stuck if each is not None), default=behind.end)
            cursor.unpark(behind.within(first, end))

    def gained_room(self, attachment: Attachment) -> None:
        for shard, slot in attachment.slots:
            if slot in self.tables[shard].behind:
                self._unpark(shard, slot)

    # --- settling and coming back -------------------------------------------------------------------

    def _settle(self, shard: int, start: int, end: int, by: Attachment | None, kind: str) -> int:
        table, cursor = self.tables[shard], self.cursors[shard]
        touched = self._came_in(shard, cursor.held.within(start, end))
        for entries in (cursor.ready, cursor.unacked_log.entries, cursor.parked, cursor.dying):
            if entries.bits and (part := entries.within(start, end)):
                for slot, some in table.known.by_slot(part).items():
                    table.no_longer_behind(slot, some)
                    touched.setdefault(slot, some)
        settled = super()._settle(shard, start, end, by, kind)
        table.known.forget_before(cursor.cursor)
        for slot in touched:
            self._unpark(shard, slot)
        return settled

    def came_back(self, shard: int, entries: EntrySet) -> None:
        touched = self._came_in(shard, entries)
        for slot, some in touched.items():
            self.tables[shard].put_behind(slot, some)
        for slot in touched:
            self._unpark(shard, slot)

    def expired(self, attachment: Attachment, shard: int, entries: EntrySet) -> None:
        """A consumer that lets a message expire gets no more of its key; the key waits until it is free."""
        table = self.tables[shard]
        table.avoided.update(dict.fromkeys(table.known.by_slot(entries), attachment))
        self.came_back(shard, entries)

    def _came_in(self, shard: int, entries: EntrySet) -> dict[int, list[int]]:
        """Entries are no longer with a consumer; returns them by slot."""
        table = self.tables[shard]
        by_slot = table.known.by_slot(entries)
        for slot, some in by_slot.items():
            owner = table.came_in(slot, len(some))
            if owner is not None:
                owner.slots.discard((shard, slot))
        return by_slot


def _before(entries: EntrySet, entry: int) -> bool:
    first = entries.first
    return first is not None and first < entry


def _entries(spans: Iterable[Span]) -> Iterator[int]:
    for start, end in spans:
        yield from range(start, end)


def _runs(entries: list[int]) -> list[Span]:
    """Ascending entries as ranges."""
    runs: list[Span] = []
    for entry in entries:
        if runs and runs[-1][1] == entry:
            runs[-1] = (runs[-1][0], entry + 1)
        else:
            runs.append((entry, entry + 1))
    return runs
