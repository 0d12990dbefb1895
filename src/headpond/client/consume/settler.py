"""Settlements on their way to the node: one at a time on the API, ranges on the wire.

Settlements gather by shard; ``take`` turns them into numbered SETTLE frames, which the settler keeps until the
node confirms that they are on its disk. After a reconnect the intake sends the ``unconfirmed`` ones again: they
are idempotent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from headpond.model.bounds import REASON_LENGTH_MAX, Span
from headpond.model.errors import HeadpondError
from headpond.model.ranges import RangeSet
from headpond.wire.control.consuming import Settle

SPANS_MAX = 8192
"""Ranges in one SETTLE, so that its frame stays well under a control frame's limit."""
REASONED_MAX = 256
"""Refusals in one SETTLE if they have reasons, for the same purpose."""
DELAY_MAX_S = 366 * 86400.0
"""The longest delay before a redelivery; a node takes no more."""


class Nack(NamedTuple):
    """How a program refuses a message."""

    delay_s: float | None = None
    """Before its redelivery; None: the policy's backoff."""
    reason: str = ""
    dead: bool = False
    """Whether it is not to be delivered again."""


def fit_reason(reason: str) -> str:
    """The text as a node takes it: a longer one is cut."""
    return reason if len(reason) <= REASON_LENGTH_MAX else f"{reason[: REASON_LENGTH_MAX - 1]}…"


@dataclass(slots=True)
class _Unsent:
    """The settlements of one shard. ``start .. end`` is the run of acknowledgements that still grows."""

    start: int = 0
    end: int = 0
    acked: list[Span] = field(default_factory=list)
    skipped: list[Span] = field(default_factory=list)
    nacked: dict[int, Nack] = field(default_factory=dict)
    upto: int | None = None


class Settler:
    def __init__(self, consumer: int, shards: int) -> None:
        self.pending = 0
        """Settlements recorded and not yet taken."""
        self.unconfirmed: deque[Settle] = deque()
        """Frames taken and not yet confirmed by the node, in order of their number."""
        self.number = 0
        """The number of the last SETTLE taken."""
        self._consumer = consumer
        self._shards = [_Unsent() for _ in range(shards)]
        self._flushes: list[tuple[int, asyncio.Future[None]]] = []
        """The number that each ``flush`` waits for."""

    def ack(self, shard: int, start: int, end: int) -> int:
        """Records entries ``start <= n < end``; returns how many settlements wait to be taken."""
        unsent = self._shards[shard]
        if start == unsent.end:
            unsent.end = end
        else:
            if unsent.start < unsent.end:
                unsent.acked.append((unsent.start, unsent.end))
            unsent.start, unsent.end = start, end
        self.pending += end - start
        return self.pending

    def skip(self, shard: int, start: int, end: int) -> int:
        self._shards[shard].skipped.append((start, end))
        self.pending += end - start
        return self.pending

    def nack(self, shard: int, entry: int, nack: Nack) -> int:
        self._shards[shard].nacked[entry] = nack
        self.pending += 1
        return self.pending

    def ack_upto(self, shard: int, end: int) -> int:
        """Records everything before ``end``."""
        unsent = self._shards[shard]
        unsent.upto = end if unsent.upto is None else max(end, unsent.upto)
        self.pending += 1
        return self.pending

    def take(self) -> list[Settle]:
        """Everything recorded since the last call, as frames to send; they are unconfirmed from now on.

        Shards with refusals come last. A refusal may pass the subscription on to another consumer, with all
        that the node does not know to be settled, and a connection that breaks may end between two frames.
        """
        if not self.pending:
            return []
        self.pending = 0
        taken: list[Settle] = []
        for shard, unsent in sorted(enumerate(self._shards), key=lambda each: bool(each[1].nacked)):
            if unsent.start < unsent.end:
                unsent.acked.append((unsent.start, unsent.end))
            if unsent.acked or unsent.skipped or unsent.nacked or unsent.upto is not None:
                taken += self._frames(shard, unsent)
                # The next acknowledgement probably continues the last run.
                self._shards[shard] = _Unsent(unsent.end, unsent.end)
        self.unconfirmed.extend(taken)
        return taken

    def _frames(self, shard: int, unsent: _Unsent) -> list[Settle]:
        acked = unsent.acked if len(unsent.acked) == 1 else list(RangeSet(unsent.acked))
        skipped = list(RangeSet(unsent.skipped)) if unsent.skipped else []
        nacked = list(unsent.nacked.items())
        frames = []
        step = REASONED_MAX if any(nack.reason for _, nack in nacked) else SPANS_MAX
        for at in range(0, max(len(acked), len(skipped), len(nacked), 1), step):
            part = slice(at, at + step)
            self.number += 1
            refused = nacked[part]
            frames.append(
                Settle(
                    self._consumer,
                    self.number,
                    shard,
                    acked[part],
                    skipped[part],
                    [(entry, nack.delay_s) for entry, nack in refused],
                    unsent.upto if at == 0 else None,
                    [(entry, nack.reason) for entry, nack in refused if nack.reason],
                    [entry for entry, nack in refused if nack.dead],
                )
            )
        return frames

    def confirm(self, number: int) -> list[Settle]:
        """The node has every frame up to ``number`` on its disk; returns those that this confirms."""
        confirmed: list[Settle] = []
        while self.unconfirmed and self.unconfirmed[0].number <= number:
            confirmed.append(self.unconfirmed.popleft())
        while self._flushes and self._flushes[0][0] <= number:
            _, done = self._flushes.pop(0)
            if not done.done():
                done.set_result(None)
        return confirmed

    def came_again(self, shard: int, spans: list[Span]) -> None:
        """The node delivered entries again: a refusal that made it do so must not reach it once more."""
        came = RangeSet(spans)
        for at, settle in enumerate(self.unconfirmed):
            if settle.nacked and settle.shard == shard:
                left = [(entry, delay) for entry, delay in settle.nacked if entry not in came]
                self.unconfirmed[at] = msgspec.structs.replace(settle, nacked=left)

    def flushed(self) -> asyncio.Future[None]:
        """Done when the node has confirmed every frame taken so far."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._flushes.append((self.number, done))
        return done

    def drop(self) -> int:
        """Forgets all unconfirmed settlements; returns how many."""
        self.take()
        dropped = sum(map(_count, self.unconfirmed))
        self.unconfirmed.clear()
        return dropped

    def fail(self, error: HeadpondError) -> None:
        """Raises an error to everybody who waits for a confirmation: none will come."""
        flushes, self._flushes = self._flushes, []
        for _, done in flushes:
            if not done.done():
                done.set_exception(error.again())


def _count(settle: Settle) -> int:
    return (
        len(settle.nacked)
        + (settle.upto is not None)
        + sum(end - start for start, end in (*settle.acked, *settle.skipped))
    )
