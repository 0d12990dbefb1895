"""Reading by position: any range of a shard, in stored form, without a subscription and its state.

A connection has one request that reads a log under way and a bounded number waiting (``in_turn``); none begins
while the connection has no room for its answer. So a slow reader delays only itself, and many readers share the
worker threads with consumers. A client that waits for a topic to grow costs nothing until it does.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from headpond.broker.catalog.topic_requests import TopicListener
from headpond.broker.catalog.topics import Catalog, Topic
from headpond.broker.context import Context
from headpond.broker.effects import Fetch, FindEntry, PackedFetch
from headpond.broker.reading.chosen import ChosenFetch, check_columns, check_filter
from headpond.broker.session import Session
from headpond.broker.steps import Steps, Wait, gathered
from headpond.broker.subscriptions.records import DAMAGED, RETENTION
from headpond.broker.subscriptions.subscribe import not_held
from headpond.model.bounds import ENTRY_MAX
from headpond.model.errors import (
    BadRequest,
    HeadpondError,
    LimitReached,
)
from headpond.model.identity import BLOCK_BYTES
from headpond.model.names import TopicName
from headpond.storage.log.read import ReadResult, StoredRecord
from headpond.storage.log.shard_log import ShardLog
from headpond.wire.control.codec import Response, encode_control
from headpond.wire.control.operation import Control
from headpond.wire.control.reading import (
    Ends,
    Fetched,
    FetchEntries,
    FindTime,
    ReadEnds,
    ShardEnds,
)
from headpond.wire.filter import Filter

T = TypeVar("T")

logger = logging.getLogger("headpond.node")

FETCH_BYTES_MAX = 8 * 1024 * 1024
"""The most bytes of one fetch, unless a single record is larger."""
LOGGED_MAX = 1000
READS_MAX = 64
"""Requests of one connection that wait to read a log."""
WATCHES_MAX = 64
"""Of one connection."""
NAMES_BYTES_MAX = 256 * 1024
"""The most bytes of producers' names in one answer."""


@dataclass(frozen=True, slots=True)
class Records:
    """The answer to a fetch: a frame, and the records that follow it."""

    entry_next: int
    entry_end: int
    lost: list[tuple[int, int, str]]
    frames: list[list[bytes]]
    masks: list[bytes] | None = None
    compacted: bytes = b""
    producers: dict[bytes, str] = field(default_factory=dict)
    incarnation: int = 0


def answer_parts(number: int, result: Any) -> list[bytes]:
    """The bytes of an answer to request ``number``."""
    message: Control
    if isinstance(result, Records):
        places = (result.entry_next, result.entry_end)
        message = Fetched(
            number,
            len(result.frames),
            *places,
            result.lost,
            result.masks,
            result.compacted,
            result.producers,
            result.incarnation,
        )
        return [encode_control(message), *(part for parts in result.frames for part in parts)]
    message = Response(number, msgspec.to_builtins(result, builtin_types=(bytes,)))
    return [encode_control(message)]


@dataclass(eq=False, slots=True)
class Watch:
    """A client waits for topics to grow."""

    ask: ReadEnds
    places: dict[str, int]
    """By topic: its number in the question."""
    before: list[Ends]
    until_us: int
    wait: Wait[None]


class Fetcher(TopicListener):
    def __init__(self, context: Context, catalog: Catalog) -> None:
        self._context = context
        self._catalog = catalog
        self._queues: dict[int, deque[Wait[None]]] = {}
        """By connection: requests that have not begun to read."""
        self._busy: set[int] = set()
        self._watches: dict[int, list[Watch]] = {}
        self._logged: set[tuple[str, int, int]] = set()
        """Shard, start and end of the losses in the log."""
        self._alarm = context.alarms.add(self._on_time)

    def on_disconnect(self, session: Session) -> None:
        self._queues.pop(session.connection, None)
        self._busy.discard(session.connection)
        self._watches.pop(session.connection, None)

    def log_losses(self, fetch: Fetch, lost: list[tuple[int, int]]) -> None:
        """Logs entries that a read did not find: once for each span, with the reason."""
        topic = self._catalog.by_uuid(fetch.topic)
        if topic is None:
            return
        where, first = f"topic {topic.shown}, shard {fetch.shard}", topic.shards[fetch.shard].log.entry_first
        for start, end in lost:
            if (where, start, end) in self._logged:
                continue
            if len(self._logged) >= LOGGED_MAX:
                self._logged.clear()
            self._logged.add((where, start, end))
            if start < first:
                logger.info("%s: retention dropped entries %d to %d", where, start, min(end, first) - 1)
            if first < end:
                logger.error("%s: entries %d to %d are damaged or missing", where, max(start, first), end - 1)

    # --- the ends of topics -------------------------------------------------------------------------

    def read_ends(self, session: Session, ask: ReadEnds) -> Steps[list[Ends]]:
        if ask.known is not None and len(ask.known) != len(ask.topics):
            raise BadRequest(f"the request names {len(ask.topics)} topics, and known ends of {len(ask.known)}")
        ends = self._ends(ask)
        if ask.known is None or not ask.wait_s or _grown(ends, ask.known):
            return ends
        watches = self._watches.setdefault(session.connection, [])
        if len(watches) >= WATCHES_MAX:
            raise LimitReached(f"a connection may wait for at most {WATCHES_MAX} answers about topics")
        until_us = self._context.clock_us() + round(ask.wait_s * 1e6)
        places = {each.topic: place for place, each in enumerate(ends)}
        wait: Wait[None] = Wait()
        watches.append(Watch(ask, places, ends, until_us, wait))
        self._alarm.by(until_us)
        yield wait
        return self._ends(ask)

    def _ends(self, ask: ReadEnds) -> list[Ends]:
        names = [str(TopicName.parse(name)) for name in ask.topics]
        if len(set(names)) != len(names):
            raise BadRequest("the request names a topic twice")
        return [_ends(name, self._catalog.by_name(name)) for name in names]

    def topic_altered(self, topic: Topic) -> None:
        self.wake([topic.name])

    def topic_deleted(self, topic: Topic, error: HeadpondError) -> None:
        self.wake([topic.name])

    def wake(self, changed: Collection[str]) -> None:
        """Something was stored in these topics, or they changed: clients that wait for that get an answer."""
        for connection, watches in list(self._watches.items()):
            for watch in list(watches):
                if any(self._is_news(watch, name) for name in changed):
                    self._end(connection, watch)

    def _is_news(self, watch: Watch, name: str) -> bool:
        """Whether a topic differs from what the waiting client knows of it."""
        place = watch.places.get(name)
        if place is None:
            return False
        topic, before = self._catalog.by_name(name), watch.before[place]
        assert watch.ask.known is not None
        known = watch.ask.known[place]
        if topic is None or (topic.uuid, _version(topic)) != (before.uuid, before.schema_version):
            return topic is not None or before.uuid is not None
        return any(shard.log.entry_durable > end for shard, end in zip(topic.shards, known, strict=True))

    def _on_time(self) -> None:
        """Answers those who have waited long enough."""
        now_us = self._context.clock_us()
        for connection, watches in list(self._watches.items()):
            for watch in [each for each in watches if each.until_us <= now_us]:
                self._end(connection, watch)
        left = (watch.until_us for watches in self._watches.values() for watch in watches)
        self._alarm.by(min(left, default=None))

    def _end(self, connection: int, watch: Watch) -> None:
        watches = self._watches[connection]
        watches.remove(watch)
        if not watches:
            del self._watches[connection]
        watch.wait.done(None)

    # --- fetching -----------------------------------------------------------------------------------

    def in_turn(self, session: Session, work: Steps[T]) -> Steps[T]:
        """Does work that reads a log, when it is the turn of this request."""
        queue = self._queues.setdefault(session.connection, deque())
        if len(queue) >= READS_MAX:
            raise LimitReached(f"a connection may have at most {READS_MAX} requests that wait to read")
        wait: Wait[None] = Wait()
        queue.append(wait)
        self.opened(session)
        yield wait
        try:
            return (yield from work)
        finally:
            self._busy.discard(session.connection)
            self.opened(session)

    def opened(self, session: Session) -> None:
        """A connection has room, or nothing under way: its next request reads."""
        queue = self._queues.get(session.connection)
        while queue and session.writable and session.connection not in self._busy:
            self._busy.add(session.connection)
            queue.popleft().done(None)

    def fetch(self, session: Session, ask: FetchEntries) -> Steps[Records]:
        end_max = ENTRY_MAX if ask.end is None else ask.end
        if ask.entry > end_max:
            raise BadRequest(f"entries {ask.entry} to {ask.end}: the end is before the start")
        topic, _ = self._log(ask)
        wanted = Filter(ask.filter) if ask.filter else None
        if wanted is not None:
            check_filter(wanted, topic.schemas)
        check_columns(ask.columns)
        return (yield from self.in_turn(session, self._records(ask, wanted)))

    def _records(self, ask: FetchEntries, wanted: Filter | None) -> Steps[Records]:
        topic, log = self._log(ask)
        end = log.entry_durable if ask.end is None else min(ask.end, log.entry_durable)
        if ask.entry >= end:
            incarnation = log.incarnation_at(min(ask.entry, log.entry_durable))
            return Records(ask.entry, log.entry_durable, [], [], incarnation=incarnation)
        # The node closes a connection for which too many bytes wait: one answer is far less.
        bytes_max = min(ask.bytes_max, FETCH_BYTES_MAX, self._context.settings.limits.unsent_bytes // 4)
        masks: list[bytes] | None = None if wanted is None else []
        place = (ask.shard, ask.entry, bytes_max)
        if wanted is None and ask.columns is None:
            _, run = yield from topic.read(self._context, PackedFetch if ask.packed else Fetch, *place)
        else:
            columns = None if ask.columns is None else frozenset(ask.columns)
            chosen = (wanted, topic.schemas, [] if masks is None else masks, columns, ask.packed)
            _, run = yield from topic.read(self._context, ChosenFetch, *place, *chosen)
        self._context.counters["fetches"] += 1
        return _cut(run, masks, ask, end, log)

    def _log(self, ask: FetchEntries) -> tuple[Topic, ShardLog]:
        topic = self._catalog.find(ask.topic)
        log = topic.shard(ask.shard).log
        if ask.incarnation is not None and not log.holds(ask.incarnation, ask.entry, ask.end):
            raise not_held(topic, ask.shard, ask.incarnation, ask.entry if ask.end is None else ask.end)
        return topic, log

    def find_time(self, session: Session, ask: FindTime) -> Steps[list[int]]:
        topic = self._catalog.find(ask.topic)
        return (yield from self.in_turn(session, self._find_in(topic, ask.at_us)))

    def _find_in(self, topic: Topic, at_us: int) -> Steps[list[int]]:
        shards = range(len(topic.shards))
        reads = [topic.read(self._context, FindEntry, shard, 0, 0, at_us) for shard in shards]
        found = yield gathered(reads)
        for each in found:
            if isinstance(each, HeadpondError):
                raise each
        return [run.next_entry for _, run in found]


def _ends(name: str, topic: Topic | None) -> Ends:
    if topic is None:
        return Ends(name, None, None, [])
    shards = [_shard_ends(shard.log) for shard in topic.shards]
    return Ends(name, topic.uuid, _version(topic), shards)


def _version(topic: Topic) -> int | None:
    return topic.schemas.version if topic.schemas is not None else None


def _shard_ends(log: ShardLog) -> ShardEnds:
    return ShardEnds(log.incarnation, log.entry_first, log.entry_durable, log.bytes, log.stored_at_us)


def _grown(ends: list[Ends], known: list[list[int]]) -> bool:
    """Whether there is more than is known, or another number of shards."""
    return any(
        len(end.shards) != len(known_ends)
        or any(shard.entry_next > n for shard, n in zip(end.shards, known_ends, strict=True))
        for end, known_ends in zip(ends, known, strict=True)
    )


def _cut(run: ReadResult, masks: list[bytes] | None, ask: FetchEntries, end: int, log: ShardLog) -> Records:
    """The records of a read up to ``end``, and exact spans of the entries that are gone, with the reason."""
    if ask.named:
        end = min(end, _names_end(run.records, log))
    count = sum(record.header.first_entry < end for record in run.records)
    frames = [record.parts for record in run.records[:count]]
    first = log.entry_first
    lost: list[tuple[int, int, str]] = []
    for start, stop in run.lost:
        start, stop = max(start, ask.entry), min(stop, end)
        lost += [
            (low, high, reason)
            for low, high, reason in ((start, min(stop, first), RETENTION), (max(start, first), stop, DAMAGED))
            if low < high
        ]
    kept_masks = None if masks is None else masks[:count]
    compacted = log.compacted_in(run.records[:count])
    places = (min(run.next_entry, end), log.entry_durable)
    producers = _producers(run.records[:count], log) if ask.named else {}
    incarnation = log.incarnation_at(places[0])
    return Records(*places, lost, frames, kept_masks, compacted, producers, incarnation)


def _names_end(records: list[StoredRecord], log: ShardLog) -> int:
    """Where an answer ends so that the names of its producers fit into it."""
    room, seen = NAMES_BYTES_MAX, set[bytes]()
    for record in records:
        for block in record.blocks:
            if block not in seen:
                seen.add(block)
                room -= BLOCK_BYTES + 4 * len(log.marks.book.producer_of(block)) + 8
        if room < 0:
            return record.header.first_entry
    return ENTRY_MAX


def _producers(records: list[StoredRecord], log: ShardLog) -> dict[bytes, str]:
    blocks = {block for record in records for block in record.blocks}
    return {block: name for block in blocks if (name := log.marks.book.producer_of(block))}
