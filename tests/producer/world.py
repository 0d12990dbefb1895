"""A producer, its disk and its destinations in one thread: the real keeper and refill, and nodes in memory.

The test decides what happens: when a destination comes, answers and goes, when a job of the disk runs, and when
the process is killed, with unsynced data lost.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pyarrow as pa

from headpond.model.receipt import Fate, Outcome
from headpond.producer.blocks import Blocks, Form, RefillFolder
from headpond.producer.encoder import Sharder
from headpond.producer.keeper import Burst, Keeper, Rotation
from headpond.producer.manager import SendPolicy
from headpond.producer.numbers import Numbers
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
        self.fates: list[Fate | None] = [None] * len(names)
        self.freed = 0
        self.forgotten = False

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
        self.notices: list[str] = []
        self.keeper: Keeper
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
        self.disk.crash(keep=keep)  # type: ignore[arg-type]
        self._begin_again()

    def _begin_again(self) -> None:
        for parcel in self.parcels:
            parcel.settle = lambda *_: None  # type: ignore[method-assign]
        self.start()

    def close(self) -> None:
        """The producer ends in good order."""
        self.keeper.shutdown()
        for _ in range(10):
            while self.run_job():
                pass
            self.wait(1.0)
        assert self.keeper.finished, "closing does not come to an end"
        self.keeper.current.give_back()

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

    def hear(self, index: int) -> None:
        """The producer receives the answers of a node."""
        route = self.routes[index]
        answers, route.answers = route.answers, []
        for answer in answers:
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
        route.node = route.backup.copy() if route.backup is not None else ModelNode()

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
        self.disk.fail_never()
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
                return
        raise AssertionError("it does not come to rest")

    def settled(self) -> bool:
        return self.keeper.settled() and not self._jobs and not any(r.answers for r in self.routes)

    # --- what must hold -----------------------------------------------------------------------------

    def numbers_at(self, index: int) -> list[int]:
        """The messages that a node has, in its order."""
        return self.routes[index].node.numbers(self.read)

    def check(self) -> None:
        """Every message is at each of its destinations, once and in order."""
        for name, route in self.everywhere.items():
            found = route.node.numbers(self.read)
            sent = [parcel.number for parcel in self.parcels if name in parcel.names]
            assert sorted(found) == sent, f"{name} has {found}"
            for shard in range(self.shards):
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
