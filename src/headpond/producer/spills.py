"""A block's segments in the refill: what the manager knows of its file, and the work for the disk's thread.

A manager never touches its file itself. It hands out jobs, which one thread runs in order; the loop calls
``on_end`` of each when it ended. A job carries its input and its result; only that thread looks into the
``Store``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from headpond.model.errors import HeadpondError, RefillFull, StorageFailed
from headpond.model.identity import SegmentKey
from headpond.model.ranges import RangeSet
from headpond.model.receipt import Fate
from headpond.producer.exchange import Exchange
from headpond.producer.refill.refill import Refill

NOTE_AFTER_S: Final = 0.25
"""How long answers to spilled segments may wait before they are written to the file."""
SPILL_AGAIN_AFTER_S: Final = 1.0

Acks = list[tuple[SegmentKey, str]]
"""Segments that a destination confirmed."""
Refusals = list[tuple[SegmentKey, str, str, str]]
"""Segments that a destination refused for good, with code and message."""


class Budget:
    """The bytes that all refill files of a producer may take."""

    def __init__(self, bytes_max: int, used: int = 0) -> None:
        self.bytes_max = bytes_max
        self.used = used

    def check(self, more: int) -> None:
        if self.used + more > self.bytes_max:
            raise RefillFull(f"the refill holds {self.used:,} bytes of at most {self.bytes_max:,}")


class Store:
    """A block's refill file, made by the first write."""

    def __init__(self, create: Callable[[], Refill], budget: Budget, refill: Refill | None = None) -> None:
        self._create = create
        self.budget = budget
        self.refill = refill

    def writable(self) -> Refill:
        if self.refill is None:
            self.refill = self._create()
        return self.refill


@dataclass(slots=True)
class Job:
    """Work for the thread of the disk."""

    on_end: Callable[[Any, float], None]
    """The loop calls it with the job and the time, after ``work``."""
    error: HeadpondError | None = field(default=None, init=False)

    def work(self) -> None:
        """Runs on that thread; a failure is left in ``error``."""
        try:
            self.run()
        except HeadpondError as error:
            self.error = error
        except OSError as error:
            self.error = StorageFailed(f"the refill: {error}")

    def run(self) -> None:
        raise NotImplementedError


@dataclass(slots=True)
class Spill(Job):
    """Writes segments that some destination did not take, with a snapshot before each that needs one."""

    store: Store
    segments: list[tuple[SegmentKey, bytes, bytes | None]]
    rejects: Acks
    acked: Acks
    written: list[SegmentKey] = field(default_factory=list)
    uncertain: bool = False
    """Whether the disk may have bytes of segments that count as not written."""

    def run(self) -> None:
        store = self.store
        if self.segments:
            store.budget.check(_size(self.segments[0]))  # before a file is made for nothing
        self.uncertain = True
        refill = store.writable()
        before = refill.size_bytes
        failed: set[int] = set()
        written: list[SegmentKey] = []
        write_failed = False
        try:
            for each in self.segments:
                key, frame, snapshot = each
                if key.shard in failed:
                    continue  # a reader needs the segment that could not be written
                try:
                    store.budget.check(_size(each) + refill.size_bytes - before)
                except HeadpondError as error:
                    failed.add(key.shard)
                    self.error = error
                    continue
                try:
                    if snapshot is not None:
                        refill.write_snapshot(key.shard, snapshot)
                    refill.write_segment(key, frame)
                except HeadpondError as error:
                    failed.add(key.shard)
                    self.error = error
                    write_failed = True
                else:
                    written.append(key)
            for key, destination in self.rejects:
                refill.reject(key, destination)
            for key, destination in self.acked:
                refill.ack(key, destination)
            refill.write_statuses()
            refill.sync()
            self.written, self.uncertain = written, write_failed
        finally:
            store.budget.used += refill.size_bytes - before


def _size(segment: tuple[SegmentKey, bytes, bytes | None]) -> int:
    return len(segment[1]) + len(segment[2] or b"")


@dataclass(slots=True)
class Read(Job):
    """Reads frames from ``key`` on; with ``restore`` also what makes the decoder of a typed topic ready for it.

    It stops before a segment that has a snapshot: an encoder began there, perhaps with other dictionaries.
    """

    store: Store
    key: SegmentKey
    bytes_max: int
    restore: bool
    snapshot: bytes | None = None
    frames: list[bytes] = field(default_factory=list)
    stopped_at: int | None = None
    """The segment whose snapshot ended the reading."""

    def run(self) -> None:
        refill = self.store.refill
        assert refill is not None, "the file of a segment that is read exists"
        first = self.key.segment
        if self.restore:
            self.snapshot, first = refill.restore_from(self.key)
        frames = refill.read(SegmentKey(self.key.shard, first), self.bytes_max)
        snapshots = refill.index.snapshots(self.key.shard)
        self.stopped_at = next((at for at in snapshots if first < at <= first + len(frames)), None)
        self.frames = frames if self.stopped_at is None else frames[: self.stopped_at - first]


@dataclass(slots=True)
class Note(Job):
    """Writes to the file which segments destinations confirmed and refused."""

    store: Store
    acked: Acks
    refused: Refusals

    def run(self) -> None:
        refill = self.store.refill
        if refill is None:
            return
        before = refill.size_bytes
        _apply(refill, self.acked, self.refused)
        refill.write_statuses()
        self.store.budget.used += refill.size_bytes - before


@dataclass(slots=True)
class RollBack(Job):
    """Removes the bytes of failed spills from the disk, so that the file holds exactly the written segments."""

    store: Store

    def run(self) -> None:
        if self.store.refill is not None:
            self.store.refill.roll_back()


@dataclass(slots=True)
class Finish(Job):
    """Ends a file: removes it if every destination has all of it, else closes it in good order.

    The producer promised that spilled segments arrive. So a file with segments that a destination refused for
    good stays too, until somebody drops it.
    """

    store: Store
    acked: Acks
    refused: Refusals
    segments_next: dict[int, int] | None
    """For a block that may be continued: the next segment of every shard."""
    left_path: str | None = None
    """The file, if it stays."""

    def run(self) -> None:
        store = self.store
        refill, store.refill = store.refill, None
        if refill is None:
            return
        before = refill.size_bytes
        self.left_path = refill.path
        try:
            _apply(refill, self.acked, self.refused)
            if refill.done() and not refill.claims.refused_there:
                refill.remove()
                self.left_path = None
                store.budget.used -= before
                return
            refill.close(self.segments_next)
            store.budget.used += refill.size_bytes - before
        finally:
            refill.release()


def _apply(refill: Refill, acked: Acks, refused: Refusals) -> None:
    for key, destination, code, message in refused:
        refill.reject(key, destination, code, message)
    for key, destination in acked:
        refill.ack(key, destination)


class Spills:
    def __init__(
        self,
        store: Store | None,
        exchange: Exchange,
        ranges: dict[int, RangeSet],
        names: frozenset[str],
    ) -> None:
        """``store`` None: there is no file, and nothing is ever spilled."""
        self.store = store
        self.ranges = ranges
        """By shard: the segments in the file."""
        self.names = names
        """The destinations that the file is for."""
        self.count = 0
        """Segments ever written."""
        self.error: HeadpondError | None = None
        """Why the refill takes nothing at present."""
        self.lost: list[str] = []
        """Segments that can no longer be sent, and why, for a person."""
        self.refused: dict[tuple[str, str], str] = {}
        """By destination and code: why the destination refused segments of the file for good."""
        self.left_path: str | None = None
        """The file, if it stayed."""
        self.finishing = False
        self.writing: set[SegmentKey] = set()
        self.uncertain = False
        """Whether the disk may have bytes of segments that count as not written."""
        self.rolling_back = False
        self.again_at = inf
        """When to try again after the refill refused."""
        self.note_at = inf
        """When the next note is due."""
        self._exchange = exchange
        self._next: dict[int, int] = {}
        """By shard: the segment that follows the last written one."""
        self._acked: Acks = []
        """Answers for the next note."""
        self._refused: Refusals = []

    def __contains__(self, key: SegmentKey) -> bool:
        ranges = self.ranges.get(key.shard)
        return key in self.writing or (ranges is not None and key.segment in ranges)

    def first_between(self, shard: int, start: int, end: int) -> int | None:
        """The first segment of ``[start, end)`` in the file."""
        ranges = self.ranges.get(shard)
        found = ranges.overlap(start, end) if ranges is not None else []
        return found[0][0] if found else None

    # --- answers ------------------------------------------------------------------------------------------

    def answered(self, key: SegmentKey, fate: Fate, now: float) -> None:
        """A destination confirmed or refused a segment; if the file has it, a note follows."""
        name = fate.destination
        if name not in self.names or key not in self:
            return
        if fate.error is not None:
            self._refused.append((key, name, fate.error.code, fate.error.message))
            self.refused.setdefault((name, fate.error.code), fate.error.message)
        else:
            self._acked.append((key, name))
        self.note_at = min(self.note_at, now + NOTE_AFTER_S)

    def lose(self, key: SegmentKey, error: HeadpondError) -> None:
        """The segment can no longer be read."""
        self.lost.append(f"segment {key.segment} of shard {key.shard} cannot be sent: {error.message}")
        if key.shard in self.ranges:
            self.ranges[key.shard].discard(key.segment, key.segment + 1)

    def wake(self, now: float) -> Note | None:
        if self.again_at <= now:
            self.again_at = inf
        if self.note_at > now:
            return None
        self.note_at = inf
        if not self.ranges or self.finishing:
            return None
        return Note(_noted, self._file, *self._take_answers())

    def _take_answers(self) -> tuple[Acks, Refusals]:
        acked, refused = self._acked, self._refused
        self._acked, self._refused = [], []
        return acked, refused

    # --- writing ------------------------------------------------------------------------------------------

    @property
    def _file(self) -> Store:
        assert self.store is not None, "segments are spilled where there is a refill"
        return self.store

    def spill(self, snapshot_of: Callable[[SegmentKey], bytes | None]) -> Spill | None:
        """The job that writes the rejected segments, with a snapshot before each that needs one."""
        if self.writing or self.again_at < inf:
            return None
        exchange = self._exchange
        keys = exchange.rejected()
        if not keys:
            self.error = None
            return None
        job = Spill(self._spill_ended, self._file, [], [], [])
        for key in keys:
            frame = exchange.get(key)
            assert isinstance(frame, bytes), "a segment in the refill is not rejected again"
            follows = self._next.get(key.shard) == key.segment
            self._next[key.shard] = key.segment + 1
            job.segments.append((key, frame, None if follows else snapshot_of(key)))
            rejecting, through = exchange.claims(key)
            job.rejects += [(key, exchange.destinations[index]) for index in rejecting]
            job.acked += [(key, exchange.destinations[index]) for index in through]
        self.writing = set(keys)
        return job

    def _spill_ended(self, job: Spill, now: float) -> None:
        self.writing = set()
        self.error = job.error
        for key in job.written:
            self.ranges.setdefault(key.shard, RangeSet()).add(key.segment, key.segment + 1)
        self.count += len(job.written)
        self._exchange.written(job.written)
        self.uncertain = job.uncertain or (self.uncertain and not job.written)
        if job.error is not None:
            self._next.clear()
            self.again_at = now + SPILL_AGAIN_AFTER_S

    def roll_back(self) -> RollBack | None:
        """The job that makes the file certain; None while the disk is given time after an error."""
        if self.again_at < inf:
            return None
        self.rolling_back = True
        return RollBack(self._roll_back_ended, self._file)

    def _roll_back_ended(self, job: RollBack, now: float) -> None:
        self.rolling_back = False
        self.uncertain = job.error is not None
        if job.error is not None:
            self.again_at = now + SPILL_AGAIN_AFTER_S

    def finish(self, segments_next: dict[int, int] | None, on_end: Callable[[Finish, float], None]) -> Finish:
        """The job that ends the file; ``on_end`` calls ``finish_ended``."""
        self.finishing = True
        self.ranges.clear()
        self._next.clear()
        self.note_at = inf
        return Finish(on_end, self._file, *self._take_answers(), segments_next)

    def finish_ended(self, job: Finish) -> None:
        self.finishing = False
        self.left_path = job.left_path
        if job.error is not None:
            self.error = job.error


def _noted(job: Note, now: float) -> None:
    """Nobody waits for a note: the next one repeats what a failed one did not write."""
