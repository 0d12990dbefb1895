"""The last hour of a node: a reading every ten seconds, kept in memory, for plots.

A reading has the node, its links, and at most ``ROWS`` topics and subscriptions, the busiest and the furthest
behind: so an hour takes a few MiB, however many topics there are. A restart begins an empty history.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass

from headpond.shapes.convert import iso_time
from headpond.shapes.top import (
    HistoryShape,
    Hop,
    Rate,
    Series,
    consumer_hop,
    link_hop,
    producer_hop,
    sample,
)
from headpond.wire.control.status import ShowTop, TopInfo

logger = logging.getLogger("headpond.http")

STEP_S = 10.0
READINGS_MAX = 360
ROWS = 50

Numbers = dict[str, Rate]


@dataclass(frozen=True, slots=True)
class Reading:
    at_us: int
    node: Numbers
    topics: dict[str, Numbers]
    subscriptions: dict[str, dict[str, Numbers]]
    """By topic and name."""
    links: dict[str, Numbers]


class History:
    def __init__(self, read: Callable[[ShowTop], Awaitable[TopInfo]], now_us: Callable[[], int]) -> None:
        self._read = read
        self._now_us = now_us
        self._before: TopInfo | None = None
        self._readings: deque[Reading] = deque(maxlen=READINGS_MAX)
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._read_on())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()

    async def _read_on(self) -> None:
        while True:
            try:
                await self.take()
            except Exception:
                logger.exception("a reading of the node for its history failed")
            await asyncio.sleep(STEP_S)

    async def take(self) -> None:
        """Takes a reading now. The first one only starts the rates."""
        now = await self._read(ShowTop("", ROWS))
        if self._before is not None:
            self._readings.append(_reading(self._now_us(), self._before, now))
        self._before = now

    def show(self, topic: str | None = None) -> HistoryShape:
        """The node and its links; with a topic that one too, and its subscriptions."""
        readings = self._readings
        topics = [topic] if topic is not None else []
        names = sorted(
            {name for each in readings for top in topics for name in each.subscriptions.get(top, {})}
        )
        links = sorted({name for each in readings for name in each.links})
        return {
            "step_s": STEP_S,
            "at": [iso_time(each.at_us) for each in readings],
            "node": _series(each.node for each in readings),
            "topics": {name: _series(each.topics.get(name, {}) for each in readings) for name in topics},
            "subscriptions": {
                f"{top}/{name}": _series(each.subscriptions.get(top, {}).get(name, {}) for each in readings)
                for top in topics
                for name in names
            },
            "links": {name: _series(each.links.get(name, {}) for each in readings) for name in links},
        }


def _reading(at_us: int, before: TopInfo, now: TopInfo) -> Reading:
    rates, node = sample(before, now), now.node
    subscriptions: dict[str, dict[str, Numbers]] = {}
    for row in rates.subscriptions:
        one = row.now
        subscriptions.setdefault(one.topic, {})[one.subscription] = {
            "delivered_s": row.delivered_s,
            "settled_s": row.settled_s,
            "lag": one.lag,
            "in_flight": one.in_flight,
            **_hop(consumer_hop(one)),
        }
    return Reading(
        at_us,
        {
            "stored_s": rates.stored_s,
            "delivered_s": rates.delivered_s,
            "cpu": rates.cpu,
            "rss_bytes": node.rss_bytes,
            "disk_free_bytes": node.disk_free_bytes,
            "connections": node.connections,
            "unacked_bytes": node.unacked_bytes,
        },
        {
            row.now.topic: {
                "messages_s": row.messages_s,
                "bytes_s": row.bytes_s,
                "lag": row.now.lag,
                **_hop(producer_hop(row.now)),
            }
            for row in rates.topics
        },
        subscriptions,
        {each.link: {"lag": each.lag, **_hop(link_hop(each))} for each in now.links},
    )


def _hop(hop: Hop) -> Numbers:
    reached, unique = hop
    return {"r": reached.value, "ur": unique.value}


def _series(rows: Iterable[Mapping[str, Rate]]) -> Series:
    """One list per name that any row has."""
    found = list(rows)
    names = dict.fromkeys(name for row in found for name in row)
    return {name: [row.get(name) for row in found] for name in names}
