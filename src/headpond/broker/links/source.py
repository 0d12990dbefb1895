"""The source of a link: which topics it has, how long their logs are, and the heads of their records.

Every change of a topic gets a stamp, so that a follower gets only topics that changed, new ones among them, and
waits for its answer while nothing changes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice, takewhile

from headpond.broker.catalog.topics import Catalog, Topic
from headpond.broker.context import Context
from headpond.broker.effects import HeadsFetch
from headpond.broker.session import Session
from headpond.broker.steps import Steps, Wait
from headpond.model.errors import LimitReached
from headpond.model.grant import ALL, Grant
from headpond.model.names import Place, TopicPatterns
from headpond.wire.control.links import BlockName, Followed, FollowTopics, Heads, ReadHeads

FOLLOWED_MAX = 1000
"""Topics in one answer."""
READING_MAX = 16
GONE_MAX = 10_000
"""Names of deleted topics that followers still hear of."""
LOST_MAX = 1000
WAITING_MAX = 4
"""Requests of one connection that wait for a change."""


@dataclass(eq=False, slots=True)
class Follower:
    connection: int
    grant: Grant
    patterns: TopicPatterns
    stamp: int
    """The last one that it knows."""
    until_us: int = 0
    wait: Wait[list[Followed]] = field(default_factory=Wait)

    def concerns(self, topic: str) -> bool:
        return self.patterns.match(topic) and (self.grant is ALL or self.grant.reaches(Place.of(topic)))


class PeerSource:
    def __init__(self, context: Context, catalog: Catalog) -> None:
        self._context = context
        self._catalog = catalog
        self._stamps: dict[str, int] = {topic.name: at for at, topic in enumerate(catalog, 1)}
        """By name, in the order of the stamps."""
        self._stamp = len(self._stamps)
        self._waiting: list[Follower] = []
        self._alarm = context.alarms.add(self._on_time)
        self._reading: Counter[int] = Counter()
        """By connection: reads of heads under way."""

    # --- topics -------------------------------------------------------------------------------------

    def touched(self, topics: Iterable[str]) -> None:
        """Records of these topics became durable, or the topics were created, altered or deleted."""
        for name in topics:
            self._stamp += 1
            self._stamps.pop(name, None)
            self._stamps[name] = self._stamp
        if len(self._stamps) > len(self._catalog) + GONE_MAX:
            known = self._catalog.by_name
            self._stamps = {name: stamp for name, stamp in self._stamps.items() if known(name) is not None}
        if not self._waiting:
            return
        for follower in [each for each in self._waiting if any(map(each.concerns, topics))]:
            if found := self._changed(follower):
                self._waiting.remove(follower)
                follower.wait.done(found)

    def follow_topics(self, session: Session, ask: FollowTopics) -> Steps[list[Followed]]:
        patterns = TopicPatterns.parse(ask.topics)
        follower = Follower(session.connection, session.grant, patterns, ask.seen)
        found = self._changed(follower)
        if found or not ask.wait_s:
            return found
        if sum(each.connection == session.connection for each in self._waiting) >= WAITING_MAX:
            raise LimitReached(f"a connection may wait for at most {WAITING_MAX} answers about changed topics")
        follower.until_us = self._context.clock_us() + round(ask.wait_s * 1e6)
        self._waiting.append(follower)
        self._alarm.by(follower.until_us)
        news: list[Followed] = yield follower.wait
        return news

    def _changed(self, follower: Follower) -> list[Followed]:
        newest_first = takewhile(lambda name: self._stamps[name] > follower.stamp, reversed(self._stamps))
        names = islice(filter(follower.concerns, reversed(list(newest_first))), FOLLOWED_MAX)
        return [_followed(name, self._catalog.by_name(name), self._stamps[name]) for name in names]

    def on_disconnect(self, connection: int) -> None:
        self._waiting = [each for each in self._waiting if each.connection != connection]

    def _on_time(self) -> None:
        now_us = self._context.clock_us()
        over = [each for each in self._waiting if each.until_us <= now_us]
        self._waiting = [each for each in self._waiting if each.until_us > now_us]
        for follower in over:
            follower.wait.done([])
        self._alarm.by(min((each.until_us for each in self._waiting), default=None))

    # --- heads --------------------------------------------------------------------------------------

    def read_heads(self, session: Session, ask: ReadHeads) -> Steps[Heads]:
        topic = self._catalog.find(ask.topic)
        log = topic.shard(ask.shard).log
        connection = session.connection
        if self._reading[connection] >= READING_MAX:
            raise LimitReached(f"a connection may have at most {READING_MAX} reads of heads under way")
        self._reading[connection] += 1
        try:
            fetch, run = yield from topic.read(self._context, HeadsFetch, ask.shard, ask.entry)
        finally:
            self._reading[connection] -= 1
            if not self._reading[connection]:
                del self._reading[connection]
        tallies = log.marks.book.tallies
        found = {head.block: tallies.get(head.block) for head in fetch.heads}
        blocks = {block: BlockName(tally.producer, tally.sparse) for block, tally in found.items() if tally}
        return Heads(fetch.heads, blocks, run.next_entry, log.entry_durable, run.lost[:LOST_MAX])


def _followed(name: str, topic: Topic | None, stamp: int) -> Followed:
    if topic is None:
        return Followed(name, None, stamp, None, [])
    shards = [(shard.log.entry_first, shard.log.entry_durable) for shard in topic.shards]
    return Followed(name, topic.uuid, stamp, topic.schemas.version if topic.schemas else None, shards)
