"""Packs small segments in the background: one file at a time, after it was closed, and all at the start.

storage/log/pack.py looks at a file and writes it again, in steps that long_work.py gives to a worker thread.
Files of state topics are packed where compaction rewrites them. On a replicated disk nothing is packed: every
byte would go to the other machines twice. While the disk is full nothing is packed either, because the new file
stands beside the old one for a while.
"""

from __future__ import annotations

from collections import deque

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.ingest.watermark import Watermark
from headpond.broker.stores import Stores
from headpond.storage.log.pack import PackJob
from headpond.storage.long_work import ShardPlace

LOOK_EVERY_US = 1_000_000
AGAIN_US = 60_000_000
"""After the disk failed a step."""


class Packing:
    def __init__(self, context: Context, stores: Stores, watermark: Watermark) -> None:
        self._stores = stores
        self._watermark = watermark
        self._counters = context.counters
        self._clock_us = context.clock_us
        self._waiting = deque(
            (topic, number) for topic in stores.catalog for number in range(len(topic.shards))
        )
        """Shards that may have a closed file that was not looked at."""
        self._under_way: ShardPlace | None = None
        """The shard whose file is packed now."""
        self._rests_us = 0
        """Nothing is packed before this time."""
        self._alarm = context.alarms.add(self._on_time, while_stopping=False)
        self._alarm.by(context.clock_us() + LOOK_EVERY_US)

    def _on_time(self) -> None:
        self._alarm.by(self._clock_us() + LOOK_EVERY_US)
        self._waiting += self._stores.closed_in
        self._stores.closed_in.clear()
        # The job of a deleted topic may end without a word.
        if self._under_way is None or not self._stores.long_work.has(self._under_way):
            self._begin_next()

    def _begin_next(self) -> None:
        self._under_way = None
        if self._rests_us > self._clock_us() or self._watermark.lack() is not None:
            return
        while self._waiting and self._under_way is None:
            topic, number = self._waiting[0]
            if self._begin(topic, number):
                return
            self._waiting.popleft()

    def _begin(self, topic: Topic, number: int) -> bool:
        """Begins to pack the next file of a shard; False if there is none."""
        if topic.is_state or topic.schemas is not None or not self._exists(topic):
            return False
        log = topic.shards[number].log
        closed = log.next_unpacked()
        if closed is None:
            return False
        self._under_way = (topic.uuid, number)
        log.packed_to = closed.end
        job = PackJob(
            self._under_way,
            log,
            closed,
            exists=lambda: self._exists(topic),
            counters=self._counters,
            then=lambda: self._ended(job),
        )
        self._stores.long_work.add(job)
        return True

    def _ended(self, job: PackJob) -> None:
        if job.failed:
            job.log.packed_to = job.closed.file.first
            self._rests_us = self._clock_us() + AGAIN_US
            self._waiting.rotate(-1)  # the fault may be this file's alone
        self._begin_next()

    def _exists(self, topic: Topic) -> bool:
        return self._stores.catalog.by_uuid(topic.uuid) is topic
