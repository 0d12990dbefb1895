"""What became of messages, on its way to the node: per message on the API, ranges on the wire. No IO.

Settlements gather by shard; ``take`` turns them into numbered SETTLE frames, which are kept until the node says
that they are on its disk. After a reconnect ``unconfirmed`` are sent again: they are idempotent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field

from headpond.model.errors import HeadpondError
from headpond.model.ranges import RangeSet
from headpond.wire.control.consuming import Settle

SPANS_MAX = 8192
"""Ranges in one SETTLE, so that its frame stays well under a control frame's limit."""
DELAY_MAX_S = 366 * 86400.0
"""How long a message may be put off; a node takes no more."""


@dataclass(slots=True)
class _Pending:
    """What one shard has to say. ``start .. end`` is the run of acks that still grows."""

    start: int = 0
    end: int = 0
    acked: RangeSet = field(default_factory=RangeSet)
    skipped: RangeSet = field(default_factory=RangeSet)
    nacked: dict[int, float | None] = field(default_factory=dict)
    upto: int | None = None


class Settler:
    def __init__(self, consumer: int, shards: int) -> None:
        self.pending = 0
        """Messages settled and not yet taken."""
        self.unconfirmed: deque[Settle] = deque()
        """Taken, and not yet known to be on the node's disk; in order of number."""
        self.number = 0
        """Of the last SETTLE taken."""
        self._consumer = consumer
        self._shards = [_Pending() for _ in range(shards)]

    def ack(self, shard: int, start: int, end: int) -> int:
        """Records entries ``start <= n < end``; returns how many settlements wait to be taken."""
        pending = self._shards[shard]
        if start == pending.end:
            pending.end = end
        else:
            pending.acked.add(pending.start, pending.end)
            pending.start, pending.end = start, end
        self.pending += end - start
        return self.pending

    def skip(self, shard: int, start: int, end: int) -> int:
        self._shards[shard].skipped.add(start, end)
        self.pending += end - start
        return self.pending

    def nack(self, shard: int, entry: int, delay_s: float | None) -> int:
        self._shards[shard].nacked[entry] = delay_s
        self.pending += 1
        return self.pending

    def ack_upto(self, shard: int, end: int) -> int:
        """Records everything before ``end``."""
        pending = self._shards[shard]
        pending.upto = end if pending.upto is None else max(end, pending.upto)
        self.pending += 1
        return self.pending

    def take(self) -> list[Settle]:
        """Everything recorded since the last time, as frames to send; they count as unconfirmed from now."""
        if not self.pending:
            return []
        self.pending = 0
        taken: list[Settle] = []
        for shard, pending in enumerate(self._shards):
            if pending.start < pending.end:
                pending.acked.add(pending.start, pending.end)
            if pending.acked or pending.skipped or pending.nacked or pending.upto is not None:
                taken += self._frames(shard, pending)
                self._shards[shard] = _Pending()
            # The next ack likely follows on the last: let it grow from there.
            self._shards[shard].start = self._shards[shard].end = pending.end
        self.unconfirmed.extend(taken)
        return taken

    def confirm(self, number: int) -> list[Settle]:
        """The node has everything up to and with ``number`` on its disk; returns what that confirms."""
        confirmed: list[Settle] = []
        while self.unconfirmed and self.unconfirmed[0].number <= number:
            confirmed.append(self.unconfirmed.popleft())
        return confirmed

    def drop(self) -> int:
        """Forgets what is not confirmed; returns how many settlements that were."""
        self.take()
        dropped = sum(map(_count, self.unconfirmed))
        self.unconfirmed.clear()
        return dropped

    def _frames(self, shard: int, pending: _Pending) -> list[Settle]:
        acked, skipped, nacked = list(pending.acked), list(pending.skipped), list(pending.nacked.items())
        frames = []
        for at in range(0, max(len(acked), len(skipped), len(nacked), 1), SPANS_MAX):
            part = slice(at, at + SPANS_MAX)
            self.number += 1
            upto = pending.upto if at == 0 else None
            spans = (acked[part], skipped[part], nacked[part])
            frames.append(Settle(self._consumer, self.number, shard, *spans, upto))
        return frames


def _count(settle: Settle) -> int:
    return (
        len(settle.nacked)
        + (settle.upto is not None)
        + sum(end - start for start, end in (*settle.acked, *settle.skipped))
    )


class Flushes:
    def __init__(self) -> None:
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    def wait(self, number: int) -> asyncio.Future[None]:
        """Done when everything up to and with ``number`` is confirmed."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((number, done))
        return done

    def confirm(self, number: int) -> None:
        waiting, self._waiting = self._waiting, []
        for wanted, done in waiting:
            if wanted > number:
                self._waiting.append((wanted, done))
            elif not done.done():
                done.set_result(None)

    def fail(self, error: HeadpondError) -> None:
        """They will not be confirmed any more."""
        waiting, self._waiting = self._waiting, []
        for _, done in waiting:
            if not done.done():
                done.set_exception(error.again())
