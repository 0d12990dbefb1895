"""What a manager wants done on the disk: small pieces of work for one thread, in order.

A manager never touches its refill itself; it hands out jobs and hears of each when it ended. A job has what it
needs and leaves its result in itself. Only the thread that runs jobs looks into the ``Store``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from headpond.model.errors import HeadpondError, RefillFull
from headpond.model.identity import SegmentKey
from headpond.producer.refill.refill import Refill


class Budget:
    """The bytes that all refill files of a producer may take."""

    def __init__(self, bytes_max: int, used: int = 0) -> None:
        self.bytes_max = bytes_max
        self.used = used

    def check(self, more: int) -> None:
        if self.used + more > self.bytes_max:
            raise RefillFull(f"the refill holds {self.used:,} bytes of at most {self.bytes_max:,}")


class Store:
    """A block's refill file, made when something is first written."""

    def __init__(self, create: Callable[[], Refill], budget: Budget, refill: Refill | None = None) -> None:
        self._create = create
        self.budget = budget
        self.refill = refill

    def writable(self) -> Refill:
        if self.refill is None:
            self.refill = self._create()
        return self.refill


class Job(Protocol):
    error: HeadpondError | None

    def run(self, store: Store, /) -> None:
        """Does it; a ``HeadpondError`` may come out, or is left in ``error``."""


@dataclass(slots=True)
class Spill:
    """Segments that some destination did not take, with a snapshot before each that needs one."""

    segments: list[tuple[SegmentKey, bytes, bytes | None]]
    rejects: list[tuple[SegmentKey, str]]
    acked: list[tuple[SegmentKey, str]]
    written: list[SegmentKey] = field(default_factory=list)
    error: HeadpondError | None = None

    def run(self, store: Store) -> None:
        if self.segments:
            store.budget.check(_size(self.segments[0]))  # before a file is made for nothing
        refill = store.writable()
        before = refill.size_bytes
        failed: set[int] = set()
        written: list[SegmentKey] = []
        try:
            for each in self.segments:
                key, frame, snapshot = each
                if key.shard in failed:
                    continue  # what follows a segment that could not be written would not be readable
                try:
                    store.budget.check(_size(each) + refill.size_bytes - before)
                    if snapshot is not None:
                        refill.write_snapshot(key.shard, snapshot)
                    refill.write_segment(key, frame)
                except HeadpondError as error:
                    failed.add(key.shard)
                    self.error = error
                else:
                    written.append(key)
            for key, destination in self.rejects:
                refill.reject(key, destination)
            for key, destination in self.acked:
                refill.ack(key, destination)
            refill.write_statuses()
            refill.sync()
            self.written = written
        finally:
            store.budget.used += refill.size_bytes - before


def _size(segment: tuple[SegmentKey, bytes, bytes | None]) -> int:
    return len(segment[1]) + len(segment[2] or b"")


@dataclass(slots=True)
class Read:
    """Frames from ``key`` on; of a typed topic, with what makes a decoder ready for it if asked for.

    It stops before a segment that has a snapshot: an encoder began there, perhaps with other dictionaries.
    """

    destination: int
    key: SegmentKey
    bytes_max: int
    restore: bool
    snapshot: bytes | None = None
    frames: list[bytes] = field(default_factory=list)
    stopped_at: int | None = None
    """The segment whose snapshot it stopped at."""
    error: HeadpondError | None = None

    def run(self, store: Store) -> None:
        assert store.refill is not None, "what is read was written"
        first = self.key.segment
        if self.restore:
            self.snapshot, first = store.refill.restore_from(self.key)
        frames = store.refill.read(SegmentKey(self.key.shard, first), self.bytes_max)
        snapshots = store.refill.index.snapshots(self.key.shard)
        self.stopped_at = next((at for at in snapshots if first < at <= first + len(frames)), None)
        self.frames = frames if self.stopped_at is None else frames[: self.stopped_at - first]


@dataclass(slots=True)
class Note:
    """Confirmed and refused segments, to be told to the file."""

    acked: list[tuple[SegmentKey, str]]
    refused: list[tuple[SegmentKey, str, str, str]]
    error: HeadpondError | None = None

    def run(self, store: Store) -> None:
        refill = store.refill
        if refill is None:
            return
        before = refill.size_bytes
        _tell(refill, self.acked, self.refused)
        refill.write_statuses()
        store.budget.used += refill.size_bytes - before


@dataclass(slots=True)
class Finish:
    """The end of a file: gone if every destination has all of it, else closed in good order.

    What was spilled was promised to arrive. So a file with segments that a destination refused for good is
    left too, until somebody drops it.
    """

    acked: list[tuple[SegmentKey, str]]
    refused: list[tuple[SegmentKey, str, str, str]]
    segments_next: dict[int, int] | None
    """For a block that may be continued: the next segment of every shard."""
    left_path: str | None = None
    """The file, if it had to be left."""
    error: HeadpondError | None = None

    def run(self, store: Store) -> None:
        refill, store.refill = store.refill, None
        if refill is None:
            return
        before = refill.size_bytes
        self.left_path = refill.path
        try:
            _tell(refill, self.acked, self.refused)
            if refill.done() and not refill.claims.refused_there:
                refill.remove()
                self.left_path = None
                store.budget.used -= before
                return
            refill.close(self.segments_next)
            store.budget.used += refill.size_bytes - before
        finally:
            refill.release()


def _tell(
    refill: Refill, acked: list[tuple[SegmentKey, str]], refused: list[tuple[SegmentKey, str, str, str]]
) -> None:
    for key, destination, code, message in refused:
        refill.reject(key, destination, code, message)
    for key, destination in acked:
        refill.ack(key, destination)
