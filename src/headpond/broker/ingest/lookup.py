"""Old segments of a shard, found in its files by a worker thread: one read at a time, for all that wait."""

from __future__ import annotations

from collections.abc import Callable

from headpond.broker.effects import FindSegments
from headpond.broker.steps import Wait
from headpond.model.errors import StorageFailed
from headpond.storage.log.marks import Stored
from headpond.storage.log.read import ReadResult

SegmentKey = tuple[bytes, int]
"""Block and number."""
Found = dict[SegmentKey, Stored | None]
"""None for a segment that no file has."""


class SegmentLookup:
    def __init__(self, add_effect: Callable[[FindSegments], None], topic: bytes, shard: int) -> None:
        self._add_effect = add_effect
        self._place = (topic, shard)
        self._waiting: list[tuple[list[SegmentKey], Wait[Found]]] = []
        self._busy = False

    def find(self, wanted: list[SegmentKey]) -> Wait[Found]:
        """The value has these segments, and perhaps others."""
        wait: Wait[Found] = Wait()
        self._waiting.append((wanted, wait))
        if not self._busy:
            self._read()
        return wait

    def _read(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._busy = bool(waiting)
        if waiting:
            wanted = [key for keys, _ in waiting for key in keys]
            waits = [wait for _, wait in waiting]
            fetch = FindSegments(*self._place, 0, 0, lambda result: self._end(fetch, waits, result), wanted)
            self._add_effect(fetch)

    def _end(self, fetch: FindSegments, waits: list[Wait[Found]], result: ReadResult | None) -> None:
        for wait in waits:
            if result is None:
                wait.failed(StorageFailed("the node could not read the files of the topic"))
            else:
                wait.done(fetch.found)
        self._read()
