"""What a subscription may send next, according to the documentation, derived from requests and answers alone.

The model never looks into the node. Every entry of the topic is a *place*: settled, with one consumer, or to be
delivered (again). ``Model.delivered`` checks a delivery against the rules of kind and mode, and its attempt
against the counted attempts. The order of the journal says what is surely on disk: a confirmed settlement makes
everything before it durable.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from headpond.wire.frame import Frame
from tests.fire.core_shell import CoreClient

LEASE_S = 1.0
LEASE_US = round(LEASE_S * 1.2 * 1e6)
"""The next consumer takes over after the lease and a fifth more."""
UNSURE = 5000
UNSURE_RESILIENT = 257
"""How many entries after its last settlement a lost consumer may have seen."""

Place = tuple[int, int]
"""Shard and entry."""


def value_of(place: Place) -> bytes:
    """The message at a place."""
    return b"%d:%d" % place


def spans_of(places: list[Place]) -> list[tuple[int, int]]:
    return [(entry, entry + 1) for _, entry in places]


@dataclass(eq=False)
class Line:
    """A connection, and whether the node can write to it."""

    client: CoreClient
    number: int
    writable: bool = True


@dataclass(eq=False)
class Consumer:
    """One attachment to the subscription; after a reconnect it is another, perhaps of the same instance."""

    line: Line
    number: int
    instance: bytes
    credit_bytes: int
    """Bytes that the node may still send; the last record may exceed it."""
    keeps: bool
    renewed_us: int
    subscribed: bool = False
    active: bool = False
    detached: bool = False
    """It left or was replaced: the node may send it nothing."""
    room_bytes: int = 0
    """Its credit before the last step of the node, which may send one record for two attempts."""
    owed_bytes: int = 0
    """Bytes sent to it for which it has returned no credit."""
    settles: int = 0
    renewals: int = 0
    held: dict[Place, int] = field(default_factory=dict)
    """Places sent to it and not settled, with the attempt."""
    under_way: deque[Place | None] = field(default_factory=deque)
    """Sent to it and not arrived, in order; None is a recall of places that it has not handed out."""
    ahead: deque[Place] = field(default_factory=deque)
    """Arrived, and not handed out."""
    hands: list[Place] = field(default_factory=list)
    """Places that its application has."""
    recalled: bool = False
    due_us: dict[Place, int] = field(default_factory=dict)
    kept: dict[int, Frame] = field(default_factory=dict)
    """By shard: the last record that was sent alone."""
    unconfirmed: dict[int, int] = field(default_factory=dict)
    """By number of a settlement: the length of the journal after it."""
    settled_to: dict[int, int] = field(default_factory=dict)
    """By shard: one past the last entry that it settled."""

    def settled(self, place: Place) -> None:
        shard, entry = place
        self.settled_to[shard] = max(self.settled_to.get(shard, 0), entry + 1)


@dataclass(frozen=True)
class Settlement:
    """A place was settled."""

    place: Place


@dataclass(frozen=True)
class Count:
    """How many deliveries of a place count now, at least and at most."""

    place: Place
    least: int
    most: int
    due_us: int
    """It is not redelivered before this time; 0: at once."""


class Model:
    def __init__(self, kind: str, mode: str, deadline_us: int | None) -> None:
        self.kind = kind
        self.resilient = mode == "resilient"
        self.single = kind in ("unique", "failover")
        self.handed: set[Place] = set()
        """Places that an application got at least once."""
        self.leased = self.single and self.resilient
        self.deadline_us = deadline_us
        self.keys: dict[Place, bytes | None] = {}
        self.holders: dict[Place, Consumer] = {}
        self.settled: set[Place] = set()
        self.unknown: set[Place] = set()
        """Settled when the power failed, and not confirmed."""
        self.ghost: Consumer | None = None
        """A consumer whose connection is lost and whose lease still runs."""
        self.delivered_rows = 0
        self.repeated_rows = 0
        self._counts: dict[Place, tuple[int, int]] = {}
        """How many deliveries count, at least and at most."""
        self._flagged: set[Place] = set()
        """Places that a program may have had without a counted attempt: redelivered as a further attempt."""
        self._due_us: dict[Place, int] = {}
        """When refused places may be redelivered."""
        self._durable_counts: dict[Place, tuple[int, int]] = {}
        self._durable_due_us: dict[Place, int] = {}
        self._durable: set[Place] = set()
        self._journal: list[Settlement | Count] = []
        self._confirmed = 0

    # --- what the node sends --------------------------------------------------------------------------

    def delivered(self, consumer: Consumer, place: Place, attempt: int, now_us: int) -> None:
        """Records a delivery, which the documentation must allow."""
        assert consumer.subscribed and not consumer.detached, f"{place} came to one that is not there"
        assert not consumer.recalled, f"{place} came to one that was asked to give back"
        assert consumer.line.writable, f"{place} was sent where nothing can be written"
        assert place not in self.settled, f"{place} was settled and comes again"
        assert place not in self.holders, f"{place} is with two consumers"
        least, most = self._counts.get(place, (0, 0))
        flagged = place in self._flagged
        assert max(least, flagged) < attempt <= max(most, flagged) + 1, (
            f"attempt {attempt} of {place}, where {least} to {most} were counted"
        )
        due_us = self._due_us.pop(place, 0)
        assert due_us <= now_us, f"{place} came {due_us - now_us} µs before its time"
        self.unknown.discard(place)
        self._check_consumer(consumer, place)
        before = self._unsettled_before(place)
        self._check_order(consumer, place, before)
        urgent = self.leased and not before  # the message that the order waits for needs no credit
        assert consumer.room_bytes > 0 or urgent, f"{place} came without credit"
        self._counts[place] = (least if flagged and attempt == 2 else attempt - 1, min(most, attempt - 1))
        self.holds(consumer, place, attempt, now_us)
        self.delivered_rows += 1
        self.repeated_rows += attempt > 1

    def holds(self, consumer: Consumer, place: Place, attempt: int, now_us: int) -> None:
        self.holders[place] = consumer
        consumer.held[place] = attempt
        consumer.under_way.append(place)
        if self.deadline_us is not None:
            consumer.due_us[place] = now_us + self.deadline_us

    def _check_consumer(self, consumer: Consumer, place: Place) -> None:
        if not self.single:
            return
        assert consumer.active, f"{place} came to one that stands by"
        assert self.ghost is None, f"{place} came while the lease of a lost consumer lasted"
        others = [held for held, holder in self.holders.items() if holder is not consumer]
        assert not others, f"{place} came while {others[:3]} were with another consumer"

    def _unsettled_before(self, place: Place) -> list[Place]:
        shard, entry = place
        done = self.settled | self.unknown
        return [before for each in range(entry) if (before := (shard, each)) not in done]

    def _check_order(self, consumer: Consumer, place: Place, before: list[Place]) -> None:
        if self.kind == "key_shared":
            before = self._of_its_key(place, before)
            same = self._of_its_key(place, list(self.holders))
            others = [each for each in same if self.holders[each] is not consumer]
            assert not others, f"{place} came, and {others[:3]} of its key are with another consumer"
        if self.resilient and self.kind == "shared":
            assert not self.holders, f"{place} came while {list(self.holders)} was out"
        if self.resilient and not self.single:
            assert not before, f"{place} came, and {before[:3]} before it are not settled"
        elif self.resilient or self.kind == "key_shared":
            missing = [each for each in before if self.holders.get(each) is not consumer]
            assert not missing, f"{place} came, and its consumer was not sent {missing[:3]} before it"

    def _of_its_key(self, place: Place, places: list[Place]) -> list[Place]:
        shard, key = place[0], self.keys[place]
        return [each for each in places if key is not None and each[0] == shard and self.keys[each] == key]

    # --- what consumers do ----------------------------------------------------------------------------

    def hand_out(self, consumer: Consumer, place: Place) -> None:
        """An application gets a message: the first time only after all messages before it."""
        if self.kind != "shared" and place not in self.handed:
            before = self._unsettled_before(place)
            if self.kind == "key_shared":
                before = self._of_its_key(place, before)
            missing = [each for each in before if each not in self.handed]
            assert not missing, f"{place} was handed out before {missing[:3]}"
        self.handed.add(place)
        # The node may have taken it back and sent it again, and the client has both.
        if place in consumer.held and place not in consumer.hands:
            consumer.hands.append(place)

    def ack(self, consumer: Consumer, place: Place) -> None:
        self._take_from(consumer, place)
        consumer.settled(place)
        self.settled.add(place)
        self._journal.append(Settlement(place))

    def nack(self, consumer: Consumer, place: Place, due_us: int) -> None:
        self._take_from(consumer, place)
        self._count(place, due_us)
        consumer.settled(place)

    def release(self, consumer: Consumer, seen: set[Place] | None = None) -> set[Place]:
        """Everything that it held is to be redelivered; places in ``seen`` (None: unknown) count as an attempt.

        Returns the places that count.
        """
        if seen is None:
            seen = self._perhaps_seen(consumer)
        counted = seen & set(consumer.held)
        for place in list(consumer.held):
            self._take_from(consumer, place)
            if place in seen:
                self._count(place)
        return counted

    def step_back(self, consumer: Consumer) -> None:
        """It is a standby now; the places that its program has in hand are unknown."""
        if not self.resilient:
            self._flagged |= set(consumer.held)
        self.release(consumer, seen=set())

    def _perhaps_seen(self, consumer: Consumer) -> set[Place]:
        """Everything before its last settlement, and a number of entries after it."""
        seen: set[Place] = set()
        for shard in {shard for shard, _ in consumer.held}:
            held = sorted(place for place in consumer.held if place[0] == shard)
            behind = sum(entry < consumer.settled_to.get(shard, 0) for _, entry in held)
            seen.update(held[: behind + (UNSURE_RESILIENT if self.resilient else UNSURE)])
        return seen

    def give_back(self, consumer: Consumer, place: Place) -> None:
        """It was only prefetched; that is no attempt."""
        self._take_from(consumer, place)

    def lose(self, consumer: Consumer) -> set[Place]:
        """Its connection is lost; its lease still runs. Returns the places that count as an attempt."""
        if self.leased and consumer.subscribed and consumer.active and not consumer.detached:
            assert self.ghost is None, "two consumers had the lease"
            self.ghost = consumer
            return set()
        return self.release(consumer)

    def replace(self, consumer: Consumer, counted: set[Place], *, says: bool) -> None:
        """The same instance reconnects. If it names what its program has in hand, nothing was an attempt."""
        self.release(consumer, seen=set() if says else None)
        if self.ghost is consumer:
            self.ghost = None
        for place in counted - self.settled if says else ():
            least, most = self._counts[place]
            self._set_count(place, least - 1, most - 1)

    def resume(self, consumer: Consumer, in_hand: set[Place], now_us: int, *, active: bool) -> None:
        """In unique and failover it keeps what its program has in hand; in other kinds that comes flagged."""
        for place in in_hand - self.settled:
            if self.single and active and place not in self.holders:
                self.holds(consumer, place, 1, now_us)
                consumer.hands.append(place)
            else:
                self._flagged.add(place)

    def pass_time(self, consumers: list[Consumer], now_us: int) -> None:
        """Applies passed deadlines, and the passed lease of a lost consumer."""
        ghosts = [self.ghost] if self.ghost is not None else []
        for consumer in consumers + ghosts:
            for due_us in sorted({due_us for due_us in consumer.due_us.values() if due_us <= now_us}):
                self._expire(consumer, due_us)
        for ghost in ghosts:
            if ghost.renewed_us + LEASE_US <= now_us:
                self.release(ghost)
                self.ghost = None

    def _expire(self, consumer: Consumer, due_us: int) -> None:
        """Places past their deadline count as an attempt."""
        for place in [place for place, due in consumer.due_us.items() if due == due_us]:
            self._take_from(consumer, place)
            self._count(place)
            self.handed.add(place)  # the node assumes it: a client extends messages that its program lacks

    def _take_from(self, consumer: Consumer, place: Place) -> int:
        consumer.due_us.pop(place, None)
        if place in consumer.hands:
            consumer.hands.remove(place)
        del self.holders[place]
        return consumer.held.pop(place)

    def _count(self, place: Place, due_us: int = 0) -> None:
        least, most = self._counts.get(place, (0, 0))
        self._set_count(place, least + 1, most + 1, due_us)

    def _set_count(self, place: Place, least: int, most: int, due_us: int = 0) -> None:
        self._counts[place] = (least, most)
        self._due_us[place] = due_us
        self._journal.append(Count(place, least, most, due_us))

    # --- the disk -------------------------------------------------------------------------------------

    @property
    def journal_length(self) -> int:
        return len(self._journal)

    def confirm(self, length: int) -> None:
        """The journal is durable up to this length."""
        for change in self._journal[self._confirmed : length]:
            if isinstance(change, Settlement):
                self._durable.add(change.place)
            else:
                self._durable_counts[change.place] = change.least, change.most
                self._durable_due_us[change.place] = change.due_us
        self._confirmed = max(self._confirmed, length)

    def cut_power(self) -> None:
        """No consumer holds anything; the disk may have any part of the unconfirmed settlements."""
        if self.ghost is not None:  # the node may have ended its lease or not
            for place, attempt in self.ghost.held.items():
                self._counts[place] = (0, attempt)
        self.unknown = (self.unknown | self.settled) - self._durable
        self.settled = set(self._durable)
        counts = {place: self._durable_counts.get(place, (0, 0)) for place in self._counts}
        for change in self._journal[self._confirmed :]:
            if isinstance(change, Count):
                least, most = counts[change.place]
                counts[change.place] = min(least, change.least), max(most, change.most)
        self._counts = {
            place: (counts[place][0], max(counts[place][1], most)) for place, (_, most) in self._counts.items()
        }
        self._due_us = dict(self._durable_due_us)
        self._flagged.clear()
        self._journal, self._confirmed = [], 0
        self.holders, self.ghost = {}, None
