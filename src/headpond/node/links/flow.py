"""One direction of a link while it is connected: topics are met as the source tells of them, and fed to the
sink.

What concerns one topic (another schema, a full disk, a deletion) keeps that topic waiting and no other. What
concerns the connection ends the flow; whoever runs it dials again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from headpond.broker.links.link_table import LinkMade
from headpond.broker.links.sink import FEEDS_MAX
from headpond.broker.links.status import LinkStatus, TopicStatus
from headpond.broker.links.stream import PART_BYTES, Part, PeerStream
from headpond.model.errors import (
    HeadpondError,
    NotAllowed,
    ProtocolError,
    StorageFailed,
    TopicNotFound,
)
from headpond.model.names import TopicName, TopicPatterns
from headpond.model.topic_settings import QUOTAS
from headpond.node.links.ends import PeerNode, Stored
from headpond.node.links.follow import OF_THE_LINK, Fed, PeerFollow
from headpond.wire.control.catalog import TopicInfo
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
"""How long a source is asked to wait for news."""
FOLLOW_PAUSE_S = 0.005
"""A busy source is not asked again for every message."""
STREAMS_MAX = 4
"""Shards of a flow that are on their way at a time."""
AGAIN_S = 15.0
"""After so long a topic that was refused is tried again; sooner when it changes."""
AGAIN_SOON_S = 1.0
"""The same after what a retry can help."""
LOCAL_SETTINGS = QUOTAS | {"dead_letter", "create_on_first_use"}
"""What a topic does not take over from its source."""

Claim = Callable[[str], bool]


class PeerFlow:
    def __init__(
        self,
        made: LinkMade,
        direction: str,
        source: PeerNode,
        sink: PeerNode,
        status: LinkStatus,
        claim: Claim = lambda topic: True,
        release: Callable[[str], None] = lambda topic: None,
    ) -> None:
        """``claim`` says whether this flow is the one that carries a topic; ``release`` lets another try."""
        self.direction = direction
        self.source = source
        self.sink = sink
        self.status = status
        self.claim = claim
        self.release = release
        self.slots = asyncio.Semaphore(STREAMS_MAX)
        self.made = made
        self._patterns = TopicPatterns.parse(made.topics)
        self._feeds: dict[str, PeerFeed] = {}
        self._crowded = False

    async def run(self) -> None:
        """Until the connection ends, which is an error."""
        seen = 0
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._watch_sink())
            if self.made.subscriptions:
                ends = (self.made, self.direction, self.source, self.sink, self.status)
                tasks.create_task(PeerFollow(*ends, self.opened).run())
            while True:
                for topic in await self.source.follow(FollowTopics(list(self.made.topics), seen, FOLLOW_S)):
                    seen = max(seen, topic.stamp)
                    self._meet(topic, tasks)
                await asyncio.sleep(FOLLOW_PAUSE_S)

    async def _watch_sink(self) -> None:
        """Topics may be deleted and made again at the sink too, which a quiet feed would not notice."""
        seen = 0
        with suppress(NotAllowed):  # then each topic says what is missing
            while True:
                for topic in await self.sink.follow(FollowTopics(list(self.made.topics), seen, FOLLOW_S)):
                    seen = max(seen, topic.stamp)
                    if (feed := self._feeds.get(topic.topic)) is not None:
                        feed.meet_sink(topic.uuid)
                await asyncio.sleep(AGAIN_SOON_S)

    def _check(self, name: str) -> None:
        """What the link is about is decided here: the other node cannot write to more by naming it."""
        if str(TopicName.parse(name)) != name or not self._patterns.match(name):
            raise ProtocolError(f"the other node told of topic {name[:80]!r}, which the link is not about")

    def opened(self, topic: str) -> Fed | None:
        """A topic that follows, if it does."""
        feed = self._feeds.get(topic)
        return feed.fed if feed is not None else None

    def _meet(self, topic: Followed, tasks: asyncio.TaskGroup) -> None:
        self._check(topic.topic)
        feed = self._feeds.get(topic.topic)
        if feed is not None and feed.uuid != topic.uuid:  # deleted, and perhaps made again
            feed.task.cancel()
            del self._feeds[topic.topic]
            self.status.topics.pop((self.direction, topic.topic), None)
            feed = None
        if topic.uuid is None:
            return
        if feed is None and len(self._feeds) >= FEEDS_MAX:
            if not self._crowded:
                logger.warning("link %s: topics beyond the first %d do not follow", self.made.name, FEEDS_MAX)
            self._crowded = True
            return
        if feed is None:
            status = self.status.topics[self.direction, topic.topic] = TopicStatus()
            feed = self._feeds[topic.topic] = PeerFeed(self, topic, status)
            feed.task = tasks.create_task(feed.run())
        feed.meet(topic)


class PeerFeed:
    """One topic of a flow."""

    task: asyncio.Task[None]

    def __init__(self, flow: PeerFlow, topic: Followed, status: TopicStatus) -> None:
        assert topic.uuid is not None
        self.uuid: bytes = topic.uuid
        self._flow = flow
        self._name = topic.topic
        self._topic = topic
        self._status = status
        self._news = asyncio.Event()
        self._opened: FeedOpened | None = None
        self._sink_uuid: bytes | None = None
        self._schema_version: int | None = None
        self._is_state = False
        self._streams: list[PeerStream] = []

    @property
    def fed(self) -> Fed | None:
        opened = self._opened
        return Fed(self.uuid, opened.uuid, self._streams) if opened is not None else None

    def meet(self, topic: Followed) -> None:
        """The source told how the topic is now."""
        self._topic = topic
        for stream, (_, entry_end) in zip(self._streams, topic.shards, strict=False):
            stream.meet(self.uuid, entry_end)
            self._flow.status.counts["rewinds"] += stream.take_rewinds()
            self._status.lags[stream.shard] = stream.lag
        self._news.set()

    def meet_sink(self, uuid: bytes | None) -> None:
        """The sink told which topic it has under this name; None: it was deleted."""
        if uuid != self._sink_uuid and (self._opened is None or self._opened.uuid != uuid):
            self._opened = None
            self._news.set()
        self._sink_uuid = uuid

    async def run(self) -> None:
        while True:
            try:
                await self._follow()
            except OF_THE_LINK:
                raise
            except HeadpondError as error:
                self._opened = None
                self._status.refuse(error)
                self._flow.release(self._name)
                await self._pause(AGAIN_SOON_S if error.retryable else AGAIN_S)

    async def _pause(self, seconds: float) -> None:
        self._news.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()
                await asyncio.sleep(AGAIN_SOON_S)  # news may come with every message

    async def _follow(self) -> None:
        """Opens the topic at the sink and brings it all that the source has, for as long as that works."""
        while not self._flow.claim(self._name):
            self._status.state = "elsewhere"
            await asyncio.sleep(AGAIN_SOON_S)
        running: dict[int, asyncio.Future[None]] = {}
        try:
            while True:
                self._news.clear()
                if self._outdated and not running:
                    await self._open()
                    self.meet(self._topic)
                    self._news.clear()
                for stream in self._streams:  # a shard that is busy keeps no other one waiting
                    if stream.behind and stream.shard not in running and not self._outdated:
                        running[stream.shard] = asyncio.ensure_future(self._catch_up(stream))
                running = await self._wait(running)
        finally:
            for task in running.values():
                task.cancel()
            await asyncio.gather(*running.values(), return_exceptions=True)

    @property
    def _outdated(self) -> bool:
        """Whether the sink is to be told of the topic, for the first time or since its schema changed."""
        return self._opened is None or self._schema_version != self._topic.schema_version

    async def _wait(self, running: dict[int, asyncio.Future[None]]) -> dict[int, asyncio.Future[None]]:
        """Returns when the source has news or a shard has caught up, with those that have not."""
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
        async with self._flow.slots:  # there may be thousands of topics
            info = await self._flow.source.show(self._name)
            if info.topic != self._name:
                raise ProtocolError(f"asked for topic {self._name}, the other node told of another")
            if info.uuid != self.uuid:
                raise TopicNotFound(f"topic {self._name} was deleted and created again")
            opened = await self._flow.sink.open_feed(_open_feed(info, self._flow.source.id))
        if len(opened.places) != info.shards:
            raise ProtocolError(f"{len(opened.places)} places for {info.shards} shards")
        self._opened, self._schema_version = opened, info.schema_version
        self._is_state = bool(info.state)
        self._streams = [PeerStream(shard, place) for shard, place in enumerate(opened.places)]
        self._status.follow()

    async def _catch_up(self, stream: PeerStream) -> None:
        while stream.behind and not self._outdated:
            await self._step(stream)
            self._status.lags[stream.shard] = stream.lag

    async def _step(self, stream: PeerStream) -> None:
        """Looks at what stands next in the source's log, and brings what of it the sink has not."""
        assert self._opened is not None and stream.place is not None
        flow, counts, uuid = self._flow, self._flow.status.counts, self._opened.uuid
        ask = ReadHeads(self.uuid, stream.shard, stream.ask())
        async with flow.slots:
            heads = await flow.source.heads(ask)
        batch = stream.on_heads(heads)
        counts["rewinds"] += stream.take_rewinds()
        if batch is None:
            return
        if batch.end.entry <= stream.place.entry and not batch.heads:
            if not stream.lag:
                return
            raise StorageFailed(f"nothing can be read of {self._name} from entry {stream.place.entry} on")
        verdicts: list[int] = []
        if batch.heads:
            verdicts = await flow.sink.offer(OfferHeads(uuid, stream.shard, batch.heads, batch.blocks))
            if len(verdicts) != len(batch.heads):
                raise ProtocolError(f"{len(verdicts)} verdicts on {len(batch.heads)} heads")
        counts["lost"] += batch.lost
        counts["duplicates"] += sum(
            verdict == KNOWN and head.count > 0 for head, verdict in zip(batch.heads, verdicts, strict=True)
        )
        counts["conflicts"] += verdicts.count(CONFLICTING)
        for part in stream.parts(batch, verdicts):
            async with flow.slots:
                if not await self._bring(stream, part, uuid):
                    return

    async def _bring(self, stream: PeerStream, part: Part, uuid: bytes) -> bool:
        """False where its heads are to be read again."""
        flow = self._flow
        wanted = {head.first_entry: head for head in part.heads if head.count}
        found: dict[int, Stored] = {}
        entry = part.start
        while entry < part.end:
            ask = FetchEntries(self.uuid, stream.shard, entry, part.end, None, 2 * PART_BYTES)
            fetched, entry_next = await flow.source.fetch(ask)
            if entry_next <= entry:
                raise ProtocolError(f"a fetch from entry {entry} on brought nothing")
            for each in fetched:
                first_entry = decode_record_header(each.record).first_entry
                if (head := wanted.get(first_entry)) is not None and _is_of(each, head):
                    found[first_entry] = each
            entry = entry_next
        missing = wanted.keys() - found.keys()
        if missing and self._is_state:  # compacted since its head was read, and the head says so now
            return False
        records = [_refusal(head) if not head.count else found.get(head.first_entry) for head in part.heads]
        # What the source dropped, or could not read any more, between its head and now.
        flow.status.counts["lost"] += sum(wanted[each].count for each in missing)
        ask_admit = AdmitRecords(uuid, stream.shard, flow.source.id, part.place)
        admitted = await flow.sink.admit(ask_admit, [each for each in records if each is not None])
        stream.on_admitted(part.place)
        flow.status.carried(flow.direction, admitted)
        return True


def _is_of(stored: Stored, head: RecordHead) -> bool:
    """Whether a record is the one that its head told of; others are not asked for, and not kept.

    Compaction may have taken some of its rows since.
    """
    header = decode_record_header(stored.record)
    told = (head.count, head.block, head.segment, head.origin_crc)
    return told == (header.count, header.block, stored.segment, header.origin_crc)


def _refusal(head: RecordHead) -> Stored:
    """The record of a refused segment: its head tells all of it."""
    header = RecordHeader(head.first_entry, 0, head.block, 0, head.origin_crc)
    return Stored(head.segment, header.encode() + head.refusal)


def _open_feed(info: TopicInfo, node: str) -> OpenFeed:
    settings = {
        setting.name: setting.value
        for setting in info.settings
        if setting.origin == "topic" and setting.name not in LOCAL_SETTINGS
    }
    return OpenFeed(info.topic, node, info.uuid, info.shards, list(info.schemas), bool(info.state), settings)
