"""``/metrics`` for Prometheus: the node, its topics, subscriptions and links, for an admin of everything.

Each hop has its R and UR, from the counts of the ledger: producer to node (``headpond_topic_…``), node to
consumer (``headpond_subscription_…``) and node to node (``headpond_link_…``).

Readings are taken when they are asked for; nothing is kept. Topics and subscriptions are at most 1,000 each,
the busiest and the furthest behind; how many were left out is told.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from litestar import Response, get
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from headpond.model.ledger import Ratio
from headpond.node.http.asking import Asked, Called, door_of
from headpond.wire.control.status import ROWS_MAX, TopInfo, TopLink, TopSubscription, TopTopic

Row = TypeVar("Row")
Rates = tuple[Ratio, Ratio]

TOPIC_COUNTERS = {
    "messages_in": "Entries given out, ever.",
    "bytes_in": "Bytes written to its logs in this run.",
}
TOPIC_GAUGES = {
    "stored": "Entries that are kept.",
    "bytes": "Bytes that are kept.",
    "lag": "Unsettled entries of the subscription that is furthest behind.",
    "announced": "Segments that its producers are known to have made.",
    "segments": "Segments of producers that are stored.",
    "duplicates": "Segments that came again and were not stored again.",
}
SUBSCRIPTION_COUNTERS = {
    "delivered": "Messages handed out in this run.",
    "settled": "Entries settled.",
    "redelivered": "Messages handed out again in this run.",
}
SUBSCRIPTION_GAUGES = {
    "lag": "Entries that are not settled.",
    "in_flight": "Entries in a consumer's hands.",
    "unacked": "Entries that a consumer had and did not settle, and that come again.",
    "dead": "Entries that were tried too often.",
    "consumers": "Consumers that are connected.",
    "paused": "1 while it is paused.",
    "entries": "Entries from its start to the end of the log.",
    "reached": "Entries that a consumer was handed at least once.",
    "copies": "Copies handed out and opened, since the node was last killed.",
    "first_copies": "Those of them that were no repeat.",
}
LINK_GAUGES = {
    "lag": "Messages that the other side does not have yet.",
    "refused": "Topics that it cannot bring.",
    "messages": "Messages brought in this run.",
    "records": "Records brought in this run.",
    "duplicates": "Records that came again and were not stored again.",
}
NODE_COUNTERS = {
    "messages_stored": "Messages stored in this run.",
    "messages_delivered": "Messages handed out in this run.",
}
NODE_GAUGES = {
    "connections": "Connections that are open.",
    "topics": "Topics.",
    "subscriptions": "Subscriptions.",
    "unacked_bytes": "Bytes of segments taken in and not answered yet.",
    "disk_free_bytes": "Room on the node's disk.",
    "disk_full": "1 while sends are refused for lack of room.",
    "rss_bytes": "Memory of the process.",
}


class Readings(Collector):
    """One reading of a node, as Prometheus's families."""

    def __init__(self, top: TopInfo, counters: Mapping[str, Any], door: Mapping[str, int]) -> None:
        self._top = top
        self._counters = counters
        self._door = door

    def collect(self) -> Iterator[Metric]:
        node = self._top.node
        yield from _alone("headpond_node", node, NODE_COUNTERS, NODE_GAUGES)
        yield GaugeMetricFamily("headpond_node_uptime_seconds", "Since it was started.", node.uptime_us / 1e6)
        if node.cpu_us is not None:
            yield CounterMetricFamily("headpond_node_cpu_seconds", "Processor time used.", node.cpu_us / 1e6)
        yield from _rows("headpond_topic", ("topic",), self._top.topics, TOPIC_COUNTERS, TOPIC_GAUGES)
        names = ("topic", "subscription")
        many = self._top.subscriptions
        yield from _rows("headpond_subscription", names, many, SUBSCRIPTION_COUNTERS, SUBSCRIPTION_GAUGES)
        links = self._top.links
        yield from _rows("headpond_link", ("link",), links, {}, LINK_GAUGES)
        yield from _hop("headpond_topic", ("topic",), self._top.topics, _producer_hop)
        yield from _hop("headpond_subscription", names, many, _consumer_hop)
        yield from _hop("headpond_link", ("link",), links, _link_hop)
        for what in ("topics_left_out", "subscriptions_left_out"):
            yield GaugeMetricFamily(f"headpond_{what}", "Not told of here.", getattr(self._top, what))
        events = CounterMetricFamily("headpond_node_events", "The node's own counters.", labels=["event"])
        for name, count in sorted(self._counters.items()):
            if isinstance(count, int | float):
                events.add_metric([name], count)
        yield events
        for name, value in self._door.items():
            yield GaugeMetricFamily(f"headpond_http_{name}", "Of the HTTP door.", value)


def _alone(prefix: str, row: Any, counters: Mapping[str, str], gauges: Mapping[str, str]) -> Iterator[Metric]:
    for name, text in counters.items():
        yield CounterMetricFamily(f"{prefix}_{name}", text, getattr(row, name))
    for name, text in gauges.items():
        if (value := getattr(row, name)) is not None:
            yield GaugeMetricFamily(f"{prefix}_{name}", text, value)


def _rows(
    prefix: str,
    labels: tuple[str, ...],
    rows: list[Any],
    counters: Mapping[str, str],
    gauges: Mapping[str, str],
) -> Iterator[Metric]:
    for family, texts in ((CounterMetricFamily, counters), (GaugeMetricFamily, gauges)):
        for name, text in texts.items():
            made = family(f"{prefix}_{name}", text, labels=labels)
            for row in rows:
                made.add_metric([getattr(row, label) for label in labels], float(getattr(row, name)))
            yield made


def _hop(
    prefix: str, labels: tuple[str, ...], rows: list[Row], rates: Callable[[Row], Rates]
) -> Iterator[Metric]:
    """R and UR of a hop; a row in which nothing happened yet has none."""
    reliability = GaugeMetricFamily(f"{prefix}_reliability", "R: the share that arrived.", labels=labels)
    uniqueness = GaugeMetricFamily(
        f"{prefix}_uniqueness", "UR: the share of arrivals that was no repeat.", labels=labels
    )
    for row in rows:
        for family, ratio in zip((reliability, uniqueness), rates(row), strict=True):
            if ratio.value is not None:
                family.add_metric([getattr(row, label) for label in labels], ratio.value)
    yield from (reliability, uniqueness)


def _producer_hop(topic: TopTopic) -> Rates:
    stored = topic.segments
    return Ratio(stored, topic.announced), Ratio(stored, stored + topic.duplicates)


def _consumer_hop(subscription: TopSubscription) -> Rates:
    reached = Ratio(subscription.reached, subscription.entries)
    return reached, Ratio(subscription.first_copies, subscription.copies)


def _link_hop(link: TopLink) -> Rates:
    brought = Ratio(link.messages, link.messages + link.lag)
    return brought, Ratio(link.records, link.records + link.duplicates)


@get("/metrics", media_type="text/plain", tags=["health"])
async def metrics(request: Asked, caller: Called) -> Response[bytes]:
    """The node's counters, its topics and its subscriptions, for Prometheus."""
    top = await caller.client.admin.top(limit=ROWS_MAX)
    counters = dict(await caller.client.admin.show_node()).get("counters", {})
    door = door_of(request)
    own = {
        "connections": door.connections,
        "requests": door.gate.requests,
        "bodies_bytes": door.gate.bodies_bytes,
        "answers_bytes": door.gate.answers.bytes,
        "refused": door.gate.refused,
        "hung_up": door.gate.hung_up,
        "consumers": door.callers.consumers,
    }
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Readings(top, counters, own))
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


ROUTES = [metrics]
