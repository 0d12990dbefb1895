"""Publishing: what a recorded batch names goes from its stages into the topics' logs.

It begins when the record is durable, and again when a node starts and finds a batch that was not published to
its end. A portion at a time is read, as far as it is not in memory anyhow, and the next while that one is
synced, so that a large batch takes little memory. A segment that the marks know is passed over, which makes all
of this safe to repeat; a write that fails is made again.

What cannot be published is counted and named: rows of a topic that was deleted after the commit, and rows whose
stage file rotted after it was synced. The number of such a segment is used up, like that of any refused one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from headpond.broker.catalog.topics import Catalog, Topic
from headpond.broker.context import Context
from headpond.broker.effects import Commit
from headpond.broker.staging.stage_file import ChunkLocation, read_segment
from headpond.broker.staging.stages import Chunk
from headpond.broker.staging.stores import Errand, StagingStores
from headpond.broker.staging.writers import BatchPublished, BatchRecorded, Writer
from headpond.model.errors import BadFrame, HeadpondError
from headpond.storage.commit_lane import CommitLane
from headpond.storage.disk import Disk

logger = logging.getLogger("headpond.node")

PORTION_BYTES = 8 * 1024 * 1024
PORTIONS_MAX = 2
"""So many may be on their way to the disk."""
AGAIN_US = 1_000_000
READS_MAX = 5
"""How often a segment that the disk fails to read is tried, before it counts as lost."""


class Item(NamedTuple):
    """One segment and where it is to go."""

    topic: bytes
    shard: int
    block: bytes
    segment: int
    stage: bytes
    number: int
    rows: int
    origin_crc: int
    bytes: int
    place: ChunkLocation | None
    """None where the stage is gone."""
    chunk: Chunk | None


class ReadPortion(Errand):
    """Reads the segments of a portion; one that cannot be read is None."""

    name = "a stage"

    def __init__(self, items: list[Item], done: Callable[[ReadPortion], None]) -> None:
        self.items = items
        self.segments: list[bytes | None] = []
        self.fault: str = ""
        self._done = done

    def run(self, disk: Disk) -> None:
        for item in self.items:
            try:
                if (segment := _kept(item)) is None:
                    if item.place is None:
                        raise BadFrame("it is gone")
                    segment = read_segment(disk, item.place, item.stage, item.number)
                self.segments.append(segment)
            except (OSError, BadFrame) as error:
                self.fault = str(error)
                self.segments.append(None)

    def ended(self, error: OSError | None) -> None:
        if error is not None:
            self.segments, self.fault = [None] * len(self.items), str(error)
        self._done(self)


class Publication:
    """One batch on its way."""

    def __init__(self, writer: Writer, record: BatchRecorded) -> None:
        self.writer = writer
        self.record = record
        self.left: deque[Item] = deque()
        """What was not looked at since the start, or since the last failure."""
        self.failed_reads = 0
        self.reading = False
        self.writing = 0
        """Portions that are appended and not durable. Reads come one after the other, which keeps the order."""
        self.fault = ""
        """Why this round is given up, if it is."""
        self.dropped: dict[bytes, int] = {}
        """By topic that is gone: rows."""
        self.again_us: int | None = None
        """When to go on after a failure."""


class Publishing:
    def __init__(self, context: Context, stores: StagingStores, catalog: Catalog) -> None:
        self._stores = stores
        self._catalog = catalog
        self._counters = context.counters
        self._now_us = context.now_us
        self._clock_us = context.clock_us
        self._effect = context.add_effect
        self._all: list[Publication] = []
        self._alarm = context.alarms.add(self._on_time, while_stopping=False)
        for writer in stores.writers:
            if writer.pending is not None:  # recorded before the node ended
                self.start(writer)

    def start(self, writer: Writer) -> None:
        """The writer's newest batch is durably recorded: publishes it, then tells those who wait."""
        assert writer.pending is not None
        publication = Publication(writer, writer.pending)
        self._all.append(publication)
        self._begin(publication)

    def _begin(self, publication: Publication) -> None:
        """From the first segment on: what the topics have by now is passed over."""
        publication.left = deque(self._items(publication.record))
        publication.dropped.clear()
        publication.fault = ""
        self._go_on(publication)

    def _on_time(self) -> None:
        now_us = self._clock_us()
        for publication in [each for each in self._all if each.again_us is not None]:
            if publication.again_us is not None and publication.again_us <= now_us:
                publication.again_us = None
                self._begin(publication)
        self._alarm.by(min((each.again_us for each in self._all if each.again_us is not None), default=None))

    # --- a portion ----------------------------------------------------------------------------------

    def _go_on(self, publication: Publication) -> None:
        """Reads the next portion of what the topics do not have; when there is none, the batch is through."""
        if publication.reading or publication.writing >= PORTIONS_MAX:
            return
        if publication.fault:
            if not publication.writing:
                self._fail(publication, publication.fault)
            return
        portion: list[Item] = []
        size = 0
        while publication.left and size < PORTION_BYTES:
            item = publication.left.popleft()
            topic = self._catalog.by_uuid(item.topic)
            if topic is None:
                publication.dropped[item.topic] = publication.dropped.get(item.topic, 0) + item.rows
            elif not _is_there(topic, item):
                portion.append(item)
                size += item.bytes
        if portion:
            publication.reading = True
            read = ReadPortion(portion, lambda read: self._read(publication, read))
            kept = [_kept(item) for item in portion]
            if None not in kept:
                read.segments = kept
                read.ended(None)
            else:
                self._effect(Commit(read))
        elif not publication.writing:
            self._end(publication)

    def _items(self, record: BatchRecorded) -> Iterator[Item]:
        for part in record.parts:
            stage = self._stores.stages.get(part.stage)
            for shard, block, first, count in part.runs:
                chunks = []
                if stage is not None:
                    chunks = [each for each in enumerate(stage.chunks) if each[1].shard == shard]
                for index in range(count):
                    if index < len(chunks):
                        number, chunk = chunks[index]
                        known = (chunk.rows, chunk.origin_crc, chunk.bytes, chunk.place, chunk)
                        yield Item(part.topic, shard, block, first + index, part.stage, number, *known)
                    else:
                        gone = (0, 0, 0, None, None)
                        yield Item(part.topic, shard, block, first + index, part.stage, index, *gone)

    def _read(self, publication: Publication, read: ReadPortion) -> None:
        publication.reading = False
        missing = any(segment is None for segment in read.segments)
        if missing and publication.failed_reads < READS_MAX:
            publication.failed_reads += 1
            publication.fault = read.fault
        if publication.fault:  # this read's, or that of a write which ended meanwhile
            self._go_on(publication)
            return
        lanes: dict[CommitLane, None] = {}
        for item, segment in zip(read.items, read.segments, strict=True):
            topic = self._catalog.by_uuid(item.topic)
            if topic is None:
                publication.left.append(item)  # it is counted as dropped with the next portion
            elif not _is_there(topic, item):
                self._append(publication, topic, item, segment)
                lanes[topic.shards[item.shard].lane] = None
        self._when_durable(publication, list(lanes))

    def _append(self, publication: Publication, topic: Topic, item: Item, segment: bytes | None) -> None:
        shard = topic.shards[item.shard]
        count, stored_at_us = item.rows, self._now_us()
        if segment is None:
            where = f"stage {item.stage.hex()}, chunk {item.number}"
            batch = f"batch {publication.record.batch} of writer {publication.writer.name!r}"
            logger.error("%s: %s is damaged; %d messages for %s are lost", batch, where, count, topic.shown)
            self._counters["messages_lost_staged"] += count
            segment, count = msgspec.msgpack.encode(["damaged", where]), 0
        producer = publication.writer.name
        shard.log.marks.book.tally(item.block, producer, self._catalog.run, stored_at_us, sparse=True)
        shard.store(item.block, item.segment, count, item.origin_crc, stored_at_us, segment, topic.schemas)
        if count:
            self._counters["segments_stored"] += 1
            self._counters["messages_stored"] += count

    def _when_durable(self, publication: Publication, lanes: list[CommitLane]) -> None:
        left = len(lanes)

        def durable(error: HeadpondError | None) -> None:
            nonlocal left
            left -= 1
            if error is not None:
                publication.fault = error.message
            if left == 0:
                publication.writing -= 1
                if not publication.fault:
                    publication.failed_reads = 0
                self._go_on(publication)

        publication.writing += bool(lanes)
        for lane in lanes:
            lane.wait(durable)
        self._go_on(publication)

    # --- ends ---------------------------------------------------------------------------------------

    def _fail(self, publication: Publication, why: str) -> None:
        """It is tried again after a while; what was durable by then is passed over."""
        self._counters["publications_failed"] += 1
        writer, batch = publication.writer.name, publication.record.batch
        logger.warning("batch %d of writer %r is tried again: %s", batch, writer, why)
        publication.again_us = self._clock_us() + AGAIN_US
        self._alarm.by(publication.again_us)

    def _end(self, publication: Publication) -> None:
        record, writer = publication.record, publication.writer
        for rows in publication.dropped.values():
            self._counters["messages_dropped_topic_deleted"] += rows
            logger.warning(
                "batch %d of writer %r: %d messages were for a topic that was deleted since",
                record.batch,
                writer.name,
                rows,
            )
        self._all.remove(publication)
        self._stores.note(BatchPublished(writer.name, record.batch))
        self._stores.drop_stages([part.stage for part in record.parts])
        waiting, writer.waiting = writer.waiting, []
        for wait in waiting:
            wait.done(None)


def _is_there(topic: Topic, item: Item) -> bool:
    """Whether the topic has a segment already. The block is the writer's alone: its number is enough."""
    known = topic.shards[item.shard].log.marks.get(item.block)
    return known is not None and item.segment in known.admitted


def _kept(item: Item) -> bytes | None:
    """The segment itself, where it is still in memory."""
    return item.chunk.segment if item.chunk is not None else None
