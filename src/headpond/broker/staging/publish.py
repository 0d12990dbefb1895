"""Publishing: the segments of a recorded batch go from its stages into the logs of their topics.

It begins when the record is durable, and again when a node starts and finds a batch that was not published to
its end. One portion is read, unless it is in memory, while the portion before it is synced, so a large batch
takes little memory. Segments that the admission marks know are passed over, so a failed attempt is repeated.

Two kinds of rows are lost, and are counted and logged: rows of a topic that was deleted after the commit, and
rows whose stage file rotted after it was synced. The number of such a segment is used up, like that of a
refused one.
"""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import msgspec

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.staging.stage_file import Chunk, read_segment
from headpond.broker.staging.writers import BatchPublished, BatchRecorded, WriterState
from headpond.broker.steps import Steps, Wait, all_on_disk, in_worker, run
from headpond.broker.stores import Stores
from headpond.model.errors import BadFrame, HeadpondError, StorageFailed
from headpond.storage.commit_lane import CommitLane
from headpond.storage.disk import Disk

logger = logging.getLogger("headpond.node")

PORTION_BYTES = 8 * 1024 * 1024
PORTIONS_MAX = 2
"""Portions that may be on their way to the disk at once."""
AGAIN_US = 1_000_000
READS_MAX = 5
"""Failed reads of a segment before it counts as lost."""


class StagedSegment(NamedTuple):
    """One segment of a batch, and where it goes."""

    topic: bytes
    shard: int
    block: bytes
    segment: int
    stage: bytes
    number: int
    chunk: Chunk | None
    """None where the stage is gone."""

    @property
    def rows(self) -> int:
        return self.chunk.rows if self.chunk is not None else 0

    @property
    def in_memory(self) -> bytes | None:
        return self.chunk.segment if self.chunk is not None else None

    def stored_in(self, topic: Topic) -> bool:
        """The block is the writer's alone, so the number tells."""
        known = topic.shards[self.shard].log.marks.get(self.block)
        return known is not None and self.segment in known.admitted


class Publisher:
    def __init__(self, context: Context, stores: Stores) -> None:
        self._context = context
        self._stores = stores
        self._catalog = stores.catalog
        self._counters = context.counters
        self._pauses: list[tuple[int, Wait[None]]] = []
        """When each batch whose publication failed is tried again."""
        self._alarm = context.alarms.add(self._on_time, while_stopping=False)
        for writer in stores.writers:
            if writer.pending is not None:  # recorded before the node ended
                run(self.publish(writer), lambda done: None, lambda error: None)

    def publish(self, writer: WriterState) -> Steps[None]:
        """Publishes the writer's newest batch, which is durably recorded; resumes those who wait for that."""
        record = writer.pending
        assert record is not None
        batch = f"batch {record.batch} of writer {writer.name!r}"
        dropped: Counter[bytes] = Counter()
        reads_failed = 0
        while True:
            dropped.clear()
            writes: deque[Wait[None]] = deque()
            fault: HeadpondError | None = None
            for portion in self._portions(record, dropped):
                try:
                    if len(writes) >= PORTIONS_MAX:
                        yield writes.popleft()
                        reads_failed = 0
                    segments, why = yield from self._read(portion)
                    if None in segments and reads_failed < READS_MAX:
                        reads_failed += 1
                        raise StorageFailed(why)
                except HeadpondError as error:
                    fault = error
                    break
                writes.append(self._store(writer.name, batch, portion, segments, dropped))
            for write in writes:  # also after a failure: the next attempt passes over what is admitted
                try:
                    yield write
                except HeadpondError as error:
                    fault = fault or error
            if fault is None:
                break
            self._counters["publications_failed"] += 1
            logger.warning("%s is published again after a failure: %s", batch, fault.message)
            yield self._pause()
        for rows in dropped.values():
            self._counters["messages_dropped_topic_deleted"] += rows
            logger.warning("%s: %d messages were for a topic that was deleted since", batch, rows)
        self._stores.writers_journal.note(BatchPublished(writer.name, record.batch))
        self._stores.stages.drop([part.stage for part in record.parts])
        waiting, writer.waiting = writer.waiting, []
        for wait in waiting:
            wait.done(None)

    def _pause(self) -> Wait[None]:
        wait: Wait[None] = Wait()
        self._pauses.append((self._context.clock_us() + AGAIN_US, wait))
        self._alarm.by(self._pauses[-1][0])
        return wait

    def _on_time(self) -> None:
        now_us = self._context.clock_us()
        over = [wait for until_us, wait in self._pauses if until_us <= now_us]
        self._pauses = [each for each in self._pauses if each[0] > now_us]
        for wait in over:
            wait.done(None)
        self._alarm.by(min((until_us for until_us, _ in self._pauses), default=None))

    # --- a portion ----------------------------------------------------------------------------------

    def _portions(self, record: BatchRecorded, dropped: Counter[bytes]) -> Iterator[list[StagedSegment]]:
        """What the topics do not have of a batch; counts the rows of topics that are gone."""
        portion: list[StagedSegment] = []
        size = 0
        for item in self._segments(record):
            topic = self._catalog.by_uuid(item.topic)
            if topic is None:
                dropped[item.topic] += item.rows
            elif not item.stored_in(topic):
                portion.append(item)
                size += item.chunk.bytes if item.chunk is not None else 0
                if size >= PORTION_BYTES:
                    yield portion
                    portion, size = [], 0
        if portion:
            yield portion

    def _segments(self, record: BatchRecorded) -> Iterator[StagedSegment]:
        for part in record.parts:
            stage = self._stores.stages.get(part.stage)
            for shard, block, first, count in part.runs:
                chunks = stage.chunks if stage is not None else []
                found = [each for each in enumerate(chunks) if each[1].shard == shard]
                for index in range(count):
                    number, chunk = found[index] if index < len(found) else (index, None)
                    yield StagedSegment(part.topic, shard, block, first + index, part.stage, number, chunk)

    def _read(self, portion: list[StagedSegment]) -> Steps[tuple[list[bytes | None], str]]:
        """The segments, None for one that cannot be read, and why not."""
        segments = [item.in_memory for item in portion]
        if None not in segments:
            return segments, ""
        found: tuple[list[bytes | None], str] = yield in_worker(
            self._context, "a stage", partial(_read_portion, portion)
        )
        return found

    def _store(
        self,
        writer: str,
        batch: str,
        portion: list[StagedSegment],
        segments: list[bytes | None],
        dropped: Counter[bytes],
    ) -> Wait[None]:
        """Appends a portion to the logs; the wait is for the disk."""
        lanes: dict[CommitLane, None] = {}
        for item, segment in zip(portion, segments, strict=True):
            topic = self._catalog.by_uuid(item.topic)
            if topic is None:
                dropped[item.topic] += item.rows
            elif not item.stored_in(topic):
                self._append(writer, batch, topic, item, segment)
                lanes[topic.shards[item.shard].lane] = None
        return all_on_disk(list(lanes))

    def _append(
        self, writer: str, batch: str, topic: Topic, item: StagedSegment, segment: bytes | None
    ) -> None:
        shard, count, now_us = topic.shards[item.shard], item.rows, self._context.now_us()
        if segment is None:
            where = f"stage {item.stage.hex()}, chunk {item.number}"
            logger.error("%s: %s is damaged; %d messages for %s are lost", batch, where, count, topic.shown)
            self._counters["messages_lost_staged"] += count
            segment, count = msgspec.msgpack.encode(["damaged", where]), 0
        shard.log.marks.book.tally(item.block, writer, self._catalog.run, now_us, sparse=True)
        crc = item.chunk.origin_crc if item.chunk is not None else 0
        shard.store(item.block, item.segment, count, crc, now_us, segment, topic.schemas)


def _read_portion(portion: list[StagedSegment], disk: Disk) -> tuple[list[bytes | None], str]:
    segments: list[bytes | None] = []
    why = ""
    for item in portion:
        segment = item.in_memory
        try:
            if item.chunk is None:
                raise BadFrame(f"stage {item.stage.hex()} is gone")
            segment = segment or read_segment(disk, item.chunk.place, item.stage, item.number)
        except (OSError, BadFrame) as error:
            why = str(error)
        segments.append(segment)
    return segments, why
