"""The ratios that Headpond wants to reach. They are printed beside what was measured; no test judges them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from bench.peers.kafka import Kafka
from bench.peers.plain_file import PlainFile
from bench.peers.redis_streams import RedisStreams
from bench.peers.rounds import Pair, Spread, figures, ratios
from bench.peers.workloads import METRICS

FILLED_MIN = 10_000_000
"""The goal of memory is for so many messages; a smaller fill says nothing about it."""


class Goal(NamedTuple):
    metric: str
    bound: float
    peer: str = ""
    """The bound is a multiple of this peer's figure; without one, it is a figure of Headpond."""

    @property
    def shown(self) -> str:
        sign = "≤" if METRICS[self.metric].less_is_better else "≥"
        unit = f"× {self.peer}" if self.peer else METRICS[self.metric].unit
        return f"{sign} {self.bound:g} {unit}"

    def measured(self, pairs: Sequence[Pair]) -> Spread | None:
        if self.peer:
            return ratios(pairs, self.metric, self.peer)
        if self.metric == "memory":
            pairs = [pair for pair in pairs if pair.ours.get("filled", 0) >= FILLED_MIN]
        return figures(pairs, self.metric, None)

    def is_reached(self, found: Spread) -> bool:
        """By the median."""
        if METRICS[self.metric].less_is_better:
            return found.median <= self.bound
        return found.median >= self.bound


GOALS = [
    Goal("publish_100", 10, RedisStreams.name),
    Goal("publish_100", 3, Kafka.name),
    Goal("batch_100", 8, Kafka.name),
    Goal("batch_100", 0.6, PlainFile.name),
    Goal("end_to_end", 10, RedisStreams.name),
    Goal("blocking_p50", 1.0, RedisStreams.name),
    Goal("blocking_p99", 1.0, RedisStreams.name),
    Goal("async_p50", 0.9, RedisStreams.name),
    Goal("async_p99", 0.9, RedisStreams.name),
    Goal("steady_p50", 1.0, RedisStreams.name),
    Goal("steady_p99", 1.0, RedisStreams.name),
    Goal("share_min", 0.8),
    Goal("memory", 300),
]
