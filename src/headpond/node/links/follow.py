"""The subscriptions of one direction of a link: settlements at the source are applied at the sink, after the
messages.

Ten times a second, and once a second while neither they nor the topics change, the source answers which
subscriptions there are and which of them changed; their settlements are read and applied in pieces. An error
of one subscription does not affect the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from headpond.broker.links.stream import PeerStream
from headpond.model.errors import (
    AccessRefused,
    Closed,
    ConnectionLost,
    HeadpondError,
    NodeStopping,
    ProtocolError,
    TimedOut,
    Unavailable,
)
from headpond.node.links.ends import Direction
from headpond.wire.control.links import (
    DROPPED_MAX,
    ApplyDropped,
    ApplySettled,
    CopyOpened,
    FollowedSubscription,
    FollowSubscriptions,
    OpenCopy,
    PeerSubscriptionInfo,
    ReadDropped,
    ReadSettled,
    TellPromoted,
)

EVERY_S = 0.1
"""How often the source is asked for changes."""
QUIET_S = 1.0
"""The same while nothing changes, unless a topic has news."""
EVERY_S_EACH = 0.002
"""Added for every subscription."""
PIECES_MAX = 16
"""Pieces of one shard before the others have their turn."""
OPEN_AGAIN_S = 5.0
"""How often the sink is asked for the state of a copy, which may be promoted or deleted there."""
CONNECTION_ERRORS = (ConnectionLost, Unavailable, Closed, TimedOut, AccessRefused, NodeStopping, ProtocolError)
"""Errors of the connection, not of one topic."""


class FollowedTopic(NamedTuple):
    """A topic that the link copies: its uuids at both ends, and its shards."""

    source: bytes
    sink: bytes
    streams: Sequence[PeerStream]


@dataclass(slots=True)
class ShardCopy:
    stream: PeerStream
    begun: int
    floor: int
    number: int = 0
    stamp: int = -1
    upto: int = -1
    left: int = 0
    consumers: int = -1
    more: bool = True
    """Whether the source has more settlements at once."""
    dropped: bool = False
    """Whether the sink knows which segments the source has dropped."""

    def idle(self, stamp: int, upto: int, consumers: int) -> bool:
        """Whether nothing has changed, and no message has come that settlements wait for."""
        unchanged = (self.stamp, self.consumers) == (stamp, consumers)
        return unchanged and not self.more and (not self.left or self.upto == upto)


@dataclass(slots=True)
class CopyState:
    """A subscription that the link copies, as this connection knows it."""

    source: FollowedSubscription
    streams: Sequence[PeerStream]
    opened: CopyOpened
    again_s: float
    shards: list[ShardCopy] = field(default_factory=list)

    @property
    def behind(self) -> bool:
        """Whether settlements are left to copy, or wait for their messages."""
        return any(shard.more or shard.left for shard in self.shards)

    def same(self, source: FollowedSubscription, streams: Sequence[PeerStream]) -> bool:
        """Whether the copy was opened for this subscription and these shards."""
        return self.streams is streams and _version(self.source) == _version(source)


class PeerFollow:
    """``topic_of`` finds a topic that the link copies: settlements follow its records."""

    def __init__(self, direction: Direction, topic_of: Callable[[str], FollowedTopic | None]) -> None:
        self._made = direction.made
        self._direction = direction.name
        self._source = direction.source
        self._sink = direction.sink
        self._status = direction.status
        self._topic_of = topic_of
        self._copies: dict[tuple[str, str], CopyState] = {}
        self.news = asyncio.Event()
        """Set when topics of the source have changed."""

    async def run(self) -> None:
        """Runs until the connection ends, which is an error."""
        ask = FollowSubscriptions(list(self._made.topics), list(self._made.subscriptions))
        before: list[FollowedSubscription] | None = None
        while True:
            listed = await self._source.ask(ask)
            for each in listed:
                await self._update(each)
            for key in self._copies.keys() - {(each.topic, each.subscription) for each in listed}:
                del self._copies[key]
                self._show(
                    *key, "orphan", message="the subscription that it copies was deleted, or is a copy itself"
                )
            quiet = listed == before and not any(copy.behind for copy in self._copies.values())
            before = listed
            await asyncio.sleep(EVERY_S + EVERY_S_EACH * len(listed))
            if quiet:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self.news.wait(), QUIET_S)
            self.news.clear()

    async def _update(self, source: FollowedSubscription) -> None:
        topic = self._topic_of(source.topic)
        if topic is None or len(topic.streams) != len(source.stamps):
            return
        key = (source.topic, source.subscription)
        try:
            now_s = asyncio.get_running_loop().time()
            copy = self._copies.get(key)
            if copy is None or copy.again_s <= now_s or not copy.same(source, topic.streams):
                copy = self._copies[key] = await self._open(source, topic, now_s, copy)
            if copy.opened.state == "following":
                await self._follow(copy, source, topic)
        except CONNECTION_ERRORS:
            raise
        except HeadpondError as error:
            self._copies.pop(key, None)
            self._show(*key, "refused", message=error.message)

    async def _open(
        self, source: FollowedSubscription, topic: FollowedTopic, now_s: float, before: CopyState | None
    ) -> CopyState:
        """Asks the sink for its copy; a copy that has not changed stays as it is."""
        policy = (source.kind, source.mode, source.policy)
        url = self._made.url if self._direction == "pull" else ""
        subscription = (topic.sink, self._source.id, source.subscription)
        ask = OpenCopy(*subscription, *policy, *_version(source), self._made.name, url)
        opened = await self._sink.ask(ask)
        state = CopyState(source, topic.streams, opened, now_s + OPEN_AGAIN_S)
        if opened.state == "following":
            if len(opened.floors) != len(topic.streams):
                raise ProtocolError(f"{len(opened.floors)} floors for {len(topic.streams)} shards")
            floors = [shard.floor for shard in before.shards] if before is not None else None
            if before is not None and floors == opened.floors and before.same(source, topic.streams):
                before.again_s = state.again_s
                return before
            pairs = zip(topic.streams, opened.floors, strict=True)
            state.shards = [ShardCopy(stream, stream.rewinds_total, floor) for stream, floor in pairs]
        elif opened.state == "promoted":
            message = f"node {self._sink.id} promoted it, and it is active at node {self._source.id} too"
            self._show(source.topic, source.subscription, "promoted", message=message)
            place = (topic.source, source.subscription, source.created_at_us)
            await self._source.ask(TellPromoted(*place, opened.epoch, self._sink.id))
        else:
            message = "the node that gets the messages has another subscription of that name"
            self._show(source.topic, source.subscription, opened.state, message=message)
        return state

    async def _follow(self, copy: CopyState, source: FollowedSubscription, topic: FollowedTopic) -> None:
        for shard, stamp in zip(copy.shards, source.stamps, strict=True):
            place = shard.stream.place
            if place is None or not shard.stream.checked:  # floors are entries of the log that was checked
                continue
            if shard.begun != shard.stream.rewinds_total:  # the source has another log: other entries
                shard.begun, shard.floor, shard.number, shard.stamp = shard.stream.rewinds_total, 0, 0, -1
                shard.dropped = False
            if not shard.idle(stamp, place.entry, source.consumers):
                if not (
                    await self._copy_dropped(shard, source, topic)
                    and await self._copy_settled(shard, source, topic, place.entry)
                ):
                    self._copies.pop((source.topic, source.subscription), None)
                    return
                shard.stamp, shard.upto = stamp, place.entry
        behind = sum(shard.left for shard in copy.shards)
        state = "catching up" if behind else "following"
        self._show(source.topic, source.subscription, state, behind)

    async def _copy_dropped(self, shard: ShardCopy, source: FollowedSubscription, topic: FollowedTopic) -> bool:
        """At the beginning: the segments that the source has dropped and the sink may have."""
        if shard.floor or shard.dropped:
            return True
        number = shard.stream.shard
        ranges = await self._source.ask(ReadDropped(topic.source, number))
        place = (topic.sink, self._source.id, source.subscription, number, *_version(source))
        for at in range(0, len(ranges), DROPPED_MAX):
            apply = ApplyDropped(*place, ranges[at : at + DROPPED_MAX])
            if (await self._sink.ask(apply)).state != "following":
                return False
        shard.dropped = True
        return True

    async def _copy_settled(
        self, shard: ShardCopy, source: FollowedSubscription, topic: FollowedTopic, upto: int
    ) -> bool:
        """Applies some pieces of settlements of a shard; False if the sink does not take them."""
        number = shard.stream.shard
        ids = (source.created_at_us, source.generation)
        for _ in range(PIECES_MAX):
            ask = ReadSettled(topic.source, source.subscription, number, *ids, upto, shard.floor, shard.number)
            piece = await self._source.ask(ask)
            news = (piece.left, piece.floor, source.consumers) != (shard.left, shard.floor, shard.consumers)
            if piece.whole or piece.parts or news:
                place = (topic.sink, self._source.id, source.subscription, number, *_version(source))
                settled = (piece.whole, piece.parts, piece.floor, piece.left)
                apply = ApplySettled(*place, *settled, source.consumers)
                applied = await self._sink.ask(apply)
                if applied.state != "following":
                    return False
                way = "in" if self._direction == "pull" else "out"
                self._status.counts[f"settled_{way}"] += applied.settled
            shard.number, shard.floor = piece.number, piece.floor
            shard.left, shard.consumers, shard.more = piece.left, source.consumers, piece.more
            if not piece.more:
                break
        return True

    def _show(self, topic: str, name: str, state: str, behind: int = 0, message: str = "") -> None:
        info = PeerSubscriptionInfo(topic, name, self._direction, state, behind, message)
        self._status.subscriptions[self._direction, topic, name] = info


def _version(source: FollowedSubscription) -> tuple[int, int, int]:
    return source.created_at_us, source.epoch, source.generation
