"""A producer, its disk, its destinations and all their faults, in one thread and from a seed.

The producer is the real keeper over the real refill on a disk in memory. It may be killed at any point, with
unsynced data lost. Destinations are lost, come back, answer late, never, twice or out of order, refuse for a
while, lose their disk or are restored from an old copy. The producer's disk is full, fails or rots. The list of
destinations changes between runs.

``check`` is the guarantee: every safe message is at each of its destinations, once and in order, unless the
destination lost it or the producer named it, by segment.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field

import pyarrow as pa

from headpond.model.errors import HeadpondError, StorageFailed, TimedOut
from headpond.model.receipt import Fate, Outcome
from headpond.producer.assign import assigned_block
from headpond.producer.blocks import Blocks, Form, RefillFolder
from headpond.producer.encoder import Sharder
from headpond.producer.keeper import Burst, Keeper, Rotation
from headpond.producer.manager import SendPolicy
from headpond.producer.numbers import Numbers
from headpond.producer.sender import SegmentHole
from headpond.producer.spills import Budget, Job
from headpond.storage.memory_disk import MemoryDisk
from headpond.wire.control.producing import Ack
from headpond.wire.plain.columns import rows_to_batch
from headpond.wire.typed.rows import messages_of
from headpond.wire.typed.schema import encode_schema
from tests.producer.model_node import ModelNode

SLOT = "slot"
SPILL_AFTER_S = 5.0
SCHEMA = pa.schema([("number", pa.int64()), ("word", pa.string())])
"""Values of a typed topic: the words make the encoder's dictionary grow all the time."""
_SEGMENTS = re.compile(r"segments? ([\d,]+)(?:–([\d,]+))? of shard (\d+)")
Place = tuple[bytes, int, int]
"""Block, shard and segment."""


class Parcel:
    """A promise that records its outcomes."""

    def __init__(self, number: int, names: tuple[str, ...], shard: int | None) -> None:
        self.number = number
        self.names = names
        """Its destinations."""
        self.shard = shard
        self.block = b""
        """Empty until it is encoded, and while its rows have no shard."""
        self.segment = -1
        self.parts: list[Parcel] = []
        self.spilled_as: tuple[bytes, int] | None = None
        """The block without shards that its rows were in, and the segment."""
        self.fates: list[Fate | None] = [None] * len(names)
        self.freed = 0
        self.forgotten = False

    @property
    def places(self) -> list[Place]:
        own = [] if self.shard is None else [(self.block, self.shard, self.segment)]
        return own + [place for part in self.parts for place in part.places]

    def settle(self, destination: int, fate: Fate) -> None:
        before = self.fates[destination]
        assert before is None or before.outcome is Outcome.SPILLED, "a fate is set once, but for a spilled one"
        self.fates[destination] = fate

    def free(self) -> None:
        self.freed += 1
        assert self.freed == 1, "bytes leave memory once"

    def forget(self) -> None:
        self.forgotten = True

    def part(self, shard: int, rows: int, places: object) -> Parcel:
        part = Parcel(self.number, self.names, shard)
        part.fates = list(self.fates)
        self.parts.append(part)
        return part

    @property
    def safe(self) -> bool:
        if self.parts and all(part.safe for part in self.parts):
            return True
        return all(fate is not None and fate.error is None for fate in self.fates)


@dataclass
class _Route:
    node: ModelNode = field(default_factory=ModelNode)
    up: bool = False
    answers: list[Ack] = field(default_factory=list)
    """Answers of the node that the producer has not received."""
    backup: ModelNode | None = None
    forgot: set[int] = field(default_factory=set)
    """Messages that it had and lost with its disk."""


class World:
    def __init__(
        self,
        seed: int,
        *,
        destinations: int = 2,
        shards: int = 2,
        rotation: Rotation | None = None,
        ordered: bool = True,
        resume: bool = False,
        refill_max: int = 10**9,
        window_bytes: int = 2000,
        typed: bool = False,
        known: bool = True,
    ) -> None:
        """``known``: the number of shards is known at the start, not from the first reachable destination."""
        self.random = random.Random(seed)
        self.disk = MemoryDisk(seed)
        self.now = 1000.0
        self.shards = shards
        self.names = tuple(f"headpond://node-{index}" for index in range(destinations))
        """The destinations of the present run."""
        self.everywhere = {name: _Route() for name in self.names}
        """The destinations of all runs."""
        self.parcels: list[Parcel] = []
        self.safe: set[int] = set()
        """Messages that were stored or spilled, in any run."""
        self.named: set[Place] = set()
        """Segments that were named as lost, in any run."""
        self.vague: set[bytes] = set()
        """Blocks with a file reported as unreadable, or with lost segments of unknown number."""
        self.notices: list[str] = []
        self.keeper: Keeper
        self.kills = 0
        self._rotation = rotation or Rotation(after_s=50.0, block_bytes_max=5000)
        self._ordered = ordered
        self._resume = resume
        self._refill_max = refill_max
        self._schema = encode_schema(SCHEMA) if typed else None
        self._policy = SendPolicy(window_bytes=window_bytes, spill_after_s=SPILL_AFTER_S)
        self._jobs: list[Job] = []
        self._blocks = 0
        self._keys = _keys(shards)
        self._numbers: Numbers | None = None
        self._known_at_start = known
        self.known = known
        self.start()

    @property
    def routes(self) -> list[_Route]:
        """Those of the present run."""
        return [self.everywhere[name] for name in self.names]

    # --- the producer -------------------------------------------------------------------------------

    def start(self) -> None:
        if self._resume:
            self._numbers = Numbers(self.disk, SLOT, "numbers", b"f" * 16, b"f" * 16)
        self.known = self._known_at_start
        self.blocks = blocks = Blocks(
            Form("t", self.shards if self.known else None, self._schema, "p"),
            self.names,
            RefillFolder(self.disk, SLOT),
            policy=self._policy,
            budget=Budget(self._refill_max),
            jitter=self.random.random,
            new_block=self._new_block,
            now_us=lambda: round(self.now * 1e6),
            numbers=self._numbers,
        )
        rotation = Rotation(None, None, after_rejects=False) if self._resume else self._rotation
        self.keeper = blocks.keeper(rotation=rotation, ordered=self._ordered, now=self.now, known=self.known)
        self.notices += blocks.notices
        self._jobs = []
        for index, route in enumerate(self.routes):
            if route.up:
                self.up(index)

    def _new_block(self) -> bytes:
        self._blocks += 1
        return self._blocks.to_bytes(16, "big")

    def send(self, rows: int = 1) -> Parcel:
        number = len(self.parcels)
        sharded = self.keeper.current.shards is not None
        parcel = Parcel(number, self.names, number % self.shards if sharded else None)
        self.parcels.append(parcel)
        self.keeper.send(parcel, self._rows(number, rows), self.now)
        if not sharded:
            parcel.spilled_as = (self.keeper.current.block, self.keeper.current.segments_next[0] - 1)
        return parcel

    def _rows(self, number: int, rows: int) -> pa.RecordBatch:
        if self._schema is None:
            keys: list[bytes | None] = [self._keys[number % self.shards]] * rows
            return rows_to_batch([f"{number}".encode()] * rows, keys, None, None, [1] * rows)
        table = pa.table({"number": [number] * rows, "word": [_word(number)] * rows}, schema=SCHEMA)
        (batch,) = messages_of(table, SCHEMA, 1)
        return batch

    def read(self, rows: pa.RecordBatch) -> int:
        """The number of a segment's message; asserts that it is not corrupt."""
        if self._schema is None:
            (value,) = set(rows.column("value").to_pylist())
            return int(value)
        ((number, word),) = set(
            zip(rows.column("number").to_pylist(), rows.column("word").to_pylist(), strict=True)
        )
        assert word == _word(number), "a segment was decoded with another's dictionary"
        return int(number)

    def kill(self, keep: str = "none") -> None:
        """Kills the process: pending jobs never run, and promises get no more outcomes."""
        self.kills += 1
        self._remember()
        self.disk.crash(keep=keep)  # type: ignore[arg-type]
        self._begin_again()

    def _begin_again(self) -> None:
        for parcel in self.parcels:
            parcel.settle = lambda *_: None  # type: ignore[method-assign]
        for _ in range(20):
            try:
                self.start()
            except (HeadpondError, OSError):
                continue  # the next start may succeed
            return
        raise AssertionError("it cannot be started")

    def remember_safe(self) -> None:
        self.safe |= {parcel.number for parcel in self.parcels if parcel.safe}

    def _remember(self) -> None:
        """Keeps what this run reported, before its memory is gone."""
        self.remember_safe()
        for _, block, hole in self.keeper.holes:
            self.named |= {(block, hole.shard, segment) for segment in _segments(hole)}
        self.notices += [notice for notice in self.blocks.notices if notice not in self.notices]
        for words in (*self.keeper.lost, *self.notices):
            self.named |= set(places_in(words))
            if "of unknown number" in words:
                self.vague |= set(blocks_in(words))
        for path, _ in self.keeper.left.unreadable:
            self.vague |= set(blocks_in(path))

    def close(self) -> None:
        """The producer ends in good order; what its disk does not take is given up and reported."""
        self.keeper.shutdown()
        for tries in range(100):
            if self.keeper.finished:
                break
            while self.run_job():
                pass
            if tries == 50:
                for manager in self.keeper.managers:
                    manager.abandon(TimedOut("the refill takes nothing"))
            if not self.keeper.finished:
                self.wait(1.0)
        assert self.keeper.finished, "closing does not come to an end"
        with suppress(StorageFailed):
            self.keeper.current.give_back()
        self._remember()

    def restart(self, names: tuple[str, ...] | None = None) -> None:
        """Starts the next run, perhaps with other destinations."""
        self.close()
        if names is not None:
            self.names = names
            for name in names:
                self.everywhere.setdefault(name, _Route())
        self._begin_again()

    # --- what happens -------------------------------------------------------------------------------

    def pump(self, index: int, bytes_max: int = 10**9) -> None:
        """Frames to a destination reach its node, which answers."""
        route = self.routes[index]
        if not route.up:
            return
        for burst in self.keeper.take(index, bytes_max, self.now):
            self.deliver(index, burst)
        self._take_jobs()

    def deliver(self, index: int, burst: Burst) -> None:
        self.routes[index].answers += self.routes[index].node.hear(burst)

    def hear(self, index: int, *, shuffle: bool = False, lose: float = 0.0, twice: float = 0.0) -> None:
        """The producer receives answers of a node."""
        route = self.routes[index]
        answers, route.answers = route.answers, []
        if shuffle:
            self.random.shuffle(answers)
        for answer in answers:
            if self.random.random() >= lose:
                self.keeper.answer(index, answer, self.now)
                if self.random.random() < twice:
                    self.keeper.answer(index, answer, self.now)
        self._take_jobs()

    def up(self, index: int) -> None:
        self.routes[index].up = True
        self.routes[index].answers = []
        self.routes[index].node.connected()
        if not self.known:
            self.known = True
            self.blocks.learn(Form("t", self.shards, self._schema, "p"))
            self.keeper.learn(self.now, renew=True)
        self.keeper.connected(index, self.now)

    def down(self, index: int) -> None:
        self.routes[index].up = False
        self.routes[index].answers = []
        self.keeper.disconnected(index, self.now)

    def back_up(self, index: int) -> None:
        self.routes[index].backup = self.routes[index].node.copy()

    def lose_disk(self, index: int) -> None:
        """A node comes back with an empty disk, or with its backup."""
        route = self.routes[index]
        if route.up:
            self.down(index)
        had = set(route.node.numbers(self.read))
        route.node = route.backup.copy() if route.backup is not None else ModelNode()
        route.forgot |= had - set(route.node.numbers(self.read))

    def rot(self, path: str) -> None:
        """Flips a bit in the middle of a file."""
        size = len(self.disk.contents(path))
        self.disk.flip(path, self.random.randrange(size // 4, size * 3 // 4), self.random.randrange(8))

    def mend_disk(self) -> None:
        """Cancels planned failures."""
        self.disk._faults.clear()

    def files(self) -> list[str]:
        return [path for path in self.disk.paths() if path.endswith(".refill")]

    def wait(self, seconds: float) -> None:
        self.now += seconds
        for index, burst in self.keeper.wake(self.now):
            if self.routes[index].up:
                self.deliver(index, burst)
        self._take_jobs()

    def _take_jobs(self) -> None:
        self._jobs += self.keeper.take_jobs()

    def run_job(self) -> bool:
        """Runs one job of the disk's thread."""
        self._take_jobs()
        if not self._jobs:
            return False
        job = self._jobs.pop(0)
        job.work()
        self.keeper.job_ended(job, self.now)
        self._take_jobs()
        return True

    def heal(self, rounds: int = 400) -> None:
        """Runs without faults until everything is delivered that can be."""
        self.mend_disk()
        for index, route in enumerate(self.routes):
            route.node.refuse.clear()
            if not route.up:
                self.up(index)
        well = 0
        for _ in range(rounds):
            for index in range(len(self.routes)):
                self.pump(index)
                self.hear(index)
            while self.run_job():
                pass
            self.wait(1.0)
            well = well + 1 if self.settled() else 0
            if well == 3:  # time enough for files to go
                self._remember()
                return
        raise AssertionError("it does not come to rest")

    def settled(self) -> bool:
        return self.keeper.settled() and not self._jobs and not any(r.answers for r in self.routes)

    # --- what must hold -----------------------------------------------------------------------------

    def numbers_at(self, index: int) -> list[int]:
        """The messages that a node has, in its order."""
        return self.routes[index].node.numbers(self.read)

    def _is_named(self, parcel: Parcel) -> bool:
        """Whether a message was reported as lost; by block in a file whose rows got their shards later."""
        places, blocks = set(parcel.places), {place[0] for place in parcel.places}
        if parcel.spilled_as is not None:
            block, segment = parcel.spilled_as
            assigned = assigned_block(block, self.shards.bit_length() - 1)
            places |= {(block, 0, segment)} | {place for place in self.named if place[0] == assigned}
            blocks |= {block, assigned}
        return bool(self.named & places or self.vague & blocks)

    def check(self, must: Callable[[Parcel], bool] | None = None, *, in_order: bool | None = None) -> None:
        """Asserts that every message that ``must`` arrive (default: every safe one) is at every destination."""
        self._remember()
        in_order = self._ordered if in_order is None else in_order
        for name, route in self.everywhere.items():
            found = route.node.numbers(self.read)
            assert len(found) == len(set(found)), f"{name} has a message twice"
            missing = [
                parcel.number
                for parcel in self.parcels
                if name in parcel.names
                and (parcel.number in self.safe if must is None else must(parcel))
                and parcel.number not in found
                and parcel.number not in route.forgot
                and (parcel.places or parcel.spilled_as)
                and not self._is_named(parcel)
            ]
            assert not missing, f"{name} lacks {missing[:10]}, and nobody said so"
            for shard in range(self.shards) if in_order else ():
                mine = [number for number in found if number % self.shards == shard]
                assert mine == sorted(mine), f"{name} has shard {shard} out of order"
            assert route.node.conflicts == 0


def _keys(shards: int) -> list[bytes]:
    """A key for each shard."""
    sharder = Sharder(shards.bit_length() - 1)
    by_shard = {sharder.of_key(key): key for key in (b"%d" % number for number in reversed(range(1000)))}
    return [by_shard[shard] for shard in range(shards)]


def _word(number: int) -> str:
    return f"word {number * 7919 % 31}"


def _segments(hole: SegmentHole) -> range:
    return range(hole.start, hole.end)


def places_in(words: str) -> Iterator[Place]:
    """The segments that a log message names."""
    for block in blocks_in(words):
        for first, last, shard in _SEGMENTS.findall(words):
            start = int(first.replace(",", ""))
            stop = int((last or first).replace(",", "")) + 1
            yield from ((block, int(shard), segment) for segment in range(start, stop))


def blocks_in(words: str) -> list[bytes]:
    return [bytes.fromhex(found) for found in re.findall(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])", words)]
