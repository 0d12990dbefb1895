"""A subscription's place in one shard: which entries are settled, which are out, which come again.

Every entry of the shard is in exactly one state::

    settled   below ``cursor``, or in ``settled``
    held      offered to a consumer, not settled yet
    ready     to be offered again now
    waiting   to be offered again once its time has come (negatively acknowledged)
    new       at or behind ``offered`` and not settled

Cost is a cursor and a few bitmaps, whatever the order in which entries are settled.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush
from itertools import islice

from penstock.model.entry_set import EntrySet, Span

DUE_STEP_US = 20_000
"""Redeliveries that fall due within one step come together, so that a million of them cost a few bitmaps."""


class ShardCursor:
    def __init__(self, cursor: int = 0) -> None:
        self.cursor = cursor
        """Everything before it is settled."""
        self.settled = EntrySet()
        """What is settled at or behind the cursor."""
        self.offered = cursor
        """Everything at or behind it was not offered in this run of the node."""
        self.held = EntrySet()
        self.ready = EntrySet()
        self.waiting = EntrySet()
        self._due_us: list[int] = []
        self._due: dict[int, EntrySet] = {}
        """By time, in steps of ``DUE_STEP_US``: what is to become ready then, unless it is settled before."""
        self._delivered: dict[int, EntrySet] = {}
        """By number of deliveries: the entries that were delivered that often and came back."""

    # --- offering -----------------------------------------------------------------------------------

    def offer_new(self, end: int, spans_max: int) -> list[tuple[int, list[Span]]]:
        """Hands out the unsettled entries from ``offered`` up to ``end``, in order, cut by attempt.

        Most were never delivered; some may have been, before the node was restarted.
        """
        spans: list[Span] = []
        for span in self.settled.missing(max(self.offered, self.cursor), end):
            if len(spans) == spans_max:
                end = spans[-1][1]
                break
            spans.append(span)
        for start, stop in spans:
            self.held.add(start, stop)
        self.offered = max(self.offered, end)
        return self._by_attempt(spans)

    def offer_again(self, start: int, end: int, spans_max: int) -> list[tuple[int, list[Span]]]:
        """Hands out what is ready in ``[start, end)``, in order, cut by attempt."""
        spans = list(islice(self.ready.spans(start, end), spans_max))
        for first, last in spans:
            self.ready.discard(first, last)
            self.held.add(first, last)
        return self._by_attempt(spans)

    def _by_attempt(self, spans: list[Span]) -> list[tuple[int, list[Span]]]:
        """Cuts spans where the number of earlier deliveries changes; they stay in order."""
        if not spans or not self._delivered:
            return [(1, spans)] if spans else []
        cut: list[tuple[Span, int]] = []
        rest = EntrySet()
        for start, end in spans:
            rest.add(start, end)
            for deliveries, entries in self._delivered.items():
                for span in entries.spans(start, end):
                    rest.discard(*span)
                    cut.append((span, deliveries + 1))
        cut += [(span, 1) for span in rest.spans(0, rest.end)]
        groups: list[tuple[int, list[Span]]] = []
        for span, attempt in sorted(cut):
            if groups and groups[-1][0] == attempt:
                groups[-1][1].append(span)
            else:
                groups.append((attempt, [span]))
        return groups

    def wake(self, now_us: int) -> None:
        """Moves what waited long enough to ready."""
        while self._due_us and self._due_us[0] <= now_us:
            due = self._due.pop(heappop(self._due_us))
            for start, end in due.spans(0, due.end):
                self.waiting.move(start, end, self.ready)

    @property
    def due_us(self) -> int | None:
        """When waiting entries are next to be looked at."""
        return self._due_us[0] if self._due_us else None

    # --- settling -----------------------------------------------------------------------------------

    def settle(self, start: int, end: int) -> int:
        """These entries are done with; returns how many of them were not settled before."""
        start = max(start, self.cursor)
        if start >= end:
            return 0
        settled_before = self.settled.count(start, end)
        for entries in (self.held, self.ready, self.waiting, *self._delivered.values()):
            if entries:
                entries.discard(start, end)
        if start == self.cursor:
            self.cursor = self.settled.run_end(end)
            self.settled.discard(start, self.cursor)
        else:
            self.settled.add(start, end)
        self.offered = max(self.offered, self.cursor)
        return end - start - settled_before

    def nack(self, entry: int, due_us: int) -> int | None:
        """An entry is to come again at ``due_us``; returns how often it was delivered, None if not out."""
        if entry in self.held:
            self.held.discard(entry, entry + 1)
            deliveries = self._count_delivery(entry, entry + 1)
        elif entry in self.ready:  # its consumer was away for a moment; the delivery is counted already
            self.ready.discard(entry, entry + 1)
            deliveries = self.deliveries(entry)
        else:
            return None
        self.waiting.add(entry, entry + 1)
        due_us = -(-due_us // DUE_STEP_US) * DUE_STEP_US
        if due_us not in self._due:
            self._due[due_us] = EntrySet()
            heappush(self._due_us, due_us)
        self._due[due_us].add(entry, entry + 1)
        return deliveries

    def deliveries(self, entry: int) -> int:
        """How often an entry was delivered and came back."""
        return next((count for count, entries in self._delivered.items() if entry in entries), 0)

    def release(self, seen: list[Span] | None = None) -> int:
        """The consumer is gone: what it held is ready for the next; returns how many that were.

        Only what its application has ``seen`` counts as delivered (None: all of it).
        """
        count = len(self.held)
        for start, end in [(0, self.held.end)] if seen is None else seen:
            for span in list(self.held.spans(start, end)):
                self._count_delivery(*span)
        self.held.move(0, self.held.end, self.ready)
        return count

    def restore_deliveries(self, start: int, end: int, deliveries: int) -> None:
        """What the journal says of entries that had come back."""
        for entries in self._delivered.values():
            entries.discard(start, end)
        self._delivered.setdefault(deliveries, EntrySet()).add(start, end)

    def returned(self) -> Iterable[tuple[int, int, int]]:
        """(start, end, deliveries) of everything that came back and is not settled."""
        for deliveries, entries in self._delivered.items():
            for start, end in entries.spans(0, entries.end):
                yield start, end, deliveries

    def _count_delivery(self, start: int, end: int) -> int:
        """One more delivery for each of these; returns the count of the last one moved."""
        first_time = EntrySet()
        first_time.add(start, end)
        highest = 1
        for deliveries in sorted(self._delivered, reverse=True):
            entries = self._delivered[deliveries]
            for first, last in list(entries.spans(start, end)):
                first_time.discard(first, last)
                entries.discard(first, last)
                self._delivered.setdefault(deliveries + 1, EntrySet()).add(first, last)
                highest = max(highest, deliveries + 1)
            if not entries:
                del self._delivered[deliveries]
        for first, last in first_time.spans(start, end):
            self._delivered.setdefault(1, EntrySet()).add(first, last)
        return highest
