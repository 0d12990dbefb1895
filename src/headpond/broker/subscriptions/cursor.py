"""A subscription's position in one shard: the state of each entry, and how often it was delivered.

Every entry of the shard is in exactly one state::

    settled   before ``cursor``, or in ``settled``; the ``dead`` among them can be offered again
    held      delivered to a consumer, and not settled
    ready     to be redelivered now
    refused   in the unacked log: to be redelivered when its time and the backlog allow it (unacked_log.py)
    parked    passed over for now: a consumer has its key, or an earlier entry of its key waits (key_shared)
    dying     reached ``max_attempts``, or refused for good: settled when the dead-letter topic has a copy
    new       at or behind ``offered``, and none of the above

A cursor costs a few bitmaps, whatever the order in which entries are settled.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import NamedTuple

from headpond.broker.subscriptions.records import COMPACTED, NO_COPIES, Returned, ReturnedSet, ShardTally
from headpond.broker.subscriptions.refusal_reasons import RefusalReasons
from headpond.broker.subscriptions.unacked_log import Keyed, UnackedLog, bound_step_up
from headpond.model.entry_set import EntrySet, Span

SKIPPED_MAX = 1 << 20
REACH_MIN, REACH_MAX = 256, 1 << 20
"""How many entries a ``Reach`` record lets be delivered."""
UNLIMITED = 2**63
REACH_US = 1_000_000
"""If they last for less, the next record is for twice as many; if for more, for half."""

Group = tuple[int, list[Span]]
"""The number of an attempt, and the entries it is for."""


class HeldWhenLost(NamedTuple):
    """What a consumer held of one shard when its connection was lost."""

    held: EntrySet
    presumed: EntrySet
    """The part that counts as delivered."""
    doubtful: EntrySet
    """The part that is flagged from then on."""


class DeliveryCounts:
    """How often entries were delivered and came back: one set of entries per number."""

    def __init__(self) -> None:
        self.sets: dict[int, EntrySet] = {}

    def of(self, entry: int) -> int:
        return next((count for count, entries in self.sets.items() if entry in entries), 0)

    def shift(self, entries: EntrySet, step: int) -> list[ReturnedSet]:
        """Each entry has one delivery more (1) or less (-1); returns the changed ones by their new number."""
        rest, moved = entries.copy(), list[ReturnedSet]()
        for count, those in list(self.sets.items()):
            if part := rest.common(those):
                rest.exclude(part)
                those.exclude(part)
                moved.append((count + step, part))
            if not those:
                del self.sets[count]
        if step > 0 and rest:
            moved.append((1, rest))
        for count, part in moved:
            self.add(count, part)
        return moved

    def add(self, count: int, entries: EntrySet) -> None:
        """Entries that have no number yet get this one."""
        if count and entries:
            self.sets.setdefault(count, EntrySet()).include(entries)

    def exclude(self, entries: EntrySet) -> None:
        for those in self.sets.values():
            those.exclude(entries)

    def cut(self, spans: Iterable[Span]) -> list[Returned]:
        """The spans in order, cut where the number changes; it is 0 for most."""
        rest, found = EntrySet.of(spans), list[Returned]()
        for count, entries in self.sets.items():
            if part := rest.common(entries):
                rest.exclude(part)
                found += [(*span, count) for span in part.spans(0, part.end)]
        found += [(*span, 0) for span in rest.spans(0, rest.end)]
        return sorted(found)


class ShardCursor:
    def __init__(self, cursor: int = 0, run: int = 0, *, journaled: bool = False) -> None:
        """``journaled``: a record must let entries be offered; else there is no ``reach``."""
        self._journaled = journaled
        self.dead = EntrySet()
        self.skipped = EntrySet()
        """The settled entries that were skipped; beyond ``SKIPPED_MAX`` the oldest are forgotten."""
        self.attempts_max = 0
        """How often an entry may be delivered before it dies; 0: without a limit."""
        self.reach_number = 0
        """How many changes of the reach were staged."""
        self._reach_step = REACH_MIN
        self._reached_us = 0
        self._begin_at(cursor, run)

    def _begin_at(self, cursor: int, run: int) -> None:
        """Nothing from there on was offered; only the dead are remembered."""
        self.cursor = cursor
        """Everything before it is settled."""
        self.tally = ShardTally(cursor, run, copies_run=run)
        """How they were settled."""
        self.journaled_copies = NO_COPIES
        """The totals that the journal has."""
        self.settled = EntrySet()
        """The settled entries at or behind the cursor."""
        self.offered = cursor
        """Nothing at or behind it was offered in this run of the node."""
        self.reach = cursor if self._journaled else UNLIMITED
        """Nothing at or behind it is offered: a journal record (``Reach``) must say first that it may be."""
        self.reach_staged = self.reach
        """The same by the newest record, which may not be durable yet."""
        self.reach_number += 1
        self.held = EntrySet()
        self.ready = EntrySet()
        self.unacked_log = UnackedLog()
        self.reasons = RefusalReasons()
        self.parked = EntrySet()
        self.unsure = EntrySet()
        """Not settled; a consumer that lost its connection may have had them, or they were dead once."""
        self.flagged = EntrySet()
        """Not settled; a program may have had them, which is no delivery: their next attempt is number 2."""
        self.dying = EntrySet()
        self.ahead = EntrySet()
        """At or behind ``offered`` and not new: refused, dying or in hand since before the node started."""
        self.delivered = DeliveryCounts()

    # --- offering -----------------------------------------------------------------------------------

    def next_wanted(self, end: int, *, in_order: bool = False) -> int | None:
        """The entry to read next, if there is something to offer before ``end``; ready entries come first.

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
        """Settled entries are not read."""
        if self.settled.end > self.offered:
            self.offered = self.settled.run_end(self.offered)

    @property
    def has_returned(self) -> bool:
        """Whether entries came back that are not offered again, or may hold up others."""
        return bool(self.unacked_log.entries.bits or self.ready.bits or self.dying.bits)

    @property
    def barrier(self) -> int | None:
        """The first entry that waits; a strict subscription offers nothing behind it."""
        first = self.unacked_log.entries.first
        dying = self.dying.first
        return dying if first is None or (dying is not None and dying < first) else first

    def available(self, start: int, end: int, spans_max: int) -> list[Span]:
        """What of ``[start, end)``, which was read, can be offered, in order; changes nothing."""
        spans = list(islice(self.ready.spans(start, end), spans_max)) if self.ready.bits else []
        end = min(end, self.reach)
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
        return self._by_attempt(spans) if self.delivered.sets or self.flagged.bits else [(1, spans)]

    def park(self, entries: EntrySet) -> None:
        """Passes over entries that ``available`` named."""
        self.ready.exclude(entries)
        self.parked.include(entries)

    def unpark(self, entries: EntrySet) -> None:
        """Those of the entries that are parked become ready."""
        moved = self.parked.common(entries)
        self.parked.exclude(moved)
        self.ready.include(moved)

    def advance(self, start: int, end: int) -> None:
        """Everything in ``[start, end)`` that was available was taken or parked."""
        if start <= self.offered:
            self.offered = max(self.offered, min(end, self.reach))

    def _by_attempt(self, spans: list[Span]) -> list[Group]:
        """Cuts spans where the number of earlier deliveries changes; they stay in order."""
        wanted = EntrySet.of(spans)
        for deliveries, entries in self.delivered.sets.items():
            if wanted <= entries:  # the usual case: what came back together goes out together
                return [(deliveries + 1, spans)]
        groups: list[Group] = []
        for start, end, deliveries in self._flagged(self.delivered.cut(spans)):
            if groups and groups[-1][0] == deliveries + 1:
                groups[-1][1].append((start, end))
            else:
                groups.append((deliveries + 1, [(start, end)]))
        return groups

    def _flagged(self, cut: list[Returned]) -> Iterator[Returned]:
        """Flagged entries count as delivered once."""
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

    def release(self, end: int, *, read_all: bool = False) -> EntrySet:
        """Refused entries that may be redelivered now become ready; returns them. The log is at ``end``.

        ``read_all``: records are read also where nothing in them is new, to learn their keys.
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
        delivered = min(self.offered, end if ready is None else ready)
        self.unacked_log.advance(delivered, delivered if held is None else min(delivered, held), end)
        released = self.unacked_log.take(nothing_new=delivered >= end)
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
        for entries in self.delivered.sets.values():
            entries.discard(start, end)
        if self.unacked_log.entries.bits:
            self.unacked_log.discard(start, end)
        if self.reasons:
            self.reasons.discard(start, end)
        if start > self.cursor:
            settled.add(start, end)
        elif not settled.bits:
            self.cursor = end
        else:
            self.cursor = settled.run_end(end)
            settled.discard(start, self.cursor)
        self.offered = max(self.offered, self.cursor)
        return end - start - settled_before

    def nack(
        self, entry: int, due_us: int, bound: int, *, repeated: bool = False, final: bool = False
    ) -> int | None:
        """Refuses an entry; returns how often it was delivered, None if it was not delivered.

        It is redelivered from ``due_us`` on and, unless ``bound`` is 0, when everything before that is settled.
        A ``repeated`` refusal was counted when it came first. After a ``final`` one the entry is dying.
        """
        one = EntrySet.of([(entry, entry + 1)])
        held = entry in self.held
        if not held and entry not in self.ready and entry not in self.parked:
            return None
        for entries in (self.held, self.ready, self.parked):
            entries.discard(entry, entry + 1)
        # If no consumer holds it, the one that refuses it lost its connection for a moment.
        counted = self.delivered.of(entry) if repeated or not held else 0
        deliveries = counted or self.delivered.shift(one, 1)[0][0]
        if self.may_be_tried_after(deliveries) and not final:
            self._refuse(one, due_us, bound)
        else:
            self.dying.include(one)
        return deliveries

    def expire(self, entries: EntrySet, bound: int) -> list[ReturnedSet]:
        """Held entries were not settled in time: they are refused, and wait for no time."""
        late = entries.common(self.held)
        self.held.exclude(late)
        returned = self._count(late)
        late.exclude(self.dying)
        self._refuse(late, 0, bound)
        return returned

    def _refuse(self, entries: EntrySet, due_us: int, bound: int) -> None:
        rounded = bound_step_up(bound, bound - self.offered) if bound else 0
        self.unacked_log.put([(due_us, entries)], [(rounded, entries)])

    def give_back(
        self,
        entries: EntrySet,
        counted: EntrySet | None = None,
        *,
        in_hand: EntrySet | None = None,
        sure: bool = True,
    ) -> list[ReturnedSet]:
        """Held entries come back and become ready; returns those that count as delivered.

        Only ``counted`` (None: all) reached a program; it still has those ``in_hand``. The rest was prefetched
        and no program had it, or it is not ``sure`` whether one had.
        """
        back = entries.common(self.held)
        self.held.exclude(back)
        self.ready.include(back)
        delivered = back if counted is None else back.common(counted)
        unseen = back.copy()
        unseen.exclude(delivered)
        if in_hand is not None:
            unseen.exclude(in_hand)
        if sure:
            self.tally.unseen += len(unseen)
        else:
            self.unsure.include(unseen)
            self.flagged.include(unseen)
        returned = self._count(delivered)
        self.ready.exclude(self.dying)
        return returned

    def _count(self, delivered: EntrySet) -> list[ReturnedSet]:
        """Each entry has one delivery more; those that reached the limit are dying."""
        returned = self.delivered.shift(delivered, 1)
        for deliveries, part in returned:
            if not self.may_be_tried_after(deliveries):
                self.dying.include(part)
        return returned

    def hold(self, entries: EntrySet, refused: EntrySet | None = None) -> EntrySet:
        """A consumer holds what its program has in hand; returns the entries that no other consumer has.

        An entry that is in the unacked log but not ``refused`` was delivered again before the node restarted.
        An entry without a known delivery reached the consumer in an earlier run of the node.
        """
        again = entries.common(self.unacked_log.entries)
        if refused is not None:
            again.exclude(refused)
        self.unacked_log.take_out(again)
        free = self._not_settled(entries)
        for others in (self.held, self.unacked_log.entries, self.dying):
            free.exclude(others)
        self.tally.elsewhere += len(free) - len(free.common(self._touched(0, 2**63)))
        self.ready.exclude(free)
        self.parked.exclude(free)
        self.held.include(free)
        self.ahead.include(free)
        self.ahead.discard(0, self.offered)
        return free

    def recount(self, lost: HeldWhenLost, held: EntrySet, in_hand: EntrySet) -> list[ReturnedSet]:
        """A lost consumer is back: no delivery that it had when it was lost has ended.

        Its program has what it continues to hold (``held``), and what is ``in_hand`` and may be with another
        consumer now: that counts as a further attempt. Returns entries whose number of deliveries changed.
        """
        fewer = lost.presumed.copy()
        for others in (self.dying, self.unacked_log.entries):
            fewer.exclude(others)
        changed = self.delivered.shift(fewer, -1)
        unseen = lost.presumed.copy()
        unseen.include(lost.doubtful)
        unseen.exclude(held)
        unseen.exclude(in_hand)
        self.tally.unseen += len(self._not_settled(unseen))
        self.flagged.exclude(lost.doubtful)
        self.unsure.exclude(unseen.common(lost.doubtful))
        self.flagged.include(self._not_settled(in_hand))
        return changed

    def flag(self, entries: EntrySet) -> None:
        """A program had these entries."""
        self.flagged.include(self._not_settled(entries))

    def _not_settled(self, entries: EntrySet) -> EntrySet:
        found = entries.copy()
        found.discard(0, self.cursor)
        found.exclude(self.settled)
        return found

    def restore_deliveries(self, entries: EntrySet, deliveries: int) -> None:
        """The journal has entries that came back; settled ones stay settled."""
        unsettled = self._not_settled(entries)
        self.delivered.exclude(unsettled)
        self.delivered.add(deliveries, unsettled)
        if unsettled.meets(self.unacked_log.entries):  # it was redelivered, and came back
            self.unacked_log.take_out(unsettled)

    def restore_refused(self, by_due_us: Iterable[Keyed], by_bound: Iterable[Keyed]) -> None:
        """The journal has refused entries; settled ones stay settled."""
        bounds = [(bound and bound_step_up(bound, bound - self.cursor), each) for bound, each in by_bound]
        self.unacked_log.put(self._unsettled(by_due_us), self._unsettled(bounds))

    def restore_dying(self, entries: EntrySet) -> None:
        """The journal has entries that were refused for good; settled ones stay settled."""
        self.dying.include(self._not_settled(entries))

    def restore_reasons(self, reasons: Iterable[tuple[int, str]]) -> None:
        for entry, reason in reasons:
            if entry >= self.cursor and entry not in self.settled:
                self.reasons.add(entry, reason)

    def _unsettled(self, sets: Iterable[Keyed]) -> list[Keyed]:
        return [(key, rest) for key, entries in sets if (rest := self._not_settled(entries))]

    def unread(self, start: int, end: int) -> list[Span]:
        """Entries that are neither settled nor with a consumer."""
        return [
            span
            for missing in self.settled.missing(max(start, self.cursor), end)
            for span in self.held.missing(*missing)
        ]

    @property
    def reached(self) -> int:
        """How many entries are known to have reached a consumer."""
        tally = self.tally
        settled = tally.acked + tally.skipped + self.dead.count(tally.start, self.dead.end)
        return settled + tally.reached_lost + self.touched(0, 2**63)

    @property
    def unacked(self) -> EntrySet:
        """The entries that wait for a redelivery: refused, expired, or lost with their consumer."""
        found = self.unacked_log.entries.copy()
        for entries in self.delivered.sets.values():
            found.include(entries)
        found.exclude(self.held)
        found.exclude(self.dying)
        return found

    def touched(self, start: int, end: int) -> int:
        """How many of these entries reached a consumer and are not settled."""
        return len(self._touched(start, end))

    def _touched(self, start: int, end: int) -> EntrySet:
        either = EntrySet()
        for entries in (self.held, self.unsure, *self.delivered.sets.values()):
            either.include(entries.within(start, end))
        return either

    def deliveries_if_lost(self) -> dict[int, EntrySet]:
        """By number of deliveries, as if all held entries came back now; none reaches the limit by that."""
        counts = DeliveryCounts()
        for deliveries, entries in self.delivered.sets.items():
            counts.add(deliveries, entries)
        counted = self.held.copy() if self.may_be_tried_after(1) else EntrySet()
        for deliveries, entries in self.delivered.sets.items():
            if not self.may_be_tried_after(deliveries + 1):
                counted.exclude(entries)
        counts.shift(counted, 1)
        return counts.sets

    def may_be_tried_after(self, deliveries: int) -> bool:
        return not self.attempts_max or deliveries < self.attempts_max

    # --- dead entries, compaction, seek -------------------------------------------------------------

    def begin(self) -> None:
        """The node opened its journal: nothing was offered yet, and what reached the limit is dying."""
        self.offered = self.cursor
        self.ready = EntrySet()  # redriven entries are new: else they would be delivered twice
        for deliveries, entries in self.delivered.sets.items():
            if not self.may_be_tried_after(deliveries):
                self.dying.include(entries)
        self.unacked_log.take_out(self.dying)
        self.ahead = self.unacked_log.entries.copy()
        self.ahead.include(self.dying)

    def extend_reach(self, now_us: int) -> int | None:
        """The end for the next ``Reach`` record, if it is time for one: before the offers get there."""
        if self.reach_staged > self.reach or self.offered + self._reach_step // 2 < self.reach:
            return None
        quick = now_us - self._reached_us < REACH_US
        step = self._reach_step * 2 if quick else self._reach_step // 2
        self._reach_step = min(max(step, REACH_MIN), REACH_MAX)
        self._reached_us = now_us
        self.reach_staged = self.offered + self._reach_step
        self.reach_number += 1
        return self.reach_staged

    def flag_unrecorded(self, end: int) -> None:
        """The node opened its journal, and the log is at ``end``: what could be delivered may have been."""
        self.reach = self.reach_staged = max(self.cursor, min(self.reach, end))
        self.flag(EntrySet.of([(self.cursor, self.reach)]))

    def bury(self, start: int, end: int) -> int:
        """Settles entries as dead; returns how many of them were not settled before."""
        for span in self.settled.missing(max(start, self.cursor), end):
            self.dead.add(*span)
        return self.settle(start, end)

    def mark_skipped(self, start: int, end: int) -> None:
        """The unsettled ones of these entries are about to be settled as skipped."""
        for span in self.settled.missing(max(start, self.cursor), end):
            self.skipped.add(*span)
        if (count := len(self.skipped)) > SKIPPED_MAX:
            self.skipped.exclude(self.skipped.next_ones(0, count - SKIPPED_MAX // 2))

    def reopen(self, start: int, end: int) -> list[Span]:
        """Dead entries are offered again, as if they had never been delivered; returns which."""
        spans = list(self.dead.spans(start, end))
        for first, last in spans:
            self.dead.discard(first, last)
            if first < self.cursor:
                self.settled.add(first, self.cursor)
                self.cursor = first
            self.settled.discard(first, last)
            self.unsure.add(first, last)
            if first < self.offered:
                self.ready.add(first, min(last, self.offered))
        self.unacked_log.take_out(EntrySet.of(spans))
        if spans and (first := spans[0][0]) < (start := self.tally.start):
            again = sum(min(last, start) - begin for begin, last in spans if begin < start)
            self.tally.reopened(first, again, self.dead.count(first, start))
        return spans

    def owed(self, start: int, end: int) -> EntrySet:
        """The entries of ``[start, end)`` that are unsettled or dead."""
        found = EntrySet()
        found.add(max(start, self.cursor), end)
        found.exclude(self.settled)
        found.include(self.dead.within(start, end))
        return found

    def pass_over(self, entries: EntrySet) -> int:
        """Settles entries that no consumer has; returns how many of them were not settled before."""
        fresh = self._not_settled(entries)
        self.settled.include(fresh)
        self.tally.settled(COMPACTED, len(fresh))
        self.tally.reached_lost += len(self._touched(self.cursor, fresh.end).common(fresh))
        for others in (self.ready, self.parked, self.dying, self.ahead, self.unsure, self.flagged):
            others.exclude(fresh)
        self.delivered.exclude(fresh)
        self.unacked_log.exclude(fresh)
        self.reasons.exclude(fresh)
        end = self.settled.run_end(self.cursor)
        self.settled.discard(self.cursor, end)
        self.cursor = end
        self.offered = max(self.offered, end)
        return len(fresh)

    def move(self, entry: int, run: int = 0) -> None:
        """Everything before ``entry`` is settled, everything else is new."""
        self.dead.discard(entry, max(entry, self.dead.end))
        self.skipped.discard(entry, max(entry, self.skipped.end))
        self._begin_at(entry, run)
