"""A subscription's place in one shard: which entries are settled, which are out, which come again.

Every entry of the shard is in exactly one state::

    settled   below ``cursor``, or in ``settled``; the ``dead`` among them can be offered again
    held      offered to a consumer, not settled yet
    ready     to be offered again now
    refused   in the unacked log: to be offered again when its time and the backlog allow it (unacked_log.py)
    parked    passed over for now: its key is with somebody, or waits itself (key_shared)
    dying     tried too often; to be put aside before it counts as settled
    new       at or behind ``offered``, and none of the above

Cost is a cursor and a few bitmaps, whatever the order in which entries are settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from headpond.broker.subscriptions.records import COMPACTED, NO_COPIES, Returned, ReturnedSet, ShardTally
from headpond.broker.subscriptions.unacked_log import Keyed, UnackedLog, bound_step_up
from headpond.model.entry_set import EntrySet, Span

SKIPPED_MAX = 1 << 20

Group = tuple[int, list[Span]]
"""The number of an attempt, and the entries it is for."""


class HeldWhenLost(NamedTuple):
    """What a consumer had of one shard when its connection was lost."""

    held: EntrySet
    presumed: EntrySet
    """What of it counts as delivered."""
    doubtful: EntrySet
    """What of it comes flagged, and did not before."""


class ShardCursor:
    def __init__(self, cursor: int = 0, run: int = 0) -> None:
        self.dead = EntrySet()
        self.skipped = EntrySet()
        """Which of the settled ones were skipped; of more than ``SKIPPED_MAX`` the oldest are let go of."""
        self.attempts_max = 0
        """How often an entry may be delivered before it dies; 0 is without end."""
        self._begin_at(cursor, run)

    def _begin_at(self, cursor: int, run: int) -> None:
        """Nothing from there on was offered, and nothing is remembered but the dead."""
        self.cursor = cursor
        """Everything before it is settled."""
        self.tally = ShardTally(cursor, run, copies_run=run)
        """How they were settled."""
        self.noted = NO_COPIES
        """What the journal has of its totals."""
        self.settled = EntrySet()
        """What is settled at or behind the cursor."""
        self.offered = cursor
        """Everything at or behind it was not offered in this run of the node."""
        self.held = EntrySet()
        self.ready = EntrySet()
        self.unacked_log = UnackedLog()
        self.parked = EntrySet()
        self.unsure = EntrySet()
        """Not settled, and once with a consumer that was lost, or that they died of; it may have seen them."""
        self.flagged = EntrySet()
        """Not settled, and a program may have had them though that counts as no delivery: they come flagged."""
        self.dying = EntrySet()
        self.ahead = EntrySet()
        """At or behind ``offered`` and yet not new: refused, dying or in hand since before the node started."""
        self._delivered: dict[int, EntrySet] = {}
        """By number of deliveries: the entries that were delivered that often and came back."""

    # --- offering -----------------------------------------------------------------------------------

    def next_wanted(self, end: int, *, in_order: bool = False) -> int | None:
        """The entry to read next, if there is something to offer before ``end``: ready ones come first.

        ``in_order``: nothing is offered behind an entry that waits.
        """
        if self.ready.bits:
            entry = int(self.ready.bits.min())
        else:
            if self.settled.bits:
                self._pass_settled()
            entry = self.offered
            if entry >= end:
                return None
        if in_order and (barrier := self.barrier) is not None and barrier <= entry:
            return None
        return entry

    def _pass_settled(self) -> None:
        """Nothing needs to be read where all is settled."""
        if self.settled.end > self.offered:
            self.offered = self.settled.run_end(self.offered)

    @property
    def has_returned(self) -> bool:
        """Whether entries came back that are not offered again, or may hold up others."""
        return bool(self.unacked_log.entries.bits or self.ready.bits or self.dying.bits)

    @property
    def barrier(self) -> int | None:
        """The first entry that keeps a strict subscription from going on behind it."""
        first = self.unacked_log.entries.first
        dying = self.dying.first
        return dying if first is None or (dying is not None and dying < first) else first

    def available(self, start: int, end: int, spans_max: int) -> list[Span]:
        """What of ``[start, end)``, which was read, can be offered, in order; changes nothing."""
        spans = list(islice(self.ready.spans(start, end), spans_max)) if self.ready.bits else []
        if start <= self.offered < end and len(spans) < spans_max:
            if self.settled.bits or self.ahead.bits:
                spans += islice(self._new(end), spans_max - len(spans))
            else:
                spans.append((self.offered, end))
        return spans

    def _new(self, end: int) -> Iterator[Span]:
        for start, stop in self.settled.missing(max(self.offered, self.cursor), end):
            yield from self.ahead.missing(start, stop) if self.ahead else ((start, stop),)

    def take(self, spans: list[Span]) -> list[Group]:
        """Marks spans that ``available`` named as held; returns them in order, by attempt."""
        returned = self.ready.bits
        for start, end in spans:
            if returned:
                self.ready.discard(start, end)
            self.held.add(start, end)
        if not spans:
            return []
        return self._by_attempt(spans) if self._delivered or self.flagged.bits else [(1, spans)]

    def park(self, entries: EntrySet) -> None:
        """Passes over entries that ``available`` named."""
        self.ready.exclude(entries)
        self.parked.include(entries)

    def unpark(self, entries: EntrySet) -> None:
        """What is parked of these is ready."""
        moved = self.parked.common(entries)
        self.parked.exclude(moved)
        self.ready.include(moved)

    def advance(self, start: int, end: int) -> None:
        """Everything in ``[start, end)`` that was available was taken or parked."""
        if start <= self.offered:
            self.offered = max(self.offered, end)

    def _by_attempt(self, spans: list[Span]) -> list[Group]:
        """Cuts spans where the number of earlier deliveries changes; they stay in order."""
        wanted = EntrySet.of(spans)
        for deliveries, entries in self._delivered.items():
            if wanted <= entries:  # the usual case: what came back together goes out together
                return [(deliveries + 1, spans)]
        groups: list[Group] = []
        for start, end, deliveries in self._flagged(self.deliveries_in(spans)):
            if groups and groups[-1][0] == deliveries + 1:
                groups[-1][1].append((start, end))
            else:
                groups.append((deliveries + 1, [(start, end)]))
        return groups

    def _flagged(self, cut: list[Returned]) -> Iterator[Returned]:
        """What a program may have had counts as delivered once."""
        for start, end, deliveries in cut:
            if deliveries or not self.flagged:
                yield start, end, deliveries
                continue
            at = start
            for first, last in self.flagged.spans(start, end):
                yield from ((at, first, 0),) if at < first else ()
                yield first, last, 1
                at = last
            yield from ((at, end, 0),) if at < end else ()

    def deliveries_in(self, spans: Iterable[Span]) -> list[Returned]:
        """The entries, in order, cut where the number of earlier deliveries changes; it is 0 for most."""
        rest = EntrySet.of(spans)
        cut: list[Returned] = []
        for deliveries, entries in self._delivered.items():
            if part := rest.common(entries):
                rest.exclude(part)
                cut += [(*span, deliveries) for span in part.spans(0, part.end)]
        cut += [(*span, 0) for span in rest.spans(0, rest.end)]
        return sorted(cut)

    # --- coming again -------------------------------------------------------------------------------

    def release(self, end: int, *, read_all: bool = False) -> EntrySet:
        """Refused entries that may come again now are ready; returns them. What can be read ends at ``end``.

        ``read_all``: records are to be read also where nothing in them is new, to learn their keys.
        """
        if not self.unacked_log:
            return EntrySet()
        self._pass_settled()
        if not read_all and self.ahead.end > self.offered:
            new = EntrySet.of([(self.offered, end)])
            new.exclude(self.settled)
            new.exclude(self.ahead)
            self.offered = max(self.offered, end if new.first is None else new.first)
        ready, held = self.ready.first, self.held.first
        handed_out = min(self.offered, end if ready is None else ready)
        self.unacked_log.advance(handed_out, handed_out if held is None else min(handed_out, held), end)
        released = self.unacked_log.take(nothing_new=handed_out >= end)
        self.ahead.exclude(released)  # what lies at or behind ``offered`` is new again, in the log's order
        self.ready.include(released.within(0, self.offered))
        return released

    # --- settling -----------------------------------------------------------------------------------

    def settle(self, start: int, end: int) -> int:
        """Settles entries; returns how many of them were not settled before."""
        start = max(start, self.cursor)
        if start >= end:
            return 0
        settled = self.settled
        settled_before = settled.count(start, end) if settled.bits else 0
        self.held.discard(start, end)
        for entries in (self.ready, self.parked, self.dying, self.ahead, self.unsure, self.flagged):
            if entries.bits:
                entries.discard(start, end)
        for entries in self._delivered.values():
            entries.discard(start, end)
        if self.unacked_log.entries.bits:
            self.unacked_log.discard(start, end)
        if start > self.cursor:
            settled.add(start, end)
        elif not settled.bits:
            self.cursor = end
        else:
            self.cursor = settled.run_end(end)
            settled.discard(start, self.cursor)
        self.offered = max(self.offered, self.cursor)
        return end - start - settled_before

    def nack(self, entry: int, due_us: int, bound: int, *, repeated: bool = False) -> int | None:
        """Refuses an entry; returns how often it was delivered, None if it is not out.

        It comes again from ``due_us`` on and, unless ``bound`` is 0, when everything before that is settled.
        What is ``repeated`` was counted when it was said first.
        """
        one = EntrySet.of([(entry, entry + 1)])
        held = entry in self.held
        if not held and entry not in self.ready and entry not in self.parked:
            return None
        for entries in (self.held, self.ready, self.parked):
            entries.discard(entry, entry + 1)
        # If nobody holds it, its consumer was away for a moment. Whoever refuses it had it.
        counted = self.deliveries(entry) if repeated or not held else 0
        deliveries = counted or self._count_delivery(one)
        if self.attempts_max and deliveries >= self.attempts_max:
            self.dying.add(entry, entry + 1)
        else:
            self._refuse(one, due_us, bound)
        return deliveries

    def expire(self, entries: EntrySet, bound: int) -> list[ReturnedSet]:
        """Held entries were not settled in time: they are refused, and their time has come."""
        late = entries.common(self.held)
        self.held.exclude(late)
        returned = self._count_seen(late)
        late.exclude(self.dying)
        self._refuse(late, 0, bound)
        return returned

    def _refuse(self, entries: EntrySet, due_us: int, bound: int) -> None:
        kept_bound = bound_step_up(bound, bound - self.offered) if bound else 0
        self.unacked_log.refuse(entries, due_us, kept_bound)

    def give_back(
        self,
        entries: EntrySet,
        counted: EntrySet | None = None,
        *,
        in_hand: EntrySet | None = None,
        sure: bool = True,
    ) -> list[ReturnedSet]:
        """Held entries come back, to be offered again at once; returns those that count as delivered.

        Only ``counted`` (None: all) were seen, and what is ``in_hand`` of a program still; the rest was sent
        ahead and nobody looked at it, or it is not ``sure`` whether somebody did.
        """
        back = entries.common(self.held)
        self.held.exclude(back)
        self.ready.include(back)
        seen = back if counted is None else back.common(counted)
        unopened = back.common(back)
        unopened.exclude(seen)
        if in_hand is not None:
            unopened.exclude(in_hand)
        if sure:
            self.tally.unseen += len(unopened)
        else:
            self.unsure.include(unopened)
            self.flagged.include(unopened)
        returned = self._count_seen(seen)
        self.ready.exclude(self.dying)
        return returned

    def _count_seen(self, seen: EntrySet) -> list[ReturnedSet]:
        """One more delivery for each of these; those that had as many as they may are dying."""
        self._count_delivery(seen)
        returned = [(count, part) for count, all_ in self._delivered.items() if (part := seen.common(all_))]
        for deliveries, part in returned:
            if not self.may_be_tried_after(deliveries):
                self.dying.include(part)
        return returned

    def hold(self, entries: EntrySet) -> EntrySet:
        """Entries that a consumer's program has in hand are out again; returns those that nobody else has."""
        free = self._not_settled(entries)
        for others in (self.held, self.unacked_log.entries, self.dying):
            free.exclude(others)
        self.ready.exclude(free)
        self.parked.exclude(free)
        self.held.include(free)
        self.ahead.include(free)
        self.ahead.discard(0, self.offered)
        return free

    def recount(self, lost: HeldWhenLost, held: EntrySet, handed: EntrySet) -> list[ReturnedSet]:
        """A consumer that was lost is back: nothing that it had when it was lost was an attempt that ended.

        Its program has in hand what it holds on (``held``), and what was ``handed`` to it and may be another's
        by now: that comes as a further attempt. Returns entries whose number of deliveries changed.
        """
        fewer = lost.presumed.copy()
        for others in (self.dying, self.unacked_log.entries):
            fewer.exclude(others)
        changed: list[ReturnedSet] = []
        for deliveries in sorted(self._delivered):
            delivered = self._delivered[deliveries]
            if part := delivered.common(fewer):
                delivered.exclude(part)
                fewer.exclude(part)
                if deliveries > 1:
                    self._delivered.setdefault(deliveries - 1, EntrySet()).include(part)
                changed.append((deliveries - 1, part))
            if not delivered:
                del self._delivered[deliveries]
        unseen = lost.presumed.copy()
        unseen.include(lost.doubtful)
        unseen.exclude(held)
        unseen.exclude(handed)
        self.tally.unseen += len(unseen.common(self._not_settled(unseen)))
        self.flagged.exclude(lost.doubtful)
        self.unsure.exclude(unseen.common(lost.doubtful))
        self.flagged.include(self._not_settled(handed))
        return changed

    def flag(self, entry: int) -> None:
        """A program had an entry: it comes flagged."""
        self.flagged.include(self._not_settled(EntrySet.of([(entry, entry + 1)])))

    def _not_settled(self, entries: EntrySet) -> EntrySet:
        found = entries.copy()
        found.discard(0, self.cursor)
        found.exclude(self.settled)
        return found

    def deliveries(self, entry: int) -> int:
        """How often an entry was delivered and came back."""
        return next((count for count, entries in self._delivered.items() if entry in entries), 0)

    def restore_deliveries(self, entries: EntrySet, deliveries: int) -> None:
        """What the journal says of entries that had come back; what is settled by now stays so."""
        unsettled = entries.within(self.cursor, max(self.cursor, entries.end))
        unsettled.exclude(self.settled)
        for others in self._delivered.values():
            others.exclude(unsettled)
        if deliveries and unsettled:
            self._delivered.setdefault(deliveries, EntrySet()).include(unsettled)
        if unsettled.meets(self.unacked_log.entries):  # it came again, and back
            self.unacked_log.take_out(unsettled)

    def restore_refused(self, by_due_us: Iterable[Keyed], by_bound: Iterable[Keyed]) -> None:
        """What the journal says of the unacked log; what is settled by now stays so."""
        bounds = ((bound and bound_step_up(bound, bound - self.cursor), each) for bound, each in by_bound)
        self.unacked_log.put(self._unsettled(by_due_us), self._unsettled(bounds))

    def _unsettled(self, sets: Iterable[Keyed]) -> Iterator[Keyed]:
        for key, entries in sets:
            entries.discard(0, self.cursor)
            entries.exclude(self.settled)
            if entries:
                yield key, entries

    def unread(self, start: int, end: int) -> list[Span]:
        """Entries that are neither settled nor with a consumer."""
        return [
            span
            for missing in self.settled.missing(max(start, self.cursor), end)
            for span in self.held.missing(*missing)
        ]

    @property
    def reached(self) -> int:
        """How many entries a consumer had or has, as far as is known."""
        tally = self.tally
        settled = tally.acked + tally.skipped + self.dead.count(tally.start, self.dead.end)
        return settled + tally.reached_lost + self.touched(0, 2**63)

    @property
    def unacked(self) -> EntrySet:
        """The entries that a consumer had and did not settle, that nobody has now and that come again.

        Refused, timed out, or lost with their consumer; what was given back unseen is available like a new one.
        """
        found = self.unacked_log.entries.copy()
        for entries in self._delivered.values():
            found.include(entries)
        found.exclude(self.held)
        found.exclude(self.dying)
        return found

    def touched(self, start: int, end: int) -> int:
        """How many of these entries are with a consumer or were, and are not settled."""
        return len(self._touched(start, end))

    def _touched(self, start: int, end: int) -> EntrySet:
        either = EntrySet()
        for entries in (self.held, self.unsure, *self._delivered.values()):
            either.include(entries.within(start, end))
        return either

    def returned(self) -> list[ReturnedSet]:
        """Everything that came back and is not settled."""
        return list(self._delivered.items())

    def deliveries_if_lost(self) -> dict[int, EntrySet]:
        """By number of deliveries, as if everything that is out came back now; nothing dies of that."""
        found: dict[int, EntrySet] = {}
        out = self.held.copy()
        for deliveries, entries in self._delivered.items():
            again = entries.common(out)
            out.exclude(again)
            rest = entries.copy()
            if self.may_be_tried_after(deliveries + 1):
                rest.exclude(again)
                found.setdefault(deliveries + 1, EntrySet()).include(again)
            found.setdefault(deliveries, EntrySet()).include(rest)
        if self.may_be_tried_after(1):
            found.setdefault(1, EntrySet()).include(out)
        return found

    def may_be_tried_after(self, deliveries: int) -> bool:
        return not self.attempts_max or deliveries < self.attempts_max

    # --- putting aside, and back --------------------------------------------------------------------

    def begin(self) -> None:
        """After opening: nothing was offered yet, and what was delivered as often as it may is dying."""
        self.offered = self.cursor
        self.ready = EntrySet()  # re-driven ones are among the new: else they would come twice
        for deliveries, entries in self.returned():
            if not self.may_be_tried_after(deliveries):
                self.dying.include(entries)
        self.unacked_log.take_out(self.dying)
        self.ahead = self.unacked_log.entries.copy()
        self.ahead.include(self.dying)

    def bury(self, start: int, end: int) -> int:
        """Put aside: settled, and dead; returns how many of these entries were not settled before."""
        fresh = [span for span in self.settled.missing(max(start, self.cursor), end) if span[0] < span[1]]
        for span in fresh:
            self.dead.add(*span)
        return self.settle(start, end)

    def mark_skipped(self, start: int, end: int) -> None:
        """What of these entries is not settled yet is about to be, as skipped."""
        for span in self.settled.missing(max(start, self.cursor), end):
            self.skipped.add(*span)
        if (count := len(self.skipped)) > SKIPPED_MAX:
            self.skipped.exclude(self.skipped.next_ones(0, count - SKIPPED_MAX // 2))

    def reopen(self, start: int, end: int) -> list[Span]:
        """Dead entries are offered again, as if they had never been; returns which."""
        spans = list(self.dead.spans(start, end))
        for first, last in spans:
            self.dead.discard(first, last)
            if first < self.cursor:
                self.settled.add(first, self.cursor)
                self.cursor = first
            self.settled.discard(first, last)
            self.unsure.add(first, last)  # a consumer had them before they died
            if first < self.offered:
                self.ready.add(first, min(last, self.offered))
        self.unacked_log.take_out(EntrySet.of(spans))
        if spans and (first := spans[0][0]) < (start := self.tally.start):
            again = sum(min(last, start) - begin for begin, last in spans if begin < start)
            self.tally.reopened(first, again, self.dead.count(first, start))
        return spans

    # --- state topics -------------------------------------------------------------------------------

    def owed(self, start: int, end: int) -> EntrySet:
        """What of ``[start, end)`` is still to be delivered, or may be offered again on demand."""
        found = EntrySet()
        found.add(max(start, self.cursor), end)
        found.exclude(self.settled)
        found.include(self.dead.within(start, end))
        return found

    def pass_over(self, entries: EntrySet) -> int:
        """These count as settled, and nobody has them; returns how many of them did not before."""
        fresh = entries.within(self.cursor, max(self.cursor, entries.end))
        fresh.exclude(self.settled)
        self.settled.include(fresh)
        self.tally.settled(COMPACTED, len(fresh))
        self.tally.reached_lost += len(self._touched(self.cursor, fresh.end).common(fresh))
        for others in (
            *(self.ready, self.parked, self.dying, self.ahead, self.unsure, self.flagged),
            *self._delivered.values(),
        ):
            others.exclude(fresh)
        self.unacked_log.exclude(fresh)
        end = self.settled.run_end(self.cursor)
        self.settled.discard(self.cursor, end)
        self.cursor = end
        self.offered = max(self.offered, end)
        return len(fresh)

    def move(self, entry: int, run: int = 0) -> None:
        """What lies before ``entry`` is settled, everything else is new; nothing is remembered."""
        self.dead.discard(entry, max(entry, self.dead.end))
        self.skipped.discard(entry, max(entry, self.skipped.end))
        self._begin_at(entry, run)

    def _count_delivery(self, entries: EntrySet) -> int:
        """One more delivery for each of these; returns the highest count among them."""
        first_time = entries.common(entries)
        highest = 1
        for deliveries in sorted(self._delivered, reverse=True):
            delivered = self._delivered[deliveries]
            if again := first_time.common(delivered):
                first_time.exclude(again)
                delivered.exclude(again)
                self._delivered.setdefault(deliveries + 1, EntrySet()).include(again)
                highest = max(highest, deliveries + 1)
            if not delivered:
                del self._delivered[deliveries]
        if first_time:
            self._delivered.setdefault(1, EntrySet()).include(first_time)
        return highest
