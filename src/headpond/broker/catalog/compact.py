"""Compaction of state topics: every few seconds, which shards are due.

A shard is due when its closed files that no pass has read make up ``compact_share`` of the bytes of all its
closed files: a pass reads the whole shard, so a larger shard is compacted more rarely. storage/log/compact.py
decides which messages go, in steps that long_work.py gives to a worker thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.steps import Steps, Wait, gathered, on_disk
from headpond.broker.stores import Stores
from headpond.model.entry_set import EntrySet
from headpond.model.errors import BadRequest, HeadpondError, LimitReached, StorageFailed, TopicNotFound
from headpond.storage.log.compact import Compaction, CompactionResult, StateScan
from headpond.storage.long_work import ShardPlace
from headpond.wire.control.catalog import ShardCompaction, TopicCompaction

logger = logging.getLogger("headpond.node")

LOOK_EVERY_US = 5_000_000
AGAIN_US = 60_000_000
"""How long a shard rests after a pass that failed."""
CLOSE_TRIES = 3
JOBS_MAX = 8
"""The most passes that wait; other shards are looked at later."""
ASKED_MAX = 64
"""Topics that are compacted by hand at a time: each of their shards is a pass that waits."""


class Compacting:
    def __init__(
        self,
        context: Context,
        stores: Stores,
    ) -> None:
        self._stores = stores
        self._counters = context.counters
        self._now_us = context.now_us
        self._clock_us = context.clock_us
        self._alarm = context.alarms.add(self._on_time, while_stopping=False)
        self._alarm.by(context.clock_us() + LOOK_EVERY_US)
        self._looked_to: dict[ShardPlace, int] = {}
        """Up to which entry the last pass looked."""
        self._rests_us: dict[ShardPlace, int] = {}
        self._asked = 0
        """How many topics are being compacted by hand."""

    def _on_time(self) -> None:
        now_us = self._clock_us()
        self._alarm.by(now_us + LOOK_EVERY_US)
        by_uuid = self._stores.catalog.by_uuid
        self._looked_to = {place: to for place, to in self._looked_to.items() if by_uuid(place[0]) is not None}
        for topic in self._stores.catalog:
            if not topic.is_state:
                continue
            for number in range(len(topic.shards)):
                if len(self._stores.long_work) < JOBS_MAX and self._is_due(topic, number, now_us):
                    self._begin(topic, number, lambda result: None, thorough=False)

    def _is_due(self, topic: Topic, number: int, now_us: int) -> bool:
        place = (topic.uuid, number)
        share = topic.settings.compact_share
        if share is None or self._stores.long_work.has(place) or self._rests_us.get(place, 0) > now_us:
            return False
        looked_to = self._looked_to.get(place)
        closed = topic.shards[number].log.closed_files()
        if looked_to is None:  # the node just started: compacted files were read by an earlier pass
            looked_to = max((each.end for each in closed if each.file.generation), default=0)
            self._looked_to[place] = looked_to
        new = sum(each.file.bytes for each in closed if each.end > looked_to)
        return new > 0 and new >= share * sum(each.file.bytes for each in closed)

    def _begin(
        self, topic: Topic, number: int, then: Callable[[CompactionResult], None], *, thorough: bool
    ) -> None:
        log, place = topic.shards[number].log, (topic.uuid, number)
        scan = StateScan(log, self._stores.settings.limits.state_bytes, topic.schemas)

        def ended(result: CompactionResult) -> None:
            if result.failed:
                self._rests_us[place] = self._clock_us() + AGAIN_US
                if result.fault:
                    logger.warning(
                        "topic %s, shard %d could not be compacted: %s", topic.shown, number, result.fault
                    )
            else:
                self._looked_to[place] = scan.end
                self._counters["compactions"] += 1
            then(result)

        job = Compaction(
            place,
            log,
            scan,
            owed=lambda start, end: self._owed(topic, number, start, end),
            old_before_us=self._now_us() - round(topic.settings.tombstone_ttl * 1e6),
            thorough=thorough,
            counters=self._counters,
            then=ended,
        )
        self._stores.long_work.add(job)

    def _owed(self, topic: Topic, number: int, start: int, end: int) -> EntrySet | None:
        if self._stores.catalog.by_uuid(topic.uuid) is not topic:
            return None
        found = EntrySet()
        for subscription in self._stores.subscriptions.of_topic(topic.uuid):
            found.include(subscription.cursors[number].owed(start, end))
        return found

    # --- by hand ------------------------------------------------------------------------------------

    def compact(self, topic: Topic) -> Steps[TopicCompaction]:
        """Compacts the whole topic now, the files being written too."""
        if not topic.is_state:
            raise BadRequest(
                f"topic {topic.shown} is no state topic: nothing in it is superseded",
                hint="Messages of other topics go by soft_ttl, hard_ttl and max_bytes; see docs/tenancy.md.",
            )
        if self._asked >= ASKED_MAX:
            raise LimitReached(f"{ASKED_MAX} topics are being compacted; try again")
        self._asked += 1
        try:
            shards = range(len(topic.shards))
            results = yield gathered([self._compact_shard(topic, number) for number in shards])
        finally:
            self._asked -= 1
        failures = [each for each in results if isinstance(each, HeadpondError)]
        if failures:
            raise StorageFailed(f"not all of topic {topic.shown} could be compacted: {failures[0].message}")
        return TopicCompaction(topic.name, [_shown(*item) for item in enumerate(results)])

    def _compact_shard(self, topic: Topic, number: int) -> Steps[CompactionResult]:
        shard = topic.shards[number]
        for _ in range(CLOSE_TRIES):  # a write that is under way ends before the file can be closed
            if shard.log.rotate():
                break
            yield on_disk(shard.lane)
            self._check_there(topic)
        yield on_disk(shard.lane)
        self._check_there(topic)
        wait: Wait[CompactionResult] = Wait()
        self._begin(topic, number, wait.done, thorough=True)
        result: CompactionResult = yield wait
        if result.failed:
            raise StorageFailed(result.fault or "it was deleted")
        return result

    def _check_there(self, topic: Topic) -> None:
        if self._stores.catalog.by_uuid(topic.uuid) is not topic:
            raise TopicNotFound("it was deleted")


def _shown(number: int, result: CompactionResult) -> ShardCompaction:
    return ShardCompaction(number, result.bytes_before, result.bytes_after, result.taken_out)
