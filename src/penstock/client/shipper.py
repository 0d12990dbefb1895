"""The shipper: takes encoded parcels to a node and brings back their fates.

The shell around the outbox machine: it writes what the outbox hands out while the link takes it, feeds it the
answers, and keeps its clocks (backoff of held lanes, deadlines).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from penstock.client.link import Link
from penstock.client.promise import Fate, Parcel
from penstock.model.errors import PenstockError, TimedOut, from_code
from penstock.model.receipt import Durability, Outcome
from penstock.transport.outbox import Finished, Held, Outbox
from penstock.wire.control import Ack, AckItem, BlockEnd

log = logging.getLogger("penstock.client")

PIECE_BYTES = 256 * 1024
"""How much is written before looking again whether the link takes more."""
SEGMENTS_EAGER_MAX = 64
"""With this many segments unanswered, rows wait and share the next one."""


class Shipper:
    def __init__(
        self,
        link: Link,
        block: bytes,
        title: bytes,
        *,
        window_bytes: int,
        timeout_s: float | None,
        on_finished: Callable[[Parcel, Fate], None],
        on_answered: Callable[[], None],
    ) -> None:
        self.broken: PenstockError | None = None
        """What made the whole block fail: nothing more can be sent."""
        self._link = link
        self._block = block
        self._title = title
        self._timeout_s = timeout_s
        self._on_finished = on_finished
        self._on_answered = on_answered
        self._window_bytes = window_bytes
        self._outbox: Outbox[Parcel] = Outbox(block, window_bytes=self._window())
        self._timers: dict[int, asyncio.TimerHandle] = {}
        self._refusals = 0
        self._paused: asyncio.TimerHandle | None = None
        self._titled = False
        link.add_block(block, self)

    # --- what the producer does ---------------------------------------------------------------------

    @property
    def eager(self) -> bool:
        """Whether a small segment would leave at once; if not, rows had better wait and share one."""
        outbox = self._outbox
        return outbox.in_flight_bytes < outbox.window_bytes and outbox.in_flight_segments < SEGMENTS_EAGER_MAX

    @property
    def in_flight_bytes(self) -> int:
        return self._outbox.in_flight_bytes

    @property
    def resent(self) -> int:
        return self._outbox.resent

    def ship(self, parcel: Parcel, body: bytes) -> None:
        """Takes over one encoded parcel."""
        if self.broken is not None:
            self._on_finished(parcel, self._refused(self.broken))
            return
        deadline = None if self._timeout_s is None else parcel.posted_at + self._timeout_s
        self._outbox.add(parcel.shard, body, parcel, deadline)

    def pump(self) -> None:
        """Writes as much as window and link allow."""
        if self._paused is not None:
            return
        while self._link.writable:
            taken = self._outbox.take(PIECE_BYTES)
            if not taken:
                return
            for _, parcel, number in taken:
                if parcel is not None:
                    parcel.segment = number
            self._titled = True
            self._link.send_segments(self._block, self._title, [frame for frame, _, _ in taken])

    def expire(self) -> None:
        """Fails what waited too long."""
        if self._timeout_s is None:
            return
        error = TimedOut(
            f"not confirmed within {self._timeout_s:.3g} s",
            hint="It may have been stored all the same; the node may be out of reach or overloaded.",
        )
        for parcel in self._outbox.expire(time.monotonic()):
            self._on_finished(parcel, self._refused(error))
        self._on_answered()

    def give_up(self, error: PenstockError) -> None:
        """Fails everything that is not confirmed, and whatever comes."""
        self.broken = error
        for parcel in self._outbox.clear():
            self._on_finished(parcel, self._refused(error))
        self._on_answered()

    def end(self) -> None:
        """Says that no segment follows, if all are confirmed; then listens no more."""
        if self._titled and self._outbox.unfinished == 0 and self.broken is None:
            self._link.send(BlockEnd(self._block, self._outbox.segments_next))
        self._link.remove_block(self._block)
        for timer in self._timers.values():
            timer.cancel()
        if self._paused is not None:
            self._paused.cancel()

    # --- what the link tells ------------------------------------------------------------------------

    def on_down(self) -> None:
        """What is not confirmed stays in the outbox."""

    def on_up(self) -> None:
        if self._paused is not None:
            self._paused.cancel()
            self._paused = None
        self._outbox.window_bytes = self._window()
        self._outbox.reconnect()
        self._refusals = 0
        self.pump()

    def on_writable(self) -> None:
        self.pump()

    def on_ack(self, ack: Ack) -> None:
        for item in ack.items:
            answer = self._outbox.answer(ack.shard, item)
            if isinstance(answer, Finished):
                self._refusals = 0
                self._on_finished(answer.parcel, self._fate(item, ack.durability))
            elif isinstance(answer, Held):
                self._hold(answer)
        self._on_answered()
        self.pump()

    def on_error(self, error: PenstockError) -> None:
        """The block as a whole was refused."""
        if not error.retryable:
            self.give_up(error)
            return
        log.warning("the node refused a block for now: %s", error.message)
        if self._paused is None:
            delay_s = self._link.backoff.delay_s(self._refusals)
            self._refusals += 1
            self._paused = asyncio.get_running_loop().call_later(delay_s, self._resume)

    def _resume(self) -> None:
        self._paused = None
        self._link.forget_title()
        self._outbox.reconnect()
        self.pump()

    def _hold(self, held: Held) -> None:
        log.warning("segment %d waits: %s (%s)", held.answer.segment, held.answer.message, held.answer.code)
        delay_s = self._link.backoff.delay_s(held.setbacks)
        self._timers[held.shard] = asyncio.get_running_loop().call_later(delay_s, self._release, held.shard)

    def _release(self, shard: int) -> None:
        del self._timers[shard]
        self._outbox.release(shard)
        self.pump()

    def _window(self) -> int:
        welcome = self._link.welcome
        return min(self._window_bytes, welcome.window_bytes_max) if welcome else self._window_bytes

    def _fate(self, item: AckItem, durability: str) -> Fate:
        if item.outcome == "rejected":
            return self._refused(from_code(item.code, item.message or item.code))
        outcome = Outcome(item.outcome)
        return Fate(outcome, self._link.destination, item.first_entry, Durability(durability))

    def _refused(self, error: PenstockError) -> Fate:
        return Fate(Outcome.REJECTED, self._link.destination, error=error)
