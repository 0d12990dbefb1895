"""Real consumers of one subscription on a virtual node, and a judge of the messages that their programs get.

The seed decides everything: which consumer joins, works fast or slowly, refuses, stalls, closes, dies or loses
its connection; how long bytes are in transit; when the subscription is paused or redriven, and when more is
written.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any, TypeVar

import headpond
from headpond.broker.settings import LogSettings, Settings
from headpond.broker.subscriptions import consume as consuming
from headpond.client.consume import consumer as consumer_module
from headpond.client.consume import intake as intake_module
from headpond.client.link.dialling import Backoff
from headpond.model.errors import ConnectionLost, HeadpondError, SubscriptionBusy, TimedOut
from headpond.model.message import Message
from headpond.model.policy import Policy
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.frame import FrameType, encode
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.plain.segment import encode_plain
from tests.fire.raw_client import title_frame
from tests.fire.virtual_node import VirtualLoop, VirtualNode, run_virtual

TOPIC = "orders"
URL = "headpond://virtual:7411"
PLAIN = Settings(data="memory", log=LogSettings(preallocate_bytes=1024))
READ_BYTES = 1500
"""A read returns a few records, so that messages are in transit while consumers come and go."""
KEYS = [b"a", b"b", b"c", b"d", b"e", None]
STALLS_S = [0.1, 1.0, 3.0]
DRAIN_S = 300.0
"""Without faults the connected consumers settle everything within this time."""

World = TypeVar("World", bound="ClientWorld")
Place = tuple[int, int]
"""Shard and entry."""


class Judge:
    """Checks the messages that programs get against the guarantees of kind and mode."""

    def __init__(self, kind: str, mode: str, transit_s: float) -> None:
        """``transit_s``: how long a copy may be in transit, or queued at a client, after it was settled."""
        self.kind = kind
        self._transit_s = transit_s
        self.resilient = mode == "resilient"
        self.attempts: dict[Place, int] = {}
        """The number of the last attempt that a program got."""
        self.settled: set[Place] = set()
        """Settled by a program, whether the node knows it or not."""
        self.confirmed: dict[Place, float] = {}
        """Settled on the node's disk, and when the node confirmed it."""
        self.deadlines = False
        """Whether messages have a deadline."""
        self.handed_rows = 0
        self.trail: deque[str] = deque(maxlen=60)
        self._previous: dict[Place, Place | None] = {}
        """The place before each one in the guaranteed order."""
        self._last: dict[object, Place] = {}

    @property
    def stored(self) -> set[Place]:
        return set(self._previous)

    def stores(self, place: Place, key: bytes | None) -> None:
        """Order holds per shard, per key, or not at all: a message past its deadline waits for the backlog."""
        row: object = place[0]
        if self.kind == "key_shared":
            row = place if key is None else (place[0], key)
        elif not self.resilient and (self.kind == "shared" or self.deadlines):
            row = place
        self._previous[place] = self._last.get(row)
        self._last[row] = place

    def hands(self, place: Place, attempt: int, now_s: float) -> None:
        """A program gets a message."""
        self.handed_rows += 1
        settled_s = self.confirmed.get(place, now_s)
        assert now_s <= settled_s + self._transit_s, f"{place} was settled on disk and comes again"
        # The number need not grow: what a lost consumer held no longer counts when it is back, nor does the
        # refusal of what another has by then.
        repeated = self.attempts.get(place, 0) > 0
        assert attempt > 1 or not repeated, f"{place} comes again, and is not flagged"
        self.attempts[place] = attempt
        before = self._previous[place]
        if before is not None and before not in self.settled:
            assert not self.resilient, f"{place} comes before {before} is settled"
            assert before in self.attempts, f"{place} comes before {before}"

    def redriven(self, place: Place) -> None:
        """A redriven dead message counts as never handed out."""
        self.attempts[place] = 0
        self.settled.discard(place)
        self.confirmed.pop(place, None)

    def note(self, now_s: float, what: str) -> None:
        self.trail.append(f"{now_s:9.4f} {what}")


@dataclass(eq=False)
class Reader:
    name: str
    client: headpond.Client
    consumer: headpond.Consumer
    think_s: float = 0.0
    hold_max: int = 1
    """How many messages its program receives before it settles one."""
    hands: list[Message] = field(default_factory=list)
    acked: list[Place] = field(default_factory=list)
    """Settled, and not confirmed to be on disk."""
    settled: set[Place] = field(default_factory=set)
    task: asyncio.Task[None] | None = None


class ClientWorld:
    def __init__(
        self, loop: VirtualLoop, seed: int, kind: str, mode: str, *, faults: bool = True, shards: int = 2
    ) -> None:
        self.random = chance = random.Random(f"{seed} {kind} {mode}")
        self.loop = loop
        self.kind, self.mode, self.faults, self.shards = kind, mode, faults, shards
        delay_s_max = chance.choice([0.001, 0.01, 0.05])
        self.judge = Judge(kind, mode, 3 * delay_s_max + (STALLS_S[-1] if faults else 0.0))
        self.readers: list[Reader] = []
        self.node = VirtualNode(loop, MemoryDisk(seed), PLAIN, chance.randrange(1 << 30), delay_s_max)
        self.policy = Policy(
            lease=2.0,
            backoff=chance.choice([0.01, 0.3]),
            backoff_max=1.0,
            deadline=chance.choice([None, None, 1.5]) if faults else None,
            max_attempts=chance.choice([0, 4]) if faults and mode == "non_resilient" else 0,
            failover_after=chance.choice([1, 3]),
        )
        self.judge.deadlines = self.policy.deadline is not None
        self._refuse = chance.choice([0.0, 0.0, 0.1, 0.3])
        self._ends: list[int] = []
        self._segments: list[int] = []
        self._numbers = 0
        self._writer = 0
        self._failure: BaseException | None = None

    # --- what is written ----------------------------------------------------------------------------

    async def begin(self) -> None:
        self.admin = await self._connect()
        await self.admin.admin.create_topic(TOPIC, shards=self.shards)
        self._begin_block()

    def _begin_block(self) -> None:
        topic = next(each for each in self.node.core.stores.catalog if each.name.endswith(f"/{TOPIC}"))
        self._ends = [shard.log.entry_durable for shard in topic.shards]
        self._segments = [0] * self.shards
        self._writer = self.node.connect(asyncio.Protocol()).number
        greeting = headpond.wire.connection.ClientSide(client="writer").data_to_send()
        title = title_frame(
            self.random.randbytes(16), topic.uuid, power=self.shards.bit_length() - 1, topic=topic.name
        )
        self.node.say(self._writer, *greeting, title)

    def write(self, rows: int) -> None:
        shard = self.random.randrange(self.shards)
        places = [(shard, self._ends[shard] + row) for row in range(rows)]
        keys = [self.random.choice(KEYS) for _ in places]
        for place, key in zip(places, keys, strict=True):
            self.judge.stores(place, key)
        values: list[bytes | None] = [b"%d:%d" % place for place in places]
        body = encode_plain(rows_to_batch(values, keys, None, None, [1] * rows))
        self._ends[shard] += rows
        self.node.say(self._writer, encode(FrameType.SEGMENT, body, shard=shard, segment=self._segments[shard]))
        self._segments[shard] += 1

    # --- readers ------------------------------------------------------------------------------------

    async def _connect(self) -> headpond.Client:
        client = headpond.connect(URL, backoff=Backoff(0.01, 0.2, self.random.random))
        return await client.open()

    async def open(self, credit_bytes: int = 1 << 20) -> Reader | None:
        """A consumer with its own connection; None if the subscription is busy."""
        client = await self._connect()
        self._numbers += 1
        name = f"r{self._numbers}"
        consumer = client.consumer(
            TOPIC, "s", kind=self.kind, mode=self.mode, name=name, policy=self.policy, credit_bytes=credit_bytes
        )
        try:
            await consumer.open()
        except SubscriptionBusy:
            await client.close()
            return None
        self.judge.note(self.loop.time(), f"{name} joins")
        return Reader(name, client, consumer)

    async def join(self) -> None:
        """A consumer with a program that works until it is stopped."""
        reader = await self.open(self.random.choice([400, 3000, 1 << 20]))
        if reader is not None:
            reader.think_s = self.random.choice([0.0, 0.001, 0.05])
            reader.hold_max = self.random.choice([1, 1, 5]) if self.mode == "non_resilient" else 1
            reader.task = self.loop.create_task(self._guarded(reader))
            self.readers.append(reader)

    async def _guarded(self, reader: Reader) -> None:
        try:
            await self._work(reader)
        except (HeadpondError, AssertionError) as error:
            self._failure = self._failure or error

    async def _work(self, reader: Reader) -> None:
        """A program: takes messages, works on them, settles them."""
        while True:
            message = await reader.consumer.receive(0.2 if reader.hands else None)
            if message is not None:
                place = (message.origin.shard, message.entry)
                assert message.value == b"%d:%d" % place
                what = f"{reader.name} gets {place} {message.key!r}, attempt {message.attempt}"
                self.judge.note(self.loop.time(), what)
                self.judge.hands(place, message.attempt, self.loop.time())
                once = self.mode == "resilient" and self.kind in ("unique", "failover")
                assert not (once and place in reader.settled), f"{place} comes to the program that settled it"
                reader.hands.append(message)
            elif not reader.hands:
                return
            if message is None or len(reader.hands) >= reader.hold_max:
                await asyncio.sleep(self.random.random() * reader.think_s)
                await self._settle(reader)

    async def _settle(self, reader: Reader) -> None:
        message = reader.hands.pop(
            0 if self.random.random() < 0.8 else self.random.randrange(len(reader.hands))
        )
        place = (message.origin.shard, message.entry)
        if self.random.random() < self._refuse:
            self.judge.note(self.loop.time(), f"{reader.name} refuses {place}")
            await reader.consumer.nack(message)
            return
        self.judge.note(self.loop.time(), f"{reader.name} settles {place}")
        self.judge.settled.add(place)
        reader.acked.append(place)
        reader.settled.add(place)
        await (reader.consumer.ack if self.random.random() < 0.9 else reader.consumer.skip)(message)
        if self.random.random() < 0.1:
            await self._flush(reader)

    async def _flush(self, reader: Reader) -> None:
        acked = list(reader.acked)
        await reader.consumer.flush()
        self.judge.confirmed.update(dict.fromkeys(acked, self.loop.time()))
        reader.acked = reader.acked[len(acked) :]

    async def close(self, reader: Reader) -> None:
        """In order."""
        self.judge.note(self.loop.time(), f"{reader.name} closes")
        await self._stop(reader)
        try:
            await reader.consumer.close()
            self.judge.confirmed.update(dict.fromkeys(reader.acked, self.loop.time()))
        except TimedOut:  # another one has its place since it lost its connection
            assert self.kind == "unique", "its settlements can be brought to the node"
        await reader.client.close()

    async def kill(self, reader: Reader) -> None:
        """Its process dies."""
        self.judge.note(self.loop.time(), f"{reader.name} dies")
        await self._stop(reader)
        link = reader.client.link
        link._closed = True
        if link._reconnecting is not None:
            link._reconnecting.cancel()
        self._cut(reader)

    async def _stop(self, reader: Reader) -> None:
        """Its program ends in the middle of its work."""
        self.readers.remove(reader)
        assert reader.task is not None
        reader.task.cancel()
        await asyncio.gather(reader.task, return_exceptions=True)

    def _cut(self, reader: Reader) -> None:
        if (connection := reader.client.link._connection) is not None:
            connection.abort(ConnectionLost("cut by the test"))

    # --- what happens -------------------------------------------------------------------------------

    async def live(self, steps: int) -> None:
        chance = self.random
        quiet: list[tuple[int, Callable[[], Awaitable[Any]]]] = [
            (12, self._write_some),
            (8, self._join_if_room),
            (5, lambda: self._with_one(self.close)),
        ]
        harsh: list[tuple[int, Callable[[], Awaitable[Any]]]] = [
            (3, lambda: self._with_one(self.kill)),
            (3, lambda: self._with_one(self._lose_connection)),
            (3, lambda: self._with_one(self._stall)),
            (2, self._pause_or_resume),
            (2, self._redrive),
        ]
        actions = quiet + (harsh if self.faults else [])
        weights = [weight * chance.choice([0.3, 1.0, 3.0]) for weight, _ in actions]
        for _, action in chance.choices(actions, weights, k=steps):
            await action()
            await asyncio.sleep(chance.choice([0.0, 0.001, 0.02, 0.3, 2.0]) * chance.random())
            self.check()

    def check(self) -> None:
        if self._failure is not None:
            raise self._failure

    async def _write_some(self) -> None:
        for _ in range(self.random.randrange(1, 6)):
            self.write(self.random.choice([1, 3, 10, 30]))

    async def _join_if_room(self) -> None:
        if len(self.readers) < 4:
            await self.join()

    async def _with_one(self, act: Callable[[Reader], Awaitable[Any]]) -> None:
        if self.readers:
            await act(self.random.choice(self.readers))

    async def _lose_connection(self, reader: Reader) -> None:
        self.judge.note(self.loop.time(), f"{reader.name} loses its connection")
        self._cut(reader)

    async def _stall(self, reader: Reader) -> None:
        self.stall(reader, self.random.choice(STALLS_S))

    def stall(self, reader: Reader, seconds: float) -> None:
        """Bytes to and from this consumer are delayed for a while."""
        self.judge.note(self.loop.time(), f"{reader.name} stalls for {seconds} s")
        for connection in self.node.connections.values():
            if connection.protocol is reader.client.link._connection:
                connection.stall(seconds)

    async def _pause_or_resume(self) -> None:
        pause = self.random.random() < 0.5
        with suppress(HeadpondError):  # no consumer has subscribed yet
            await (self.admin.admin.pause if pause else self.admin.admin.resume)(TOPIC, "s")

    async def _redrive(self) -> None:
        try:
            dead = await self.admin.admin.show_subscription(TOPIC, "s")
        except HeadpondError:
            return
        places = [(shard, entry) for shard, start, end in dead.dead_entries for entry in range(start, end)]
        for place in places:
            self.judge.redriven(place)
        await self.admin.admin.redrive(TOPIC, "s", places)  # others may have died since

    # --- the end ------------------------------------------------------------------------------------

    async def end(self) -> None:
        """No more faults: the connected consumers (at least one) settle everything."""
        self.judge.note(self.loop.time(), "good weather")
        self._refuse = 0.0
        for reader in self.readers:
            reader.think_s = min(reader.think_s, 0.005)
        while not self.readers:  # a unique subscription may be leased to one that is gone
            await asyncio.sleep(0.5)
            await self.join()
        if self.random.random() < 0.5:  # one of those who are there is to do it alone
            for reader in self.random.sample(self.readers, len(self.readers) - 1):
                await self.close(reader)
        await self.admin.admin.resume(TOPIC, "s")
        until_s = self.loop.time() + DRAIN_S
        while (info := await self.admin.admin.show_subscription(TOPIC, "s")).unsettled:
            self.check()
            assert self.loop.time() < until_s, (
                f"nothing comes any more: {info.positions} of {self._ends}, {info}"
            )
            await asyncio.sleep(1.0)
        for reader in list(self.readers):
            await self.close(reader)
        self.check()
        info = await self.admin.admin.show_subscription(TOPIC, "s")
        assert (info.positions, info.in_flight, info.unacked) == (self._ends, 0, 0)
        ledger = await self.admin.admin.ledger(TOPIC)
        (account,) = (each.account for each in ledger.subscriptions)
        assert account.difference == 0
        dead = {(shard, entry) for shard, start, end in info.dead_entries for entry in range(start, end)}
        lost = self.judge.stored - self.judge.settled - dead
        assert not lost, f"{sorted(lost)[:3]} count as settled, and nobody settled them"
        await self.admin.close()


class KilledWorld(ClientWorld):
    """The node is killed again and again while one program reads; it keeps only what is on disk."""

    async def survive(self, kills: int) -> None:
        self._refuse = 0.3
        for _ in range(kills):
            self.write(30)
        await asyncio.sleep(1.0)  # all of it is on the disk
        await self.join()
        for _ in range(kills):
            await asyncio.sleep(self.random.random())
            self.check()
            disk, old = self.node._disk, self.node
            assert isinstance(disk, MemoryDisk)
            old.end()
            disk.crash()
            self.node = VirtualNode(self.loop, disk, PLAIN, self.random.randrange(1 << 30), old.delay_s_max)
            self.judge.note(self.loop.time(), "the node is killed")
            self._begin_block()
        await self.end()


class RestoredWorld(ClientWorld):
    """Old copies of the node's folder are restored. Entries then name other messages, so there is no judge."""

    def __init__(self, *how: Any, **options: Any) -> None:
        super().__init__(*how, **options)
        self.restores = 0
        self._copy: MemoryDisk | None = None

    async def _work(self, reader: Reader) -> None:
        while (message := await reader.consumer.receive()) is not None:
            await asyncio.sleep(self.random.random() * reader.think_s)
            refused = self.random.random() < self._refuse
            await (reader.consumer.nack if refused else reader.consumer.ack)(message)

    async def storm(self, steps: int) -> None:
        """Connections are lost faster than they are made; in the end everything on the node is settled."""
        chance = self.random
        actions: list[tuple[int, Callable[[], Awaitable[Any]]]] = [
            (20, self._write_some),
            (55, lambda: self._with_one(self._lose_connection)),
            (5, lambda: self._with_one(self._stall)),
            (8, self._copy_folder),
            (6, self._restore),
            (6, self._join_if_room),
        ]
        await self.join()
        await self._copy_folder()
        for _, action in chance.choices(actions, [weight for weight, _ in actions], k=steps):
            await action()
            await asyncio.sleep(chance.choice([0.0, 0.005, 0.03, 0.3]) * chance.random())
            self.check()
        await self._restore()
        self._refuse = 0.0
        until_s = self.loop.time() + DRAIN_S
        while (info := await self.admin.admin.show_subscription(TOPIC, "s")).positions != self._ends:
            self.check()
            assert self.loop.time() < until_s, f"nothing comes any more: {self._ends}, {info}"
            await asyncio.sleep(0.5)

    async def _copy_folder(self) -> None:
        disk, self._copy = self.node._disk, MemoryDisk(1)
        assert isinstance(disk, MemoryDisk)
        self._copy._names = deepcopy(disk._names)
        self._copy._durable_names = dict(self._copy._names)

    async def _restore(self) -> None:
        if self._copy is None:
            return
        self.restores += 1
        old, copy, self._copy = self.node, self._copy, None
        self.node = VirtualNode(self.loop, copy, PLAIN, self.random.randrange(1 << 30), old.delay_s_max)
        old.end()
        self._begin_block()
        self.judge.note(self.loop.time(), f"restored, up to {self._ends}")


@asynccontextmanager
async def _clock(loop: VirtualLoop) -> AsyncIterator[None]:
    """Makes the client use the loop's clock."""
    clocks = (consumer_module, intake_module)
    real, read_bytes = [module.monotonic for module in clocks], consuming.READ_BYTES
    for module in clocks:
        module.monotonic = loop.time  # type: ignore[attr-defined]
    consuming.READ_BYTES = READ_BYTES
    try:
        yield
    finally:
        consuming.READ_BYTES = read_bytes
        for module, clock in zip(clocks, real, strict=True):
            module.monotonic = clock  # type: ignore[attr-defined]


def in_world(
    act: Callable[[World], Awaitable[None]],
    seed: int,
    kind: str,
    mode: str,
    make: type[World] = ClientWorld,  # type: ignore[assignment]
    **options: Any,
) -> World:
    """Runs ``act`` in a new world; a failure lists the last events."""

    async def scenario(loop: VirtualLoop) -> World:
        async with _clock(loop):
            world = make(loop, seed, kind, mode, **options)
            try:
                await world.begin()
                await act(world)
            except BaseException as fault:
                fault.add_note("\n".join(world.judge.trail))
                raise
            return world

    return run_virtual(scenario)


def lived(seed: int, kind: str, mode: str, *, steps: int = 30, faults: bool = True) -> ClientWorld:
    """Runs a world with a backlog to its end."""

    async def live(world: ClientWorld) -> None:
        for _ in range(8):
            world.write(world.random.choice([1, 3, 10, 30]))
        await world.live(steps)
        await world.end()

    return in_world(live, seed, kind, mode, faults=faults)


def stormed(seed: int, kind: str, mode: str, *, steps: int = 60) -> RestoredWorld:
    async def storm(world: RestoredWorld) -> None:
        await world.storm(steps)

    return in_world(storm, seed, kind, mode, RestoredWorld)


def survived(seed: int, kind: str, mode: str, *, kills: int = 20) -> KilledWorld:
    async def survive(world: KilledWorld) -> None:
        await world.survive(kills)

    return in_world(survive, seed, kind, mode, KilledWorld)
