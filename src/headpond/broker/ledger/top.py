"""One reading for ``headpond top``: how far every subscription is behind, and all of those that are shown.

Being behind takes a few numbers a shard; the rest is gathered for the rows of the answer alone.
"""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase
from heapq import nlargest
from typing import Any

from headpond.broker.catalog.topics import Topic
from headpond.broker.context import Context
from headpond.broker.ingest.watermark import Watermark
from headpond.broker.ledger.ledger import subscription_account
from headpond.broker.ledger.runs import Runs
from headpond.broker.session import Session
from headpond.broker.sessions import Sessions
from headpond.broker.stores import Stores
from headpond.broker.subscriptions.subscription import Subscription
from headpond.storage.disk import Disk
from headpond.wire.control.links import PeerInfo
from headpond.wire.control.status import ShowNode, ShowTop, TopInfo, TopLink, TopNode, TopSubscription, TopTopic


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

    def show_top(self, session: Session, ask: ShowTop) -> TopInfo:
        return self.read(ask)

    def read(self, ask: ShowTop) -> TopInfo:
        topics = [topic for topic in self._stores.catalog if _matches(topic, ask.pattern)]
        behind: list[tuple[int, Topic, Subscription]] = []
        lags: dict[bytes, int] = {}
        for topic in topics:
            for subscription in self._stores.subscriptions.of_topic(topic.uuid):
                lag = _lag(topic, subscription)
                behind.append((lag, topic, subscription))
                lags[topic.uuid] = max(lags.get(topic.uuid, 0), lag)
        shown = nlargest(ask.limit, behind, key=lambda item: item[0])
        busiest = nlargest(ask.limit, topics, key=lambda topic: (lags.get(topic.uuid, 0), _written(topic)))
        return TopInfo(
            node=self._node(),
            topics=[_topic(topic, lags.get(topic.uuid, 0)) for topic in busiest],
            subscriptions=[_subscription(lag, topic, one, self._stores.runs) for lag, topic, one in shown],
            topics_left_out=len(topics) - len(busiest),
            subscriptions_left_out=len(behind) - len(shown),
            links=[_link(each) for each in self._links()],
        )

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
    return sum(
        max(0, shard.log.entry_durable - cursor.cursor) - len(cursor.settled)
        for shard, cursor in zip(topic.shards, subscription.cursors, strict=True)
    )


def _written(topic: Topic) -> int:
    return sum(shard.log.bytes_written for shard in topic.shards)


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


def _subscription(lag: int, topic: Topic, subscription: Subscription, runs: Runs) -> TopSubscription:
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
    )
