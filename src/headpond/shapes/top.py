"""How busy a node is: rates beside the totals that they come from."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypedDict

import msgspec

from headpond.model.ledger import Ratio
from headpond.wire.control.status import TopInfo, TopLink, TopNode, TopSubscription, TopTopic

# A rate is the difference of two readings divided by the time between them. If a total is smaller than before,
# the node was restarted or the topic created again, and there is no rate yet.

Rate = float | None
Hop = tuple[Ratio, Ratio]
"""R and UR: the share that arrived, and the share of arrivals that was no repeat."""


def producer_hop(topic: TopTopic) -> Hop:
    stored = topic.segments
    return Ratio(stored, topic.announced), Ratio(stored, stored + topic.duplicates)


def consumer_hop(subscription: TopSubscription) -> Hop:
    reached = Ratio(subscription.reached, subscription.entries)
    return reached, Ratio(subscription.first_copies, subscription.copies)


def link_hop(link: TopLink) -> Hop:
    brought = Ratio(link.messages, link.messages + link.lag)
    return brought, Ratio(link.records, link.records + link.duplicates)


@dataclass(frozen=True, slots=True)
class TopicRates:
    now: TopTopic
    messages_s: Rate
    bytes_s: Rate


@dataclass(frozen=True, slots=True)
class SubscriptionRates:
    now: TopSubscription
    delivered_s: Rate
    settled_s: Rate


@dataclass(frozen=True, slots=True)
class Sample:
    node: TopNode
    seconds: float
    """Between the two readings."""
    stored_s: Rate
    delivered_s: Rate
    cpu: Rate
    """Of one processor."""
    topics: list[TopicRates]
    subscriptions: list[SubscriptionRates]
    topics_left_out: int
    subscriptions_left_out: int
    links: list[TopLink]


def sample(before: TopInfo, now: TopInfo) -> Sample:
    """Rates between two readings."""
    seconds = (now.node.clock_us - before.node.clock_us) / 1e6
    restarted = now.node.uptime_us < before.node.uptime_us or seconds <= 0

    def rate(earlier: Any, later: Any, total: str) -> Rate:
        first, last = getattr(earlier, total, None), getattr(later, total)
        if restarted or first is None or last is None or last < first:
            return None
        return float((last - first) / seconds)

    topics = {topic.topic: topic for topic in before.topics}
    subscriptions = {(one.topic, one.subscription): one for one in before.subscriptions}
    cpu = rate(before.node, now.node, "cpu_us")
    return Sample(
        node=now.node,
        seconds=max(seconds, 0.0),
        stored_s=rate(before.node, now.node, "messages_stored"),
        delivered_s=rate(before.node, now.node, "messages_delivered"),
        cpu=None if cpu is None else cpu / 1e6,
        topics=[
            TopicRates(
                topic,
                rate(topics.get(topic.topic), topic, "messages_in"),
                rate(topics.get(topic.topic), topic, "bytes_in"),
            )
            for topic in now.topics
        ],
        subscriptions=[
            SubscriptionRates(
                one,
                rate(subscriptions.get((one.topic, one.subscription)), one, "delivered"),
                rate(subscriptions.get((one.topic, one.subscription)), one, "settled"),
            )
            for one in now.subscriptions
        ],
        topics_left_out=now.topics_left_out,
        subscriptions_left_out=now.subscriptions_left_out,
        links=now.links,
    )


def top_object(sample: Sample) -> dict[str, Any]:
    """A sample of two readings."""

    def flat(rows: list[Any]) -> list[dict[str, Any]]:
        return [
            msgspec.structs.asdict(row.now)
            | {name: value for name, value in asdict(row).items() if name != "now"}
            for row in rows
        ]

    def with_hop(rows: list[Any], hops: list[Hop]) -> list[dict[str, Any]]:
        pairs = zip(rows, hops, strict=True)
        return [row | {"r": reached.value, "ur": unique.value} for row, (reached, unique) in pairs]

    rates = {"stored_s": sample.stored_s, "delivered_s": sample.delivered_s, "cpu": sample.cpu}
    return {
        "seconds": sample.seconds,
        "node": msgspec.structs.asdict(sample.node) | rates,
        "topics": with_hop(flat(sample.topics), [producer_hop(row.now) for row in sample.topics]),
        "subscriptions": with_hop(
            flat(sample.subscriptions), [consumer_hop(row.now) for row in sample.subscriptions]
        ),
        "topics_left_out": sample.topics_left_out,
        "subscriptions_left_out": sample.subscriptions_left_out,
        "links": with_hop(
            [msgspec.structs.asdict(link) for link in sample.links], [link_hop(link) for link in sample.links]
        ),
    }


# --- history ----------------------------------------------------------------------------------------

Series = dict[str, list[Rate]]
"""By name of a number: its values, one per time."""


class HistoryShape(TypedDict):
    step_s: float
    """Seconds between two readings."""
    at: list[str]
    """The times of the readings; every list below has one value per time, null where it is unknown."""
    node: Series
    topics: dict[str, Series]
    subscriptions: dict[str, Series]
    """By `TOPIC/SUBSCRIPTION`."""
    links: dict[str, Series]
