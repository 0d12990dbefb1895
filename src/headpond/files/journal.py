"""Journals: small records that say what changed, replayed when a node starts.

``Journal`` is what the node asks of any place that keeps its records. ``FileJournal`` is the local one,
used for the catalog and for settlements: a folder of generations, of which the last counts (bytes:
journal_file.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from headpond.files.disk import Disk
from headpond.files.frame_write import STATUS_BYTES, FrameWrite
from headpond.files.journal_file import (
    NUMBER_MASK,
    SHARD_HEADER,
    SHARD_RECORD,
    JournalState,
    encode_header,
    file_name,
    recover_journal,
)
from headpond.files.seal import Seal, SealedFile
from headpond.model.errors import StorageFailed
from headpond.wire.frame import FrameType, encode

RESERVE_BYTES = 1024 * 1024


class Write(Protocol):
    """What was staged, on its way to the disk."""

    def run(self, disk: Disk) -> None: ...


class Journal(Protocol):
    """Records in order, fenced by the writer's epoch, read again from the latest snapshot on.

    Nothing above this may assume local files: records come back in the order they were committed, and that
    is all there is to know of their place.
    """

    @property
    def epoch(self) -> int:
        """Raised with every writer; what an older one writes after that does not count."""

    @property
    def records(self) -> Iterator[bytes]:
        """Everything stored, from the latest snapshot on, oldest first."""

    def append(self, body: bytes) -> None:
        """Stages a record; it is durable once its write is committed."""

    def take(self) -> Write | None:
        """Hands over what is staged, for one write and one sync."""

    def compact(self, snapshot: Iterable[bytes]) -> None:
        """Stages that ``snapshot`` stands for everything before it, which is then dropped."""


class JournalWrite(FrameWrite):
    """What one ``take`` handed over; ``run(disk)`` writes and syncs it."""

    staged: _Staged


class _Staged:
    """What waits for the next write."""

    __slots__ = ("bodies", "bytes", "generation", "parts", "snapshot_bytes")

    def __init__(self, generation: int | None = None) -> None:
        self.parts: list[bytes] = []
        self.bodies: list[bytes] = []
        self.bytes = 0
        self.generation = generation
        """The generation that this write begins; None where it goes on in the present one."""
        self.snapshot_bytes = 0

    def add(self, frame: bytes) -> None:
        self.parts.append(frame)
        self.bytes += len(frame)


class FileJournal:
    """Opened with ``FileJournal.open``. One thread stages and takes; another may run the write meanwhile."""

    def __init__(self, disk: Disk, folder: str, found: JournalState) -> None:
        self.report = found.report
        self.epoch = found.epoch + 1
        self.size_bytes = found.end if found.generation else 0
        """How long the present generation is, what is under way counted once it is durable."""
        self.snapshot_bytes = 0
        """How long the snapshot was that the present generation began with, as far as that is known."""
        self._disk = disk
        self._folder = folder
        self._generation = found.generation
        self._number = found.number
        self._file = found.file
        self._end = found.end
        self._reserved_bytes = found.file.size() if found.file is not None else 0
        self._status_owed: bytes | None = None
        self._bodies: list[bytes] | None = found.bodies
        self._staged = _Staged(None if found.file is not None and found.generation else found.generation + 1)
        self._headed = False
        """Whether this writer's epoch is in the file, or staged for it."""
        self._failed = False
        self._under_way: JournalWrite | None = None
        if found.report.damaged:  # the records that are left begin a sound generation
            self.compact(found.bodies)
            self._bodies = found.bodies

    @classmethod
    def open(cls, disk: Disk, folder: str, seal: Seal | None = None) -> FileJournal:
        """The journal in ``folder``, recovered; a new one where there is none.

        ``seal`` tells how the node that used the folder left it.
        """
        return cls(disk, folder, recover_journal(disk, folder, seal or Seal()))

    def ensure_file(self) -> None:
        """Stages generation 0 for a journal that has no file: from then on a missing file means a loss.

        The first record begins generation 1.
        """
        if self._file is None and self._generation == 0 and not self._staged.parts:
            self._staged = _Staged(0)
            self._stage_header(self._staged)
            self._headed = False

    @property
    def records(self) -> Iterator[bytes]:
        """Everything stored when the journal was opened. Read before the first append: it is let go of then."""
        assert self._bodies is not None, "the records are gone: something was appended"
        return iter(self._bodies)

    @property
    def staged_bytes(self) -> int:
        return self._staged.bytes

    def append(self, body: bytes) -> None:
        """Stages a record. After ``failed`` a ``compact`` has to come first."""
        if self._failed:
            raise StorageFailed(f"the journal {self._folder} lost a write and needs a snapshot before more")
        self._bodies = None
        if self._staged.generation == 0:
            self._staged = _Staged(1)
        staged = self._staged
        if not self._headed:
            self._stage_header(staged)
        staged.bodies.append(body)
        self._stage_record(staged, body)

    def compact(self, snapshot: Iterable[bytes]) -> None:
        """Stages a new generation that begins with ``snapshot``; the old one goes when it is durable.

        The snapshot stands for everything committed or under way. What is staged and not yet taken follows
        it again in the new generation, so replaying a record whose effect the snapshot has must change
        nothing.
        """
        self._bodies = None
        bodies = self._staged.bodies
        under_way = self._under_way
        newest = under_way.staged.generation if under_way is not None else None
        staged = self._staged = _Staged((newest or self._generation) + 1)
        self._failed = False
        self._number = 0
        self._stage_header(staged)
        for body in snapshot:
            self._stage_record(staged, body)
        staged.snapshot_bytes = staged.bytes
        staged.bodies = bodies
        for body in bodies:
            self._stage_record(staged, body)

    def _stage_header(self, staged: _Staged) -> None:
        generation = staged.generation or self._generation
        header = encode_header(generation, self.epoch)
        staged.add(encode(FrameType.RECORD, header, shard=SHARD_HEADER, segment=self._number & NUMBER_MASK))
        self._headed = True

    def _stage_record(self, staged: _Staged, body: bytes) -> None:
        staged.add(encode(FrameType.RECORD, body, shard=SHARD_RECORD, segment=self._number & NUMBER_MASK))
        self._number += 1

    def take(self) -> JournalWrite | None:
        """Hands over everything staged, or None. One write at a time."""
        assert self._under_way is None, "the write before is not done"
        staged = self._staged
        if not staged.parts:
            return None
        creating = staged.generation is not None
        generation = staged.generation or self._generation
        parts, size, offset = staged.parts, staged.bytes, 0 if creating else self._end
        if self._status_owed is not None and not creating:
            parts, size = [self._status_owed, *parts], size + STATUS_BYTES
        self._status_owed = None
        end = offset + size + STATUS_BYTES
        write = JournalWrite(
            folder=self._folder,
            path=self._path(generation),
            shard=SHARD_RECORD,
            file=None if creating else self._file,
            offset=offset,
            parts=parts,
            size=size,
            end_entry=self._number,
            reserve_to=self._reserve_for(end, generation, reserved=0 if creating else self._reserved_bytes),
            removals=[self._path(self._generation)] if creating and (self._generation or self._file) else (),
        )
        write.staged = staged
        self._under_way = write
        self._staged = _Staged(1 if generation == 0 else None)
        return write

    def _reserve_for(self, end: int, generation: int, *, reserved: int) -> int:
        return 0 if end <= reserved or generation == 0 else -(-end // RESERVE_BYTES) * RESERVE_BYTES

    def committed(self, write: JournalWrite) -> None:
        """The write is durable."""
        assert write is self._under_way
        self._under_way = None
        if write.created:
            if self._file is not None:
                self._file.close()
            assert write.staged.generation is not None
            self._file, self._generation = write.file, write.staged.generation
            self._reserved_bytes = 0
            self.snapshot_bytes = write.staged.snapshot_bytes
        self._reserved_bytes = max(self._reserved_bytes, write.reserve_to)
        self._status_owed = write.status_owed
        self._end = write.end + (0 if write.status_owed is not None else STATUS_BYTES)
        self.size_bytes = self._end if self._generation else 0

    def failed(self, write: JournalWrite, error: OSError) -> None:
        """The write did not become durable; it and what was staged since are dropped.

        The file is not trusted again: the next step is ``compact``, whose generation takes its place.
        """
        assert write is self._under_way
        self._under_way = None
        self._staged = _Staged()
        self._status_owed = None
        if self._file is not None:
            self._file.close()
            self._file = None
        self._failed = True

    def close(self) -> SealedFile | None:
        """Writes what is staged and leaves the file synced, without reserved room; returns how. Does IO.

        With a write under way everything is left as it is: the next opening reads what came of it.
        """
        if self._under_way is not None:
            return None
        write = self.take()
        if write is not None:
            write.run(self._disk)
            self.committed(write)
        self._failed = True
        if self._file is None:
            return None
        self._file.truncate(self._end)
        self._file.sync()
        self._file.close()
        self._file = None
        return SealedFile(self._path(self._generation), self._end, self._number)

    def _path(self, generation: int) -> str:
        return f"{self._folder}/{file_name(generation)}"
