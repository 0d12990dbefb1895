"""Writers: the last batches that each committed, and whether the newest is published.

The records of their journal are msgpack by position, the tag first, version 1:

=== ============== ==========================================================================================
tag record         says
=== ============== ==========================================================================================
1   BatchRecorded  the commit point: these stages count, under these segment numbers
2   BatchPublished all of the batch is in its topics, durably
3   WriterDeleted  a writer is forgotten
4   WriterKept     of a snapshot: a writer and its state
5   WriterTaken    another holder repeated the newest batch, and continues behind it
=== ============== ==========================================================================================

A record whose effect is there already changes nothing. When its write fails, a recorded batch stays in memory
and goes with the next write: no client is answered before it is durable, so it is never in doubt.

A writer remembers its last ``REMEMBERED`` batches, how many rows they had and where the rows are, so that a
repeated batch can be compared.

A writer publishes to a topic in one block, whose uuid is made of the writer's and the topic's, and numbers its
segments on from batch to batch; the admission marks then recognize a segment that is published again. A writer
keeps its uuid until it is deleted: after that, the same name writes other blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha1

import msgspec
from xxhash import xxh3_64_intdigest

from headpond.broker.staging.stages import StageState
from headpond.broker.steps import Wait
from headpond.model.identity import SEGMENT_NUMBER_MAX
from headpond.storage.journal import TableState

REMEMBERED = 20
"""Batches of a writer that can be compared when they are repeated; Spark repeats the last one."""


class Committed(msgspec.Struct, array_like=True, frozen=True):
    """A batch as it was committed."""

    batch: int
    at_us: int
    rows: int
    stages: int
    """A hash of their names: a client that lost the answer and commits again names the same ones."""
    runs: list[tuple[bytes, int, bytes, int, int]]
    """Where its rows are: (topic, shard, block, first segment, how many)."""


class BatchPart(msgspec.Struct, array_like=True, frozen=True):
    """One stage of a batch."""

    stage: bytes
    topic: bytes
    runs: list[tuple[int, bytes, int, int]]
    """Per shard: (shard, block, first segment, how many)."""


class BatchRecorded(msgspec.Struct, array_like=True, frozen=True, tag=1):
    writer: str
    uuid: bytes
    batch: int
    at_us: int
    parts: list[BatchPart]
    rows: int
    size_bytes: int
    holder: str


class BatchPublished(msgspec.Struct, array_like=True, frozen=True, tag=2):
    writer: str
    batch: int


class WriterDeleted(msgspec.Struct, array_like=True, frozen=True, tag=3):
    writer: str
    uuid: bytes


class WriterKept(msgspec.Struct, array_like=True, frozen=True, tag=4):
    writer: str
    uuid: bytes
    created_us: int
    batch: int
    at_us: int
    batches: int
    rows: int
    size_bytes: int
    next: list[tuple[bytes, int, bytes, int]]
    """(topic, shard, block, next segment)"""
    pending: BatchRecorded | None
    holder: str
    history: list[Committed]


class WriterTaken(msgspec.Struct, array_like=True, frozen=True, tag=5):
    writer: str
    uuid: bytes
    batch: int
    holder: str


WriterChange = BatchRecorded | BatchPublished | WriterDeleted | WriterKept | WriterTaken


@dataclass(slots=True, eq=False)
class WriterState:
    name: str
    uuid: bytes
    created_us: int
    batch: int
    """The newest one recorded."""
    at_us: int
    batches: int = 0
    rows: int = 0
    size_bytes: int = 0
    next: dict[tuple[bytes, int], tuple[bytes, int]] = field(default_factory=dict)
    """By topic and shard: the block, and the number of its next segment."""
    pending: BatchRecorded | None = None
    """Recorded and not known to be published."""
    waiting: list[Wait[None]] = field(default_factory=list)
    """They end when nothing is pending."""
    holder: str = ""
    """The client that committed the newest batch."""
    history: list[Committed] = field(default_factory=list)
    """The last batches, oldest first."""
    repeated: tuple[int, int] | None = None
    """The last batch that was a duplicate, and a hash of its stages, which were dropped."""

    def remembered(self, batch: int) -> Committed | None:
        """The batch of this number, if it is one of the last."""
        return next((each for each in self.history if each.batch == batch), None)


def tenant_of(writer: str) -> str:
    """The tenant above a writer's name; empty for none."""
    tenant, slash, _ = writer.partition("/")
    return tenant if slash else ""


class Writers(TableState):
    decoder = msgspec.msgpack.Decoder(WriterChange)

    def __init__(self) -> None:
        self._all: dict[str, WriterState] = {}
        self._of_tenant: Counter[str] = Counter()

    def of_tenant(self, tenant: str) -> int:
        """How many writers have a name below a tenant's; empty: below none."""
        return self._of_tenant[tenant]

    def get(self, name: str) -> WriterState | None:
        return self._all.get(name)

    def __iter__(self) -> Iterator[WriterState]:
        return iter(sorted(self._all.values(), key=lambda writer: writer.name))

    def __len__(self) -> int:
        return len(self._all)

    def apply(self, change: WriterChange) -> None:
        if isinstance(change, BatchRecorded):
            self._record(change)
        elif isinstance(change, BatchPublished):
            writer = self._all.get(change.writer)
            if writer is not None and writer.pending is not None and writer.pending.batch == change.batch:
                writer.pending = None
        elif isinstance(change, WriterTaken):
            taken = self._all.get(change.writer)
            if taken is not None and (taken.uuid, taken.batch) == (change.uuid, change.batch):
                taken.holder = change.holder
        elif isinstance(change, WriterDeleted):
            known = self._all.get(change.writer)
            if known is not None and known.uuid == change.uuid:
                del self._all[change.writer]
                self._of_tenant[tenant_of(change.writer)] -= 1
        else:
            self._of_tenant[tenant_of(change.writer)] += change.writer not in self._all
            self._all[change.writer] = WriterState(
                change.writer,
                change.uuid,
                change.created_us,
                change.batch,
                change.at_us,
                change.batches,
                change.rows,
                change.size_bytes,
                {(topic, shard): (block, segment) for topic, shard, block, segment in change.next},
                change.pending,
                holder=change.holder,
                history=list(change.history),
            )

    def _record(self, record: BatchRecorded) -> None:
        writer = self._all.get(record.writer)
        if writer is None:
            writer = WriterState(record.writer, record.uuid, record.at_us, -1, record.at_us)
            self._all[record.writer] = writer
            self._of_tenant[tenant_of(record.writer)] += 1
        if record.batch <= writer.batch or record.uuid != writer.uuid:
            return
        writer.batch, writer.at_us = record.batch, record.at_us
        writer.batches += 1
        writer.rows += record.rows
        writer.size_bytes += record.size_bytes
        writer.pending = record
        writer.holder = record.holder
        writer.history = [*writer.history, committed_by(record)][-REMEMBERED:]
        for part in record.parts:
            for shard, block, first, count in part.runs:
                writer.next[part.topic, shard] = (block, first + count)

    def forget_topic(self, topic: bytes) -> None:
        """The topic was deleted; its uuid is not used again."""
        for writer in self._all.values():
            for key in [key for key in writer.next if key[0] == topic]:
                del writer.next[key]

    def held_blocks(self) -> frozenset[bytes]:
        """Blocks that are being published to: their marks are needed, however old they are."""
        return frozenset(block for part in self._pending_parts() for _, block, _, _ in part.runs)

    def pending_stages(self) -> list[bytes]:
        """The stages of batches that are recorded and not published."""
        return [part.stage for part in self._pending_parts()]

    def _pending_parts(self) -> Iterator[BatchPart]:
        for writer in self._all.values():
            yield from writer.pending.parts if writer.pending is not None else ()

    def snapshot(self) -> Iterator[WriterKept]:
        for writer in self:
            yield WriterKept(
                writer.name,
                writer.uuid,
                writer.created_us,
                writer.batch,
                writer.at_us,
                writer.batches,
                writer.rows,
                writer.size_bytes,
                [(topic, shard, *place) for (topic, shard), place in writer.next.items()],
                writer.pending,
                writer.holder,
                writer.history,
            )


def number_segments(
    uuid: bytes, next_: Mapping[tuple[bytes, int], tuple[bytes, int]], stages: Iterable[StageState]
) -> list[BatchPart]:
    """Numbers the segments of a writer's next batch. A block whose numbers are used up is followed by another.

    ``next_`` is by topic and shard: the block, and the number of its next segment.
    """
    next_, parts = dict(next_), []
    for stage in stages:
        runs = []
        for shard, count in sorted(Counter(chunk.shard for chunk in stage.chunks).items()):
            block, first = next_.get((stage.topic, shard)) or (block_of(uuid, stage.topic), 0)
            if first + count > SEGMENT_NUMBER_MAX:
                block, first = block_of(block, stage.topic), 0
            runs.append((shard, block, first, count))
            next_[stage.topic, shard] = (block, first + count)
        parts.append(BatchPart(stage.uuid, stage.topic, runs))
    return parts


def committed_by(record: BatchRecorded) -> Committed:
    """What a writer remembers of a batch. The segments of its stages follow each other in each shard."""
    runs: dict[tuple[bytes, int, bytes], tuple[int, int]] = {}
    for part in record.parts:
        for shard, block, first, count in part.runs:
            place = (part.topic, shard, block)
            runs[place] = (runs[place][0], runs[place][1] + count) if place in runs else (first, count)
    stages = hash_of_stages(part.stage for part in record.parts)
    places = [(*place, *run) for place, run in runs.items()]
    return Committed(record.batch, record.at_us, record.rows, stages, places)


def hash_of_stages(stages: Iterable[bytes]) -> int:
    return int(xxh3_64_intdigest(b"".join(sorted(stages))))


def block_of(namespace: bytes, topic: bytes) -> bytes:
    """The block of a writer in a topic: a version 5 UUID of the topic's in the writer's namespace."""
    digest = bytearray(sha1(namespace + topic, usedforsecurity=False).digest()[:16])
    digest[6] = digest[6] & 0x0F | 0x50
    digest[8] = digest[8] & 0x3F | 0x80
    return bytes(digest)
