"""A subscription: a named reader of a topic, durable whether a consumer is connected or not.

The machine, without clock or IO. Inputs: consumers attach (``admit``), renew their leases, leave or lose their
connection; records are read (``offer``); entries are settled, refused, extended; time passes (``on_time``). It
returns the offers to send. What else a step means for the journal and for consumers gathers in
``consequences``, which the shell (``consume.py``) takes after each step.

Its parts: one ``ShardCursor`` per shard (the state of each entry), one ``Attachment`` per consumer (what it
holds, its lease), ``Deadlines``. A kind of subscription is a subclass: it decides who gets what (kinds.py,
key_shared.py) and implements ``receivers``, ``offer`` and, where it differs, the other methods of the section
"what a kind decides".
"""

# ruff: noqa: B027  (a kind overrides the hooks that it needs)

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, TypeVar

from headpond.broker.subscriptions.attachment import Attachment, Deadlines, lease_us
from headpond.broker.subscriptions.cursor import HeldWhenLost, ShardCursor
from headpond.broker.subscriptions.records import (
    ACKED,
    DEAD,
    LOST,
    SKIPPED,
    Copied,
    History,
    ReturnedSet,
    Settlement,
    SubscriptionCounts,
)
from headpond.broker.subscriptions.unacked_log import due_step_up
from headpond.model.entry_set import EntrySet, Span
from headpond.model.errors import SubscriptionPassive
from headpond.model.policy import AFTER_BACKLOG, Policy
from headpond.model.ranges import RangeSet
from headpond.storage.log.read import ReadResult, StoredRecord
from headpond.wire.control.consuming import Settle
from headpond.wire.typed.versions import SchemaVersions

Item = TypeVar("Item")

PRESUMED_MAX = 5000
"""So many of the entries that a lost consumer held may have been delivered; a segment has as many rows."""
PRESUMED_RESILIENT_MAX = 257
"""In resilient mode: one window of acknowledgements, and the message in hand."""
_Refused = list[tuple[int, int, int, int, int]]
LOST_MAX = 1000
"""Consumers that lost their connection and may come back."""


@dataclass(slots=True)
class Copy:
    """Whether a subscription is active, or the passive copy of another node's.

    ``epoch`` counts promotions: of two nodes that both have it as active, the one with the higher epoch is
    right. ``generation`` counts what takes settlements back (a seek, a redrive). Everything else only adds to
    what is settled, so a source may report it twice.
    """

    record: Copied | None = None
    """As the journal has it; None unless another node's subscription was copied here."""
    generation: int = 0
    floors: dict[int, int] = field(default_factory=dict)
    """By shard: everything before this entry of the source's log is settled here."""
    left: dict[int, int] = field(default_factory=dict)
    """By shard: settlements that the source had not sent yet at its last report in this run of the node."""
    reported_us: int = 0
    """When that report came."""
    consumers: int | None = None
    """How many consumers there were then."""
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
    """Why it cannot be used here, and where it can."""
    where = f" at {record.url}" if record.url else ""
    return SubscriptionPassive(
        f"subscription {name!r} is a passive copy: it lives on node {record.node}{where}, link {record.link!r}",
        hint=f"Consume there. To continue here instead: `headpond sub promote {topic} {name}`.",
    )


def copy_fields(copy: Copy) -> dict[str, Any]:
    """The fields of ``SubscriptionInfo`` about it."""
    record = copy.record
    return {
        "passive": copy.passive,
        "node": record.node if record is not None else "",
        "link": record.link if record is not None else "",
        "epoch": copy.epoch,
        "behind": sum(copy.left.values()) if copy.passive and copy.reported_us else None,
        "told_at_us": copy.reported_us,
        "ignored": copy.ignored,
        "elsewhere": copy.elsewhere,
    }


class ReadRequest(NamedTuple):
    """What to read next."""

    shard: int
    entry: int
    bytes_max: int
    """At least one record comes, whatever its size."""


class Offer(NamedTuple):
    """Entries to send now, with the number of their delivery attempt."""

    attachment: Attachment
    shard: int
    attempt: int
    spans: list[Span]
    records: list[StoredRecord]
    """The records that hold them; none where the consumer has the record already."""


class Refusal(NamedTuple):
    """An entry was refused."""

    deliveries: int
    """How often it was delivered."""
    due_us: int
    """When it may be redelivered."""
    bound: int
    """Everything before this entry is settled before it is redelivered; 0: it does not wait for that."""


@dataclass(slots=True)
class Consequences:
    """What steps of the machine mean for the journal and for consumers, beside their results."""

    returned: list[tuple[int, list[ReturnedSet]]] = field(default_factory=list)
    """By shard: entries that came back, for the journal."""
    refused: list[tuple[int, EntrySet, int]] = field(default_factory=list)
    """(shard, entries, bound) of those of ``returned`` that are in the unacked log."""
    detached: list[Attachment] = field(default_factory=list)
    """Consumers whose lease is over."""
    roles: list[Attachment] = field(default_factory=list)
    """Consumers that became active or standby."""
    recalled: list[Attachment] = field(default_factory=list)
    """Consumers that are to give back their prefetched entries."""
    overtaken: list[tuple[Attachment, int, int, int]] = field(default_factory=list)
    """(consumer, shard, start, end) of entries that it holds or waits for, and that do not come to it."""
    deserted: bool = False
    """Whether the last consumer left; another may have come since."""


class Subscription(ABC):
    single: ClassVar[bool] = False
    """Whether one consumer gets everything."""
    settling_frees: ClassVar[bool] = False
    """Whether each settlement may free another entry: the shell then calls ``offer_cached``."""
    reads_packed: ClassVar[bool] = True
    """Whether packed records are offered. Not where a consumer keeps the last record for further messages."""

    def __init__(
        self,
        topic_uuid: bytes,
        name: str,
        kind: str,
        mode: str,
        cursors: list[ShardCursor],
        created_at_us: int,
        policy: Policy,
        schemas: Callable[[], SchemaVersions | None] = lambda: None,
    ) -> None:
        """``policy`` has its defaults filled in. ``schemas`` are the topic's, to read keys from its records."""
        self.topic_uuid = topic_uuid
        self.name = name
        self.kind = kind
        self.mode = mode
        self.strict = mode == "resilient"
        """Whether a consumer gets a message only after the one before it was settled."""
        self.cursors = cursors
        self.created_at_us = created_at_us
        self.policy = policy
        for cursor in cursors:
            cursor.attempts_max = policy.max_attempts or 0
        self.lease_s = (policy.lease or 0.0) if self.strict and self.single else 0.0
        """How long its consumer may continue without hearing from the node; 0 where there is no lease."""
        self.schemas = schemas
        self.paused = False
        self.attachments: list[Attachment] = []
        """In order of arrival; the first one of a unique or failover subscription is active."""
        self.counts = SubscriptionCounts()
        self.history = History()
        self.redrives = 0
        self.copy = Copy()
        self.consequences: Consequences | None = None
        """Of the steps since they were last taken."""
        self.fetching: dict[int, int] = {}
        """Shards with a read under way, and how many bytes it may bring."""
        self.read_again_us = 0
        """When to read again after a read failed; 0 unless one did."""
        self.burying = False
        """Whether dying entries are being copied to the dead-letter topic."""
        self.bury_again_us = 0
        """When to try that again after it failed; 0 unless it did."""
        self.bury_fault = ""
        """Why it failed."""
        self.scheduled_us: int | None = None
        """When the shell looks at it next."""
        self.advanced_by = ""
        """The client that last moved it by position in this run of the node; empty: none did."""
        self.advanced_at_us = 0
        self.deadlines = Deadlines()
        self._turn = 0
        """The shard to read first."""
        self._lost: dict[bytes, dict[int, HeldWhenLost]] = {}
        """By instance and shard: what consumers held that lost their connection and may come back."""
        self._settle_numbers: dict[bytes, int] = {}
        """By instance: the last SETTLE of consumers that lost their connection and may come back."""
        self.reset()

    def check_active(self, topic: str) -> None:
        """Raises if it is the copy of another node's subscription; ``topic`` is named in the error."""
        if self.copy.record is not None and not self.copy.record.active:
            raise passive_error(self.name, self.copy.record, topic)

    def active(self, attachment: Attachment) -> bool:
        return not self.single or self.attachments[:1] == [attachment]

    @property
    def dead(self) -> int:
        return sum(len(cursor.dead) for cursor in self.cursors)

    @property
    def dying(self) -> bool:
        return any(cursor.dying.bits for cursor in self.cursors) and not self.copy.passive

    @property
    def has_returned(self) -> bool:
        """Whether entries came back that are not offered again, or may hold up others."""
        for cursor in self.cursors:
            if cursor.unacked_log.entries.bits or cursor.ready.bits or cursor.dying.bits:
                return True
        return False

    def _result(self) -> Consequences:
        if self.consequences is None:
            self.consequences = Consequences()
        return self.consequences

    # --- what a kind decides ------------------------------------------------------------------------

    @abstractmethod
    def receivers(self) -> list[Attachment]:
        """The consumers that the node can send to now; none while the subscription is paused."""

    @abstractmethod
    def offer(self, shard: int, run: ReadResult, entry: int | None) -> list[Offer]:
        """What to send of records that were read from ``entry`` on (None: that were just stored)."""

    def offer_cached(self, ends: list[int]) -> list[Offer]:
        """What to send without reading: consumers have the records. ``ends`` are the shards' durable ends."""
        return []

    def next_read(self, receivers: list[Attachment], ends: list[int], bytes_max: int) -> ReadRequest | None:
        """What to read next, if a consumer has room: redeliveries before new entries; shards take turns."""
        return self._next_read(ends, bytes_max, self.room_bytes(receivers))

    def release_refused(self, ends: list[int]) -> None:
        """If a consumer has room: refused entries that may be redelivered now become ready."""
        waiting = any(cursor.unacked_log.entries.bits for cursor in self.cursors)
        if waiting and not self.paused and (self.strict or self.receivers()):  # the order needs no room
            self._release_refused(ends)

    def _release_refused(self, ends: list[int]) -> None:
        for end, cursor in zip(ends, self.cursors, strict=True):
            cursor.release(end)

    def gained_room(self, attachment: Attachment) -> None:
        """A consumer can be sent more."""

    def came_back(self, shard: int, entries: EntrySet) -> None:
        """Delivered entries are to be offered again, now or later, or are dying."""

    def expired(self, attachment: Attachment, shard: int, entries: EntrySet) -> None:
        """Entries came back because a consumer did not settle them in time."""
        self.came_back(shard, entries)

    def failed(self, attachment: Attachment, shard: int, spans: Iterable[Span]) -> None:
        """A consumer refused entries or let them expire."""

    def _make_room(self, now_us: int) -> None:
        """Raises ``SubscriptionBusy`` unless one more consumer may attach."""

    def reset(self) -> None:
        """At the beginning and after a seek: no entry is with a consumer."""

    # --- offering -----------------------------------------------------------------------------------

    def room_bytes(self, receivers: list[Attachment]) -> int:
        """What consumers can take beyond the reads under way."""
        credit = 0
        for each in receivers:
            credit += each.credit_bytes
        return credit - sum(self.fetching.values()) if self.fetching else credit

    def _next_read(
        self, ends: list[int], bytes_max: int, room: int, *, in_order: bool = False
    ) -> ReadRequest | None:
        """``in_order``: nothing is offered behind an entry of the shard that waits."""
        shards = len(self.cursors) if room > 0 else 0
        for step in range(shards):
            shard = (self._turn + step) % shards
            if shard in self.fetching:
                continue
            entry = self.cursors[shard].next_wanted(ends[shard], in_order=in_order)
            if entry is not None:
                self._turn = (shard + 1) % shards
                return ReadRequest(shard, entry, min(bytes_max, room))
        return None

    def _give(
        self, receiver: Attachment, shard: int, spans: list[Span], records: list[StoredRecord]
    ) -> list[Offer]:
        """Offers spans of records to a consumer; it pays for the records with its credit."""
        offers: list[Offer] = []
        for attempt, some in self.cursors[shard].take(spans):
            needed = _needed(records, some, shard)
            for record in needed:
                receiver.credit_bytes -= sum(map(len, record.parts))
            receiver.hold(shard, some)
            offers.append(Offer(receiver, shard, attempt, some, needed))
        return offers

    def sent(self, offer: Offer, now_us: int) -> int:
        """Counts an offer and starts its deadline; returns the number of its entries."""
        rows = 0
        for start, end in offer.spans:
            rows += end - start
        tally = self.cursors[offer.shard].tally
        self.counts.delivered += rows
        tally.delivered += rows
        if offer.attempt > 1:
            self.counts.redelivered += rows
            tally.redelivered += rows
        if self.policy.deadline is not None:
            out = EntrySet.of(offer.spans)
            self.deadlines.set(offer.attachment, offer.shard, out, now_us, self.policy.deadline)
        return rows

    # --- consumers ----------------------------------------------------------------------------------

    def admit(
        self,
        attachment: Attachment,
        now_us: int,
        in_hand: dict[int, EntrySet] | None = None,
        refused: dict[int, EntrySet] | None = None,
    ) -> None:
        """Attaches a consumer, or raises ``SubscriptionBusy``. One that comes back takes its previous place.

        ``in_hand`` is by shard what its program has from before, or has ``refused``; None: it does not say.
        """
        place = len(self.attachments)
        for index, other in enumerate(self.attachments):
            if attachment.instance and other.instance == attachment.instance:
                place = index
                self._drop(other, None if in_hand is None else {}, in_hand=in_hand)
                self._result().detached.append(other)
                break
        else:
            self._make_room(now_us)
            place = len(self.attachments)
        attachment.repeats_to = self._settle_numbers.pop(attachment.instance, 0)
        attachment.lease_until_us = now_us + lease_us(self.lease_s)
        self.attachments.insert(place, attachment)
        self._restore_held(attachment, in_hand or {}, refused or {}, now_us)

    def welcome(self, attachment: Attachment) -> None:
        """The subscription is durable: the consumer takes part. Others give back prefetched entries for it."""
        for other in self.attachments if not self.single and not self.strict else ():
            if any(other.held.values()):
                self._recall(other)
        attachment.welcome = True

    def _recall(self, attachment: Attachment) -> None:
        """Asks a consumer to give back its prefetched entries.

        It answers once (``take_back``). Until then it is sent nothing, so nothing is in transit to it when the
        returned entries go out again: messages stay in order, and it has no copy of one that comes again.
        """
        if attachment.welcome and attachment.connected and not attachment.recalled:
            attachment.recalled = True
            self._result().recalled.append(attachment)

    def _restore_held(
        self,
        attachment: Attachment,
        in_hand: dict[int, EntrySet],
        refused: dict[int, EntrySet],
        now_us: int,
    ) -> None:
        """A consumer came back and says what its program has in hand.

        If it is the one that gets everything, it holds that as before, unless another consumer does. Otherwise
        its next delivery is flagged. After a restart of the node only its consumers know what was delivered.
        """
        lost = self._lost.pop(attachment.instance, {})
        attachment.held_before = {shard: each.held for shard, each in lost.items()}
        for shard, delivered in in_hand.items():
            cursor, held = self.cursors[shard], EntrySet()
            if self.single and self.active(attachment):
                held = cursor.hold(delivered, refused.get(shard))
                delivered.exclude(held)
            if held:
                attachment.hold(shard, list(held.spans(0, held.end)))
                if self.policy.deadline is not None:
                    self.deadlines.set(attachment, shard, held, now_us, self.policy.deadline)
            before = lost.get(shard) or HeldWhenLost(EntrySet(), EntrySet(), EntrySet())
            if returned := cursor.recount(before, held, delivered):
                self._result().returned.append((shard, returned))

    def renew(self, attachment: Attachment, number: int, now_us: int) -> None:
        attachment.renewal = number
        attachment.lease_until_us = now_us + lease_us(self.lease_s)

    def leave(self, attachment: Attachment, delivered: dict[int, EntrySet] | None = None) -> None:
        """The consumer unsubscribed: what it held goes to the next one.

        ``delivered`` is by shard what its program was given; None: all of it.
        """
        attachment.left = delivered is not None
        self._drop(attachment, delivered)

    def disconnect(self, attachment: Attachment) -> None:
        """The consumer's connection is gone. Its lease, if it has one, continues."""
        if self.lease_s and attachment.welcome and self.active(attachment):
            attachment.connected = False
        else:
            self._drop(attachment, None)

    def _drop(
        self,
        attachment: Attachment,
        delivered: dict[int, EntrySet] | None,
        in_hand: dict[int, EntrySet] | None = None,
    ) -> None:
        was_active = self.active(attachment)
        self.attachments.remove(attachment)
        if attachment.instance and not attachment.left:
            number = max(attachment.settle_number, attachment.repeats_to)
            _remember(self._settle_numbers, attachment.instance, number)
        self._take_all(attachment, delivered, in_hand or {}, sure=delivered is not None)
        attachment.connected = False
        if was_active and self.single and self.attachments:
            self._result().roles.append(self.attachments[0])
        if not self.attachments:
            self._result().deserted = True

    def _take_all(
        self,
        attachment: Attachment,
        delivered: dict[int, EntrySet] | None,
        in_hand: dict[int, EntrySet],
        *,
        sure: bool,
    ) -> None:
        """What a consumer held is offered to the next one. ``delivered`` None: some of it is presumed to be."""
        self.deadlines.forget(attachment)
        ahead_max = PRESUMED_RESILIENT_MAX if self.strict else PRESUMED_MAX
        lost: dict[int, HeldWhenLost] = {}
        for shard, held in attachment.held.items():
            if delivered is None:
                counted = attachment.presumed_delivered(shard, ahead_max)
                doubtful = held.copy()
                for others in (counted, self.cursors[shard].flagged):
                    doubtful.exclude(others)
                lost[shard] = HeldWhenLost(held, counted, doubtful)
            else:
                counted = delivered.get(shard, EntrySet())
                lost[shard] = HeldWhenLost(held, EntrySet(), EntrySet())
            returned = self.cursors[shard].give_back(held, counted, in_hand=in_hand.get(shard), sure=sure)
            self.came_back(shard, held)
            if returned:
                self._result().returned.append((shard, returned))
        attachment.held.clear()
        attachment.slots.clear()
        attachment.cached.clear()
        if lost and attachment.instance and not attachment.left:
            _remember(self._lost, attachment.instance, lost)

    # --- time ---------------------------------------------------------------------------------------

    def on_time(self, now_us: int, ends: list[int]) -> None:
        """Deadlines that passed, leases that ended, entries whose time has come."""
        if self.bury_again_us <= now_us:
            self.bury_again_us = 0
        if self.read_again_us <= now_us:
            self.read_again_us = 0
        late = [(*due[:2], self._expire(*due, ends)) for due in self.deadlines.take(now_us)]
        for attachment, shard, entries in late:
            self.failed(attachment, shard, entries.spans(0, entries.end))
        if (first := self._lease_holder) is not None and first.lease_until_us <= now_us:
            self._drop(first, None)
            self._result().detached.append(first)
        for cursor in self.cursors:
            cursor.unacked_log.wake(now_us)

    @property
    def _lease_holder(self) -> Attachment | None:
        """The consumer whose lease another one, or its own reconnecting, waits for."""
        if not self.lease_s or not self.attachments:
            return None
        first = self.attachments[0]
        return first if not first.connected or len(self.attachments) > 1 else None

    def _expire(self, attachment: Attachment, shard: int, entries: EntrySet, ends: list[int]) -> EntrySet:
        """A consumer did not settle in time; only these entries are concerned. Returns those it still held."""
        late = attachment.take_from(shard, entries)
        if not late:
            return late
        attachment.overdue = True
        cursor, result = self.cursors[shard], self._result()
        if self.strict:  # the order waits for it
            result.returned.append((shard, cursor.give_back(late)))
        else:
            bound = self._bound(ends[shard])
            result.returned.append((shard, cursor.expire(late, bound)))
            result.refused.append((shard, late, bound))
        self.expired(attachment, shard, late)
        self._recall(attachment)
        return late

    def _bound(self, end: int) -> int:
        """What a refused entry waits for, with the shard's log at ``end``: everything before this entry."""
        return end if self.policy.redelivery == AFTER_BACKLOG else 0

    @property
    def due_us(self) -> int | None:
        """When ``on_time`` is to be called next."""
        times = [cursor.unacked_log.due_us for cursor in self.cursors]
        times.append(self.deadlines.due_us)
        if (first := self._lease_holder) is not None:
            times.append(first.lease_until_us)
        times += [self.bury_again_us or None, self.read_again_us or None]
        return min((time for time in times if time is not None), default=None)

    # --- settling -----------------------------------------------------------------------------------

    def settle(
        self, ask: Settle, by: Attachment, end: int, clock_us: int, now_us: int
    ) -> tuple[Settlement, int]:
        """Applies a settlement; returns its journal record, and how many of its entries were settled before.

        The shard's log is at ``end``; ``clock_us`` is the clock's time, ``now_us`` the time of day.
        """
        shard, late = ask.shard, 0
        acked, skipped = ask.acked, ask.skipped
        if len(acked) > 1 or len(skipped) > 1:  # a client may name an entry twice
            acked, skipped = list(RangeSet(acked)), list(RangeSet(skipped))
        for start, stop in acked:
            late += self.ack(shard, start, stop, by)
        for start, stop in skipped:
            late += self.skip(shard, start, stop, by)
        if ask.upto is not None:
            self.ack_upto(shard, ask.upto, by)
        repeated = ask.number <= by.repeats_to
        if ask.number > by.settle_number:
            by.settle_number = ask.number
        refused, dying, reasons = _Refused(), list[Span](), list[tuple[int, str]]()
        if ask.nacked:
            refused, dying, reasons = self._refuse(ask, by, end, clock_us, now_us, repeated=repeated)
            late += len(ask.nacked) - sum(last - first for first, last, *_ in refused)
        cursor = self.cursors[shard]
        cursor.journaled_copies = copies = cursor.tally.copies
        settlement = Settlement(
            self.topic_uuid,
            self.name,
            shard,
            acked,
            skipped,
            [],
            refused,
            upto=ask.upto,
            copies=copies,
            at_us=now_us if refused else 0,
            dying=dying,
            reasons=reasons,
        )
        return settlement, late

    def _refuse(
        self, ask: Settle, by: Attachment, end: int, clock_us: int, now_us: int, *, repeated: bool
    ) -> tuple[_Refused, list[Span], list[tuple[int, str]]]:
        """Applies the refusals of a settlement; returns them, the dying among them and the reasons, as the
        journal has them."""
        shard, cursor = ask.shard, self.cursors[ask.shard]
        final, given = frozenset(ask.dead), dict(ask.reasons)
        refused, dying, reasons = _Refused(), list[Span](), list[tuple[int, str]]()
        for entry, delay_s in ask.nacked:
            dies = entry in final
            refusal = self.nack(shard, entry, delay_s, clock_us, end, by, repeated=repeated, final=dies)
            if refusal is None:
                self._result().overtaken.append((by, shard, entry, entry + 1))
                continue
            if dies:
                dying.append((entry, entry + 1))
            if reason := given.get(entry):
                cursor.reasons.add(entry, reason)
                reasons.append((entry, reason))
            why = (refusal.deliveries, refusal.due_us + now_us - clock_us, refusal.bound)
            if refused and refused[-1][1:] == (entry, *why):
                refused[-1] = (refused[-1][0], entry + 1, *why)
            else:
                refused.append((entry, entry + 1, *why))
        if refused and not repeated:  # only now: a consumer that steps back loses the rest, uncounted
            self.failed(by, shard, [(first, last) for first, last, *_ in refused])
        return refused, dying, reasons

    def ack(self, shard: int, start: int, end: int, by: Attachment | None = None) -> int:
        """Returns how many of the entries had been settled before."""
        settled = self._settle(shard, start, end, by, ACKED)
        self.counts.acked += settled
        late = end - start - settled
        return self._came_late(shard, late) if late else 0

    def ack_upto(self, shard: int, end: int, by: Attachment | None = None) -> None:
        """Everything before ``end``; entries that were settled before do not count as late."""
        start = min(self.cursors[shard].cursor, end)
        self.counts.acked += self._settle(shard, start, end, by, ACKED)

    def skip(self, shard: int, start: int, end: int, by: Attachment | None = None) -> int:
        settled = self._settle(shard, start, end, by, SKIPPED)
        self.counts.skipped += settled
        return self._came_late(shard, end - start - settled)

    def _came_late(self, shard: int, count: int) -> int:
        self.counts.late += count
        self.cursors[shard].tally.late += count
        return count

    def give_up(self, shard: int, start: int, end: int, kind: str) -> int:
        """Settles entries that cannot be delivered."""
        lost = self._settle(shard, start, end, None, kind)
        self.counts.lost += lost
        return lost

    def bury(self, shard: int, start: int, end: int) -> int:
        """Settles entries that reached ``max_attempts``, as dead."""
        buried = self._settle(shard, start, end, None, DEAD)
        self.counts.buried += buried
        return buried

    def _settle(self, shard: int, start: int, end: int, by: Attachment | None, kind: str) -> int:
        """Returns how many of the entries were not settled before."""
        if start >= end:
            return 0
        cursor, rows, mine = self.cursors[shard], end - start, 0
        by_consumer = kind in (ACKED, SKIPPED)
        if by is not None:
            mine = by.let_go(shard, start, end)
            if end > by.settled_to.get(shard, 0):
                by.settled_to[shard] = end
        reached = rows
        if mine < rows:  # another consumer has some of them, or none has
            held = cursor.held.count(start, end)
            if kind in LOST:
                cursor.tally.reached_lost += cursor.touched(start, end)
            elif by_consumer and held < rows:
                reached = cursor.touched(start, end)
            for attachment in self.attachments if held > mine else ():
                if attachment.let_go(shard, start, end) and by_consumer:
                    self._result().overtaken.append((attachment, shard, start, end))
        if by_consumer and self.lease_s and self.attachments and by is not self.attachments[0]:
            self._result().overtaken.append((self.attachments[0], shard, start, end))  # it may wait for one
        if kind == SKIPPED:
            cursor.mark_skipped(start, end)
        count = cursor.bury(start, end) if kind == DEAD else cursor.settle(start, end)
        if kind == ACKED:
            cursor.tally.acked += count
        else:
            cursor.tally.settled(kind, count)
        if count > reached:
            cursor.tally.elsewhere += count - reached
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
        final: bool = False,
    ) -> Refusal | None:
        """The shard's log is at ``end``. None where this consumer cannot refuse the entry: it does not hold it.

        A ``repeated`` refusal was counted when it came first. After a ``final`` one the entry is dying.
        """
        cursor = self.cursors[shard]
        mine = by.let_go(shard, entry, entry + 1)
        by.settled_to[shard] = max(by.settled_to.get(shard, 0), entry + 1)
        wait_s = self.policy.backoff_s(cursor.delivered.of(entry) + 1) if delay_s is None else delay_s
        wait_us = round(wait_s * 1e6)
        due_us, bound = due_step_up(now_us + wait_us, wait_us), self._bound(end)
        deliveries = None
        before = by.held_before.get(shard)
        if mine or (before is not None and entry in before and entry not in cursor.held):
            deliveries = cursor.nack(entry, due_us, bound, repeated=repeated, final=final)
        else:
            cursor.flag(EntrySet.of([(entry, entry + 1)]))
        if deliveries is None:
            self._came_late(shard, 1)
            return None
        if mine:
            self.came_back(shard, EntrySet.of([(entry, entry + 1)]))
        self.counts.nacked += not repeated
        return Refusal(deliveries, due_us, bound)

    def extend(
        self, attachment: Attachment, shard: int, spans: list[Span], seconds: float | None, now_us: int
    ) -> None:
        """Moves the deadline of entries that the consumer holds."""
        if self.policy.deadline is None:
            return
        held = attachment.held.get(shard)
        if held and (mine := held.among(RangeSet(spans))):
            wait_s = self.policy.deadline if seconds is None else seconds
            self.deadlines.set(attachment, shard, mine, now_us, wait_s)

    def take_back(self, attachment: Attachment, shard: int, spans: list[Span], *, done: bool = False) -> None:
        """The consumer gives back prefetched entries; they do not count as an attempt.

        ``done`` ends its answer to a recall.
        """
        if held := attachment.held.get(shard):
            mine = held.among(RangeSet(spans))
            held.exclude(mine)
            self.cursors[shard].give_back(mine, EntrySet())
            self.came_back(shard, mine)
        if done:
            attachment.recalled = False
            self.gained_room(attachment)

    # --- positions ----------------------------------------------------------------------------------

    def seek(self, shard: int, entry: int, run: int = 0) -> None:
        """Sets a shard's position; no consumer may be attached."""
        assert not self.attachments
        self._lost.clear()
        self.cursors[shard].move(entry, run)
        self.reset()

    def redrive(self, shard: int, start: int, end: int) -> list[Span]:
        """Dead entries are offered again; returns which."""
        spans = self.cursors[shard].reopen(start, end)
        self.counts.redriven += sum(last - first for first, last in spans)
        return spans


def first_of(run: ReadResult, entry: int | None) -> int:
    """The first entry that a read covers."""
    start = run.records[0].header.first_entry if run.records else run.next_entry
    return start if entry is None else min(start, entry)


def holding(records: list[StoredRecord], spans: list[Span]) -> list[StoredRecord]:
    """The records that hold at least one entry of the spans; both are in order."""
    found: list[StoredRecord] = []
    at = 0
    for record in records:
        header = record.header
        while at < len(spans) and spans[at][1] <= header.first_entry:
            at += 1
        if at < len(spans) and spans[at][0] < header.end_entry:
            found.append(record)
    return found


def _needed(records: list[StoredRecord], spans: list[Span], shard: int) -> list[StoredRecord]:
    """The records to send for these spans; of a packed one of which little is meant, the original ones."""
    if not records:
        return records  # the consumer has it already
    if spans[0][0] <= records[0].header.first_entry and records[-1].header.end_entry <= spans[0][1]:
        return records
    found: list[StoredRecord] = []
    for record in holding(records, spans):
        if record.packed and 2 * _meant(record, spans) < record.header.count:
            found += holding(record.originals(shard, spans[0][0], spans[-1][1]), spans)
        else:
            found.append(record)
    return found


def _meant(record: StoredRecord, spans: list[Span]) -> int:
    """How many entries of a record are in the spans."""
    first, end = record.header.first_entry, record.header.end_entry
    return sum(min(stop, end) - max(start, first) for start, stop in spans if start < end and stop > first)


def _remember(by_instance: dict[bytes, Item], instance: bytes, item: Item) -> None:
    """Forgets the oldest where there are too many."""
    by_instance.pop(instance, None)
    while len(by_instance) >= LOST_MAX:
        del by_instance[next(iter(by_instance))]
    by_instance[instance] = item
