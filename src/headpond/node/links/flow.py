"""One direction of a link while it is connected: it copies every topic of the source that matches to the sink.

An error of one topic (another schema, a full disk, a deletion) delays that topic only. An error of the
connection ends the flow, and ``links.py`` dials again.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any

from headpond.broker.links.sink import FEEDS_MAX
from headpond.broker.links.status import TopicStatus
from headpond.broker.links.stream import PART_BYTES, CopyPart, PeerStream
from headpond.model.errors import (
    HeadpondError,
    LimitReached,
    NotAllowed,
    ProtocolError,
    StorageFailed,
    TopicNotFound,
)
from headpond.model.names import TopicName, TopicPatterns
from headpond.model.topic_settings import QUOTAS
from headpond.node.links.ends import Direction, LinkEnd, LogRecord
from headpond.node.links.follow import CONNECTION_ERRORS, FollowedTopic, PeerFollow
from headpond.wire.control.catalog import ShowTopic, TopicInfo
from headpond.wire.control.links import (
    CONFLICTING,
    KNOWN,
    AdmitRecords,
    FeedOpened,
    Followed,
    FollowTopics,
    OfferHeads,
    OpenFeed,
    ReadHeads,
    RecordHead,
)
from headpond.wire.control.reading import FetchEntries
from headpond.wire.record import RecordHeader, decode_record_header

logger = logging.getLogger("headpond.peers")

FOLLOW_S = 20.0
"""How long the source may wait for news before it answers."""
FOLLOW_PAUSE_S = 0.005
"""The pause between two answers, so that a busy source does not answer for every message."""
STREAMS_MAX = 4
"""Shards of a flow that are copied at a time."""
AGAIN_S = 15.0
"""A refused topic is tried again after this long; sooner if it changes."""
AGAIN_SOON_S = 1.0
"""The same after an error that a retry can help."""
LOCAL_SETTINGS = QUOTAS | {"dead_letter", "create_on_first_use"}
"""Settings that a copied topic does not get from its source."""


class PeerFlow:
    def __init__(self, direction: Direction) -> None:
        self.direction = direction
        self._slots = asyncio.Semaphore(STREAMS_MAX)
        self._patterns = TopicPatterns.parse(direction.made.topics)
        self._feeds: dict[str, PeerFeed] = {}
        self._crowded = False

    async def run(self) -> None:
        """Runs until the connection ends, which is an error."""
        stamp = 0
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_sink())
            follow = PeerFollow(self.direction, self._followed_topic)
            if self.direction.made.subscriptions:
                tasks.create_task(follow.run())
            while True:
                for topic in await self._changed_topics(self.direction.source, stamp):
                    stamp = max(stamp, topic.stamp)
                    self._update(topic, tasks)
                follow.news.set()
                await asyncio.sleep(FOLLOW_PAUSE_S)

    async def _watch_sink(self) -> None:
        """Notices topics that are deleted and created again at the sink, also while the source has no news."""
        stamp = 0
        with suppress(NotAllowed):  # then the error of each topic says which right is missing
            while True:
                for topic in await self._changed_topics(self.direction.sink, stamp):
                    stamp = max(stamp, topic.stamp)
                    if (feed := self._feeds.get(topic.topic)) is not None:
                        feed.on_sink_topic(topic.uuid)
                await asyncio.sleep(AGAIN_SOON_S)

    async def _changed_topics(self, end: LinkEnd, stamp: int) -> list[Followed]:
        return await end.ask(FollowTopics(list(self.direction.made.topics), stamp, FOLLOW_S))

    def _check(self, name: str) -> None:
        """The other node cannot make this one copy a topic that the link does not name."""
        if str(TopicName.parse(name)) != name or not self._patterns.match(name):
            raise ProtocolError(
                f"the other node sent topic {name[:80]!r}, which does not match the link's topics"
            )

    def _followed_topic(self, topic: str) -> FollowedTopic | None:
        feed = self._feeds.get(topic)
        return feed.followed_topic if feed is not None else None

    def _update(self, topic: Followed, tasks: asyncio.TaskGroup) -> None:
        self._check(topic.topic)
        name, status = self.direction.name, self.direction.status
        feed = self._feeds.get(topic.topic)
        if feed is not None and feed.uuid != topic.uuid:  # deleted, and perhaps created again
            feed.task.cancel()
            del self._feeds[topic.topic]
            status.topics.pop((name, topic.topic), None)
            feed = None
        if topic.uuid is None:
            return
        if feed is None and len(self._feeds) >= FEEDS_MAX:
            if not self._crowded:
                logger.warning("link %s copies only the first %d topics", self.direction.made.name, FEEDS_MAX)
            self._crowded = True
            return
        if feed is None:
            shown = status.topics[name, topic.topic] = TopicStatus()
            feed = self._feeds[topic.topic] = PeerFeed(self.direction, self._slots, topic, shown, tasks)
        feed.on_source_topic(topic)


class PeerFeed:
    """One topic of a flow, copied by a task of ``tasks``."""

    def __init__(
        self,
        direction: Direction,
        slots: asyncio.Semaphore,
        topic: Followed,
        status: TopicStatus,
        tasks: asyncio.TaskGroup,
    ) -> None:
        assert topic.uuid is not None
        self.uuid: bytes = topic.uuid
        self._direction = direction
        self._slots = slots
        self._name = topic.topic
        self._topic = topic
        self._status = status
        self._news = asyncio.Event()
        self._opened: FeedOpened | None = None
        self._sink_uuid: bytes | None = None
        self._schema_version: int | None = None
        self._is_state = False
        self._streams: list[PeerStream] = []
        self.task = tasks.create_task(self.run())

    @property
    def followed_topic(self) -> FollowedTopic | None:
        """The topic while it is open at the sink."""
        opened = self._opened
        return FollowedTopic(self.uuid, opened.uuid, self._streams) if opened is not None else None

    def on_source_topic(self, topic: Followed) -> None:
        """The topic has changed at the source."""
        self._topic = topic
        for stream, (_, entry_end) in zip(self._streams, topic.shards, strict=False):
            stream.meet(self.uuid, entry_end)
            self._direction.status.counts["rewinds"] += stream.take_rewinds()
            self._direction.status.note_lag(self._status, stream.shard, stream.lag)
        self._news.set()

    def on_sink_topic(self, uuid: bytes | None) -> None:
        """The sink has another topic of this name; None: it was deleted."""
        if uuid != self._sink_uuid and (self._opened is None or self._opened.uuid != uuid):
            self._opened = None
            self._news.set()
        self._sink_uuid = uuid

    async def run(self) -> None:
        while True:
            try:
                await self._follow()
            except CONNECTION_ERRORS:
                raise
            except HeadpondError as error:
                self._opened = None
                self._status.refuse(error)
                self._direction.release(self._name)
                await self._pause(AGAIN_SOON_S if error.retryable else AGAIN_S)

    async def _pause(self, seconds: float) -> None:
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
                await asyncio.sleep(AGAIN_SOON_S)  # news may come with every message

    async def _follow(self) -> None:
        """Opens the topic at the sink and copies everything that the source has; runs until an error."""
        while not self._direction.claim(self._name):
            self._status.state = "elsewhere"
            await asyncio.sleep(AGAIN_SOON_S)
        running: dict[int, asyncio.Future[None]] = {}
        try:
            while True:
                self._news.clear()
                if self._outdated and not running:
                    await self._open()
                    self.on_source_topic(self._topic)
                    self._news.clear()
                for stream in self._streams:  # a busy shard does not delay the others
                    if stream.behind and stream.shard not in running and not self._outdated:
                        running[stream.shard] = asyncio.ensure_future(self._catch_up(stream))
                running = await self._wait(running)
        finally:
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)

    @property
    def _outdated(self) -> bool:
        """Whether the topic must be opened at the sink: it is not open yet, or its schema has changed."""
        return self._opened is None or self._schema_version != self._topic.schema_version

    async def _wait(self, running: dict[int, asyncio.Future[None]]) -> dict[int, asyncio.Future[None]]:
        """Returns when the source has news or a shard has caught up, with the shards that have not."""
        news: asyncio.Future[Any] = asyncio.ensure_future(self._news.wait())
        waited: set[asyncio.Future[Any]] = {news, *running.values()}
        try:
            await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        for task in running.values():
            if task.done():
                task.result()
        return {shard: task for shard, task in running.items() if not task.done()}

    async def _open(self) -> None:
        async with self._slots:  # there may be thousands of topics
            info = await self._direction.source.ask(ShowTopic(self._name))
            if info.topic != self._name:
                raise ProtocolError(
                    f"the other node answered a question about topic {self._name} with another topic"
                )
            if info.uuid != self.uuid:
                raise TopicNotFound(f"topic {self._name} was deleted and created again")
            opened = await self._direction.sink.ask(_open_feed(info, self._direction.source.id))
        if len(opened.places) != info.shards:
            raise ProtocolError(f"{len(opened.places)} places for {info.shards} shards")
        self._opened, self._schema_version = opened, info.schema_version
        self._is_state = bool(info.state)
        self._streams = [PeerStream(shard, place) for shard, place in enumerate(opened.places)]
        self._status.follow()

    async def _catch_up(self, stream: PeerStream) -> None:
        while stream.behind and not self._outdated:
            await self._step(stream)
            self._direction.status.note_lag(self._status, stream.shard, stream.lag)

    async def _step(self, stream: PeerStream) -> None:
        """Reads the next heads of the source's log and copies the records that the sink lacks."""
        assert self._opened is not None and stream.place is not None
        flow, counts, uuid = self._direction, self._direction.status.counts, self._opened.uuid
        ask = ReadHeads(self.uuid, stream.shard, stream.ask())
        async with self._slots:
            heads = await flow.source.ask(ask)
        batch = stream.on_heads(heads)
        counts["rewinds"] += stream.take_rewinds()
        if batch is None:
            return
        if batch.end.entry <= stream.place.entry and not batch.heads:
            if not stream.lag:
                return
            raise StorageFailed(
                f"the source reads no record of {self._name} from entry {stream.place.entry} on"
            )
        verdicts: list[int] = []
        if batch.heads:
            verdicts = await offer(flow.sink, OfferHeads(uuid, stream.shard, batch.heads, batch.blocks))
            if len(verdicts) != len(batch.heads):
                raise ProtocolError(f"{len(verdicts)} verdicts on {len(batch.heads)} heads")
        counts["lost"] += batch.lost
        counts["duplicates"] += sum(
            verdict == KNOWN and head.count > 0 for head, verdict in zip(batch.heads, verdicts, strict=True)
        )
        counts["conflicts"] += verdicts.count(CONFLICTING)
        for part in stream.parts(batch, verdicts):
            async with self._slots:
                if not await self._copy(stream, part, uuid):
                    return

    async def _copy(self, stream: PeerStream, part: CopyPart, uuid: bytes) -> bool:
        """Copies the records of a part; False if its heads must be read again."""
        flow = self._direction
        wanted = {head.first_entry: head for head in part.heads if head.count}
        found: dict[int, LogRecord] = {}
        entry = part.start
        while entry < part.end:
            ask = FetchEntries(self.uuid, stream.shard, entry, part.end, None, 2 * PART_BYTES)
            fetched, entry_next = await flow.source.fetch(ask)
            if entry_next <= entry:
                raise ProtocolError(f"the other node answered a fetch from entry {entry} on with nothing")
            for each in fetched:
                first_entry = decode_record_header(each.record).first_entry
                if (head := wanted.get(first_entry)) is not None and _matches(each, head):
                    found[first_entry] = each
            entry = entry_next
        missing = wanted.keys() - found.keys()
        if missing and self._is_state:  # compacted since its head was read
            return False
        records = [_refusal(head) if not head.count else found.get(head.first_entry) for head in part.heads]
        # Records that the source has dropped, or could not read, since it sent their heads.
        flow.status.counts["lost"] += sum(wanted[each].count for each in missing)
        ask_admit = AdmitRecords(uuid, stream.shard, flow.source.id, part.place)
        admitted = await flow.sink.admit(ask_admit, [each for each in records if each is not None])
        stream.on_admitted(part.place)
        flow.status.carried(flow.name, admitted)
        return True


async def offer(sink: LinkEnd, ask: OfferHeads) -> list[int]:
    """The sink's verdicts; in halves if names of producers are too long for one request."""
    try:
        return await sink.ask(ask)
    except LimitReached:
        middle = len(ask.heads) // 2
        if not middle:
            raise
    verdicts: list[int] = []
    for heads in (ask.heads[:middle], ask.heads[middle:]):
        named = {head.block for head in heads}
        blocks = {block: name for block, name in ask.blocks.items() if block in named}
        verdicts += await offer(sink, OfferHeads(ask.topic, ask.shard, heads, blocks))
    return verdicts


def _matches(record: LogRecord, head: RecordHead) -> bool:
    """Whether a record is the one of a head; compaction may have removed rows of it since."""
    header = decode_record_header(record.record)
    expected = (head.count, head.block, head.segment, head.origin_crc)
    return expected == (header.count, header.block, record.segment, header.origin_crc)


def _refusal(head: RecordHead) -> LogRecord:
    """The record of a refused segment, which its head describes completely."""
    header = RecordHeader(head.first_entry, 0, head.block, 0, head.origin_crc)
    return LogRecord(head.segment, header.encode() + head.refusal)


def _open_feed(info: TopicInfo, node: str) -> OpenFeed:
    settings = {
        setting.name: setting.value
        for setting in info.settings
        if setting.origin == "topic" and setting.name not in LOCAL_SETTINGS
    }
    return OpenFeed(info.topic, node, info.uuid, info.shards, list(info.schemas), bool(info.state), settings)
