"""What ``/metrics`` shows, for Prometheus: the process, the node, its topics, its subscriptions and its links.

Each hop has its R and UR, from the counts of the ledger: producer to node (``headpond_topic_…``), node to
consumer (``headpond_subscription_…``) and node to node (``headpond_link_…``). Every request reads the node's
counts; nothing is stored between requests.

The names follow Prometheus's rules: base units, ``_total`` for what only grows (and begins at 0 again with the
node), and every metric is there from the start. docs/metrics.md lists them; a test compares it with a node.
"""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from headpond import __version__
from headpond.broker.events import EVENTS, REFUSALS
from headpond.broker.timings import Timings
from headpond.node.garbage import without_collections
from headpond.shapes.top import Hop, consumer_hop, link_hop, producer_hop
from headpond.wire.control.status import TopInfo

Labels = tuple[str, ...]
Rows = Sequence[Any]


class Column(NamedTuple):
    """One metric of rows of the same kind."""

    family: type[CounterMetricFamily | GaugeMetricFamily]
    name: str
    text: str
    read: Callable[[Any], float | None]


def _counter(name: str, text: str, field: str = "") -> Column:
    return Column(CounterMetricFamily, name, text, attrgetter(field or name))


def _gauge(name: str, text: str, field: str = "") -> Column:
    return Column(GaugeMetricFamily, name, text, attrgetter(field or name))


def _seconds(name: str, text: str, field: str) -> Column:
    return Column(GaugeMetricFamily, name, text, lambda row: getattr(row, field) / 1e6)


NODE = (
    _counter("messages_stored", "Messages stored."),
    _counter("messages_delivered", "Messages delivered."),
    _gauge("connections", "Connections that are open."),
    _gauge("topics", "Topics."),
    _gauge("subscriptions", "Subscriptions."),
    _gauge("unacked_bytes", "Bytes of segments received and not yet acknowledged."),
    _gauge("disk_free_bytes", "Free bytes on the node's disk."),
    _gauge("disk_full", "1 while the node refuses sends for lack of space."),
    _gauge("rss_bytes", "Memory of the process."),
    _seconds("uptime_seconds", "Since it was started.", "uptime_us"),
)
TOPIC = (
    _counter("messages_in", "Entries assigned since the topic was created."),
    _counter("written_bytes", "Bytes written to its logs.", "bytes_in"),
    _counter("announced", "Segments that its producers made, as far as the node knows."),
    _counter("segments", "Segments of producers that are stored."),
    _counter("duplicates", "Segments that arrived again and were not stored again."),
    _gauge("stored", "Entries that are stored."),
    _gauge("bytes", "Bytes that are stored."),
    _gauge("lag", "Unsettled entries of the subscription that is furthest behind."),
)
SUBSCRIPTION = (
    _counter("delivered", "Messages delivered."),
    _counter("settled", "Entries settled."),
    _counter("redelivered", "Messages redelivered."),
    _counter("copies", "Deliveries that consumers opened, since the node last crashed."),
    _counter("first_copies", "Those of them that were not repeats."),
    _gauge("lag", "Entries that are not settled."),
    _seconds(
        "oldest_age_seconds",
        "How long ago its oldest unsettled message was stored, or up to a quarter more.",
        "oldest_age_us",
    ),
    _gauge("in_flight", "Entries that consumers hold."),
    _gauge("unacked", "Entries that a consumer got and did not settle, and that await redelivery."),
    _gauge("dead", "Entries that reached their maximum of attempts."),
    _gauge("consumers", "Consumers that are connected."),
    _gauge("paused", "1 while it is paused."),
    _gauge("entries", "Entries from its start to the end of the log."),
    _gauge("reached", "Entries that a consumer got at least once."),
)
LINK = (
    _counter("messages", "Messages copied."),
    _counter("records", "Records copied."),
    _counter("duplicates", "Records that arrived again and were not stored again."),
    Column(
        GaugeMetricFamily,
        "up",
        "1 while it is connected.",
        lambda link: link.state in ("connected", "catching up"),
    ),
    _gauge("lag", "Messages that the other node does not have yet."),
    _seconds(
        "lag_seconds", "For how long it has lacked something, or had no connection; else 0.", "lacking_us"
    ),
    _gauge("refused", "Topics that it cannot copy."),
)
HTTP = {
    "connections": "Connections that are open.",
    "requests": "Requests under way.",
    "bodies_bytes": "Bodies of requests in memory.",
    "answers_bytes": "Answers that clients have not read yet.",
    "consumers": "Consumers held between fetches.",
}
HTTP_COUNTERS = {
    "refused": "Requests refused because there were too many.",
    "hung_up": "Clients that disconnected before their answer.",
}
TIMINGS = {
    "sync": "A write and its sync, of one file or of a round of many; in a cluster until the stream has it.",
    "publish": "From the arrival of a segment to its acknowledgement.",
    "delivery": "From the arrival of a segment to its first delivery to a consumer of a subscription.",
    "end_to_end": "From a message's sent_at to its acknowledgement by a consumer, for a sample of at most 20 a"
    " second. It includes the difference between the clocks of the producer and the node.",
}


class BuildReading(Collector):
    def collect(self) -> Iterator[Metric]:
        build = GaugeMetricFamily(
            "headpond_build_info", "Always 1; its labels have the versions.", labels=["version", "python"]
        )
        build.add_metric([__version__, platform.python_version()], 1.0)
        yield build


class NodeReadings(Collector):
    """One reading of a node, as Prometheus's families."""

    def __init__(
        self, top: TopInfo, counters: Mapping[str, Any], http: Mapping[str, int], timings: Timings
    ) -> None:
        self._top = top
        self._counters = counters
        self._http = http
        self._timings = timings

    def collect(self) -> Iterator[Metric]:
        top = self._top
        yield from _columns("headpond_node", (), [top.node], NODE)
        if top.node.cpu_us is not None:
            cpu_s = top.node.cpu_us / 1e6
            yield CounterMetricFamily("headpond_node_cpu_seconds", "Processor time used.", cpu_s)
        yield from self._events()
        for name, text in TIMINGS.items():
            found = getattr(self._timings, name)
            yield HistogramMetricFamily(f"headpond_{name}_seconds", text, found.buckets, found.sum_s)
        for prefix, labels, rows, columns, hop in (
            ("headpond_topic", ("topic",), top.topics, TOPIC, producer_hop),
            ("headpond_subscription", ("topic", "subscription"), top.subscriptions, SUBSCRIPTION, consumer_hop),
            ("headpond_link", ("link",), top.links, LINK, link_hop),
        ):
            yield from _columns(prefix, labels, rows, columns)
            yield from _hop(prefix, labels, rows, hop)
        for what in ("topics_left_out", "subscriptions_left_out"):
            text = "Rows that this page leaves out: it has the 1,000 busiest, or furthest behind."
            yield GaugeMetricFamily(f"headpond_{what}", text, getattr(top, what))
        for name, text in HTTP.items():
            yield GaugeMetricFamily(f"headpond_http_{name}", text, self._http[name])
        for name, text in HTTP_COUNTERS.items():
            yield CounterMetricFamily(f"headpond_http_{name}", text, self._http[name])

    def _events(self) -> Iterator[Metric]:
        events = CounterMetricFamily("headpond_node_events", "What happened, by name.", labels=["event"])
        for name, count in sorted((dict.fromkeys(EVENTS, 0) | dict(self._counters)).items()):
            events.add_metric([name], count)
        refusals = CounterMetricFamily(
            "headpond_node_refusals", "What the node refused; the events have the reasons.", labels=["what"]
        )
        for what, prefix in REFUSALS.items():
            counts = [count for name, count in self._counters.items() if name.startswith(prefix)]
            refusals.add_metric([what], sum(counts))
        yield from (events, refusals)


def _columns(prefix: str, labels: Labels, rows: Rows, columns: Sequence[Column]) -> Iterator[Metric]:
    for family, name, text, read in columns:
        made = family(f"{prefix}_{name}", text, labels=labels)
        for row in rows:
            if (value := read(row)) is not None:
                made.add_metric([getattr(row, label) for label in labels], float(value))
        yield made


def _hop(prefix: str, labels: Labels, rows: Rows, hop: Callable[[Any], Hop]) -> Iterator[Metric]:
    """R and UR of a hop; a row in which nothing happened yet has none."""
    reliability = GaugeMetricFamily(f"{prefix}_reliability", "R: the share that arrived.", labels=labels)
    uniqueness = GaugeMetricFamily(
        f"{prefix}_uniqueness", "UR: the share of arrivals that was no repeat.", labels=labels
    )
    for row in rows:
        for family, ratio in zip((reliability, uniqueness), hop(row), strict=True):
            if ratio.value is not None:
                family.add_metric([getattr(row, label) for label in labels], ratio.value)
    yield from (reliability, uniqueness)


def render(*readings: Collector) -> bytes:
    """The page of a process; takes 100 ms with 1,000 topics, so a thread calls it."""
    with without_collections():
        registry = CollectorRegistry(auto_describe=False)
        for each in (BuildReading(), *readings):
            registry.register(each)
        ProcessCollector(registry=registry)
        return generate_latest(registry)
