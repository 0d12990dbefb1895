"""One run of a producer: the shell around the keeper, from opening the topic to the last file.

The run feeds the keeper one input at a time: rows, answers, connections, ended disk jobs, time. After each it
carries out what the keeper decided, once (``carry``): it writes frames while a link takes them, starts disk
jobs on a thread, one after the other, and sets the timer. It decides nothing about messages.

``open_run`` finds out what the topic is like (from the node, else from the note of an earlier run), takes the
refill folder and lets ``Blocks`` decide how the run begins.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Protocol

from headpond.client.link.link import Link
from headpond.client.options import ProducerOptions
from headpond.client.produce.batcher import ROW_BYTES, SEGMENT_SPARE_BYTES
from headpond.client.produce.destination import Destination
from headpond.client.produce.registration import ProducerRegistration, until_free
from headpond.client.produce.slot import NUMBERS_FILE, Slot
from headpond.model.bounds import check_fields
from headpond.model.errors import (
    AccessRefused,
    Fenced,
    HeadpondError,
    ProducerBusy,
    StorageFailed,
    TimedOut,
    TopicMismatch,
)
from headpond.model.identity import BLOCK_BYTES
from headpond.model.receipt import Durability
from headpond.producer.blocks import UNKNOWN_UUID, Blocks, Form, RefillFolder
from headpond.producer.keeper import Burst, Keeper, Rotation
from headpond.producer.manager import Manager, SendPolicy
from headpond.producer.numbers import Numbers
from headpond.producer.spills import Budget, Job
from headpond.wire.control.catalog import TopicInfo
from headpond.wire.control.producing import Ack
from headpond.wire.frame import SEGMENT_BYTES_MAX
from headpond.wire.title import Title
from headpond.wire.typed.schema import decode_schema

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("headpond.client")

CLOSE_DISK_S = 30.0
"""How long closing waits for the disk, besides the time for destinations."""
PIECE_BYTES = 256 * 1024
"""How much is written before the next look at whether the link takes more."""
TICK_S = 0.1
"""The longest time between two wake-ups of the keeper while it waits for something."""
FULL_RATIO = 0.8
"""How full the refill is when a warning says so."""
WARNINGS_MAX = 1000


class RunOwner(Protocol):
    """The producer."""

    def on_answered(self) -> None:
        """Fates may be known, and memory free."""

    def on_topic(self) -> None:
        """The number of shards is known, or is another than remembered."""

    @property
    def is_pressed(self) -> bool:
        """Whether memory is full."""


async def open_run(
    links: Sequence[Link], topic: str, name: str, options: ProducerOptions, owner: RunOwner
) -> ProducerRun:
    """A run that is ready to ``start``."""
    check_fields(Title(topic, UNKNOWN_UUID, name))
    registration = ProducerRegistration(name, options.access, late=options.late)
    destinations = [
        Destination(index, link, topic, registration, create=options.create) for index, link in enumerate(links)
    ]
    first, copies = destinations[0], destinations[1:]
    loop = asyncio.get_running_loop()
    await asyncio.gather(*(copy.link.open_if_new() for copy in copies))
    info, hindrance = await _ask_first(first, options)
    slot: Slot | None = None
    try:
        if options.refill is not None:
            full_name = info.topic if info is not None else topic
            slot = await loop.run_in_executor(
                None, partial(Slot.take, options.refill, full_name, name, alone=options.resume)
            )
        remembered = info
        if slot is not None and info is not None:
            slot.cache_topic(info)
        elif slot is not None:
            remembered = slot.cached_topic()
        if slot is not None and name:
            registration.keep_note(slot.disk, slot.lease_file)
        for destination in destinations:
            destination.like = remembered
        budget = Budget(options.refill_max)
        form = _form(topic, name, remembered)
        build = partial(_build, form, destinations, registration, slot, options, budget, known=info is not None)
        blocks, keeper = build() if slot is None else await loop.run_in_executor(None, build)
        await asyncio.gather(*map(_ask_copy, copies))
    except BaseException:
        if slot is not None:
            slot.release()
        await registration.leave()
        raise
    run = ProducerRun(
        topic,
        name,
        options,
        owner,
        destinations=destinations,
        registration=registration,
        slot=slot,
        blocks=blocks,
        keeper=keeper,
        budget=budget,
        known=info is not None,
    )
    if hindrance is not None:
        run.on_hindered(0, hindrance)
    return run


async def _ask_first(
    first: Destination, options: ProducerOptions
) -> tuple[TopicInfo | None, HeadpondError | None]:
    """The topic at the first destination; None, perhaps with a reason, if it is away and there is a refill."""
    if options.refill is None:  # there is nowhere to keep messages before the topic is known
        return await until_free(first.ask, options.wait), None
    try:
        return (await until_free(first.ask, options.wait) if first.link.up else None), None
    except ProducerBusy:
        raise
    except HeadpondError as error:
        if not error.retryable:
            raise
        return None, error


async def _ask_copy(copy: Destination) -> None:
    """A copy that is there is asked at once, so that the first message need not be spilled for it."""
    if copy.link.up:
        with suppress(HeadpondError):  # the next answer counts
            await copy.ask()


def _form(topic: str, name: str, info: TopicInfo | None) -> Form:
    if info is None:
        return Form(topic, None, None, name)
    return Form(info.topic, info.shards, info.schema, name)


def _build(
    form: Form,
    destinations: Sequence[Destination],
    registration: ProducerRegistration,
    slot: Slot | None,
    options: ProducerOptions,
    budget: Budget,
    *,
    known: bool,
) -> tuple[Blocks, Keeper]:
    """Reads the disk and makes the keeper; with a slot it runs on a thread, because that takes time."""
    place, numbers = None, None
    if slot is not None:
        place = RefillFolder(slot.disk, slot.folder, options.refill_durability, tuple(slot.adopted))
    if slot is not None and options.resume:
        new_block = secrets.token_bytes(BLOCK_BYTES)
        numbers = Numbers(slot.disk, slot.folder, NUMBERS_FILE, options.block_bytes, new_block)
    spill_after_s = min(options.spill_after, options.timeout or options.spill_after)
    blocks = Blocks(
        form,
        tuple(destination.name for destination in destinations),
        place,
        policy=SendPolicy(options.window_bytes, spill_after_s, Durability(options.refill_durability)),
        budget=budget,
        jitter=random.random,
        new_block=lambda: secrets.token_bytes(BLOCK_BYTES),
        now_us=lambda: time.time_ns() // 1000,
        numbers=numbers,
        may_duplicate=options.may_duplicate,
        epoch=lambda: registration.epoch,
        is_late=registration.is_late,
    )
    rotation = Rotation(options.rotate_after, options.block_bytes_max)
    if numbers is not None or slot is None:
        rotation = Rotation(None, None, after_rejects=False)
    keeper = blocks.keeper(rotation=rotation, ordered=options.ordered, now=time.monotonic(), known=known)
    return blocks, keeper


class ProducerRun:
    def __init__(
        self,
        topic: str,
        name: str,
        options: ProducerOptions,
        owner: RunOwner,
        *,
        destinations: list[Destination],
        registration: ProducerRegistration,
        slot: Slot | None,
        blocks: Blocks,
        keeper: Keeper,
        budget: Budget,
        known: bool,
    ) -> None:
        """``known``: a node has said in this run what the topic is like."""
        self.destinations = destinations
        self.keeper = keeper
        self.topic = topic
        self.schema: pa.Schema | None = None
        self.has_refill = slot is not None
        self.refusals: dict[int, HeadpondError] = {}
        self._name = name
        self._options = options
        self._owner = owner
        self._slot = slot
        self._blocks = blocks
        self.budget = budget
        self._registration = registration
        self._known = known
        self._learn(destinations[0].like)
        self.loop = asyncio.get_running_loop()
        self._timer: asyncio.TimerHandle | None = None
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="headpond-refill")
        self._running = 0
        """Jobs under way."""
        self._idle = asyncio.Event()
        self._idle.set()
        self._changed = asyncio.Event()
        self._warned: set[str] = set()
        self._hindered: dict[str, str] = {}
        """By destination: the code of the refusal that the log has named."""
        self._warned_full = False
        self._ended = False
        self._warn_of_files()

    def _learn(self, info: TopicInfo | None) -> None:
        if info is not None:
            self.topic = info.topic
            self.schema = None if info.schema is None else decode_schema(info.schema)
            for destination in self.destinations:
                destination.like = info

    def start(self) -> None:
        """Begins to send."""
        for destination in self.destinations:
            destination.start(self)
        self.carry()

    # --- the topic ----------------------------------------------------------------------------------

    @property
    def shards(self) -> int | None:
        """The shards that rows are cut for; None while nobody knows."""
        return self.keeper.current.shards

    @property
    def segment_bytes_max(self) -> int:
        """The most bytes of rows in a segment."""
        welcome = self.destinations[0].link.welcome
        limit = SEGMENT_BYTES_MAX if welcome is None else welcome.segment_bytes_max
        return limit - SEGMENT_SPARE_BYTES

    @property
    def message_bytes_max(self) -> int:
        """The most bytes of one message, as memory counts them."""
        asked = None if (like := self.destinations[0].like) is None else like.message_bytes_max
        return self.segment_bytes_max if asked is None else min(self.segment_bytes_max, asked + ROW_BYTES)

    @property
    def state(self) -> bool | None:
        """Whether it is a state topic; None while nobody knows."""
        return None if (like := self.destinations[0].like) is None else like.state

    def make_title(self, info: TopicInfo, burst: Burst) -> Title:
        late, epoch = self._registration.late, self._registration.epoch
        return Title(info.topic, info.uuid, self._name, epoch, burst.schema, burst.predecessor, late=late)

    def _accept(self, index: int, info: TopicInfo) -> bool:
        """Whether the topic at a node fits the others; the first answer decides."""
        current = self.keeper.current
        fits = info.shards == current.shards and (info.schema is None) == (current.schema is None)
        if self._known and not fits:
            what = "plain" if info.schema is None else "typed"
            ours = f"{current.shards}{'' if current.schema is None else ', typed'}"
            mismatch = TopicMismatch(
                f"topic {info.topic} is {what} and has {info.shards} shards at "
                f"{self.destinations[index].name}, and messages were cut for {ours}"
            )
            self.on_refused(index, mismatch)
            return False
        if not self._known:
            self._known = True
            self._learn(info)
            self._blocks.learn(_form(self.topic, self._name, info))
            self.keeper.left.begin_with(self._blocks.recheck_late())
            self._warn_of_files()
            self.keeper.learn(time.monotonic(), renew=not fits)
            self._follow_topic(current)
        if self._slot is not None and index == 0:
            self._slot.cache_topic(info)
        return True

    def _follow_topic(self, before: Manager) -> None:
        current = self.keeper.current
        if (current.shards, current.schema) != (before.shards, before.schema):
            self._owner.on_topic()

    # --- inputs -------------------------------------------------------------------------------------

    def on_connected(self, index: int, info: TopicInfo) -> None:
        if not self._accept(index, info):
            self.destinations[index].ready = False
            return
        self.refusals.pop(index, None)
        welcome = self.destinations[index].link.welcome
        window = welcome.window_bytes_max if welcome is not None else None
        self.keeper.connected(index, time.monotonic(), window)
        self.carry()
        self._changed.set()

    def on_disconnected(self, index: int) -> None:
        self.keeper.disconnected(index, time.monotonic())
        self.carry()

    def on_hindered(self, index: int, error: HeadpondError) -> None:
        self.keeper.hinder(index, error)
        self._warn_of_hindrances()

    def on_refused(self, index: int, error: HeadpondError) -> None:
        log.error("%s takes nothing more: %s", self.destinations[index].name, error.message)
        self.refusals[index] = error
        self.keeper.refuse(index, error)
        self._owner.on_answered()
        self.carry()

    def on_token_refused(self, index: int, error: AccessRefused) -> None:
        """With a refill the messages are kept, to be sent with another token."""
        if not self.has_refill:
            self.on_refused(index, error)

    def on_fenced(self, error: Fenced) -> None:
        """Another instance took over: no node takes anything, and undelivered messages are kept as late."""
        if not self._registration.fence(error):
            return
        blocks = [manager.block for manager in self.keeper.managers]
        self._registration.note.taken_over(self._registration.epoch, blocks)
        for destination in self.destinations:
            destination.ready = False
            self.on_refused(destination.index, error)

    def on_ack(self, index: int, ack: Ack) -> None:
        self.keeper.answer(index, ack, time.monotonic())
        self._owner.on_answered()
        if self._timer is None or not self.keeper.rests:
            self.carry()
        self._changed.set()

    def relieve(self) -> None:
        """Memory is full."""
        self.keeper.relieve(time.monotonic())
        self.carry()

    def hurry(self) -> None:
        """The producer closes: messages for a destination that is away need not wait longer."""
        for manager in self.keeper.managers:
            manager.hurry()
        self.carry()

    def expire(self, timeout_s: float) -> None:
        """Gives up the messages that waited too long and are on no disk."""
        error = TimedOut(
            f"not confirmed within {timeout_s:.3g} s",
            hint="It may have been stored all the same; the node may be out of reach or overloaded.",
        )
        for manager in self.keeper.managers:
            manager.expire(time.monotonic() - timeout_s, error)
        self._owner.on_answered()

    def abandon(self, error: HeadpondError) -> None:
        for manager in self.keeper.managers:
            manager.abandon(error)
        self._owner.on_answered()

    def _tick(self) -> None:
        self._timer = None
        now = time.monotonic()
        before = self.keeper.current
        if self._owner.is_pressed:
            self.keeper.relieve(now)
        for index, burst in self.keeper.wake(now):
            destination = self.destinations[index]
            if destination.ready and destination.link.writable:  # if not, its timer brings it again
                destination.write(burst)
        self._follow_topic(before)
        self._owner.on_answered()
        self._warn()
        self.carry()
        self._changed.set()

    # --- effects ------------------------------------------------------------------------------------

    def carry(self) -> None:
        """Carries out what the keeper decided: frames to links, jobs to the disk, the next wake-up."""
        if self._ended:
            return
        now = time.monotonic()
        keeper = self.keeper
        for destination in self.destinations:
            while destination.ready and destination.link.writable:
                size = 0
                for burst in keeper.take(destination.index, PIECE_BYTES, now):
                    destination.write(burst)
                    size += sum(map(len, burst.frames))
                if size < PIECE_BYTES:
                    break  # nothing is left
        jobs = keeper.take_jobs()
        if jobs:
            self._start_jobs(jobs)
        if self._timer is None and (wake_at := keeper.wake_at) < inf:
            delay_s = min(max(wake_at - now, 0.001), TICK_S)
            self._timer = self.loop.call_later(delay_s, self._tick)

    def _start_jobs(self, jobs: list[Job]) -> None:
        for job in jobs:
            self._running += 1
            self._idle.clear()
            try:
                future = self.loop.run_in_executor(self._thread, job.work)
            except RuntimeError:  # the interpreter ends and starts no thread
                job.work()
                self.loop.call_soon(self._job_ended, job)
            else:
                future.add_done_callback(partial(self._on_job_done, job))

    def _on_job_done(self, job: Job, done: asyncio.Future[None]) -> None:
        if (fault := done.exception()) is not None:  # a fault of ours: it must not stop the jobs after it
            log.error("a job of the refill failed", exc_info=fault)
            job.error = StorageFailed(f"the refill: {fault!r}")
        self._job_ended(job)

    def _job_ended(self, job: Job) -> None:
        self._running -= 1
        if not self._running:
            self._idle.set()
        if job.error is not None:
            self._warn_once(f"refill: {job.error.message}")
        before = self.keeper.current
        self.keeper.job_ended(job, time.monotonic())
        self._follow_topic(before)
        self._owner.on_answered()
        self._warn()
        self.carry()
        for ended in self.keeper.take_ended():
            self._end_block(ended)
        self._changed.set()

    def _end_block(self, manager: Manager) -> None:
        for destination in self.destinations:
            if manager.outlets[destination.index].through:
                destination.end_block(manager.block, manager.segments_next)

    # --- the end ------------------------------------------------------------------------------------

    async def reached(self) -> None:
        """Returns when every destination can be sent to, or when the run is over."""
        while not self._ended and not all(destination.ready for destination in self.destinations):
            self._changed.clear()
            await self._changed.wait()

    async def settle(self) -> None:
        """Returns when every destination that is there has all files of earlier runs that it takes."""
        while not self._ended and not self.keeper.settled():
            self._changed.clear()
            self.carry()
            await self._changed.wait()

    async def close(self) -> None:
        """Leaves unconfirmed messages to the refill, and releases everything."""
        try:
            await self._shutdown()
            try:
                self.keeper.current.give_back()
            except HeadpondError as error:  # the numbers stay reserved: the next run begins after them
                log.warning("%s", error.message)
            await self._end()
            await self._registration.leave()
        finally:
            if self._slot is not None:
                self._slot.release()
                self._slot, self.has_refill = None, False

    async def _shutdown(self) -> None:
        """Unconfirmed messages go to the refill; those that cannot go there within the time are given up."""
        self.keeper.shutdown()
        try:
            async with asyncio.timeout(CLOSE_DISK_S):
                while not self.keeper.finished:
                    self._changed.clear()
                    self.carry()
                    await self._changed.wait()
        except TimeoutError:
            error = self.keeper.refill_error
            why = "" if error is None else f": {error.message}"
            within = f"within {CLOSE_DISK_S:.3g} s"
            self.abandon(TimedOut(f"neither confirmed nor written to the refill {within}{why}"))

    async def _end(self) -> None:
        """Ends the block at the nodes that have all of it, and waits for the disk."""
        self._ended = True
        self._changed.set()
        if self._timer is not None:
            self._timer.cancel()
        self.keeper.forget()
        current = self.keeper.current
        if current.spills.left_path is None:  # else the next run continues the block
            self._end_block(current)
        for destination in self.destinations:
            destination.stop()
        await self._idle.wait()
        self._thread.shutdown()  # nothing runs, so that this does not wait

    # --- for people ---------------------------------------------------------------------------------

    @property
    def is_full(self) -> bool:
        """Whether the refill takes nothing either."""
        return not self.has_refill or self.keeper.refill_error is not None

    @property
    def why_full(self) -> str:
        error = self.keeper.refill_error
        return "" if error is None else f", and the refill takes no more: {error.message}"

    def _warn_once(self, text: str) -> None:
        if text not in self._warned and len(self._warned) < WARNINGS_MAX:
            self._warned.add(text)
            log.warning("%s", text)

    def _warn_of_files(self) -> None:
        for notice in self._blocks.notices:
            self._warn_once(notice)

    def _warn_of_hindrances(self) -> None:
        """Once when a destination takes nothing for now, once when it takes messages again."""
        for state in self.keeper.states:
            if state.takes_again:
                state.takes_again = False
                if self._hindered.pop(state.name, None) is not None:
                    log.warning("%s takes messages again", state.name)
        for name, error in self.keeper.hindrances.items():
            if self._hindered.get(name) != error.code:
                self._hindered[name] = error.code
                log.warning("%s takes nothing for now (%s: %s); trying again", name, error.code, error.message)

    def _warn(self) -> None:
        self._warn_of_hindrances()
        for name, block, hole in self.keeper.holes:
            self._warn_once(
                f"{name} has no segments {hole.start}–{hole.end - 1} of shard {hole.shard}, block "
                f"{block.hex()}, and nobody can send them"
            )
        for lost in self.keeper.lost:
            self._warn_once(f"refill: {lost}")
        for manager in self.keeper.managers:
            for (name, code), why in manager.spills.refused.items():
                self._warn_once(
                    f"{name} refused spilled messages of block {manager.block.hex()} for good ({code}: {why}); "
                    "they are kept until `headpond refill drop`, see `headpond refill show`"
                )
        left = self.keeper.left
        self._warn_of_files()
        for path, why in left.unreadable:
            self._warn_once(f"refill file {path} cannot be sent: {why}")
        for name, segments in left.foreign.items():
            self._warn_once(
                f"{segments:,} segments wait in the refill for {name}, which this producer does not send to; "
                "see `headpond refill list`"
            )
        full = self.has_refill and self.budget.used >= FULL_RATIO * self.budget.bytes_max
        if full and not self._warned_full:
            log.warning(
                "the refill holds %s of at most %s bytes; when memory is full too, nothing more is taken",
                f"{self.budget.used:,}",
                f"{self.budget.bytes_max:,}",
            )
        self._warned_full = full
