"""The gate decides whether the next message may be handed out; ``InHand`` remembers which ones were. No IO.

The gate is shut while the subscription is paused and while the consumer stands by. Where the client holds the
order (``strict``: a resilient unique or failover subscription) it is also shut while the program has a message
that it has not settled, or a refused one has not come again. Such a consumer has a lease: when it is over by
the client's clock, nothing is handed out until the node has renewed it: another consumer may have taken over.
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
"""A program that never waits lets the event loop run this often per lease, so that the lease is renewed."""
IN_HAND_MAX = 4096
"""Ranges in one SUBSCRIBE that name what the program has in hand."""


class OrderGate:
    """``clock`` must also run while the event loop does not; the clocks of some loops stand still then."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.shut = True
        self.check_at = float("inf")
        """When an open gate must be asked again: the lease may be over, or the loop must run."""
        self.strict = False
        self.active = True
        self.paused = False
        self.in_hand: Message | None = None
        """The message that must be settled first."""
        self.awaited: tuple[int, int] | None = None
        """Shard and entry of the refused message that must come again first."""
        self.repeats = False
        """Whether messages that came again wait to be handed out: the program may settle them before that."""
        self._clock = clock
        self._lease_s = 0.0
        self._lease_until = float("inf")
        self._barred = True
        """Shut, whatever is in hand."""
        self._waiting = 0
        self._changed = asyncio.Event()

    # --- the node's messages ------------------------------------------------------------------------

    def stand(self, *, strict: bool, active: bool, paused: bool, lease_s: float, since: float) -> None:
        """The node reported the consumer's state; its lease began at ``since``."""
        self.strict, self.active, self.paused = strict, active, paused
        if not active:
            self.awaited = None  # it comes to the active one
        self._lease_s = lease_s
        self._lease_until = since + lease_s if lease_s else float("inf")
        self._update()

    def end_lease(self) -> None:
        """The node no longer knows this consumer."""
        if self._lease_s:
            self._lease_until = 0.0
        self._update()

    def forget(self) -> None:
        """Messages handed out earlier no longer matter."""
        self.in_hand = self.awaited = None
        self._update()

    def lost(self, shard: int, spans: list[Span]) -> None:
        """Entries will not come: the gate does not wait for them."""
        if self.awaited is not None and covers(shard, spans, self.awaited):
            self.awaited = None
            self._update()

    # --- the program's actions ----------------------------------------------------------------------

    def hand(self, message: Message) -> None:
        """The program gets a message."""
        self.awaited = None
        self.in_hand = message
        self.shut = True

    @property
    def place(self) -> tuple[int, int] | None:
        """Shard and entry of the message in hand."""
        return None if self.in_hand is None else (self.in_hand.origin.shard, self.in_hand.entry)

    def settle(self, shard: int, start: int, end: int) -> None:
        """The program settled entries. The lease is checked when it asks for the next message."""
        held = self.place or self.awaited
        if held is not None and start <= held[1] < end and held[0] == shard:
            self.awaited = None
            self.let_go()

    def let_go(self) -> None:
        """The program settled the message in hand."""
        self.in_hand = None
        self.shut = self._barred
        if self._waiting:
            self._changed.set()

    def refuse(self, shard: int, spans: list[Span]) -> None:
        """The program refused entries: the one in hand comes again first, unless another consumer gets it."""
        place = self.place
        if place is not None and covers(shard, spans, place):
            self.in_hand, self.awaited = None, place if self.active else None

    @property
    def may_hand_again(self) -> bool:
        """Whether the awaited message, now that it has come, may be handed out."""
        return self.active and not self.paused and self._clock() < self._lease_until

    # --- waiting ------------------------------------------------------------------------------------

    def knock(self) -> None:
        """Wakes every waiter to look again."""
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


class InHand:
    """The entries that the program has, by shard: of the present connection, and of earlier ones."""

    def __init__(self) -> None:
        self._now: dict[int, RangeSet] = {}
        self._before: dict[int, RangeSet] = {}

    def hand(self, batch: Batch) -> Batch | None:
        """The batch less the entries that the program got on an earlier connection and still has.

        All entries of the batch count as handed out from now on.
        """
        now = self._now.setdefault(batch.shard, RangeSet())
        for start, end in batch.spans:
            now.add(start, end)
        before = self._before.get(batch.shard)
        again = [span for start, end in batch.spans for span in before.overlap(start, end)] if before else []
        if before is None or not again:
            return batch
        for start, end in again:
            before.discard(start, end)
        return without(batch, again)

    def discard(self, shard: int, spans: Iterable[Span]) -> None:
        """The program does not have these entries: it gave them back, or the node has their settlement."""
        for by_shard in (self._now, self._before):
            if (entries := by_shard.get(shard)) is not None:
                for start, end in spans:
                    entries.discard(start, end)

    def earlier(self, shard: int, spans: Iterable[Span]) -> list[Span]:
        """Those of these entries that the program got on an earlier connection."""
        before = self._before.get(shard, RangeSet())
        return [part for span in spans for part in before.overlap(*span)]

    def reconnect(self) -> None:
        """A new connection begins."""
        _move(self._now, self._before)

    def keep(self) -> None:
        """The node keeps the earlier entries for this consumer: it only sends them again on purpose."""
        _move(self._before, self._now)

    def clear(self) -> None:
        """The entries mean other messages now, or all of them may come again."""
        self._now.clear()
        self._before.clear()

    @property
    def count(self) -> int:
        """How many messages the program has."""
        return sum(entries.count for each in (self._now, self._before) for entries in each.values())

    def spans(self, unconfirmed: Iterable[Settle] = ()) -> list[tuple[int, int, int]] | None:
        """(shard, start, end) of the entries in hand; None (all) if these are too many ranges for one frame.

        Entries whose settlement the node may not know were in hand, too: the connection may be lost again
        before the node gets it.
        """
        by_shard: dict[int, RangeSet] = {}
        for each in (self._now, self._before):
            _add(each, by_shard)
        for settle in unconfirmed:
            refused = ((entry, entry + 1) for entry, _ in settle.nacked)
            for start, end in (*settle.acked, *settle.skipped, *refused):
                by_shard.setdefault(settle.shard, RangeSet()).add(start, end)
        spans = [(shard, start, end) for shard, entries in by_shard.items() for start, end in entries]
        return spans if len(spans) <= IN_HAND_MAX else None


def _move(source: dict[int, RangeSet], target: dict[int, RangeSet]) -> None:
    _add(source, target)
    source.clear()


def _add(source: dict[int, RangeSet], target: dict[int, RangeSet]) -> None:
    for shard, entries in source.items():
        into = target.setdefault(shard, RangeSet())
        for start, end in entries:
            into.add(start, end)
