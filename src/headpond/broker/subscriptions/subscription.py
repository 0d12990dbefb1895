"""A subscription: a named reader of a topic, durable whether anyone is connected or not.

The machine, without clock or IO. Inputs: consumers come (``admit``), renew their leases, leave or are lost;
records are read (``deal``); entries are settled, refused, extended; time passes (``on_time``). What it decides
comes back as values: offers, what came back, who is to be told. ``consuming`` turns them into frames and
journal records.

Its parts: a ``ShardCursor`` a shard (what state each entry is in), ``Dispatch`` by kind (who gets what),
``Deadlines``, and an ``Attachment`` a consumer (what it holds, its lease).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple, TypeVar

from headpond.broker.subscriptions.attachment import Attachment, Deadlines, lease_us
from headpond.broker.subscriptions.cursor import HeldWhenLost, ReturnedSet, ShardCursor
from headpond.broker.subscriptions.dispatch import Dispatch, Offer, Wanted
from headpond.broker.subscriptions.entry_tally import ACKED, DAMAGED, DEAD, LOST, SKIPPED, Counts
from headpond.broker.subscriptions.key_shared import KeyDispatch
from headpond.broker.subscriptions.records import Copied
from headpond.broker.subscriptions.shared import OneAtATime, SharedDispatch
from headpond.broker.subscriptions.unacked_log import due_step_up
from headpond.model.entry_set import EntrySet, Span
from headpond.model.errors import SubscriptionBusy, SubscriptionPassive
from headpond.model.policy import AFTER_BACKLOG, Policy
from headpond.model.ranges import RangeSet
from headpond.storage.log.read import ReadResult
from headpond.wire.typed.versions import SchemaVersions

# What a subscription is beside those of other nodes: active, or the passive copy of one that lives elsewhere.
#
# ``epoch`` counts promotions: of two nodes that both hold it as active, the higher one is right.
# ``generation`` counts what took settlements back (a place that was set, dead entries that were offered
# again): all else only ever adds to what is settled, so that telling it twice does no harm.


@dataclass(slots=True)
class Copy:
    record: Copied | None = None
    """As the journal has it; None of one that was never copied here."""
    generation: int = 0
    floors: dict[int, int] = field(default_factory=dict)
    """By shard: everything before this entry of the source's log is settled here."""
    left: dict[int, int] = field(default_factory=dict)
    """By shard: what the source had still to tell when it last told something; since the node was started."""
    told_us: int = 0
    """When that was."""
    consumers: int | None = None
    """How many there were then."""
    elsewhere: str = ""
    """A node on which a copy of this was promoted, while it is active here too."""
    ignored: int = 0
    """Settlements that came from a source after it was promoted."""

    @property
    def passive(self) -> bool:
        return self.record is not None and not self.record.active

    @property
    def epoch(self) -> int:
        return self.record.epoch if self.record is not None else 0


def passive_error(name: str, record: Copied, topic: str) -> SubscriptionPassive:
    """Why nobody may use it here, with where it lives."""
    where = f" at {record.url}" if record.url else ""
    return SubscriptionPassive(
        f"subscription {name!r} is a passive copy: it lives on node {record.node}{where}, link {record.link!r}",
        hint=f"Consume there. To go on here instead: `headpond sub promote {topic} {name}`.",
    )


def check_active(name: str, copy: Copy, topic: str) -> None:
    """Refuses what only an active subscription can be asked for."""
    if copy.passive and copy.record is not None:
        raise passive_error(name, copy.record, topic)


def copy_fields(copy: Copy) -> dict[str, Any]:
    """What ``SubscriptionInfo`` tells of it."""
    record = copy.record
    return {
        "passive": copy.passive,
        "node": record.node if record is not None else "",
        "link": record.link if record is not None else "",
        "epoch": copy.epoch,
        "behind": sum(copy.left.values()) if copy.passive and copy.told_us else None,
        "told_at_us": copy.told_us,
        "ignored": copy.ignored,
        "elsewhere": copy.elsewhere,
    }


Kept = TypeVar("Kept")

UNSURE_MAX = 5000
"""So many of the entries that a lost consumer held may have been in its hands; a segment has as many rows."""
UNSURE_RESILIENT_MAX = 257
"""In resilient mode: one window of acknowledgements, and the message in hand."""
FAILURES_MAX = 10_000
LOST_MAX = 1000
"""Consumers that were lost and may come back."""


class Refusal(NamedTuple):
    """An entry was refused."""

    deliveries: int
    """How often it was delivered."""
    due_us: int
    """When it may come again."""
    bound: int
    """What is to be settled before it comes again: everything before this entry; 0: nothing."""


@dataclass(slots=True)
class Change:
    """What a step of the machine brought about, beside its answer."""

    returned: list[tuple[int, list[ReturnedSet]]] = field(default_factory=list)
    """By shard: entries that came back, for the journal."""
    standing: list[Attachment] = field(default_factory=list)
    """Consumers that are to be told that they are active now, or not any more."""
    recalled: list[Attachment] = field(default_factory=list)
    """Consumers that are to give back what they have not handed out."""
    gone: list[Attachment] = field(default_factory=list)
    """Consumers whose lease is over: they are detached."""
    refused: list[tuple[int, EntrySet, int]] = field(default_factory=list)
    """(shard, entries, bound) of those of ``returned`` that are in the unacked log."""
    overtaken: list[tuple[Attachment, int, int, int]] = field(default_factory=list)
    """(consumer, shard, start, end) of entries that it holds or waits for, and that do not come to it."""


@dataclass(slots=True, eq=False)
class Subscription:
    topic_uuid: bytes
    name: str
    kind: str
    mode: str
    cursors: list[ShardCursor]
    created_at_us: int = 0
    policy: Policy = field(default_factory=Policy)
    paused: bool = False
    attachments: list[Attachment] = field(default_factory=list)
    """In order of arrival; of a unique or failover subscription the first one is active."""
    counts: Counts = field(default_factory=Counts)
    fetching: dict[int, int] = field(default_factory=dict)
    """Shards with a read under way, and how many bytes it may bring."""
    redrives: int = 0
    copy: Copy = field(default_factory=Copy)
    burying: bool = False  # whether dying entries are being put aside right now
    bury_again_us: int = 0
    bury_fault: str = ""  # why the last attempt to put them aside failed
    schemas: Callable[[], SchemaVersions | None] = lambda: None
    """Of the topic, for the keys in its records."""
    scheduled_us: int | None = None
    """When it is next looked at, as the scheduler knows it."""
    deadlines: Deadlines = field(default_factory=Deadlines)
    dispatch: Dispatch = field(init=False)
    _failures: dict[tuple[int, int], int] = field(default_factory=dict)
    """How often the active consumer failed an entry (failover)."""
    _lost: dict[bytes, dict[int, HeldWhenLost]] = field(default_factory=dict)
    """By instance and shard: what consumers held that were lost and may come back."""
    _settle_numbers: dict[bytes, int] = field(default_factory=dict)
    """By instance: the last SETTLE of consumers that were lost and may come back."""

    def __post_init__(self) -> None:
        self.set_policy(self.policy)
        if self.kind == "shared":
            self.dispatch = OneAtATime(self) if self.strict else SharedDispatch(self)
        elif self.kind == "key_shared":
            self.dispatch = KeyDispatch(self)
        else:
            self.dispatch = Dispatch(self)

    def set_policy(self, policy: Policy) -> None:
        """``policy`` is effective: its defaults are filled in."""
        self.policy = policy
        for cursor in self.cursors:
            cursor.attempts_max = policy.max_attempts or 0

    @property
    def strict(self) -> bool:
        """Whether a consumer sees a message only after the one before it was settled."""
        return self.mode == "resilient"

    @property
    def single(self) -> bool:
        """Whether one consumer gets everything."""
        return self.kind in ("unique", "failover")

    @property
    def lease_s(self) -> float:
        """How long its consumer may go on by itself; 0 where there is no lease."""
        return (self.policy.lease or 0.0) if self.strict and self.single else 0.0

    def active(self, attachment: Attachment) -> bool:
        return not self.single or self.attachments[:1] == [attachment]

    # --- who reads ----------------------------------------------------------------------------------

    def admit(self, attachment: Attachment, now_us: int, seen: dict[int, EntrySet] | None = None) -> Change:
        """Attaches a consumer, or raises ``SubscriptionBusy``. One that came back takes its own place.

        ``seen`` is by shard what its program has in hand from before; None: it does not say.
        """
        change = Change()
        place = len(self.attachments)
        for index, other in enumerate(self.attachments):
            if attachment.instance and other.instance == attachment.instance:
                place = index
                self._drop(other, None if seen is None else {}, change, in_hand=seen)
                change.gone.append(other)
                break
        else:
            if self.kind == "unique" and self.attachments:
                self._evict_silent(self.attachments[0], now_us, change)
                place = 0
        attachment.subscription = self
        attachment.repeats_to = self._settle_numbers.pop(attachment.instance, 0)
        attachment.lease_until_us = now_us + lease_us(self.lease_s)
        self.attachments.insert(place, attachment)
        self._take_up(attachment, seen or {}, now_us, change)
        return change

    def welcome(self, attachment: Attachment) -> Change:
        """The subscription is durable: the consumer takes part. Others share what they were sent ahead."""
        change = Change()
        for other in self.attachments if not self.single and not self.strict else ():
            if any(other.held.values()):
                self._recall(other, change)
        attachment.welcome = True
        return change

    def _recall(self, attachment: Attachment, change: Change) -> None:
        """A consumer is to give back what it has not handed out.

        It answers once (``take_back``). Until then it is sent nothing, so nothing is in transit to it when what
        it gave back goes out again, to it or to another: messages stay in order, and it has no copy of one that
        comes again.
        """
        if attachment.welcome and attachment.connected and not attachment.recalled:
            attachment.recalled = True
            change.recalled.append(attachment)

    def _take_up(self, attachment: Attachment, seen: dict[int, EntrySet], now_us: int, change: Change) -> None:
        """A consumer came back and says what its program has in hand.

        If it is the one that gets everything, it holds that as before, unless somebody else does. Otherwise
        that comes flagged to whoever gets it. After a restart of the node only its consumers know what was out.
        """
        lost = self._lost.pop(attachment.instance, {})
        attachment.held_before = {shard: each.held for shard, each in lost.items()}
        for shard, handed in seen.items():
            cursor, held = self.cursors[shard], EntrySet()
            if self.single and self.active(attachment):
                held = cursor.hold(handed)
                handed.exclude(held)
            if held:
                spans = list(held.spans(0, held.end))
                attachment.hold(shard, spans)
                if self.policy.deadline is not None:
                    self.deadlines.set(attachment, shard, held, now_us, self.policy.deadline)
            before = lost.get(shard) or HeldWhenLost(EntrySet(), EntrySet(), EntrySet())
            if returned := cursor.recount(before, held, handed):
                change.returned.append((shard, returned))

    def _evict_silent(self, holder: Attachment, now_us: int, change: Change) -> None:
        """A unique subscription is another's only once its consumer's lease is over."""
        if not self.lease_s or holder.lease_until_us > now_us:
            wait_s = (holder.lease_until_us - now_us) / 1e6
            more = f", which is away; its lease lasts {wait_s:.1f} s more" if not holder.connected else ""
            raise SubscriptionBusy(
                f"the unique subscription {self.name!r} has a consumer: {holder.shown}{more}"
            )
        self._drop(holder, None, change)
        change.gone.append(holder)

    def renew(self, attachment: Attachment, number: int, now_us: int) -> None:
        attachment.renewal = number
        attachment.lease_until_us = now_us + lease_us(self.lease_s)

    def leave(self, attachment: Attachment, seen: dict[int, EntrySet] | None = None) -> Change:
        """The consumer left in order: what it held goes to the next one. ``seen`` is by shard; None for all."""
        change = Change()
        attachment.left = seen is not None
        self._drop(attachment, seen, change)
        return change

    def lose(self, attachment: Attachment) -> Change:
        """The consumer's connection is gone. A lease that it holds goes on without it."""
        change = Change()
        if self.lease_s and attachment.welcome and self.active(attachment):
            attachment.connected = False
        else:
            self._drop(attachment, None, change)
        return change

    def _drop(
        self,
        attachment: Attachment,
        seen: dict[int, EntrySet] | None,
        change: Change,
        in_hand: dict[int, EntrySet] | None = None,
    ) -> None:
        was_active = self.active(attachment)
        self.attachments.remove(attachment)
        if attachment.instance and not attachment.left:
            number = max(attachment.settle_number, attachment.repeats_to)
            _remember(self._settle_numbers, attachment.instance, number)
        self._release(attachment, seen, change, in_hand or {}, sure=seen is not None)
        attachment.connected = False
        if was_active and self.single and self.attachments:
            self._failures.clear()
            change.standing.append(self.attachments[0])

    def _release(
        self,
        attachment: Attachment,
        seen: dict[int, EntrySet] | None,
        change: Change,
        in_hand: dict[int, EntrySet],
        *,
        sure: bool,
    ) -> None:
        """What a consumer held is to be offered to the next. What it saw is guessed where it is not told."""
        self.deadlines.forget(attachment)
        unsure_max = UNSURE_RESILIENT_MAX if self.strict else UNSURE_MAX
        lost: dict[int, HeldWhenLost] = {}
        for shard, held in attachment.held.items():
            if seen is None:
                counted = attachment.surely_seen(shard, unsure_max)
                doubtful = held.copy()
                for others in (counted, self.cursors[shard].maybe_seen):
                    doubtful.exclude(others)
                lost[shard] = HeldWhenLost(held, counted, doubtful)
            else:
                counted = seen.get(shard, EntrySet())
                lost[shard] = HeldWhenLost(held, EntrySet(), EntrySet())
            returned = self.cursors[shard].give_back(held, counted, in_hand=in_hand.get(shard), sure=sure)
            self.dispatch.came_back(shard, held)
            if returned:
                change.returned.append((shard, returned))
        attachment.held.clear()
        attachment.slots.clear()
        attachment.cached.clear()
        if lost and attachment.instance and not attachment.left:
            _remember(self._lost, attachment.instance, lost)

    def _step_back(self, attachment: Attachment, change: Change) -> None:
        """The active consumer of a failover subscription goes to the end of the line."""
        self._failures.clear()
        # In strict order its program had nothing but the message that it failed, unless it failed to settle it
        # in time: then it may have done so since, and gone on.
        self._release(attachment, {}, change, {}, sure=self.strict and not attachment.overdue)
        self.attachments.append(self.attachments.pop(0))
        change.standing += [attachment, self.attachments[0]]

    # --- what is read -------------------------------------------------------------------------------

    def want(self, ends: list[int], bytes_max: int) -> Wanted | None:
        return None if self.paused else self.dispatch.want(ends, bytes_max)

    def release(self, ends: list[int]) -> None:
        """If somebody has room: refused entries that may come again now are available."""
        if self.paused or not any(cursor.unacked_log for cursor in self.cursors):
            return
        if self.strict or self.dispatch.takers():  # what the order waits for needs no room
            self.dispatch.release(ends)

    def direct(self, ends: list[int], now_us: int) -> list[Offer]:
        return [] if self.paused else self._count(self.dispatch.direct(ends), now_us)

    def deal(self, shard: int, run: ReadResult, entry: int | None, now_us: int) -> list[Offer]:
        """What to send of records that were read from ``entry`` on (None: that were just stored)."""
        return [] if self.paused else self._count(self.dispatch.deal(shard, run, entry), now_us)

    def _count(self, offers: list[Offer], now_us: int) -> list[Offer]:
        for offer in offers:
            rows = sum(end - start for start, end in offer.spans)
            self.counts.delivered += rows
            self.cursors[offer.shard].tally.handed_out(rows, offer.attempt)
            if offer.attempt > 1:
                self.counts.redelivered += rows
            if self.policy.deadline is not None:
                out = EntrySet.of(offer.spans)
                self.deadlines.set(offer.attachment, offer.shard, out, now_us, self.policy.deadline)
        return offers

    def opened(self, attachment: Attachment) -> None:
        """A consumer has room again."""
        self.dispatch.opened(attachment)

    def heard(self, attachment: Attachment) -> None:
        """A consumer that let a deadline pass lives."""
        if attachment.overdue:
            attachment.overdue = False
            self.dispatch.opened(attachment)

    # --- time ---------------------------------------------------------------------------------------

    def on_time(self, now_us: int, ends: list[int]) -> Change:
        """Deadlines that passed, leases that ended, entries whose time has come."""
        change = Change()
        if self.bury_again_us <= now_us:
            self.bury_again_us = 0
        expired = [(*due[:2], self._expire(*due, ends, change)) for due in self.deadlines.take(now_us)]
        for attachment, shard, late in expired if self.kind == "failover" else ():
            for start, end in islice(late.spans(0, late.end), FAILURES_MAX):
                self.failed(attachment, shard, start, end, change)
        if self.lease_s and self.attachments:
            first = self.attachments[0]
            awaited = not first.connected or len(self.attachments) > 1
            if awaited and first.lease_until_us <= now_us:
                self._drop(first, None, change)
                change.gone.append(first)
        for cursor in self.cursors:
            cursor.wake(now_us)
        return change

    def _expire(
        self, attachment: Attachment, shard: int, entries: EntrySet, ends: list[int], change: Change
    ) -> EntrySet:
        """A consumer did not settle in time: this touches these entries only. Returns those it still had."""
        late = attachment.take_from(shard, entries)
        if not late:
            return late
        attachment.overdue = True
        cursor = self.cursors[shard]
        if self.strict:  # the order waits for it
            change.returned.append((shard, cursor.give_back(late)))
        else:
            bound = self._bound(ends[shard])
            change.returned.append((shard, cursor.expire(late, bound)))
            change.refused.append((shard, late, bound))
        self.dispatch.expired(attachment, shard, late)
        self._recall(attachment, change)
        return late

    def _bound(self, end: int) -> int:
        """What a refused entry waits for, with the shard's log at ``end``: everything before this entry."""
        return end if self.policy.redelivery == AFTER_BACKLOG else 0

    @property
    def due_us(self) -> int | None:
        """When ``on_time`` is to be called next."""
        times = [time for cursor in self.cursors if (time := cursor.due_us) is not None]
        if (deadline_us := self.deadlines.due_us) is not None:
            times.append(deadline_us)
        if self.lease_s and self.attachments:
            first = self.attachments[0]
            if not first.connected or len(self.attachments) > 1:
                times.append(first.lease_until_us)
        if self.bury_again_us:
            times.append(self.bury_again_us)
        return min(times, default=None)

    # --- what became of it --------------------------------------------------------------------------

    def ack(
        self, shard: int, start: int, end: int, by: Attachment | None = None, change: Change | None = None
    ) -> int:
        """Returns how many of the entries had been settled before."""
        settled = self._settle(shard, start, end, by, ACKED, change)
        self.counts.acked += settled
        return self._came_late(shard, end - start - settled)

    def ack_upto(
        self, shard: int, end: int, by: Attachment | None = None, change: Change | None = None
    ) -> None:
        """Everything before ``end``; what of it was settled is not late."""
        start = min(self.cursors[shard].cursor, end)
        self.counts.acked += self._settle(shard, start, end, by, ACKED, change)

    def skip(
        self, shard: int, start: int, end: int, by: Attachment | None = None, change: Change | None = None
    ) -> int:
        settled = self._settle(shard, start, end, by, SKIPPED, change)
        self.counts.skipped += settled
        return self._came_late(shard, end - start - settled)

    def _came_late(self, shard: int, count: int) -> int:
        self.counts.late += count
        self.cursors[shard].tally.late += count
        return count

    def give_up(self, shard: int, start: int, end: int, kind: str = DAMAGED) -> int:
        """Entries that cannot be delivered; they count as done with, so that nobody waits for them."""
        lost = self._settle(shard, start, end, None, kind)
        self.counts.lost += lost
        return lost

    def bury(self, shard: int, start: int, end: int) -> int:
        """Entries that were tried too often and are put aside."""
        buried = self._settle(shard, start, end, None, DEAD)
        self.counts.buried += buried
        return buried

    def _settle(
        self,
        shard: int,
        start: int,
        end: int,
        by: Attachment | None,
        kind: str,
        change: Change | None = None,
    ) -> int:
        if start >= end:
            return 0
        cursor = self.cursors[shard]
        held = cursor.held.count(start, end)
        unheld = kind in (ACKED, SKIPPED) and held < end - start
        touched = cursor.touched(start, end) if unheld else end - start
        cursor.tally.reached_lost += cursor.touched(start, end) if kind in LOST else 0
        if by is not None:
            held -= by.let_go(shard, start, end)
            by.settled_to[shard] = max(by.settled_to.get(shard, 0), end)
        if held > 0:  # somebody else has some of them, or nobody any more
            for attachment in self.attachments:
                if attachment.let_go(shard, start, end) and change is not None:
                    change.overtaken.append((attachment, shard, start, end))
        if change is not None and self.lease_s and self.attachments and by is not self.attachments[0]:
            change.overtaken.append((self.attachments[0], shard, start, end))  # it may wait for one of them
        if kind == SKIPPED:
            cursor.mark_skipped(start, end)
        count = self.dispatch.settle(shard, start, end, dead=kind == DEAD)
        cursor.tally.settled(kind, count)
        cursor.tally.elsewhere += max(count - touched, 0)
        return count

    def nack(
        self,
        shard: int,
        entry: int,
        delay_s: float | None,
        now_us: int,
        end: int,
        by: Attachment,
        *,
        repeated: bool = False,
    ) -> Refusal | None:
        """The shard's log is at ``end``. None where the entry is not this consumer's to refuse."""
        cursor = self.cursors[shard]
        mine = by.let_go(shard, entry, entry + 1)
        by.settled_to[shard] = max(by.settled_to.get(shard, 0), entry + 1)
        wait_s = self.policy.backoff_s(cursor.deliveries(entry) + 1) if delay_s is None else delay_s
        wait_us = round(wait_s * 1e6)
        due_us, bound = due_step_up(now_us + wait_us, wait_us), self._bound(end)
        deliveries = None
        before = by.held_before.get(shard)
        if mine or (before is not None and entry in before and entry not in cursor.held):
            deliveries = cursor.nack(entry, due_us, bound, repeated=repeated)
        else:
            cursor.saw(entry)
        if deliveries is None:
            self._came_late(shard, 1)
            return None
        if mine:
            self.dispatch.came_back(shard, EntrySet.of([(entry, entry + 1)]))
        self.counts.nacked += not repeated
        return Refusal(deliveries, due_us, bound)

    def failed(self, attachment: Attachment, shard: int, start: int, end: int, change: Change) -> None:
        """Failover: whoever fails one message too often lets the next one try, once all is counted."""
        if self.kind != "failover" or self.attachments[:1] != [attachment] or len(self.attachments) < 2:
            return
        if len(self._failures) > FAILURES_MAX:
            self._failures.clear()
        first_two = self.attachments[:2]  # the lease of one that is away goes on
        for entry in range(start, min(end, start + FAILURES_MAX)):
            failures = self._failures[shard, entry] = self._failures.get((shard, entry), 0) + 1
            if failures >= (self.policy.failover_after or 1) and all(each.connected for each in first_two):
                self._step_back(attachment, change)
                return

    def extend(
        self, attachment: Attachment, shard: int, spans: list[Span], seconds: float | None, now_us: int
    ) -> None:
        """Moves the deadline of what the consumer holds."""
        if self.policy.deadline is None:
            return
        held = attachment.held.get(shard)
        if held and (mine := held.among(RangeSet(spans))):
            wait_s = self.policy.deadline if seconds is None else seconds
            self.deadlines.set(attachment, shard, mine, now_us, wait_s)

    def take_back(self, attachment: Attachment, shard: int, spans: list[Span], *, done: bool = False) -> None:
        """The consumer gives back what it was only sent ahead; that counts as no attempt.

        ``done`` ends its answer to a recall.
        """
        if held := attachment.held.get(shard):
            mine = held.among(RangeSet(spans))
            held.exclude(mine)
            self.cursors[shard].give_back(mine, EntrySet())
            self.dispatch.came_back(shard, mine)
        if done:
            attachment.recalled = False
            self.dispatch.opened(attachment)

    # --- places -------------------------------------------------------------------------------------

    def seek(self, shard: int, entry: int, run: int = 0) -> None:
        """Sets a shard's place; nobody may be attached."""
        assert not self.attachments
        self._lost.clear()
        self.cursors[shard].move(entry, run)
        self.dispatch.reset()

    def redrive(self, shard: int, start: int, end: int) -> list[Span]:
        """Dead entries are offered again; returns which."""
        spans = self.cursors[shard].reopen(start, end)
        self.counts.redriven += sum(last - first for first, last in spans)
        return spans

    @property
    def dead(self) -> int:
        return sum(len(cursor.dead) for cursor in self.cursors)

    @property
    def dying(self) -> bool:
        return not self.copy.passive and any(cursor.dying for cursor in self.cursors)


def _remember(kept: dict[bytes, Kept], instance: bytes, what: Kept) -> None:
    """The one that was lost first is forgotten where there are too many."""
    kept.pop(instance, None)
    while len(kept) >= LOST_MAX:
        del kept[next(iter(kept))]
    kept[instance] = what
