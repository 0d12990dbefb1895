"""The node itself: ``/livez``, ``/readyz``, ``/metrics``, and below ``/v1`` its node, top, cluster and errors.

``/metrics`` is for Prometheus, and for an admin of everything: the node, its topics, subscriptions and links.
Each hop has its R and UR, from the counts of the ledger: producer to node (``headpond_topic_…``), node to
consumer (``headpond_subscription_…``) and node to node (``headpond_link_…``). Every request reads the node's
counts; nothing is stored between requests. It shows at most 1,000 topics and subscriptions, the busiest and the
furthest behind, and how many it left out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated, Any, TypeVar

from litestar import MediaType, Response, get
from litestar.params import FromPath, QueryParameter
from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.registry import Collector

from headpond.model.errors import CATALOGUE, BadRequest, NoRoute
from headpond.node.http.request import FromCaller, HttpRequest, state_of, topic_name, while_connected
from headpond.node.http.status import answer
from headpond.shapes.convert import ErrorExplained, explained_object
from headpond.shapes.top import (
    HistoryShape,
    Hop,
    Sample,
    consumer_hop,
    link_hop,
    producer_hop,
    sample,
    top_object,
)
from headpond.wire.control.status import (
    ROWS_MAX,
    ShowNode,
    ShowTop,
    TopInfo,
)
from headpond.wire.typed.values import readable

UNREADY = 503


@get("/livez", media_type=MediaType.TEXT, tags=["health"])
async def livez() -> str:
    """The process is there and its loop turns."""
    return "ok\n"


@get("/readyz", media_type=MediaType.TEXT, tags=["health"])
async def readyz(request: HttpRequest) -> Response[Any]:
    """The node takes messages; 503, with the reason, while it stops or its disk is full."""
    hindrance = state_of(request).hindrance()
    return Response("ok\n") if hindrance is None else answer(hindrance, UNREADY)


# --- the node ---------------------------------------------------------------------------------------


@get("/node", tags=["node"])
async def show_node(request: HttpRequest, caller: FromCaller) -> dict[str, Any]:
    """The node's counters, limits and what recovery found."""
    found: dict[str, Any] = readable(await caller.ask(ShowNode()))
    # Only a node of `headpond up` has such a link; the console looks here before it asks for one.
    return found if state_of(request).lossy_link is None else {**found, "lossy_link": True}


@get("/top", tags=["node"])
async def show_top(
    request: HttpRequest,
    caller: FromCaller,
    topic: Annotated[str, QueryParameter(description="Topics of this form alone (* and ?).")] = "",
    limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 50,
    interval: Annotated[
        float, QueryParameter(ge=0.1, le=30, description="Seconds between two readings.")
    ] = 1.0,
) -> dict[str, Any]:
    """Rates and lag, from two readings; the furthest behind come first."""

    async def read() -> Sample:
        before = await caller.ask(ShowTop(topic, limit))
        await asyncio.sleep(interval)
        return sample(before, await caller.ask(ShowTop(topic, limit)))

    found = await while_connected(request, read())
    return {} if found is None else top_object(found)


@get("/history", tags=["node"])
async def show_history(
    request: HttpRequest,
    caller: FromCaller,
    topic: Annotated[
        str, QueryParameter(max_length=1024, description="This topic and its subscriptions too.")
    ] = "",
) -> HistoryShape:
    """The last hour of the node and its links, and of a topic while it is among the 50 busiest."""
    await caller.ask(ShowNode())  # refused unless the caller is an admin of everything
    return state_of(request).history.show(topic_name(topic) if topic else None)


@get("/cluster", tags=["node"])
async def show_cluster(request: HttpRequest, caller: FromCaller) -> dict[str, Any]:
    """The members of the node's group, and its stream; takes a second. A standby answers it too."""
    await caller.ask(ShowNode())  # refused unless the caller is an admin of everything
    cluster = state_of(request).cluster
    if cluster is None:
        raise NoRoute("this node is no member of a cluster", hint="docs/cluster.md has the steps.")
    return await cluster.group()


@get("/errors", tags=["node"])
async def list_errors() -> list[ErrorExplained]:
    """The catalogue of errors."""
    return [explained_object(kind) for _, kind in sorted(CATALOGUE.items())]


@get("/errors/{code:str}", tags=["node"])
async def explain_error(code: FromPath[str]) -> ErrorExplained:
    """What an error means, and what to do next."""
    if code not in CATALOGUE:
        raise BadRequest(f"there is no error {code[:80]!r}", hint="GET /v1/errors lists all there are.")
    return explained_object(CATALOGUE[code])


# --- Prometheus -------------------------------------------------------------------------------------

Row = TypeVar("Row")

TOPIC_COUNTERS = {
    "messages_in": "Entries assigned since the topic was created.",
    "bytes_in": "Bytes written to its logs in this run.",
}
TOPIC_GAUGES = {
    "stored": "Entries that are stored.",
    "bytes": "Bytes that are stored.",
    "lag": "Unsettled entries of the subscription that is furthest behind.",
    "announced": "Segments that its producers made, as far as the node knows.",
    "segments": "Segments of producers that are stored.",
    "duplicates": "Segments that arrived again and were not stored again.",
}
SUBSCRIPTION_COUNTERS = {
    "delivered": "Messages delivered in this run.",
    "settled": "Entries settled.",
    "redelivered": "Messages redelivered in this run.",
}
SUBSCRIPTION_GAUGES = {
    "lag": "Entries that are not settled.",
    "in_flight": "Entries that consumers hold.",
    "unacked": "Entries that a consumer got and did not settle, and that await redelivery.",
    "dead": "Entries that reached their maximum of attempts.",
    "consumers": "Consumers that are connected.",
    "paused": "1 while it is paused.",
    "entries": "Entries from its start to the end of the log.",
    "reached": "Entries that a consumer got at least once.",
    "copies": "Deliveries that consumers opened, since the node last crashed.",
    "first_copies": "Those of them that were not repeats.",
}
LINK_GAUGES = {
    "lag": "Messages that the other node does not have yet.",
    "refused": "Topics that it cannot copy.",
    "messages": "Messages copied in this run.",
    "records": "Records copied in this run.",
    "duplicates": "Records that arrived again and were not stored again.",
}
NODE_COUNTERS = {
    "messages_stored": "Messages stored in this run.",
    "messages_delivered": "Messages delivered in this run.",
}
NODE_GAUGES = {
    "connections": "Connections that are open.",
    "topics": "Topics.",
    "subscriptions": "Subscriptions.",
    "unacked_bytes": "Bytes of segments received and not yet acknowledged.",
    "disk_free_bytes": "Free bytes on the node's disk.",
    "disk_full": "1 while the node refuses sends for lack of space.",
    "rss_bytes": "Memory of the process.",
}


class Readings(Collector):
    """One reading of a node, as Prometheus's families."""

    def __init__(self, top: TopInfo, counters: Mapping[str, Any], http: Mapping[str, int]) -> None:
        self._top = top
        self._counters = counters
        self._http = http

    def collect(self) -> Iterator[Metric]:
        node = self._top.node
        yield from _rows("headpond_node", (), [node], NODE_COUNTERS, NODE_GAUGES)
        yield GaugeMetricFamily("headpond_node_uptime_seconds", "Since it was started.", node.uptime_us / 1e6)
        if node.cpu_us is not None:
            yield CounterMetricFamily("headpond_node_cpu_seconds", "Processor time used.", node.cpu_us / 1e6)
        yield from _rows("headpond_topic", ("topic",), self._top.topics, TOPIC_COUNTERS, TOPIC_GAUGES)
        names = ("topic", "subscription")
        many = self._top.subscriptions
        yield from _rows("headpond_subscription", names, many, SUBSCRIPTION_COUNTERS, SUBSCRIPTION_GAUGES)
        links = self._top.links
        yield from _rows("headpond_link", ("link",), links, {}, LINK_GAUGES)
        yield from _hop("headpond_topic", ("topic",), self._top.topics, producer_hop)
        yield from _hop("headpond_subscription", names, many, consumer_hop)
        yield from _hop("headpond_link", ("link",), links, link_hop)
        for what in ("topics_left_out", "subscriptions_left_out"):
            yield GaugeMetricFamily(
                f"headpond_{what}", "Rows that this page leaves out.", getattr(self._top, what)
            )
        events = CounterMetricFamily("headpond_node_events", "The node's own counters.", labels=["event"])
        for name, count in sorted(self._counters.items()):
            if isinstance(count, int | float):
                events.add_metric([name], count)
        yield events
        for name, value in self._http.items():
            yield GaugeMetricFamily(f"headpond_http_{name}", "Of the HTTP server.", value)


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
                if (value := getattr(row, name)) is not None:
                    made.add_metric([getattr(row, label) for label in labels], float(value))
            yield made


def _hop(
    prefix: str, labels: tuple[str, ...], rows: list[Row], rates: Callable[[Row], Hop]
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


@get("/metrics", media_type="text/plain", tags=["health"])
async def metrics(request: HttpRequest, caller: FromCaller) -> Response[bytes]:
    """The node's counters, its topics and its subscriptions, for Prometheus."""
    top = await caller.ask(ShowTop("", ROWS_MAX))
    counters = (await caller.ask(ShowNode())).get("counters", {})
    registry = CollectorRegistry(auto_describe=False)
    state = state_of(request)
    registry.register(Readings(top, counters, state.gauges()))
    if state.cluster is not None:
        registry.register(await state.cluster.readings())
    return Response(generate_latest(registry), headers={"Content-Type": CONTENT_TYPE_LATEST})
