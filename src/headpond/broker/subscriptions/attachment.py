"""A consumer that is attached to a subscription: its credit, the entries it holds, its lease, its deadlines."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import NamedTuple

from headpond.model.entry_set import EntrySet, Span

CREDIT_BYTES_MAX = 1024 * 1024 * 1024
LEASE_MARGIN_S_MIN = 0.1
LEASE_MARGIN = 0.2
"""The node waits this share of the lease longer than the consumer does, since their clocks differ."""


def lease_us(lease_s: float) -> int:
    """For how long the node lets a lease last."""
    return round((lease_s + max(LEASE_MARGIN_S_MIN, lease_s * LEASE_MARGIN)) * 1e6)


@dataclass(slots=True)
class Confirmation:
    """The SETTLED that one consumer gets when a write of the journal is done."""

    writes_before: int
    """How many writes had begun when it was made."""
    number: int = 0
    late: int = 0
    cost_bytes: int = 0


class Timed(NamedTuple):
    """A message whose time to its acknowledgement is measured (stopwatch.py)."""

    shard: int
    entry: int
    sent_us: int


@dataclass(slots=True, eq=False)
class Attachment:
    connection: int
    consumer: int
    name: str
    credit_bytes: int
    writable: bool = True
    """Whether its connection has room for more."""
    welcome: bool = False
    """Whether the node has answered its SUBSCRIBE; it sends nothing before that."""
    resumed: bool = False
    """Whether it has granted credit. A consumer that reconnects repeats its settlements before it does."""
    instance: bytes = b""
    """The same over all connections of one consumer."""
    connected: bool = True
    """False while its connection is gone and its lease is not."""
    left: bool = False
    """Whether it unsubscribed and said what its program had."""
    lease_until_us: int = 0
    renewal: int = 0
    held: dict[int, EntrySet] = field(default_factory=dict)
    """By shard: the entries that were delivered to it and are not settled."""
    held_before: dict[int, EntrySet] = field(default_factory=dict)
    """By shard: what it held when its previous connection was lost."""
    settle_number: int = 0
    """Of the last SETTLE that came."""
    repeats_to: int = 0
    """SETTLE frames up to this number came over an earlier connection, too."""
    settled_to: dict[int, int] = field(default_factory=dict)
    """By shard: one past the highest entry that it settled; its program had everything before that."""
    cached: dict[int, Span] = field(default_factory=dict)
    """By shard: the entries of the last record that it was sent alone, and still has."""
    keeps: bool = False
    """Whether it keeps that record in every resilient kind, not only in a shared subscription."""
    slots: set[tuple[int, int]] = field(default_factory=set)
    """(shard, slot) of the keys that it has (key_shared)."""
    recalled: bool = False
    """Whether the node asked it to give back its prefetched entries, and has no answer yet.

    Meanwhile the node sends it nothing: that would be in transit when the returned entries go out again.
    """
    failures: dict[tuple[int, int], int] = field(default_factory=dict)
    """By shard and entry: how often it failed a message while it was active (failover)."""
    overdue: bool = False
    """Whether it let a message's deadline pass and has sent nothing since."""
    confirmation: Confirmation | None = None
    """Of settlements that wait for a write that has not begun, if there are any."""
    timed: Timed | None = None

    @property
    def open(self) -> bool:
        """Whether the node can send to it now."""
        return self.credit_bytes > 0 and self.connected and self.welcome and self.writable and not self.recalled

    @property
    def reachable(self) -> bool:
        """Whether the node could send to it now if it had credit."""
        return self.connected and self.welcome and self.writable and not self.recalled

    @property
    def shown(self) -> str:
        return self.name or f"connection {self.connection}"

    def caches(self, shard: int, entry: int) -> bool:
        """Whether it still has the record that holds an entry."""
        first, end = self.cached.get(shard, (0, 0))
        return first <= entry < end

    def holds(self, shard: int, entry: int) -> bool:
        return (held := self.held.get(shard)) is not None and entry in held

    def hold(self, shard: int, spans: list[Span]) -> None:
        held = self.held.get(shard)
        if held is None:
            held = self.held[shard] = EntrySet()
        for start, end in spans:
            held.add(start, end)

    def let_go(self, shard: int, start: int, end: int) -> int:
        """It no longer holds these entries; returns how many of them it held."""
        held = self.held.get(shard)
        return held.remove(start, end) if held is not None else 0

    def take_from(self, shard: int, entries: EntrySet) -> EntrySet:
        """It no longer holds these entries; returns those that it held."""
        held = self.held.get(shard)
        if not held:
            return EntrySet()
        mine = held.common(entries)
        held.exclude(mine)
        return mine

    def presumed_delivered(self, shard: int, ahead_max: int) -> EntrySet:
        """The entries that its program may have had when its connection was lost.

        These are all that it held before the last one it settled, and the ``ahead_max`` next ones. So a message
        that crashes its consumer is counted each time, and the prefetched ones far behind it are not.
        """
        held, settled_to = self.held[shard], self.settled_to.get(shard, 0)
        presumed = held.within(0, settled_to)
        presumed.include(held.next_ones(settled_to, ahead_max))
        return presumed


STEP_US_MIN = 20_000
STEPS = 50
"""A deadline is divided into at least this many steps, and at most twice as many.

A step is ``STEP_US_MIN`` doubled some number of times: so consumers that ask for any number of different
extensions share a few thousand points in time, and cannot create one per frame.
"""

Due = tuple[Attachment, int, EntrySet]


class Deadlines:
    """When delivered entries must be settled: one bitmap per point in time, so a million entries cost little.

    Settling an entry does not remove its deadline: the caller of ``take`` checks which entries are still held.
    A redelivery or an extension does.
    """

    def __init__(self) -> None:
        self._times: list[int] = []
        self._due: dict[int, dict[tuple[Attachment, int], EntrySet]] = {}

    def set(self, attachment: Attachment, shard: int, entries: EntrySet, now_us: int, seconds: float) -> None:
        """The entries must be settled within ``seconds``; this replaces an earlier deadline."""
        wait_us = round(seconds * 1e6)
        step_us = STEP_US_MIN << (wait_us // (2 * STEPS * STEP_US_MIN)).bit_length()
        due_us = -(-(now_us + wait_us) // step_us) * step_us
        key = (attachment, shard)
        for by_holder in self._due.values():
            if (earlier := by_holder.get(key)) is not None:
                earlier.exclude(entries)
        if due_us not in self._due:
            self._due[due_us] = {}
            heappush(self._times, due_us)
        self._due[due_us].setdefault(key, EntrySet()).include(entries)

    def take(self, now_us: int) -> list[Due]:
        """The entries whose deadline has passed, settled ones among them."""
        due: list[Due] = []
        while self._times and self._times[0] <= now_us:
            for (attachment, shard), entries in self._due.pop(heappop(self._times)).items():
                due.append((attachment, shard, entries))
        return due

    def forget(self, attachment: Attachment) -> None:
        """The consumer is gone."""
        for by_holder in self._due.values():
            for key in [key for key in by_holder if key[0] is attachment]:
                del by_holder[key]

    @property
    def due_us(self) -> int | None:
        return self._times[0] if self._times else None
