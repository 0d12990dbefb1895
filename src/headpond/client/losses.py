"""Entries that will not come: kept, logged, and told to whoever asked to hear of them."""

from __future__ import annotations

import logging
from collections.abc import Callable

from headpond.client.options import LostSpan
from headpond.wire.control import Span

log = logging.getLogger("headpond.client")


class Losses:
    def __init__(self, topic: str, on_lost: Callable[[LostSpan], None] | None) -> None:
        self.spans: list[LostSpan] = []
        self._topic = topic
        self._on_lost = on_lost

    def report(self, shard: int, spans: list[Span], reason: str) -> None:
        for start, end in spans:
            span = LostSpan(shard, start, end, reason)
            self.spans.append(span)
            log.warning("%s: shard %d, entries %d to %d lost: %s", self._topic, shard, start, end - 1, reason)
            if self._on_lost is not None:
                self._on_lost(span)
