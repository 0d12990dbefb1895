"""The courier: the shell around the keeper. It takes encoded segments to every destination, and the disk.

It writes what the keeper hands out while a link takes it, feeds it the answers, runs its disk jobs one after
the other on a thread of its own, and wakes it in time. It decides nothing.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from headpond.client.produce.destination import Destination
from headpond.client.produce.promise import Parcel
from headpond.model.errors import HeadpondError, StorageFailed, TimedOut
from headpond.producer.jobs import Budget, Job
from headpond.producer.keeper import Keeper
from headpond.producer.manager import Manager
from headpond.producer.refill.sender import Open
from headpond.wire.control.catalog import TopicInfo
from headpond.wire.control.producing import Ack

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("headpond.client")

PIECE_BYTES = 256 * 1024
"""How much is written before looking again whether the link takes more."""
SEGMENTS_EAGER_MAX = 64
"""With this many segments unanswered, rows wait and share the next one."""
TICK_S = 0.1
"""The longest that the keeper's clock stands still while something is under way."""
WARN_AT = 0.8
"""How full the refill is when that is told."""


class Courier:
    def __init__(
        self,
        keeper: Keeper,
        destinations: Sequence[Destination],
        budget: Budget | None,
        *,
        on_answered: Callable[[], None],
        is_pressed: Callable[[], bool],
        on_info: Callable[[int, TopicInfo], bool] = lambda index, info: True,
    ) -> None:
        """``on_info`` looks at a topic's settings and says whether segments as they are cut fit them."""
        self.keeper = keeper
        self.destinations = list(destinations)
        for destination in destinations:
            destination.listener = self
        self.refusals: dict[int, HeadpondError] = {}
        self._budget = budget
        self._on_answered = on_answered
        self._is_pressed = is_pressed
        self._on_info = on_info
        self._loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headpond-refill")
        self._running = 0
        """Jobs under way."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._changed = asyncio.Event()
        self._told: set[str] = set()
        self._hindered: dict[str, str] = {}
        """By destination: the code of the refusal that the log has told of."""
        self._warned_full = False
        self._ended = False

    # --- what the producer does ---------------------------------------------------------------------

    @property
    def eager(self) -> bool:
        """Whether a small segment would leave at once; if not, rows had better wait and share one."""
        return self.keeper.eager(SEGMENTS_EAGER_MAX)

    def ship(self, parcel: Parcel, rows: pa.RecordBatch) -> None:
        """Takes over a parcel's rows; a fault of theirs is raised."""
        block, key = self.keeper.send(parcel.shard, rows, parcel, time.monotonic())
        parcel.block = block
        parcel.segment = key.segment

    def pump(self) -> None:
        """Writes as much as windows and links allow, and starts what is to be done on the disk."""
        if self._ended:
            return
        now = time.monotonic()
        for destination in self.destinations:
            self._pump_one(destination, now)
        self._start_jobs()
        self._arm()

    def _pump_one(self, destination: Destination, now: float) -> None:
        while destination.writable:
            bursts = self.keeper.take(destination.index, PIECE_BYTES, now)
            if not bursts:
                return
            for burst in bursts:
                destination.write(burst)
            if sum(len(frame) for burst in bursts for frame in burst.frames) < PIECE_BYTES:
                return  # that was all there is

    def relieve(self) -> None:
        """Memory is full."""
        self.keeper.relieve(time.monotonic())
        self.pump()

    def hurry(self) -> None:
        """No more comes: what waits for a destination that is away need not wait longer."""
        for manager in self.keeper.managers:
            manager.hurry()
        self.pump()

    def expire(self, timeout_s: float) -> None:
        """Gives up what waited too long and is on no disk."""
        error = TimedOut(
            f"not confirmed within {timeout_s:.3g} s",
            hint="It may have been stored all the same; the node may be out of reach or overloaded.",
        )
        for manager in self.keeper.managers:
            manager.expire(time.monotonic() - timeout_s, error)
        self._on_answered()

    # --- what destinations tell ---------------------------------------------------------------------

    def on_connected(self, index: int, info: TopicInfo) -> None:
        if not self._on_info(index, info):
            self.destinations[index].ready = False
            return
        self.refusals.pop(index, None)
        welcome = self.destinations[index].link.welcome
        window = welcome.window_bytes_max if welcome is not None else None
        self.keeper.connected(index, time.monotonic(), window)
        self.pump()
        self._changed.set()

    def on_disconnected(self, index: int) -> None:
        self.keeper.disconnected(index, time.monotonic())
        self._arm()

    def on_hindered(self, index: int, error: HeadpondError) -> None:
        self.keeper.hinder(index, error)
        self._tell_hindrances()

    def on_refused(self, index: int, error: HeadpondError) -> None:
        log.error("%s takes nothing more: %s", self.destinations[index].name, error.message)
        self.refusals[index] = error
        self.keeper.refuse(index, error)
        self._on_answered()
        self.pump()

    def on_ack(self, index: int, ack: Ack) -> None:
        self.keeper.answer(index, ack, time.monotonic())
        self._on_answered()
        self.pump()
        self._changed.set()

    def on_writable(self, index: int) -> None:
        self._pump_one(self.destinations[index], time.monotonic())

    # --- time ---------------------------------------------------------------------------------------

    def _arm(self) -> None:
        if self._timer is None and not self._ended and (wake_at := self.keeper.wake_at) is not None:
            delay_s = min(max(wake_at - time.monotonic(), 0.001), TICK_S)
            self._timer = self._loop.call_later(delay_s, self._tick)

    def _tick(self) -> None:
        self._timer = None
        now = time.monotonic()
        if self._is_pressed():
            self.keeper.relieve(now)
        for index, burst in self.keeper.wake(now):
            destination = self.destinations[index]
            if destination.writable:  # if not, its timer brings it again
                destination.write(burst)
        self._on_answered()
        self._tell()
        self.pump()
        self._changed.set()

    # --- the disk -----------------------------------------------------------------------------------

    def _start_jobs(self) -> None:
        for manager, job in self.keeper.jobs():
            self._running += 1
            self._idle.clear()
            try:
                future = self._loop.run_in_executor(self._thread, _run, manager, job)
            except RuntimeError:  # the interpreter ends and starts no thread any more
                _run(manager, job)
                self._loop.call_soon(self._job_ended, manager, job)
            else:
                future.add_done_callback(partial(self._on_job_done, manager, job))

    def _on_job_done(self, manager: Manager | None, job: Job, done: asyncio.Future[None]) -> None:
        if (fault := done.exception()) is not None:  # a fault of ours: it must not stop what follows
            log.error("a job of the refill failed", exc_info=fault)
            job.error = StorageFailed(f"the refill: {fault!r}")
        self._job_ended(manager, job)

    def _job_ended(self, manager: Manager | None, job: Job) -> None:
        self._running -= 1
        if not self._running:
            self._idle.set()
        if job.error is not None:
            self._tell_once(f"refill: {job.error.message}")
        self.keeper.job_ended(manager, job, time.monotonic())
        self._end_blocks()
        self._on_answered()
        self._tell()
        self.pump()
        self._changed.set()

    def _end_blocks(self) -> None:
        for manager in self.keeper.take_ended():
            for destination in self.destinations:
                if manager.through(destination.index):
                    destination.end_block(manager.block, manager.segments_next)

    # --- the end ------------------------------------------------------------------------------------

    async def reached(self) -> None:
        """Returns when every destination can be sent to, or when it is over here."""
        while not self._ended and not all(destination.ready for destination in self.destinations):
            self._changed.clear()
            await self._changed.wait()

    async def settle(self) -> None:
        """Returns when files left behind are through at every destination that is there, as far as they go."""
        while not self._ended and not self.keeper.settled():
            self._changed.clear()
            self.pump()
            await self._changed.wait()

    async def shutdown(self, timeout_s: float) -> None:
        """Everything unconfirmed goes to the refill; what cannot go there within the time is given up."""
        self.keeper.shutdown()
        try:
            async with asyncio.timeout(timeout_s):
                while not self.keeper.finished:
                    self._changed.clear()
                    self.pump()
                    await self._changed.wait()
        except TimeoutError:
            error = next((m.spills.error for m in self.keeper.managers if m.spills.error is not None), None)
            why = "" if error is None else f": {error.message}"
            self.abandon(TimedOut(f"neither confirmed nor written to the refill within {timeout_s:.3g} s{why}"))

    def abandon(self, error: HeadpondError) -> None:
        for manager in self.keeper.managers:
            manager.abandon(error)
        self._on_answered()

    async def end(self) -> None:
        """Says that the block ended, where all of it is confirmed, and lets go of everything."""
        self._ended = True
        self._changed.set()
        if self._timer is not None:
            self._timer.cancel()
        self.keeper.forget()
        current = self.keeper.current
        for destination in self.destinations:
            # A block that the next run goes on with has not ended.
            if current.through(destination.index) and current.spills.left_path is None:
                destination.end_block(current.block, current.segments_next)
            destination.stop()
        await self._idle.wait()
        self._thread.shutdown()  # nothing runs any more, so that this does not wait

    # --- what must not pass in silence --------------------------------------------------------------

    def _tell_once(self, text: str) -> None:
        if text not in self._told and len(self._told) < 1000:
            self._told.add(text)
            log.warning("%s", text)

    def _tell_hindrances(self) -> None:
        """Once when a destination takes nothing for now, once when it does again."""
        for manager in self.keeper.managers:
            while manager.taking_again:
                if self._hindered.pop(name := manager.taking_again.pop(), None) is not None:
                    log.warning("%s takes messages again", name)
        for name, error in self.keeper.hindrances.items():
            if self._hindered.get(name) != error.code:
                self._hindered[name] = error.code
                log.warning("%s takes nothing for now (%s: %s); trying again", name, error.code, error.message)

    def _tell(self) -> None:
        self._tell_hindrances()
        for name, block, hole in self.keeper.holes:
            self._tell_once(
                f"{name} has no segments {hole.start}–{hole.end - 1} of shard {hole.shard}, block "
                f"{block.hex()}, and they cannot be sent any more"
            )
        for lost in self.keeper.lost:
            self._tell_once(f"refill: {lost}")
        for manager in self.keeper.managers:
            for (name, code), why in manager.spills.refused.items():
                self._tell_once(
                    f"{name} refused spilled messages of block {manager.block.hex()} for good ({code}: {why}); "
                    "they are kept until `headpond refill drop`, see `headpond refill show`"
                )
        left = self.keeper.left
        for path, why in left.unreadable:
            self._tell_once(f"refill file {path} cannot be sent: {why}")
        for name, segments in left.foreign.items():
            self._tell_once(
                f"{segments:,} segments wait in the refill for {name}, which this producer does not send to; "
                "see `headpond refill list`"
            )
        if self._budget is not None:
            full = self._budget.used >= WARN_AT * self._budget.bytes_max
            if full and not self._warned_full:
                log.warning(
                    "the refill holds %s of at most %s bytes; when memory is full too, nothing more is taken",
                    f"{self._budget.used:,}",
                    f"{self._budget.bytes_max:,}",
                )
            self._warned_full = full


def _run(manager: Manager | None, job: Job) -> None:
    try:
        if isinstance(job, Open):
            job.run()
        elif manager is not None and manager.store is not None:
            job.run(manager.store)
    except HeadpondError as error:
        job.error = error
    except OSError as error:
        job.error = StorageFailed(f"the refill: {error}")
