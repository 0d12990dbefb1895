"""A node that others take from: which topics there are, how far they reach, and what stands in them.

Every change of a topic gets a stamp, so that who follows hears of what changed alone, new topics among it, and
nobody asks in vain while nothing happens.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from headpond.broker.catalog.topics import Catalog, Topic
from headpond.broker.context import Context
from headpond.broker.effects import HeadsFetch
from headpond.broker.session import Session
from headpond.broker.steps import Steps, Wait
from headpond.model.errors import BadRequest, LimitReached, StorageFailed, TopicNotFound
from headpond.model.grant import ALL, Grant
from headpond.model.names import Place, TopicPatterns
from headpond.storage.log.read import ReadResult
from headpond.storage.log.shard_log import ShardLog
from headpond.wire.control.links import BlockName, Followed, FollowTopics, Heads, ReadHeads

FOLLOWED_MAX = 1000
"""Topics in one answer."""
READING_MAX = 16
GONE_MAX = 10_000
"""Names of deleted topics that are still told of."""
LOST_MAX = 1000
WAITING_MAX = 4
"""Questions of one connection that wait."""


@dataclass(eq=False, slots=True)
class Waiting:
    connection: int
    grant: Grant
    patterns: TopicPatterns
    seen: int
    until_us: int
    wait: Wait[list[Followed]]

    def concerns(self, topic: str) -> bool:
        return self.patterns.match(topic) and (self.grant is ALL or self.grant.reaches(Place.of(topic)))


class PeerSource:
    def __init__(self, context: Context, catalog: Catalog) -> None:
        self._context = context
        self._catalog = catalog
        self._stamps: dict[str, int] = {topic.name: at for at, topic in enumerate(catalog, 1)}
        self._stamp = len(self._stamps)
        self._waiting: list[Waiting] = []
        self._alarm = context.alarms.add(self._on_time)
        self._reading: Counter[int] = Counter()
        """By connection: reads of heads that are under way."""

    # --- which topics -------------------------------------------------------------------------------

    def touched(self, topics: Iterable[str]) -> None:
        """Something was stored in these topics, or they were made, altered or deleted."""
        for name in topics:
            self._stamp += 1
            self._stamps.pop(name, None)  # they stand in the order of their stamps
            self._stamps[name] = self._stamp
        if len(self._stamps) > len(self._catalog) + GONE_MAX:
            known = self._catalog.by_name
            self._stamps = {name: stamp for name, stamp in self._stamps.items() if known(name) is not None}
        if not self._waiting:
            return
        for waiting in [each for each in self._waiting if any(map(each.concerns, topics))]:
            if found := self._changed(waiting.grant, waiting.patterns, waiting.seen):
                self._waiting.remove(waiting)
                waiting.wait.done(found)

    def follow(self, session: Session, ask: FollowTopics) -> Steps[list[Followed]]:
        connection, grant = session.connection, session.grant
        patterns = TopicPatterns.parse(ask.topics)
        found = self._changed(grant, patterns, ask.seen)
        if found or not ask.wait_s:
            return found
        if sum(each.connection == connection for each in self._waiting) >= WAITING_MAX:
            raise LimitReached(f"a connection waits for at most {WAITING_MAX} answers about topics to follow")
        until_us = self._context.clock_us() + round(ask.wait_s * 1e6)
        wait: Wait[list[Followed]] = Wait()
        self._waiting.append(Waiting(connection, grant, patterns, ask.seen, until_us, wait))
        self._alarm.by(until_us)
        news: list[Followed] = yield wait
        return news

    def _changed(self, grant: Grant, patterns: TopicPatterns, seen: int) -> list[Followed]:
        changed: list[str] = []
        for name in reversed(self._stamps):
            if self._stamps[name] <= seen:
                break
            changed.append(name)
        found: list[Followed] = []
        for name in reversed(changed):
            if patterns.match(name) and (grant is ALL or grant.reaches(Place.of(name))):
                found.append(_followed(name, self._catalog.by_name(name), self._stamps[name]))
                if len(found) >= FOLLOWED_MAX:
                    break
        return found

    def on_disconnect(self, connection: int) -> None:
        self._waiting = [each for each in self._waiting if each.connection != connection]

    def _on_time(self) -> None:
        now_us = self._context.clock_us()
        over = [each for each in self._waiting if each.until_us <= now_us]
        self._waiting = [each for each in self._waiting if each.until_us > now_us]
        for waiting in over:
            waiting.wait.done([])
        self._alarm.by(min((each.until_us for each in self._waiting), default=None))

    # --- what stands in them ------------------------------------------------------------------------

    def heads(self, session: Session, ask: ReadHeads) -> Steps[Heads]:
        topic = self._catalog.by_uuid(ask.topic)
        if topic is None:
            raise TopicNotFound("the topic that was followed is not there any more")
        if ask.shard >= len(topic.shards):
            raise BadRequest(f"topic {topic.shown} has no shard {ask.shard}")
        connection = session.connection
        if self._reading[connection] >= READING_MAX:
            raise LimitReached(f"a connection has at most {READING_MAX} reads of heads under way")
        self._reading[connection] += 1
        wait: Wait[ReadResult | None] = Wait()
        fetch = HeadsFetch(topic.uuid, ask.shard, ask.entry, 0, wait.done)
        self._context.add_effect(fetch)
        run = yield wait
        self._reading[connection] -= 1
        if not self._reading[connection]:
            del self._reading[connection]
        if run is None:
            raise StorageFailed(f"the node could not read entry {ask.entry} of topic {topic.shown}")
        return _heads(fetch, run, topic.shards[ask.shard].log)


def _followed(name: str, topic: Topic | None, stamp: int) -> Followed:
    if topic is None:
        return Followed(name, None, stamp, None, [])
    shards = [(shard.log.entry_first, shard.log.entry_durable) for shard in topic.shards]
    return Followed(name, topic.uuid, stamp, topic.schemas.version if topic.schemas else None, shards)


def _heads(fetch: HeadsFetch, run: ReadResult, log: ShardLog) -> Heads:
    tallies = log.marks.book.tallies
    blocks: dict[bytes, BlockName] = {}
    for head in fetch.heads:
        if head.block not in blocks and (tally := tallies.get(head.block)) is not None:
            blocks[head.block] = BlockName(tally.producer, tally.sparse)
    return Heads(fetch.heads, blocks, run.next_entry, log.entry_durable, run.lost[:LOST_MAX])
