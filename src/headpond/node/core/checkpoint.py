"""The checkpoint of the commit journal: the logs are made durable by themselves, so that its room can be used
again.

A generation that is full goes through three states::

    full      its logs are to be synced; those in doubt are written again from it first
    synced    all its logs were; it waits until every other write that ran meanwhile has told how it ended
    retired   its room is spare

A sync that fails takes bytes for written that are on no disk, and only one of those who sync the file may be
told. So whoever finds a failure puts the file in doubt, and a generation is given up only when nobody can find
one any more that came before its own sync.
"""

from __future__ import annotations

from collections.abc import Callable

from headpond.files.commit_journal import begin_generation, discard, retire_generation, sync_generation
from headpond.files.disk import Disk, DiskFile
from headpond.node.core.commits import Committer

WRITE_AGAIN_US = 500_000
"""How long a lane waits after a failed write before the next."""


class Generation:
    """One file of the commit journal, and whom it speaks of."""

    def __init__(self, number: int, bytes_max: int, spare: int | None) -> None:
        self.number = number
        self.bytes_max = bytes_max
        self.spare = spare
        """The generation whose room it takes."""
        self.at = 0
        self.paths: set[str] = set()
        self.doubtful: set[str] = set()
        self.synced = False
        self.waits_for: set[Committer] = set()
        self.broken = False
        """Whether a write to it failed: its room is not used again."""
        self.file: DiskFile | None = None

    def write(self, disk: Disk, frames: list[bytes]) -> None:
        if self.file is None:
            self.file = begin_generation(disk, self.number, self.bytes_max, self.spare)
        self.file.write_at(self.at, frames)
        self.file.sync()

    def doubt(self, path: str) -> None:
        """A file may lack what it seems to have."""
        self.doubtful.add(path)
        self.synced = False

    def close(self) -> None:
        if self.file is not None:
            self.file.close()
            self.file = None


class SyncWrite:
    def __init__(self, generation: Generation) -> None:
        self.generation = generation
        self.doubtful = frozenset(generation.doubtful)
        self.written_again: set[str] = set()

    def run(self, disk: Disk) -> None:
        generation = self.generation
        self.written_again = sync_generation(disk, generation.number, generation.paths, self.doubtful)


class RetireWrite:
    def __init__(self, generation: Generation) -> None:
        self.generation = generation

    def run(self, disk: Disk) -> None:
        retire_generation(disk, self.generation.number, reuse=not self.generation.broken)


CheckpointWrite = SyncWrite | RetireWrite


class Checkpoint:
    """Looks like a lane to the shell; one generation at a time, the oldest first."""

    name = "a checkpoint of the commit journal"

    def __init__(self, suspect: Callable[[str], None]) -> None:
        """``suspect`` puts a file in doubt, in every generation that speaks of it."""
        self.full: list[Generation] = []
        self.spares: list[int] = []
        self.resume_us = 0
        self.busy = False
        self._suspect = suspect

    def due(self, now_us: int) -> bool:
        if self.busy or not self.full or self.resume_us > now_us:
            return False
        return not (self.full[0].synced and self.full[0].waits_for)

    def ended(self, committer: Committer) -> None:
        for generation in self.full:
            generation.waits_for.discard(committer)

    def take(self) -> CheckpointWrite:
        self.busy = True
        generation = self.full[0]
        return RetireWrite(generation) if generation.synced else SyncWrite(generation)

    def done(
        self, write: CheckpointWrite, error: OSError | None, now_us: int, under_way: set[Committer]
    ) -> None:
        """``under_way`` are those whose writes may have met a failure and have not told yet."""
        self.busy = False
        generation = write.generation
        if error is not None:
            self.resume_us = now_us + WRITE_AGAIN_US
            for path in generation.paths if isinstance(write, SyncWrite) else ():
                self._suspect(path)
        elif isinstance(write, SyncWrite):
            unknown = generation.doubtful - write.doubtful
            for path in write.written_again:
                self._suspect(path)
            generation.synced = not unknown
            generation.waits_for = under_way
        else:
            self.full.remove(generation)
            if not generation.broken:
                self.spares.append(generation.number)

    def close(self, disk: Disk) -> None:
        """Syncs everything and removes the journal. Does IO."""
        for generation in self.full:
            sync_generation(disk, generation.number, generation.paths, generation.doubtful)
        discard(disk, [*(generation.number for generation in self.full), *self.spares])
        self.full, self.spares = [], []
