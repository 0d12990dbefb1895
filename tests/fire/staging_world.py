"""Writers around the node's core on a disk in memory, and the rules that no failure may break.

The seed decides everything. A batch is in its topics completely or not at all, and once; a batch that the node
answered as committed is there. ``faults`` lists the broken guarantees.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field

from headpond.broker.settings import LogSettings, Settings, StagingSettings
from headpond.model.errors import BatchDiffers, HeadpondError
from headpond.storage.memory_disk import Keep, MemoryDisk
from headpond.wire.control.catalog import CreateTopic
from headpond.wire.control.codec import Operation, Request, Response, read_result
from headpond.wire.control.consuming import Subscribe
from headpond.wire.control.greeting import Error
from headpond.wire.control.staging import (
    AbortStages,
    BatchInfo,
    CommitBatch,
    FinishStage,
    OpenStage,
)
from headpond.wire.frame import Frame
from headpond.wire.plain.segment import decode_plain
from headpond.wire.record import RECORD_HEADER_BYTES
from tests.fire.core_shell import CoreShell
from tests.fire.raw_client import encode_chunk, segment_body

TOPICS = {"left": 2, "right": 1}
WRITERS = ("north", "south")
CREDIT_BYTES = 1 << 28
SMALL = Settings(
    data="memory",
    journal_compact_bytes=512,
    log=LogSettings(rotate_bytes=4096, preallocate_bytes=1024, index_every_bytes=512),
    staging=StagingSettings(file_bytes=1500, memory_bytes=400),
)
"""A short run rotates and compacts, and the node publishes some chunks from memory."""


@dataclass
class Batch:
    number: int
    values: set[bytes] = field(default_factory=set)
    rows: list[tuple[str, list[bytes]]] = field(default_factory=list)
    """By topic, as they were staged."""
    stages: list[bytes] = field(default_factory=list)
    committed: bool = False
    """Whether the node answered."""
    asked: bool = False
    aborted: bool = False


class StagingWorld:
    def __init__(self, seed: int, disk: MemoryDisk | None = None) -> None:
        self.disk = disk or MemoryDisk(seed)
        self.random = random.Random(seed)
        self.faults: list[str] = []
        self.batches: dict[str, list[Batch]] = {writer: [] for writer in WRITERS}
        self.never: set[bytes] = set()
        """Values of stages that no batch has."""
        self._numbers = 0
        self._rows = 0
        self._audits = 0
        self.open()

    def open(self) -> None:
        seed = self.random.randrange(1 << 30)
        self.shell = CoreShell(self.disk, seed=seed, settings=SMALL, now_us=1_000_000)
        self.client = self.shell.connect()
        for topic, shards in TOPICS.items():
            self.client.request(CreateTopic(topic, shards, exist_ok=True))
        self._asked: dict[int, Batch] = {}

    @property
    def power_is_off(self) -> bool:
        try:
            self.disk.exists("")
        except OSError:
            return True
        return False

    # --- what writers do ----------------------------------------------------------------------------

    def step(self) -> None:
        """A writer stages and commits, or some disk work runs."""
        chance = self.random.random()
        writer = self.random.choice(WRITERS)
        if chance < 0.25:
            self.commit(writer)
        elif chance < 0.3:
            self.stage_in_vain(writer)
        elif chance < 0.35:
            self.repeat(writer)
        elif self.shell.pending:
            self.shell.work(self.random.randrange(len(self.shell.pending)))
        self.listen()

    def commit(self, writer: str) -> None:
        """Stages some rows and commits them without waiting for the answer."""
        batches = self.batches[writer]
        if batches and not batches[-1].committed and not batches[-1].aborted:
            return
        batch = Batch(batches[-1].number + 1 if batches else 0)
        batches.append(batch)
        for _ in range(self.random.randint(0, 3)):
            values = [self._value() for _ in range(self.random.randint(1, 4))]
            topic = self.random.choice(list(TOPICS))
            stage = self.stage(writer, topic, values)
            if stage is None:
                batch.aborted = True
                return
            batch.values |= set(values)
            batch.rows.append((topic, values))
            batch.stages.append(stage)
        self.ask_commit(writer, batch)

    def ask_commit(self, writer: str, batch: Batch) -> None:
        batch.asked = True
        self._numbers += 1
        self._asked[self._numbers] = batch
        self.client.send(Request(self._numbers, CommitBatch(writer, batch.number, batch.stages)))

    def stage(
        self, writer: str, topic: str, values: list[bytes], known: Collection[bytes] = ()
    ) -> bytes | None:
        """A finished stage; None if the node was lost or refused it."""
        stage = self.random.randbytes(16)
        try:
            self._request(OpenStage(stage, writer, topic))
            shards = TOPICS[topic]
            for number, value in enumerate(values):
                shard = self.random.randrange(shards)
                self.client.send(encode_chunk(stage, shard, number, segment_body([value])))
            self._request(FinishStage(stage, len(values)))
        except (HeadpondError, OSError, NoAnswer):
            self.never |= set(values) - set(known)
            return None
        return stage

    def stage_in_vain(self, writer: str) -> None:
        """A stage that is dropped, or left behind."""
        values = [self._value()]
        stage = self.stage(writer, "left", values)
        self.never |= set(values)
        if stage is not None and self.random.random() < 0.5:
            self.client.send(Request(0, AbortStages(writer, [stage])))

    def repeat(self, writer: str) -> None:
        """Commits an old batch again, with its rows or with others, and aborts stages that a batch has."""
        under_way = list(self._asked.values())  # of one that a power cut took, an abort drops the stages
        done = [batch for batch in self.batches[writer] if batch.committed or batch in under_way]
        if not done:
            return
        self.client.send(Request(0, AbortStages(writer, done[-1].stages)))
        if not done[-1].committed:
            return
        batch = self.random.choice([each for each in done[-20:] if each.committed])
        rows = self.random.sample(batch.rows, len(batch.rows))
        if other := self.random.random() < 0.5:
            fresh = [self._value() for _ in (rows[0][1] if rows else [b""])]
            rows = [*rows[1:], ("right", fresh)]
            self.never |= set(fresh)
        stages = [self.stage(writer, topic, values, known=batch.values) for topic, values in rows]
        if None in stages:
            return
        ask = CommitBatch(writer, batch.number, [stage for stage in stages if stage is not None])
        try:
            self._request(ask)
            if other:
                self.faults.append(f"batch {batch.number} of {writer} was taken with other rows")
        except BatchDiffers as error:
            if not other:
                self.faults.append(f"batch {batch.number} of {writer} was refused: {error.message}")
        except (HeadpondError, OSError, NoAnswer):
            pass

    def _value(self) -> bytes:
        self._rows += 1
        return f"row {self._rows} ".encode() * (1 + self._rows % 9)

    def _request(self, operation: Operation) -> object:
        """The answer, after running the disk's work in any order."""
        self._numbers += 1
        number = self._numbers
        self.client.send(Request(number, operation))
        while True:
            self.listen()
            for event in list(self.client.events):
                if isinstance(event, Response) and event.number == number:
                    self.client.events.remove(event)
                    return event.result
                if isinstance(event, Error) and event.request == number:
                    self.client.events.remove(event)
                    raise event.as_exception()
            if not self.shell.pending:
                raise NoAnswer
            self.shell.work(self.random.randrange(len(self.shell.pending)))

    def listen(self) -> None:
        """Answers to commits; they count only if they came before the power failed."""
        for event in list(self.client.events):
            if isinstance(event, Response) and event.number in self._asked:
                self.client.events.remove(event)
                self._asked.pop(event.number).committed = True
                read_result(event.result, BatchInfo)
            elif isinstance(event, Error) and event.request in self._asked:
                self.client.events.remove(event)
                batch = self._asked.pop(event.request)
                batch.aborted = True
                if event.code not in ("disk-full", "storage-failed"):
                    self.faults.append(f"batch {batch.number} was refused: {event.code} {event.message}")
                else:
                    self.never |= batch.values

    # --- failures -----------------------------------------------------------------------------------

    def cut(self, keep: Keep) -> None:
        """Power off and on; a node opens what is left and is checked."""
        self.disk.crash(keep=keep)
        self.open()
        self.shell.work_all()
        self.check()

    def commit_again(self) -> None:
        """Every writer repeats its unanswered commits, as a driver does; then all batches must be there."""
        for writer, batches in self.batches.items():
            for batch in batches:
                if batch.asked and not batch.committed and not batch.aborted:
                    self.ask_commit(writer, batch)
        self.settle()
        self.check()

    def settle(self) -> None:
        """Runs all work, with pauses long enough for retries."""
        for _ in range(12):
            self.shell.work_all()
            self.shell.wait(1_500_000)
        self.listen()

    # --- the rules ----------------------------------------------------------------------------------

    def check(self) -> None:
        counts = self.stored()
        self.faults += [f"{value!r} is there {count} times" for value, count in counts.items() if count > 1]
        self.faults += [f"{value!r} was never committed" for value in self.never if counts[value]]
        for writer, batches in self.batches.items():
            for batch in batches:
                there = sum(1 for value in batch.values if counts[value])
                what = f"batch {batch.number} of {writer}: {there} of {len(batch.values)} rows"
                if batch.committed and there < len(batch.values):
                    self.faults.append(f"{what}, though it was answered")
                elif not batch.asked and there:
                    self.faults.append(f"{what}, though it was not committed")
                elif 0 < there < len(batch.values):
                    self.faults.append(what)

    def stored(self) -> Counter[bytes]:
        """Every value that a reader from the beginning gets, counted."""
        self._audits += 1
        client = self.shell.connect()
        for number, topic in enumerate(TOPICS):
            name = f"audit-{self._audits}"
            client.send(Subscribe(number, topic, name, "unique", "non_resilient", "earliest", CREDIT_BYTES))
        self.shell.work_all()
        found: Counter[bytes] = Counter()
        for frame in client.take(Frame):
            found.update(decode_plain(frame.body[RECORD_HEADER_BYTES:]).column("value").to_pylist())
        return found


class NoAnswer(Exception):
    """Nothing is left to do, and no answer came."""
