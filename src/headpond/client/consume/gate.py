"""The gate: whether the next message may be handed out. No IO.

It is shut while the subscription is paused and while the consumer stands by. Where this side holds the order (a
resilient unique or failover subscription: ``strict``) it is also shut while a message is in hand that was not
settled yet, or one that was refused has not come again. Such a consumer has a lease: when it is over by this
clock, nothing is handed out until the node has renewed it, since another consumer may have taken over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable

from headpond.client.consume.batch import Batch, without
from headpond.model.bounds import Span
from headpond.model.message import Message
from headpond.model.ranges import RangeSet
from headpond.wire.control.consuming import Settle

BREATHS = 10
"""In a lease: a program that never waits lets the event loop run this often, so that the lease is renewed."""


class Gate:
    """``clock`` goes on also while the event loop does not run: some loops' own clocks do not."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.shut = True
        self.check_at = float("inf")
        """When to ask again, though it is open: the lease may be over, or the loop is to run."""
        self.strict = False
        self.active = True
        self.paused = False
        self.in_hand: Message | None = None
        """The message that must be settled first."""
        self.awaited: tuple[int, int] | None = None
        """Shard and entry of the message that was refused and must come again first."""
        self.repeats = False
        """Whether messages wait to be handed out that the program may settle before: copies that came again."""
        self._clock = clock
        self._lease_s = 0.0
        self._lease_until = float("inf")
        self._barred = True
        """Shut, whatever is in hand."""
        self.on_lost: Callable[[int, list[Span], str], None] = lambda shard, spans, reason: None
        self._waiting = 0
        self._changed = asyncio.Event()

    # --- what the node says -------------------------------------------------------------------------

    def stand(self, *, strict: bool, active: bool, paused: bool, lease_s: float, since: float) -> None:
        """The consumer's standing; its lease began at ``since``."""
        self.strict, self.active, self.paused = strict, active, paused
        if not active:
            self.awaited = None  # it comes to the active one
        self._lease_s = lease_s
        self._lease_until = since + lease_s if lease_s else float("inf")
        self._update()

    def end_lease(self) -> None:
        """The node does not know this consumer any more."""
        if self._lease_s:
            self._lease_until = 0.0
        self._update()

    def forget(self) -> None:
        """Nothing of what was handed out matters any more."""
        self.in_hand = self.awaited = None
        self._update()

    def lost(self, shard: int, spans: list[Span], reason: str) -> None:
        """Entries will not come: nobody waits for them."""
        if self.awaited is not None and covers(shard, spans, self.awaited):
            self.awaited = None
            self._update()
        self.on_lost(shard, spans, reason)

    # --- what the program does ----------------------------------------------------------------------

    def hand(self, message: Message) -> None:
        """A message is handed out."""
        self.awaited = None
        self.in_hand = message
        self.shut = True

    @property
    def place(self) -> tuple[int, int] | None:
        """Shard and entry of what is in hand."""
        return None if self.in_hand is None else (self.in_hand.origin.shard, self.in_hand.entry)

    def settle(self, shard: int, start: int, end: int) -> None:
        """Entries were settled. Whether the lease lasts is seen when the next message is asked for."""
        held = self.place or self.awaited
        if held is not None and start <= held[1] < end and held[0] == shard:
            self.awaited = None
            self.let_go()

    def let_go(self) -> None:
        """What is in hand was settled."""
        self.in_hand = None
        self.shut = self._barred
        if self._waiting:
            self._changed.set()

    def refuse(self, shard: int, spans: list[Span]) -> None:
        """Entries were refused: the one in hand comes again before any other, unless another has it now."""
        place = self.place
        if place is not None and covers(shard, spans, place):
            self.in_hand, self.awaited = None, place if self.active else None

    @property
    def may_hand_again(self) -> bool:
        """Whether the message that was awaited may be handed out, now that it has come."""
        return self.active and not self.paused and self._clock() < self._lease_until

    # --- waiting ------------------------------------------------------------------------------------

    def knock(self) -> None:
        """Whoever waits looks again."""
        self._changed.set()

    def _update(self) -> None:
        now = self._clock()
        self._barred = self.paused or not self.active or now >= self._lease_until
        self.shut = self._barred or self.in_hand is not None or self.awaited is not None
        self.check_at = min(self._lease_until, now + self._lease_s / BREATHS) if self._lease_s else float("inf")
        self._changed.set()

    async def wait(self) -> None:
        """Returns when something may have changed; lets the loop run in any case."""
        self._update()
        if not self.shut:
            await asyncio.sleep(0)
            return
        self._changed.clear()
        self._waiting += 1
        try:
            await self._changed.wait()
        finally:
            self._waiting -= 1


def covers(shard: int, spans: list[Span], place: tuple[int, int]) -> bool:
    return shard == place[0] and any(start <= place[1] < end for start, end in spans)


SEEN_MAX = 4096


class Handed:
    def __init__(self) -> None:
        self._now: dict[int, RangeSet] = {}
        """Entries handed out on the present connection."""
        self._before: dict[int, RangeSet] = {}
        """Entries handed out on an earlier one: the application has them."""

    def hand(self, batch: Batch) -> Batch | None:
        """The batch less what the application was handed on an earlier connection and still holds.

        All of it counts as handed out from now on.
        """
        before = self._before.get(batch.shard)
        again = [span for start, end in batch.spans for span in before.overlap(start, end)] if before else []
        now = self._now.setdefault(batch.shard, RangeSet())
        for start, end in batch.spans:
            now.add(start, end)
        if before is None or not again:
            return batch
        for start, end in again:
            before.discard(start, end)
        return without(batch, again)

    def discard(self, shard: int, spans: list[Span]) -> None:
        """The application does not have these entries: it gave them back, or the node knows them settled."""
        for by_shard in (self._now, self._before):
            if (entries := by_shard.get(shard)) is not None:
                for start, end in spans:
                    entries.discard(start, end)

    def reconnect(self) -> None:
        """A new connection begins."""
        for shard, now in self._now.items():
            before = self._before.setdefault(shard, RangeSet())
            for start, end in now:
                before.add(start, end)
        self._now.clear()

    def keep(self) -> None:
        """The node holds what was handed out before for this consumer: if it sends it again, it means it."""
        for shard, before in self._before.items():
            now = self._now.setdefault(shard, RangeSet())
            for start, end in before:
                now.add(start, end)
        self._before.clear()

    def clear(self) -> None:
        """The entries mean other messages now, or all of them may come again."""
        self._now.clear()
        self._before.clear()

    @property
    def count(self) -> int:
        """How many messages the application has in hand."""
        return sum(entries.count for each in (self._now, self._before) for entries in each.values())

    def seen(self, unconfirmed: Iterable[Settle] = ()) -> list[tuple[int, int, int]] | None:
        """What the application has in hand; None (all) where that takes too many words.

        What it refused and the node may not know of it had in hand, too.
        """
        by_shard: dict[int, RangeSet] = {}
        for shard, entries in (*self._now.items(), *self._before.items()):
            for span in entries:
                by_shard.setdefault(shard, RangeSet()).add(*span)
        for settle in unconfirmed:
            for entry, _ in settle.nacked:
                by_shard.setdefault(settle.shard, RangeSet()).add(entry, entry + 1)
        seen = [(shard, start, end) for shard, entries in by_shard.items() for start, end in entries]
        return seen if len(seen) <= SEEN_MAX else None
