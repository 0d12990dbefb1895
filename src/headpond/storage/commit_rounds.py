"""Rounds: the writes of many busy logs become durable with one sync.

A few busy logs are synced separately and in parallel, which is fastest for them. If more logs have something to
write, all of it goes into the commit journal (commit_journal.py) with one write and one sync, then into the
logs without a sync. When a generation of the journal is full, a checkpoint syncs the logs that it names, in the
background.

The shell treats ``CommitRounds`` and its ``Checkpoint`` like lanes: it takes their write, runs it and reports
its end.

Three rules keep this safe:

1. A generation is retired only when every file that it names was synced after its last round.
2. A file in which a write or a sync failed is doubtful: the checkpoint writes the journal's bytes to it again.
3. A log file that the journal names is not replaced by another of the same name before a checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from headpond.storage.append import STATUS_BYTES, Batch
from headpond.storage.commit_journal import (
    COMMIT_OVERHEAD_BYTES,
    ROUND_OVERHEAD_BYTES,
    begin_generation,
    begin_round,
    discard,
    encode_commit,
    retire_generation,
    sync_generation,
)
from headpond.storage.commit_lane import CommitLane, Committer
from headpond.storage.disk import Disk, DiskFile
from headpond.storage.seal import SealedFile

WRITE_AGAIN_US = 500_000
"""The pause of a lane after a failed write."""
SHARED_BYTES_MAX = 64 * 1024
"""A longer write gets a separate sync: writing it twice would cost more."""
FULL_MAX = 2
"""How many generations may wait for their checkpoint; past that every log syncs separately."""


@dataclass(eq=False)
class Generation:
    """One file of the commit journal, and the files that it names."""

    number: int
    bytes_max: int
    spare: int | None
    """The retired generation whose file it reuses."""
    at: int = 0
    paths: set[str] = field(default_factory=set)
    doubtful: set[str] = field(default_factory=set)
    synced: bool = False
    waits_for: set[Committer] = field(default_factory=set)
    retires: bool = False
    """All that it has is durable in the files that it names: no later failure takes that away."""
    broken: bool = False
    """Whether a write to it failed: its file is not reused."""
    file: DiskFile | None = None

    def write(self, disk: Disk, frames: list[bytes]) -> None:
        if self.file is None:
            self.file = begin_generation(disk, self.number, self.bytes_max, self.spare)
        self.file.write_at(self.at, frames)
        self.file.sync()

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None


class CheckpointWrite:
    """Syncs the files of a full generation, or retires a generation whose files are synced."""

    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.retires = generation.retires = generation.retires or generation.synced
        self.doubtful = frozenset(generation.doubtful)
        self.written_again: set[str] = set()

    def run(self, disk: Disk) -> None:
        generation = self.generation
        if self.retires:
            retire_generation(disk, generation.number, None if generation.broken else generation.at)
        else:
            self.written_again = sync_generation(disk, generation.number, generation.paths, self.doubtful)


class Checkpoint:
    """Syncs the logs themselves, so that the room of a full generation can be used again; the oldest first.

    A generation that is full goes through three states::

        full      its logs have to be synced; the doubtful ones are written again from it first
        synced    all its logs are; it waits until every other write that ran meanwhile has reported its end
        retired   its room is spare

    After a failed sync the system takes bytes for written that are on no disk, and only one of those that sync
    the file may get the error. So a failure makes the file doubtful in every generation. A generation retires
    only when every write that began before its own sync has reported its end.
    """

    name = "a checkpoint of the commit journal"

    def __init__(self, suspect: Callable[[str], None]) -> None:
        """``suspect`` makes a file doubtful in every generation that names it."""
        self.full: list[Generation] = []
        self.spares: list[int] = []
        self.resume_us = 0
        self.busy = False
        self._suspect = suspect

    def add(self, generation: Generation) -> None:
        """A generation that takes no more commits."""
        if generation.at == 0 and not generation.broken:  # it has no file
            self.spares += [] if generation.spare is None else [generation.spare]
            return
        if generation.at == 0:  # it has no commits, and perhaps no file
            generation.paths.clear()
            generation.synced = True
        self.full.append(generation)

    def due(self, now_us: int) -> bool:
        if self.busy or not self.full or self.resume_us > now_us:
            return False
        return not (self.full[0].synced and self.full[0].waits_for)

    def ended(self, committer: Committer) -> None:
        for generation in self.full:
            generation.waits_for.discard(committer)

    def take(self) -> CheckpointWrite:
        self.busy = True
        return CheckpointWrite(self.full[0])

    def done(
        self, write: CheckpointWrite, error: OSError | None, now_us: int, under_way: set[Committer]
    ) -> None:
        """``under_way`` are the committers whose writes may have failed and have not been reported yet."""
        self.busy = False
        generation = write.generation
        if error is not None:
            self.resume_us = now_us + WRITE_AGAIN_US
            generation.broken = generation.broken or write.retires  # it may have its new name
        elif write.retires:
            self.full.remove(generation)
            if not generation.broken:
                self.spares.append(generation.number)
        if not write.retires:
            unknown = generation.doubtful - write.doubtful
            for path in write.written_again if error is None else generation.paths:
                self._suspect(path)
            generation.synced = error is None and not unknown
            generation.waits_for = under_way

    def close(self, disk: Disk) -> None:
        """Syncs everything and removes the journal. Does IO."""
        for generation in self.full:
            sync_generation(disk, generation.number, generation.paths, generation.doubtful)
        discard(disk, [*(generation.number for generation in self.full), *self.spares])
        self.full, self.spares = [], []


@dataclass(eq=False)
class RoundWrite:
    """The writes of all logs in one round."""

    generation: Generation
    writes: list[tuple[CommitLane, Batch]]
    bytes: int = 0
    errors: dict[CommitLane, OSError] = field(default_factory=dict)
    """Logs whose own file could not be written, though the journal has the bytes."""

    def run(self, disk: Disk) -> None:
        """After an ``OSError`` nothing of the round counts, for any log."""
        number, files, commits = self.generation.number, [], []
        finishes: list[tuple[CommitLane, Callable[[Disk], None]]] = []
        for lane, write in self.writes:
            try:
                write.reserve(disk)
            except OSError:
                finishes.append((lane, write.run))  # it may fit without reserved room, or fail alone
                continue
            whole = write.whole()
            finishes.append((lane, partial(write.put, whole)))
            commits.append(encode_commit(number, write.path, write.start, whole))
            files.append(SealedFile(write.path, write.end, write.end_entry))
        if commits:
            frames = [begin_round(number, self.generation.at, files, commits), *commits]
            self.bytes = sum(map(len, frames))
            self.generation.write(disk, frames)
        for lane, finish in finishes:
            try:
                finish(disk)
            except OSError as error:
                self.errors[lane] = error


class CommitRounds:
    name = "the commit journal"

    def __init__(self, *, generation_bytes: int, alone_max: int, clock_us: Callable[[], int]) -> None:
        """Up to ``alone_max`` logs are written at a time with separate syncs; more share a round."""
        self.checkpoint = Checkpoint(self.suspect)
        self.alone: set[CommitLane] = set()
        """Logs with a separate write under way."""
        self.rounds = 0
        """How many rounds were written."""
        self._generation_bytes = generation_bytes
        self._alone_max = alone_max
        self._clock_us = clock_us
        self._numbers = 0
        self._active: Generation | None = None
        self.waiting: dict[CommitLane, None] = {}
        """Logs that wait for the end of the round under way."""
        self._held: list[CommitLane] = []
        """Logs that wait for a checkpoint."""
        self._planned: list[CommitLane] = []
        self._under_way: RoundWrite | None = None
        self._close_wanted = False

    # --- choosing -----------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether ``choose`` may find something to write without another ready lane."""
        return bool(self._held or self.waiting or self.checkpoint.full)

    def choose(self, ready: list[CommitLane]) -> list[Committer]:
        """The committers to write now, out of the ready lanes; the others wait here."""
        chosen: list[Committer] = []
        if self._held:  # their checkpoint may be done
            ready, self._held = list(dict.fromkeys((*self._held, *ready))), []
        for lane in ready:
            appender = lane.appender
            batch = appender.staged
            if not lane.shares:
                chosen.append(lane)
            elif batch.creates and self._names(batch.path):
                self._held.append(lane)
                self._close_active()
            elif batch.creates or batch.bytes > SHARED_BYTES_MAX or not (appender.sync and appender.proven):
                self.waiting.pop(lane, None)
                chosen.append(lane)
                self.alone.add(lane)
            else:
                self.waiting[lane] = None
        if self.waiting and self._under_way is None:
            chosen += self._choose_shared()
        if self.checkpoint.full and self.checkpoint.due(self._clock_us()):
            chosen.append(self.checkpoint)
        return chosen

    def _choose_shared(self) -> list[Committer]:
        """Writes few logs separately, many in a round."""
        lanes = list(self.waiting)
        self.waiting.clear()
        if len(self.alone) + len(lanes) > self._alone_max and self._have_room(lanes[0]):
            self._planned = lanes
            return [self]
        self.alone.update(lanes)
        return list(lanes)

    def _names(self, path: str) -> bool:
        """Whether the journal has commits for a file."""
        return any(path in generation.paths for generation in self._live())

    def _live(self) -> list[Generation]:
        return [*self.checkpoint.full, *([self._active] if self._active is not None else [])]

    def _have_room(self, lane: CommitLane) -> bool:
        """Whether a generation has room for at least the first lane."""
        size = ROUND_OVERHEAD_BYTES + _bytes_of(lane)
        if size > self._generation_bytes:
            return False
        if self._active is not None and self._active.at + size > self._active.bytes_max:
            self._close_active()
        if self._active is None and len(self.checkpoint.full) < FULL_MAX:
            self._numbers += 1
            spares = self.checkpoint.spares
            spare = spares.pop() if spares else None
            self._active = Generation(self._numbers, self._generation_bytes, spare)
        return self._active is not None

    def _close_active(self) -> None:
        """Closes the active generation; its checkpoint is due."""
        if self._under_way is not None:
            self._close_wanted = True
        elif self._active is not None:
            generation, self._active = self._active, None
            generation.close()
            self.checkpoint.add(generation)

    # --- writing ------------------------------------------------------------------------------------

    def take(self) -> RoundWrite:
        generation = self._active
        assert generation is not None and self._under_way is None, "no round was planned"
        writes: list[tuple[CommitLane, Batch]] = []
        room = generation.bytes_max - generation.at - ROUND_OVERHEAD_BYTES
        for lane in self._planned:
            room -= _bytes_of(lane)
            if room < 0:
                self.waiting[lane] = None  # the next round takes it
                continue
            write = lane.take()
            assert isinstance(write, Batch)
            writes.append((lane, write))
            generation.paths.add(write.path)
        self._planned = []
        self._under_way = RoundWrite(generation, writes)
        self.rounds += 1
        return self._under_way

    def done(self, write: RoundWrite, error: OSError | None) -> None:
        assert write is self._under_way
        self._under_way = None
        self.checkpoint.ended(self)
        generation = write.generation
        if error is None:
            generation.at += write.bytes
        else:
            generation.broken = True
        if error is not None or self._close_wanted:
            self._close_wanted = False
            self._close_active()

    def drop(self, lane: CommitLane) -> None:
        """The staged bytes of this lane will not be written."""
        self.waiting.pop(lane, None)
        self._held = [other for other in self._held if other is not lane]

    def checkpoint_done(self, write: CheckpointWrite, error: OSError | None) -> None:
        under_way: set[Committer] = {*self.alone, *([self] if self._under_way is not None else [])}
        self.checkpoint.done(write, error, self._clock_us(), under_way)

    def alone_done(self, lane: CommitLane) -> None:
        """A separate write of a log ended."""
        self.alone.discard(lane)
        if self.checkpoint.full:
            self.checkpoint.ended(lane)

    def suspect(self, path: str) -> None:
        """A write or sync of this file failed: bytes that the system shows may be on no disk."""
        for generation in self._live():
            if path in generation.paths:
                generation.doubtful.add(path)
                generation.synced = False

    # --- the end ------------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether a write is under way."""
        return self._under_way is not None or self.checkpoint.busy

    def close(self, disk: Disk) -> None:
        """Syncs all logs and removes the journal. Does IO."""
        if self.busy:
            return  # the next opening finishes it
        self._close_active()
        self.checkpoint.close(disk)


def _bytes_of(lane: CommitLane) -> int:
    """The most bytes that a lane takes in the journal."""
    batch = lane.appender.staged
    return int(batch.bytes) + 2 * STATUS_BYTES + COMMIT_OVERHEAD_BYTES + 2 * len(batch.path.encode())
