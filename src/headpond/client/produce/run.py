"""One run of a producer: its topic, its refill folder, its blocks, put together.

Opening finds out what the topic is (from the node, else from the last run's note of it), takes the refill
folder and lets ``Blocks`` decide what to go on with.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

from headpond.client.link.link import Link
from headpond.client.options import ProducerOptions
from headpond.client.produce.batcher import ROW_BYTES, SEGMENT_SPARE_BYTES
from headpond.client.produce.courier import Courier
from headpond.client.produce.destination import Destination
from headpond.client.produce.registration import Registration, until_free
from headpond.client.produce.slot import NUMBERS_FILE, Slot
from headpond.client.produce.tables import Piece, check_state_table, cut_messages, cut_table
from headpond.model.bounds import check_fields
from headpond.model.errors import Fenced, HeadpondError, ProducerBusy, StorageFailed, TopicMismatch
from headpond.model.identity import BLOCK_BYTES
from headpond.model.receipt import Durability
from headpond.producer.blocks import UNKNOWN_UUID, Blocks, Form, RefillFolder
from headpond.producer.jobs import Budget
from headpond.producer.keeper import Burst, Keeper, Rotation
from headpond.producer.numbers import Numbers
from headpond.producer.policy import SendPolicy
from headpond.producer.sharder import Sharder
from headpond.wire.control.catalog import TopicInfo
from headpond.wire.frame import SEGMENT_BYTES_MAX
from headpond.wire.title import Title
from headpond.wire.typed.rows import messages_of
from headpond.wire.typed.schema import decode_schema

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("headpond.client")

CLOSE_DISK_S = 30.0
"""How long closing waits for the disk, beside the time for destinations."""


class Owner(Protocol):
    """The producer."""

    def on_answered(self) -> None: ...

    def on_topic(self) -> None: ...

    def on_pause(self) -> None:
        """Nothing is to be sent until ``on_topic``; what was gathered is to be shipped before this returns."""

    def on_failed(self, error: HeadpondError) -> None:
        """Nothing can be sent any more."""

    @property
    def is_pressed(self) -> bool: ...


class Run:
    keeper: Keeper
    courier: Courier

    def __init__(
        self, links: Sequence[Link], topic: str, name: str, options: ProducerOptions, owner: Owner
    ) -> None:
        self.topic = topic
        self.name = name
        self.shards = 1
        self.schema: pa.Schema | None = None
        self._options = options
        self._owner = owner
        self._schema_bytes: bytes | None = None
        self._known = False
        """Whether a node has said in this run what the topic is like; else it is remembered or guessed."""
        self._infos: list[TopicInfo | None] = [None] * len(links)
        """What destinations said when the run was opened."""
        self._slot: Slot | None = None
        self._numbers: Numbers | None = None
        self._resharding: asyncio.Task[None] | None = None
        self.paused = False
        """While what was cut wrongly is encoded anew."""
        check_fields(Title(topic, UNKNOWN_UUID, name))
        self._registration = Registration(name, options.access, late=options.late)
        self._registration.on_fenced = self._on_fenced
        self._hindrance: HeadpondError | None = None
        """Why the first destination did not open the topic, if that can pass."""
        self._held_back = False
        """Whether files wait until it is known which epoch is held."""
        self.destinations = [
            Destination(
                index,
                link,
                topic,
                create=options.create,
                make_title=self._title,
                registration=self._registration,
            )
            for index, link in enumerate(links)
        ]
        self.names = tuple(destination.name for destination in self.destinations)
        spill_after_s = min(options.spill_after, options.timeout or options.spill_after)
        self._policy = SendPolicy(options.window_bytes, spill_after_s, Durability(options.refill_durability))
        self._budget = Budget(options.refill_max)

    # --- opening ------------------------------------------------------------------------------------

    async def open(self) -> None:
        first, copies = self.destinations[0], self.destinations[1:]
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(copy.link.open_if_new() for copy in copies))
        info = await self._ask_first(first)
        try:
            if self._options.refill is not None:
                self._slot = await loop.run_in_executor(None, self._take_slot, info)
            if info is not None:
                self._learn(info)
                self._known = True
                if self._slot is not None:
                    self._slot.cache_topic(info)
            elif self._slot is not None and (cached := self._slot.cached_topic()) is not None:
                self._learn(cached)
            if self._slot is not None and self.name:
                self._registration.keep_note(self._slot.lease_file)
            await loop.run_in_executor(None, self._build)
        except BaseException:
            self._release()
            await self._registration.leave()
            raise
        self.courier = self._new_courier()
        if self._hindrance is not None:
            self.courier.on_hindered(0, self._hindrance)
        self._infos = [info, *await asyncio.gather(*map(self._ask_copy, copies))]

    async def _ask_first(self, first: Destination) -> TopicInfo | None:
        """The topic as the first destination has it; None if that is away and there is a refill."""
        if self._options.refill is None:  # there is nowhere to keep anything before the topic is known
            return await until_free(first.ask, self._options.wait)
        try:
            return await until_free(first.ask, self._options.wait) if first.link.up else None
        except ProducerBusy:
            raise
        except HeadpondError as error:
            if not error.retryable:
                raise
            self._hindrance = error
            return None

    async def _ask_copy(self, copy: Destination) -> TopicInfo | None:
        """A copy that is there is asked at once, so that the first message need not be spilled for it."""
        if not copy.link.up:
            return None
        try:
            return await copy.ask()
        except HeadpondError:
            return None  # it is asked again, and then it counts

    def _new_courier(self) -> Courier:
        return Courier(
            self.keeper,
            self.destinations,
            self._budget if self._slot is not None else None,
            on_answered=self._owner.on_answered,
            is_pressed=lambda: self._owner.is_pressed,
            on_info=self._fits,
        )

    def start(self) -> None:
        """Begins to send."""
        infos, self._infos = self._infos, [None] * len(self.destinations)
        for destination, info in zip(self.destinations, infos, strict=True):
            destination.start(info)
        self.courier.pump()

    def _take_slot(self, info: TopicInfo | None) -> Slot | None:
        assert self._options.refill is not None
        topic = info.topic if info is not None else self.topic
        return Slot.take(self._options.refill, topic, self.name, alone=self._options.resume)

    def _learn(self, info: TopicInfo) -> None:
        self.topic = info.topic
        self.shards = info.shards
        self._schema_bytes = info.schema
        self.schema = None if info.schema is None else decode_schema(info.schema)
        for destination in self.destinations:
            destination.like = info

    def _build(self) -> None:
        """Reads what is on the disk and makes the keeper; on a thread, for that takes its time."""
        slot, options = self._slot, self._options
        blocks = Blocks(
            Form(self.topic, self.shards, self._schema_bytes, self.name),
            self.names,
            None if slot is None else _place(slot, options),
            policy=self._policy,
            budget=self._budget,
            jitter=random.random,
            new_block=lambda: secrets.token_bytes(BLOCK_BYTES),
            now_us=lambda: time.time_ns() // 1000,
            may_duplicate=options.may_duplicate,
            epoch=lambda: self._registration.epoch,
            is_late=self._registration.is_late,
        )
        if options.resume and slot is not None:
            new_block = secrets.token_bytes(BLOCK_BYTES)
            self._numbers = Numbers(slot.disk, slot.folder, NUMBERS_FILE, options.block_bytes, new_block)
        fixed = self._numbers is not None or slot is None
        rotation = Rotation(options.rotate_after, options.block_bytes_max)
        self.keeper = blocks.keeper(
            rotation=Rotation(None, None, after_rejects=False) if fixed else rotation,
            ordered=options.ordered,
            now=time.monotonic(),
            numbers=self._numbers,
        )
        self._held_back = bool(blocks.late) and not self._registration.epoch
        for warning in blocks.warnings(tell_late=not self._held_back):
            log.warning("%s", warning)

    def _title(self, info: TopicInfo, burst: Burst) -> Title:
        late, epoch = self._registration.late, self._registration.epoch
        return Title(info.topic, info.uuid, self.name, epoch, burst.schema, burst.predecessor, late=late)

    # --- sending ------------------------------------------------------------------------------------

    def cut(self, table: pa.Table, sharder: Sharder, now_us: int, bytes_target: int) -> Iterator[Piece]:
        """A user's table in pieces that are each a segment."""
        if self.schema is None:
            check_state_table(table, self.state)
            return cut_table(table, sharder, now_us, bytes_target)
        return cut_messages(
            messages_of(table, self.schema, now_us, state=bool(self.state)), sharder, bytes_target
        )

    @property
    def block(self) -> bytes:
        return self.keeper.current.block if hasattr(self, "keeper") else b""

    @property
    def segment_bytes_max(self) -> int:
        """What one message may take."""
        welcome = self.destinations[0].link.welcome
        limit = SEGMENT_BYTES_MAX if welcome is None else welcome.segment_bytes_max
        return limit - SEGMENT_SPARE_BYTES

    @property
    def message_bytes_max(self) -> int:
        """What one message may take, as memory counts it."""
        asked = None if (like := self.destinations[0].like) is None else like.message_bytes_max
        return self.segment_bytes_max if asked is None else min(self.segment_bytes_max, asked + ROW_BYTES)

    @property
    def state(self) -> bool | None:
        """Whether it is a state topic; None while nobody has said so."""
        return None if (like := self.destinations[0].like) is None else like.state

    @property
    def in_flight_bytes(self) -> int:
        managers = self.keeper.managers
        return sum(m.in_flight_bytes(d.index) for m in managers for d in self.destinations)

    @property
    def refill_bytes(self) -> int:
        return self._budget.used

    @property
    def refill_max(self) -> int:
        return self._options.refill_max if self._options.refill is not None else 0

    @property
    def has_refill(self) -> bool:
        return self._slot is not None

    @property
    def is_full(self) -> bool:
        """Whether the refill takes nothing either."""
        return self._slot is None or any(manager.spills.error for manager in self.keeper.managers)

    @property
    def why_full(self) -> str:
        if self.paused:
            return ", and what was spilled is being encoded anew"
        error = next((m.spills.error for m in self.keeper.managers if m.spills.error is not None), None)
        return "" if error is None else f", and the refill takes no more: {error.message}"

    # --- what a node says of the topic ---------------------------------------------------------------

    def _fits(self, index: int, info: TopicInfo) -> bool:
        """Whether segments as they are cut can go to a node that has the topic like this."""
        fits = info.shards == self.shards and (info.schema is None) == (self.schema is None)
        if self._known and not fits:
            what = "plain" if info.schema is None else "typed"
            mismatch = TopicMismatch(
                f"topic {info.topic} is {what} and has {info.shards} shards at {self.names[index]}, and "
                f"messages were cut for {self.shards}{'' if self.schema is None else ', typed'}"
            )
            self.courier.on_refused(index, mismatch)
        elif fits and not index and self._held_back and self._registration.epoch:
            self._held_back = fits = False
            self._resharding = asyncio.get_running_loop().create_task(self._reshard(info))
        elif not fits and self._resharding is None:
            self._resharding = asyncio.get_running_loop().create_task(self._reshard(info))
        elif fits:
            self._confirm(index, info)
        return fits

    def _confirm(self, index: int, info: TopicInfo) -> None:
        """A node has the topic as it was thought to be."""
        if not self._known:
            self._known = True
            self._learn(info)
        if self._slot is not None and index == 0:
            self._slot.cache_topic(info)

    async def _reshard(self, info: TopicInfo) -> None:
        """What was cut for a guessed number of shards, and confirmed by nobody, is encoded anew."""
        if info.shards != self.shards:
            log.warning(
                "topic %s has %d shards where %d were guessed: what was spilled is encoded anew",
                info.topic,
                info.shards,
                self.shards,
            )
        self.paused = True
        try:
            self._owner.on_pause()
            await self.courier.shutdown(CLOSE_DISK_S)
            await self.courier.end()
            self._learn(info)
            self._known = True
            self._budget.used = 0
            await asyncio.get_running_loop().run_in_executor(None, self._build)
        except Exception as error:
            log.exception("what was spilled could not be encoded anew")
            self._owner.on_failed(StorageFailed(f"what was spilled could not be encoded anew: {error}"))
            return
        finally:
            self.paused = False
            self._resharding = None
        self.courier = self._new_courier()
        self._owner.on_topic()
        self.start()

    def _on_fenced(self, error: Fenced) -> None:
        """Another instance took over: nothing is taken anywhere, and what is not delivered is kept as late."""
        blocks = [manager.block for manager in self.keeper.managers]
        self._registration.note.taken_over(self._registration.epoch, blocks)
        for destination in self.destinations:
            destination.ready = False
            self.courier.on_refused(destination.index, error)

    # --- the end ------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Returns when what earlier runs left is through at every destination that is there."""
        while not await self._is_last(self.courier.settle):
            pass

    async def reached(self) -> None:
        """Returns when every destination can be sent to."""
        while not await self._is_last(self.courier.reached):
            pass

    async def _is_last(self, wait: Callable[[], Awaitable[None]]) -> bool:
        """Waits; False if what was waited for has been replaced meanwhile."""
        courier = self.courier
        await wait()
        if self._resharding is not None:
            await asyncio.wait({self._resharding})
        return courier is self.courier

    async def close(self) -> None:
        if not hasattr(self, "courier"):
            self._release()
            return
        if self._resharding is not None:
            await asyncio.gather(self._resharding, return_exceptions=True)
        try:
            await self.courier.shutdown(CLOSE_DISK_S)
            self._give_back()
            await self.courier.end()
            await self._registration.leave()
        finally:
            self._release()

    def _give_back(self) -> None:
        if self._numbers is None:
            return
        try:
            self._numbers.give_back(self.keeper.current.segments_next)
        except HeadpondError as error:  # they stay reserved: the next run begins behind them
            log.warning("%s", error.message)

    def _release(self) -> None:
        slot, self._slot = self._slot, None
        if slot is not None:
            slot.release()


def _place(slot: Slot, options: ProducerOptions) -> RefillFolder:
    return RefillFolder(slot.disk, slot.folder, options.refill_durability, tuple(slot.adopted))
