"""The log line about entries that a read did not find: once for each span, with the reason."""

from __future__ import annotations

import logging

from headpond.broker.catalog.topics import Catalog
from headpond.broker.effects import Fetch

logger = logging.getLogger("headpond.node")

SPANS_MAX = 1000


class LossLog:
    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._logged: set[tuple[str, int, int, int]] = set()
        """Topic, shard, start and end."""

    def write(self, fetch: Fetch, lost: list[tuple[int, int]]) -> None:
        topic = self._catalog.by_uuid(fetch.topic)
        if topic is None:
            return
        kept = topic.shards[fetch.shard].log.entry_first
        for start, end in lost:
            span = (topic.shown, fetch.shard, start, end)
            if span in self._logged:
                continue
            if len(self._logged) >= SPANS_MAX:
                self._logged.clear()
            self._logged.add(span)
            where = f"topic {topic.shown}, shard {fetch.shard}"
            if start < kept:
                logger.info("%s: retention dropped entries %d to %d", where, start, min(end, kept) - 1)
            if kept < end:
                first = max(start, kept)
                logger.error("%s: entries %d to %d are damaged or missing", where, first, end - 1)
