"""One reading for ``headpond top`` and Prometheus: the busiest topics, the subscriptions furthest behind.

To rank them takes a few numbers of each; the rest is gathered for the rows of the answer alone.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from heapq import heappush, heapreplace
from typing import Any, Generic, TypeVar

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.ingest.watermark import Watermark
from headpond.broker.ledger.ledger import subscription_account
from headpond.broker.ledger.runs import Runs
from headpond.broker.session import Session
from headpond.broker.sessions import Sessions
from headpond.broker.steps import Steps, Wait
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.subscription import Subscription
from headpond.storage.disk import Disk
from headpond.wire.control.links import PeerInfo
from headpond.wire.control.status import ShowNode, ShowTop, TopInfo, TopLink, TopNode, TopSubscription, TopTopic

TURN_WORK = 500
"""So much is done in one turn of the loop, about a millisecond: a topic or a subscription is 1."""
ROW_WORK = 10
"""A row of the answer takes as long as so many of them."""
Rank = TypeVar("Rank", int, tuple[int, int])
Row = TypeVar("Row")


class Ranking(Generic[Rank, Row]):
    """The rows of the highest ranks, the highest first; of equal ones those that came first.

    It holds the rows of the answer alone. A list of all would be so many new objects that Python looks for
    garbage in the whole memory after a few answers, which takes 400 ms with 10,000 topics.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._heap: list[tuple[Rank, int, Row]] = []
        self._added = 0

    def add(self, rank: Rank, row: Row) -> None:
        self._added += 1
        if len(self._heap) < self._limit:
            heappush(self._heap, (rank, -self._added, row))
        elif rank > self._heap[0][0]:
            heapreplace(self._heap, (rank, -self._added, row))

    def ordered(self) -> list[tuple[Rank, Row]]:
        return [(rank, row) for rank, _, row in sorted(self._heap, reverse=True)]

    @property
    def left_out(self) -> int:
        return self._added - len(self._heap)


class TopRequests:
    def __init__(
        self,
        context: Context,
        sessions: Sessions,
        stores: Stores,
        disk: Disk,
        watermark: Watermark,
        *,
        vitals: Callable[[], tuple[int | None, int | None]],
        links: Callable[[], list[PeerInfo]],
    ) -> None:
        """``vitals`` are the CPU time and the memory of the process (node/process.py)."""
        self._context = context
        self._sessions = sessions
        self._stores = stores
        self._disk = disk
        self._watermark = watermark
        self._vitals = vitals
        self._links = links
        self._began_us = context.clock_us()
        self._waiting: list[Wait[None]] = []
        self._alarm = context.alarms.add(self._resume)

    def show_top(self, session: Session | None, ask: ShowTop) -> Steps[TopInfo]:
        """With many topics it takes several turns of the loop: the node does everything else between them."""
        furthest: Ranking[int, tuple[Topic, Subscription]] = Ranking(ask.limit)
        busiest: Ranking[tuple[int, int], Topic] = Ranking(ask.limit)
        work = 0
        for topic in list(self._stores.catalog):
            if work >= TURN_WORK:
                yield self._next_turn()
                work = 0
            work += 1
            if not _matches(topic, ask.pattern):
                continue
            most = 0
            for subscription in self._stores.subscriptions.of_topic(topic.uuid):
                lag = _lag(topic, subscription)
                furthest.add(lag, (topic, subscription))
                most = max(most, lag)
                work += 1
            busiest.add((most, _written(topic)), topic)
        topics: list[TopTopic] = []
        subscriptions: list[TopSubscription] = []
        for (lag, _), topic in busiest.ordered():
            if work >= TURN_WORK:
                yield self._next_turn()
                work = 0
            work += ROW_WORK
            topics.append(_topic(topic, lag))
        now_us = self._context.now_us()
        for lag, (topic, subscription) in furthest.ordered():
            if work >= TURN_WORK:
                yield self._next_turn()
                work = 0
            work += ROW_WORK
            subscriptions.append(_subscription(lag, topic, subscription, self._stores.runs, now_us))
        return TopInfo(
            node=self._node(),
            topics=topics,
            subscriptions=subscriptions,
            topics_left_out=busiest.left_out,
            subscriptions_left_out=furthest.left_out,
            links=[_link(each) for each in self._links()],
        )

    def _next_turn(self) -> Wait[None]:
        wait: Wait[None] = Wait()
        self._waiting.append(wait)
        self._alarm.by(self._context.clock_us())
        return wait

    def _resume(self) -> None:
        waiting, self._waiting = self._waiting, []
        for wait in waiting:
            wait.done(None)

    def _node(self) -> TopNode:
        cpu_us, rss_bytes = self._vitals()
        clock_us, counters = self._context.clock_us(), self._context.counters
        return TopNode(
            node=self._context.node,
            software=self._context.software,
            clock_us=clock_us,
            uptime_us=clock_us - self._began_us,
            connections=len(self._sessions),
            topics=len(self._stores.catalog),
            subscriptions=len(self._stores.subscriptions),
            messages_stored=counters["messages_stored"],
            messages_delivered=counters["messages_delivered"],
            unacked_bytes=self._context.unacked_bytes,
            disk_free_bytes=self._disk.free_bytes(),
            disk_full=self._watermark.lack() is not None,
            cpu_us=cpu_us,
            rss_bytes=rss_bytes,
        )

    def show_node(self, session: Session, ask: ShowNode) -> dict[str, Any]:
        return {
            "node": self._context.node,
            "software": self._context.software,
            "topics": len(self._stores.catalog),
            "connections": len(self._sessions),
            "counters": dict(sorted(self._context.counters.items())),
            "recovered": self._stores.recovered[:1000],
            "disk_full": self._watermark.lack() is not None,
        }


def _matches(topic: Topic, pattern: str) -> bool:
    return not pattern or fnmatchcase(topic.name, pattern) or fnmatchcase(topic.shown, pattern)


def _lag(topic: Topic, subscription: Subscription) -> int:
    lag = 0
    for shard, cursor in zip(topic.shards, subscription.cursors, strict=True):
        unsettled = shard.log.entry_durable - cursor.cursor
        if unsettled > 0:
            lag += unsettled - len(cursor.settled)
    return lag


def _written(topic: Topic) -> int:
    written = 0
    for shard in topic.shards:
        written += shard.log.bytes_written
    return written


def _oldest_age_us(topic: Topic, subscription: Subscription, now_us: int) -> int:
    """Of its oldest unsettled message; 0 if there is none."""
    oldest_us = now_us
    for shard, cursor in zip(topic.shards, subscription.cursors, strict=True):
        if cursor.cursor < shard.log.entry_durable:  # everything before the cursor is settled
            stored_us = shard.times.stored_us(cursor.cursor)
            if stored_us is not None and stored_us < oldest_us:
                oldest_us = stored_us
    return now_us - oldest_us


def _topic(topic: Topic, lag: int) -> TopTopic:
    logs = [shard.log for shard in topic.shards]
    announced, segments, duplicates = map(sum, zip(*(log.marks.segment_totals() for log in logs), strict=True))
    return TopTopic(
        topic=topic.name,
        messages_in=sum(log.entry_durable for log in logs),
        bytes_in=_written(topic),
        stored=sum(log.entry_durable - log.entry_first for log in logs),
        bytes=sum(log.bytes for log in logs),
        lag=lag,
        announced=announced,
        segments=segments,
        duplicates=duplicates,
    )


def _subscription(
    lag: int, topic: Topic, subscription: Subscription, runs: Runs, now_us: int
) -> TopSubscription:
    counts = subscription.counts
    account = subscription_account(topic, subscription, runs)
    return TopSubscription(
        topic=topic.name,
        subscription=subscription.name,
        lag=lag,
        delivered=counts.delivered,
        settled=counts.acked + counts.skipped + counts.buried,
        in_flight=sum(len(cursor.held) for cursor in subscription.cursors),
        unacked=sum(len(cursor.unacked) for cursor in subscription.cursors),
        redelivered=counts.redelivered,
        dead=subscription.dead,
        consumers=sum(attachment.connected for attachment in subscription.attachments),
        paused=subscription.paused,
        entries=account.stored,
        reached=account.reached,
        copies=account.use_ratio.whole,
        first_copies=account.use_ratio.part,
        oldest_age_us=_oldest_age_us(topic, subscription, now_us),
    )


def _link(info: PeerInfo) -> TopLink:
    counts = info.counts
    return TopLink(
        info.name,
        info.state,
        info.lag,
        info.refused,
        messages=counts["messages_in"] + counts["messages_out"],
        records=counts["records_in"] + counts["records_out"],
        duplicates=counts["duplicates"],
        lacking_us=info.lacking_us,
    )
