"""The subscriptions of one direction of a link: what is settled at the source is told to the sink, behind the
data.

The source is asked several times a second which subscriptions there are and which of them changed; those are
read and applied, a piece at a time. What concerns one subscription leaves the others alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from headpond.broker.links.link_table import LinkMade
from headpond.broker.links.status import LinkStatus
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
from headpond.node.links.ends import PeerNode
from headpond.wire.control.following import (
    DROPPED_MAX,
    ApplyDropped,
    ApplySettled,
    CopyApplied,
    CopyOpened,
    FollowedSubscription,
    FollowSubscriptions,
    OpenCopy,
    ReadDropped,
    ReadSettled,
    Settlements,
    TellPromoted,
    WholeSegments,
)
from headpond.wire.control.links import PeerSubscriptionInfo

EVERY_S = 0.1
"""How often the source is asked for changes; with many subscriptions less often."""
EVERY_S_EACH = 0.002
PIECES_MAX = 16
"""Told of one shard before the others have their turn."""
OPEN_AGAIN_S = 5.0
"""How often the sink is asked what has become of a copy."""
OF_THE_LINK = (ConnectionLost, Unavailable, Closed, TimedOut, AccessRefused, NodeStopping, ProtocolError)
"""What concerns the connection and not one topic."""


class Fed(NamedTuple):
    """A topic whose messages follow."""

    source: bytes
    sink: bytes
    """Its uuids."""
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
    """Whether the source has more to tell at once."""
    dropped: bool = False
    """Whether it was told what the source has no more."""

    def idle(self, stamp: int, upto: int, consumers: int) -> bool:
        """Whether there is nothing to ask: nothing changed, and what could not be told has not come."""
        told = (self.stamp, self.consumers) == (stamp, consumers)
        return told and not self.more and (not self.left or self.upto == upto)


@dataclass(slots=True)
class CopyState:
    """A subscription that follows, as this connection knows it."""

    source: FollowedSubscription
    streams: Sequence[PeerStream]
    opened: CopyOpened
    again_s: float
    shards: list[ShardCopy] = field(default_factory=list)

    def same(self, source: FollowedSubscription, streams: Sequence[PeerStream]) -> bool:
        """Whether what was opened is what there is now."""
        mine, its = self.source, source
        return self.streams is streams and (mine.created_at_us, mine.epoch, mine.generation) == (
            its.created_at_us,
            its.epoch,
            its.generation,
        )


class PeerFollow:
    """The subscriptions of one direction of a link, behind the records that ``fed`` finds by their topic."""

    def __init__(
        self,
        made: LinkMade,
        direction: str,
        source: PeerNode,
        sink: PeerNode,
        status: LinkStatus,
        fed: Callable[[str], Fed | None],
    ) -> None:
        self._made = made
        self._direction = direction
        self._source = source
        self._sink = sink
        self._status = status
        self._fed = fed
        self._copies: dict[tuple[str, str], CopyState] = {}

    async def run(self) -> None:
        """Until the connection ends, which is an error."""
        ask = FollowSubscriptions(list(self._made.topics), list(self._made.subscriptions))
        while True:
            listed = await self._source.ask(ask, list[FollowedSubscription])
            for each in listed:
                await self._meet(each)
            for key in self._copies.keys() - {(each.topic, each.subscription) for each in listed}:
                del self._copies[key]
                self._show(*key, "orphan", message="the subscription that it follows is gone, or a copy itself")
            await asyncio.sleep(EVERY_S + EVERY_S_EACH * len(listed))

    async def _meet(self, source: FollowedSubscription) -> None:
        fed = self._fed(source.topic)
        if fed is None or len(fed.streams) != len(source.stamps):
            return
        key = (source.topic, source.subscription)
        try:
            now_s = asyncio.get_running_loop().time()
            copy = self._copies.get(key)
            if copy is None or copy.again_s <= now_s or not copy.same(source, fed.streams):
                copy = self._copies[key] = await self._open(source, fed, now_s, copy)
            if copy.opened.state == "following":
                await self._follow(copy, source, fed)
        except OF_THE_LINK:
            raise
        except HeadpondError as error:
            self._copies.pop(key, None)
            self._show(*key, "refused", message=error.message)

    async def _open(
        self, source: FollowedSubscription, fed: Fed, now_s: float, before: CopyState | None
    ) -> CopyState:
        """Asks the sink for its copy; also now and then, since it may be promoted or deleted there."""
        opened = await self._sink.ask(
            OpenCopy(
                fed.sink,
                self._source.id,
                source.subscription,
                source.kind,
                source.mode,
                source.policy,
                source.created_at_us,
                source.epoch,
                source.generation,
                self._made.name,
                self._made.url if self._direction == "pull" else "",
            ),
            CopyOpened,
        )
        state = CopyState(source, fed.streams, opened, now_s + OPEN_AGAIN_S)
        if opened.state == "following":
            if len(opened.floors) != len(fed.streams):
                raise ProtocolError(f"{len(opened.floors)} floors for {len(fed.streams)} shards")
            floors = [shard.floor for shard in before.shards] if before is not None else None
            if before is not None and floors == opened.floors and before.same(source, fed.streams):
                before.again_s = state.again_s
                return before
            pairs = zip(fed.streams, opened.floors, strict=True)
            state.shards = [ShardCopy(stream, stream.begun, floor) for stream, floor in pairs]
        elif opened.state == "promoted":
            message = f"it was promoted at node {self._sink.id}, and is active at node {self._source.id} too"
            self._show(source.topic, source.subscription, "promoted", message=message)
            told = TellPromoted(
                fed.source, source.subscription, source.created_at_us, opened.epoch, self._sink.id
            )
            await self._source.ask(told, dict[str, bool])
        else:
            message = "the node that messages go to has another subscription of that name"
            self._show(source.topic, source.subscription, opened.state, message=message)
        return state

    async def _follow(self, copy: CopyState, source: FollowedSubscription, fed: Fed) -> None:
        for shard, stamp in zip(copy.shards, source.stamps, strict=True):
            place = shard.stream.place
            if place is None or not shard.stream.checked:  # floors are of the log that was checked
                continue
            if shard.begun != shard.stream.begun:  # the source's log is another one: so are its entries
                shard.begun, shard.floor, shard.number, shard.stamp = shard.stream.begun, 0, 0, -1
                shard.dropped = False
            if not shard.idle(stamp, place.entry, source.consumers):
                if not (
                    await self._tell_dropped(shard, source, fed)
                    and await self._tell(shard, source, fed, place.entry)
                ):
                    self._copies.pop((source.topic, source.subscription), None)
                    return
                shard.stamp, shard.upto = stamp, place.entry
        behind = sum(shard.left for shard in copy.shards)
        state = "catching up" if behind else "following"
        self._show(source.topic, source.subscription, state, behind)

    async def _tell_dropped(self, shard: ShardCopy, source: FollowedSubscription, fed: Fed) -> bool:
        """At the beginning: what the source has no more, and the sink may have."""
        if shard.floor or shard.dropped:
            return True
        number = shard.stream.shard
        ranges = await self._source.ask(ReadDropped(fed.source, number), list[WholeSegments])
        ids = (source.created_at_us, source.epoch, source.generation)
        for at in range(0, len(ranges), DROPPED_MAX):
            part = ranges[at : at + DROPPED_MAX]
            apply = ApplyDropped(fed.sink, self._source.id, source.subscription, number, *ids, part)
            if (await self._sink.ask(apply, CopyApplied)).state != "following":
                return False
        shard.dropped = True
        return True

    async def _tell(self, shard: ShardCopy, source: FollowedSubscription, fed: Fed, upto: int) -> bool:
        """Tells what there is to tell of a shard, for a while; False where the sink takes it no more."""
        number = shard.stream.shard
        ids = (source.created_at_us, source.generation)
        for _ in range(PIECES_MAX):
            ask = ReadSettled(fed.source, source.subscription, number, *ids, upto, shard.floor, shard.number)
            told = await self._source.ask(ask, Settlements)
            news = (told.left, told.floor, source.consumers) != (shard.left, shard.floor, shard.consumers)
            if told.whole or told.parts or news:
                apply = ApplySettled(
                    fed.sink,
                    self._source.id,
                    source.subscription,
                    number,
                    source.created_at_us,
                    source.epoch,
                    source.generation,
                    told.whole,
                    told.parts,
                    told.floor,
                    told.left,
                    source.consumers,
                )
                applied = await self._sink.ask(apply, CopyApplied)
                if applied.state != "following":
                    return False
                way = "in" if self._direction == "pull" else "out"
                self._status.counts[f"settled_{way}"] += applied.settled
            shard.number, shard.floor = told.number, told.floor
            shard.left, shard.consumers, shard.more = told.left, source.consumers, told.more
            if not told.more:
                break
        return True

    def _show(self, topic: str, name: str, state: str, behind: int = 0, message: str = "") -> None:
        info = PeerSubscriptionInfo(topic, name, self._direction, state, behind, message)
        self._status.subscriptions[self._direction, topic, name] = info
