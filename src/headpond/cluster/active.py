"""The active member: sends the operations of its disk to the stream, and lets go when it is in doubt.

Every record that it sends says that it is alive; without changes it sends a BEAT. A record that the stream
confirms proves that this member was still the active one *when it sent it*. It is ``certain`` for
``CERTAIN_S`` after that. While it is not, its node sends nothing to any client, because another member may be
active already. After ``DOUBT_S`` without a confirmation it ends.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from functools import partial

from headpond.cluster.apply import Applier, Diverged
from headpond.cluster.journal import Journal, Refused, Unreachable
from headpond.cluster.outbox import Confirmed, Fenced, ToSend
from headpond.cluster.records import Kind
from headpond.cluster.replicated_disk import ReplicatedDisk
from headpond.cluster.standby import CERTAIN_S, CHECKPOINT_BYTES, CHECKPOINT_S, InThread
from headpond.storage.disk import MeasuredDisk

logger = logging.getLogger("headpond.cluster")

BEAT_S = 0.5
NEWS_S = 0.01
"""Standbys hear of new records so often at most, unless somebody waits for them."""
TICK_S = 0.1
UNANSWERED_S = 1.0
"""After so long without an answer, it looks for its records in the stream."""
DOUBT_S = 10.0
RESOLVE_AGAIN_S = 0.1
BEHIND_BYTES_MAX = 64 * 1024 * 1024
"""The folder may be so far behind the stream; then it sends nothing more for a while."""
APPLY_AGAIN_S = 0.5
UNAPPLIED_S_MAX = 10.0
"""For so long the folder may take no change; then the member steps down."""


class Active:
    """All methods are called in the loop, except those of its disk."""

    def __init__(
        self,
        journal: Journal,
        base: MeasuredDisk,
        applier: Applier,
        in_thread: InThread,
        on_certain: Callable[[], None],
        news: Callable[[int], bytes],
        *,
        proven_s: float,
        standby: bool = False,
        waits: bool = True,
    ) -> None:
        """``on_certain`` is called when it is certain again, after a time in which it was not.

        ``proven_s``: when it sent its EPOCH record, by the loop's clock. With ``standby`` a change counts as
        durable only when a standby has applied it too.
        """
        self._loop = asyncio.get_running_loop()
        self.disk = ReplicatedDisk(base, applier, self._wake, waits=waits)
        self.applier = applier
        self.ended: asyncio.Future[Exception | None] = self._loop.create_future()
        """Has the reason why this member is no longer the active one; None after ``release``."""
        self.doubts = 0
        """How often it looked for its records in the stream."""
        self.appended = self.appended_bytes = 0
        """Records that the stream has confirmed, and their bytes."""
        self.append_s = 0.0
        """The sum of the times from sending a record to its confirmation."""
        self._journal = journal
        self._in_thread = in_thread
        self._on_certain = on_certain
        self._news = news
        self._outbox = self.disk.outbox
        self._proven_s = proven_s
        """When a record was sent that the stream has confirmed: it was the active member then."""
        self._began_s = self._loop.time()
        self._last_sent_s = self._last_answer_s = self._oldest_s = 0.0
        """When it sent last, had an answer last, and sent when nothing else was in flight."""
        self._was_certain = self.certain
        self._woken = False
        self._thread = threading.get_ident()
        self._announcing: asyncio.TimerHandle | None = None
        self._resolving: asyncio.Task[None] | None = None
        self._warned_of = ""
        """The last reason for doubt that the log has, until a record is confirmed."""
        self._confirmed: list[Confirmed] = []
        self._behind_bytes = 0
        """Of confirmed records that the folder does not have yet."""
        self._to_apply = asyncio.Event()
        self._released: asyncio.Future[None] = self._loop.create_future()
        self._standby_seq: int | None = 0 if standby else None
        self._unapplied: deque[Confirmed] = deque()
        """Confirmed records that no standby has applied, if that matters."""
        self._releasing = self._release_sent = False
        self._tasks = [self._loop.create_task(each) for each in (self._tick(), self._apply())]
        for task in self._tasks:
            task.add_done_callback(self._task_ended)

    # --- certainty ----------------------------------------------------------------------------------

    @property
    def certain(self) -> bool:
        """Whether no other member can be active now."""
        return not self.ended.done() and self._loop.time() - self._proven_s < CERTAIN_S

    def _end(self, reason: Exception | None) -> None:
        if self.ended.done():
            return
        self.disk.fail(OSError(f"this node is no longer the active member: {reason}"))
        self.ended.set_result(reason)
        if not self._released.done():
            self._released.set_result(None)
        for task in (*self._tasks, self._resolving):
            if task is not None:
                task.cancel()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(error if isinstance(error, Exception) else RuntimeError(str(error)))

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now_s = self._loop.time()
            if now_s - max(self._proven_s, self._began_s) > DOUBT_S:
                raise Fenced(f"the stream confirmed nothing for {DOUBT_S:g} s")
            if not self.certain:
                self._was_certain = False
            if self._outbox.flight and now_s - max(self._last_answer_s, self._oldest_s) > UNANSWERED_S:
                self._doubt("no answer")
            elif not self._outbox.flight and now_s - self._last_sent_s > BEAT_S and not self._releasing:
                with self.disk.lock:
                    self._outbox.add(Kind.BEAT)
                self._pump()

    # --- sending ------------------------------------------------------------------------------------

    def _wake(self) -> None:
        """In any thread."""
        if not self._woken:
            self._woken = True
            if threading.get_ident() == self._thread:
                self._loop.call_soon(self._pump)
            else:
                self._loop.call_soon_threadsafe(self._pump)

    def _pump(self) -> None:
        self._woken = False
        if self._resolving is None and self._behind_bytes < BEHIND_BYTES_MAX and not self.ended.done():
            with self.disk.lock:
                records = self._outbox.take()
            self._send(records)

    def _send(self, records: list[ToSend]) -> None:
        if not records:
            return
        now_s = self._last_sent_s = self._loop.time()
        if len(records) == len(self._outbox.flight):
            self._oldest_s = now_s
        for each in records:
            each.record.sent_s = each.record.sent_s or now_s
            self._journal.append(each.raw, each.expected_seq).add_done_callback(partial(self._answered, each))

    def _answered(self, sent: ToSend, answer: asyncio.Future[int]) -> None:
        if answer.cancelled() or self.ended.done() or sent.sending != self._outbox.sending:
            if not answer.cancelled():
                answer.exception()
            return
        self._last_answer_s = self._loop.time()
        error = answer.exception()
        if error is not None:
            self._doubt(str(error))
            return
        try:
            with self.disk.lock:
                confirmed = self._outbox.confirm(sent, answer.result())
        except Diverged as diverged:
            self._end(diverged)
            return
        self._take(confirmed)
        self._pump()

    def _take(self, confirmed: list[Confirmed]) -> None:
        """Records that count: their waiters are called, and the folder gets them."""
        if not confirmed:
            return
        size, now_s = sum(len(each.raw) for each in confirmed), self._loop.time()
        self.appended += len(confirmed)
        self.appended_bytes += size
        self.append_s += sum(now_s - each.sent_s for each in confirmed)
        self._proven_s = max(self._proven_s, *(each.sent_s for each in confirmed))
        self._confirmed += confirmed
        self._warned_of = ""
        self._behind_bytes += size
        self._to_apply.set()
        if self._standby_seq is None:
            self.disk.durable(confirmed[-1].number)
            if self._announcing is None:
                self._announcing = self._loop.call_later(NEWS_S, self._announce)
        else:
            self._announce()
            self._unapplied += confirmed
            self._count_standby()
        self._release_if_idle()
        if not self._was_certain and self.certain:
            self._was_certain = True
            self._on_certain()

    def _announce(self) -> None:
        """Standbys look for records."""
        self._announcing = None
        if not self.ended.done():
            self._journal.tell(self._news(self._outbox.confirmed_seq))

    # --- doubt --------------------------------------------------------------------------------------

    def _doubt(self, why: str) -> None:
        if self._resolving is None and not self.ended.done():
            if why != self._warned_of:  # the stream may be full for minutes
                self._warned_of = why
                logger.warning("looking for %d records in the stream: %s", len(self._outbox.flight), why)
            self.doubts += 1
            self._resolving = self._loop.create_task(self._resolve())
            self._resolving.add_done_callback(self._task_ended)

    async def _resolve(self) -> None:
        """Finds out what became of the records in flight, and sends those again that did not land."""
        behind = None
        while behind is None:
            try:
                behind = await self._read_behind()
            except (Unreachable, Refused) as error:
                logger.info("the stream does not answer: %s", error)
                await asyncio.sleep(RESOLVE_AGAIN_S)
        with self.disk.lock:
            confirmed, again = self._outbox.resolve(behind)
        self._take(confirmed)
        if again:
            await asyncio.sleep(RESOLVE_AGAIN_S)  # a stream that is full refuses them again
        self._resolving = None
        self._send(again)
        self._pump()

    async def _read_behind(self) -> list[tuple[int, bytes]]:
        """The records behind the last one that this member knows, as the stream's leader has them."""
        found: list[tuple[int, bytes]] = []
        state = await self._journal.state()
        for seq in range(self._outbox.confirmed_seq + 1, state.last_seq + 1):
            raw = await self._journal.read_leader(seq)
            if raw is None:
                raise Unreachable(f"record {seq} of {state.last_seq} is not there")
            found.append((seq, raw))
        return found

    # --- standbys -----------------------------------------------------------------------------------

    def standby_applied(self, seq: int) -> None:
        """A standby has the records up to ``seq`` in its folder."""
        if self._standby_seq is not None and seq > self._standby_seq:
            self._standby_seq = seq
            self._count_standby()

    def _count_standby(self) -> None:
        number = None
        while self._unapplied and self._unapplied[0].seq <= (self._standby_seq or 0):
            number = self._unapplied.popleft().number
        if number is not None:
            self.disk.durable(number)

    # --- the folder ---------------------------------------------------------------------------------

    async def _apply(self) -> None:
        """Changes the folder behind the stream, and makes checkpoints."""
        checkpoint_s = self._loop.time()
        failing_since_s: float | None = None
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._to_apply.wait(), CHECKPOINT_S)
            self._to_apply.clear()
            batch, self._confirmed = self._confirmed, []
            try:
                while batch:
                    done = await self._in_thread(self._apply_some, batch)
                    self._behind_bytes -= sum(len(each.raw) for each in batch[:done])
                    del batch[:done]
                    self._pump()
                failing_since_s = None
            except OSError as error:
                now_s = self._loop.time()
                failing_since_s = failing_since_s or now_s
                if now_s - failing_since_s > UNAPPLIED_S_MAX:
                    raise
                logger.error("cannot change the folder: %s", error)
                await asyncio.sleep(APPLY_AGAIN_S)
                self._confirmed = batch + self._confirmed
                self._to_apply.set()
                continue
            now_s = self._loop.time()
            if now_s - checkpoint_s > CHECKPOINT_S or self.applier.bytes > CHECKPOINT_BYTES:
                checkpoint_s = now_s
                if self.applier.position != self.applier.checkpointed:
                    await self._in_thread(self.applier.checkpoint)

    def _apply_some(self, batch: list[Confirmed]) -> int:
        done = 0
        try:
            for confirmed in batch:
                while self.applier.position.seq + 1 < confirmed.seq:  # void records, of a replaced member
                    self.applier.pass_over()
                self.disk.apply(confirmed)
                done += 1
        except OSError:
            if not done:
                raise
        return done

    # --- the end ------------------------------------------------------------------------------------

    async def release(self) -> None:
        """Everything is written: lets another member take over at once. Returns when this one has ended."""
        self._releasing = True
        self._pump()
        self._release_if_idle()
        await self._released
        self.kill()

    def _release_if_idle(self) -> None:
        """RELEASE is the last record: it follows when everything else is confirmed."""
        if not self._releasing or self._outbox.flight or self._outbox.queue or self._released.done():
            return
        if self._release_sent:
            self._released.set_result(None)
        else:
            self._release_sent = True
            with self.disk.lock:
                self._outbox.add(Kind.RELEASE)
            self._pump()

    def kill(self) -> None:
        """Ends at once; what the folder lacks is applied again later."""
        self._end(None)
