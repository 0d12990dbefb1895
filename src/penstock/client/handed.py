"""What a consumer handed to its application, by shard: on this connection, and on earlier ones."""

from __future__ import annotations

from penstock.client.batch import Batch, without
from penstock.model.ranges import RangeSet
from penstock.wire.control import Span

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

    def release(self, shard: int, spans: list[Span]) -> None:
        """The application gave entries back: they may be handed out again."""
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

    def clear(self) -> None:
        """The entries mean other messages now, or come anew."""
        self._now.clear()
        self._before.clear()

    def seen(self) -> list[tuple[int, int, int]] | None:
        """What the application was handed; None (all) where that takes too many words."""
        by_shards = (*self._now.items(), *self._before.items())
        seen = [(shard, start, end) for shard, entries in by_shards for start, end in entries]
        return seen if len(seen) <= SEEN_MAX else None
