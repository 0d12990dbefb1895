"""A consumer that is attached to a subscription: what it can take, what it holds, how long its lease lasts."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from headpond.model.entry_set import EntrySet, Span

if TYPE_CHECKING:
    from headpond.broker.subscriptions.settle import Confirmation
    from headpond.broker.subscriptions.subscription import Subscription


CREDIT_BYTES_MAX = 1024 * 1024 * 1024
LEASE_MARGIN_S_MIN = 0.1
LEASE_MARGIN = 0.2
"""The node waits this share of the lease longer than the consumer does, for clocks that do not run alike."""


def lease_us(lease_s: float) -> int:
    """For how long the node takes a lease to last."""
    return round((lease_s + max(LEASE_MARGIN_S_MIN, lease_s * LEASE_MARGIN)) * 1e6)


@dataclass(slots=True, eq=False)
class Attachment:
    connection: int
    consumer: int
    name: str
    credit_bytes: int
    writable: bool = True
    """Whether its connection has room for more."""
    welcome: bool = False
    """Whether it was told that it is subscribed; nothing is sent to it before."""
    resumed: bool = False
    """Whether it has granted credit. A consumer that reconnects repeats its settlements before it does."""
    instance: bytes = b""
    """The same over all connections of one consumer."""
    connected: bool = True
    """False while its connection is gone and its lease is not."""
    left: bool = False
    """Whether it left in order, and said what it had looked at."""
    lease_until_us: int = 0
    renewal: int = 0
    held: dict[int, EntrySet] = field(default_factory=dict)
    """By shard: what it was sent and has not settled."""
    held_before: dict[int, EntrySet] = field(default_factory=dict)
    """By shard: what it held when its connection before this one was lost."""
    settle_number: int = 0
    """Of the last SETTLE that came."""
    repeats_to: int = 0
    """SETTLE frames up to this number came over an earlier connection, too."""
    settled_to: dict[int, int] = field(default_factory=dict)
    """By shard: one past the highest entry that it settled. What it holds before that it has surely seen."""
    cached: dict[int, Span] = field(default_factory=dict)
    """By shard: the entries of the last record that it was sent alone, and still has."""
    keeps: bool = False
    """Whether it keeps that record in every resilient kind, not only in a shared subscription."""
    slots: set[tuple[int, int]] = field(default_factory=set)
    """(shard, slot) of the keys that are with it (key_shared)."""
    recalled: bool = False
    """Whether it was asked to give back what it has not handed out, and did not answer yet.

    Nothing is sent to it meanwhile: what would be in transit to it would come before what it gave back.
    """
    overdue: bool = False
    """Whether it let a message's deadline pass and was not heard of since."""
    confirmation: Confirmation | None = None
    """Of settlements that wait for a write that has not begun, if there are any."""
    subscription: Subscription | None = None

    @property
    def open(self) -> bool:
        """Whether something can be sent to it now."""
        return self.credit_bytes > 0 and self.reachable

    @property
    def reachable(self) -> bool:
        """Whether something could be sent to it now if it had room."""
        return self.connected and self.welcome and self.writable and not self.recalled

    @property
    def shown(self) -> str:
        return self.name or f"connection {self.connection}"

    def has(self, shard: int, entry: int) -> bool:
        """Whether it still has the record that an entry stands in."""
        first, end = self.cached.get(shard, (0, 0))
        return first <= entry < end

    def hold(self, shard: int, spans: list[Span]) -> None:
        held = self.held.get(shard)
        if held is None:
            held = self.held[shard] = EntrySet()
        for start, end in spans:
            held.add(start, end)

    def let_go(self, shard: int, start: int, end: int) -> int:
        """Takes entries out of its hands; returns how many it held of them."""
        held = self.held.get(shard)
        if not held:
            return 0
        count = held.count(start, end)
        if count:
            held.discard(start, end)
        return count

    def take_from(self, shard: int, entries: EntrySet) -> EntrySet:
        """Takes entries out of its hands; returns those that it held."""
        held = self.held.get(shard)
        if not held:
            return EntrySet()
        mine = held.common(entries)
        held.exclude(mine)
        return mine

    def surely_seen(self, shard: int, unsure_max: int) -> EntrySet:
        """What it held and its program may have been handed when it was lost without a word.

        Everything before what it settled, and the ``unsure_max`` entries behind that; the rest was sent ahead.
        So a message that kills its consumer is counted each time, and what stood far behind it is not.
        """
        held, settled_to = self.held[shard], self.settled_to.get(shard, 0)
        seen = held.within(0, settled_to)
        seen.include(held.next_ones(settled_to, unsure_max))
        return seen


# When entries that are out must be settled: by time, in steps, so that a million of them cost a few bitmaps.
#
# An entry's place is not looked for when it is settled: whoever takes what is due asks which of it is still
# held. One that is handed out again, or extended, leaves the place it had.

STEP_US_MIN = 20_000
STEPS = 50
"""A deadline is cut into at least this many steps, and at most twice as many.

A step is ``STEP_US_MIN`` doubled some number of times: so consumers that ask for any number of different
extensions share a few thousand points in time, and cannot make up one for each frame.
"""

Due = tuple[Attachment, int, EntrySet]


class Deadlines:
    def __init__(self) -> None:
        self._times: list[int] = []
        self._due: dict[int, dict[tuple[Attachment, int], EntrySet]] = {}

    def set(self, attachment: Attachment, shard: int, entries: EntrySet, now_us: int, seconds: float) -> None:
        """The entries are to be settled within ``seconds``; an earlier deadline of theirs is void."""
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
        """What was to be settled by now; whether it was is the caller's to see."""
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
