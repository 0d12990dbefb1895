"""Writers: which batches of each were recorded last, and what of the newest is still to be published.

Their journal's records are msgpack by position, the tag first, version 1:

=== ============== ==========================================================================================
tag record         says
=== ============== ==========================================================================================
1   BatchRecorded  the commit point: these stages count, under these segment numbers; it is to be published
2   BatchPublished all of it is in its topics, durably
3   WriterDeleted  a writer is forgotten
4   WriterKept     of a snapshot: a writer as it stood
5   WriterTaken    another holder repeated the newest batch, and goes on behind it
=== ============== ==========================================================================================

A record whose effect is there already changes nothing. A recorded batch stays in memory when its write fails
and goes with the next one: nobody is told anything before it is durable, so it is never in doubt.

Of the last ``REMEMBERED`` batches a writer knows how many rows they had and where these went, so that one that
comes again is held against what it was.

What a writer publishes to a topic stands in one block, made of the writer's own uuid and the topic's, and its
segments are numbered on from batch to batch; publishing once more is then a repeat, told by the admission
marks. The uuid is the writer's for as long as it is known: after a deletion the same name writes other blocks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from hashlib import sha1

import msgspec
from xxhash import xxh3_64_intdigest

from headpond.broker.steps import Wait
from headpond.model.errors import BadFrame
from headpond.model.identity import SEGMENT_NUMBER_MAX

REMEMBERED = 20
"""Batches of a writer that can be compared when they come again; Spark repeats the last one."""


class Committed(msgspec.Struct, array_like=True, frozen=True):
    """A batch as it was committed."""

    batch: int
    at_us: int
    rows: int
    stages: int
    """A hash of their names: a commit that is asked for again, after a lost answer, names the same."""
    runs: list[tuple[bytes, int, bytes, int, int]]
    """Where its rows are: (topic, shard, block, first segment, how many)."""


class Part(msgspec.Struct, array_like=True, frozen=True):
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
    parts: list[Part]
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


Change = BatchRecorded | BatchPublished | WriterDeleted | WriterKept | WriterTaken

_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Change] = msgspec.msgpack.Decoder(Change)

encode_change = _encoder.encode


def decode_change(body: bytes) -> Change:
    try:
        return _decoder.decode(body)
    except msgspec.MsgspecError as error:
        raise BadFrame(f"a writers' record that cannot be read: {error}") from error


@dataclass(slots=True, eq=False)
class Writer:
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
    """Called when nothing is pending."""
    holder: str = ""
    """Who committed the newest batch."""
    history: list[Committed] = field(default_factory=list)
    """The last batches, oldest first."""
    repeated: tuple[int, int] | None = None
    """The batch that was last found to be a duplicate, and a hash of its stages, which are gone since."""

    def remembered(self, batch: int) -> Committed | None:
        """What was committed under this number, if that is known."""
        return next((each for each in self.history if each.batch == batch), None)


def tenant_of(writer: str) -> str:
    """The tenant that a writer's name stands below; empty for none."""
    tenant, slash, _ = writer.partition("/")
    return tenant if slash else ""


class Writers:
    def __init__(self) -> None:
        self._all: dict[str, Writer] = {}
        self._of_tenant: Counter[str] = Counter()

    def of_tenant(self, tenant: str) -> int:
        """How many have a name below a tenant's; an empty name is that of writers that stand below none."""
        return self._of_tenant[tenant]

    def get(self, name: str) -> Writer | None:
        return self._all.get(name)

    def __iter__(self) -> Iterator[Writer]:
        return iter(sorted(self._all.values(), key=lambda writer: writer.name))

    def __len__(self) -> int:
        return len(self._all)

    def apply(self, change: Change) -> None:
        """Makes a change that is in the journal, or on its way there."""
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
            self._all[change.writer] = Writer(
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
            writer = Writer(record.writer, record.uuid, record.at_us, -1, record.at_us)
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
        """It was deleted: its uuid never comes again."""
        for writer in self._all.values():
            for key in [key for key in writer.next if key[0] == topic]:
                del writer.next[key]

    def held_blocks(self) -> frozenset[bytes]:
        """Blocks that are being published to: their marks are needed, however long ago they were written."""
        parts = [part for writer in self._all.values() if writer.pending for part in writer.pending.parts]
        return frozenset(block for part in parts for _, block, _, _ in part.runs)

    def snapshot(self) -> Iterator[bytes]:
        for writer in self:
            places = [(topic, shard, *place) for (topic, shard), place in writer.next.items()]
            yield encode_change(
                WriterKept(
                    writer.name,
                    writer.uuid,
                    writer.created_us,
                    writer.batch,
                    writer.at_us,
                    writer.batches,
                    writer.rows,
                    writer.size_bytes,
                    places,
                    writer.pending,
                    writer.holder,
                    writer.history,
                )
            )


class Numbering:
    """Gives the segments of a writer's next batch their numbers."""

    def __init__(self, uuid: bytes, known: dict[tuple[bytes, int], tuple[bytes, int]]) -> None:
        self._uuid = uuid
        self._known = known
        self._next: dict[tuple[bytes, int], tuple[bytes, int]] = {}

    def part(self, stage: bytes, topic: bytes, counts: dict[int, int]) -> Part:
        """``counts``: by shard, how many segments the stage has. Behind a used-up block comes another."""
        runs = []
        for shard, count in sorted(counts.items()):
            place = self._next.get((topic, shard)) or self._known.get((topic, shard))
            block, first = place or (block_of(self._uuid, topic), 0)
            if first + count > SEGMENT_NUMBER_MAX:
                block, first = block_of(block, topic), 0
            runs.append((shard, block, first, count))
            self._next[topic, shard] = (block, first + count)
        return Part(stage, topic, runs)


def committed_by(record: BatchRecorded) -> Committed:
    """What is remembered of a batch. Its stages are numbered one behind the other in each shard."""
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
