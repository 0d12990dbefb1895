"""What an application has in hand, by shard: handed to it on this connection, or on an earlier one."""

from __future__ import annotations

from collections.abc import Iterable

from headpond.client.batch import Batch, without
from headpond.model.ranges import RangeSet
from headpond.wire.control import Settle, Span

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
