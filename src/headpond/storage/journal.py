"""Journals: small records that say what changed, replayed when a node starts. Version 1.

A journal is a folder of generations, of which the last counts. A generation ``00000001.journal`` is a frame
file::

    RECORD  shard 1, the header: version u8 | generation u32 | epoch u64
    RECORD  shard 0, segment = the record's number in this generation (mod 2**32): the caller's bytes
    STATUS  synced length u64 | number of the next record u64, behind every write, as in a log

Each writer begins with a header of its epoch. Records behind a header of an older epoch than one before it do
not count. A journal creates a new generation under another name, syncs and renames it, and only then removes
the one before it; so a generation that recovery finds has a whole beginning. Generation 0 holds a header
alone: every journal of a folder in use has a file, so that recovery notices a missing one.

Recovery reports damage with the numbers of the lost records and continues behind it; the remaining records
begin a new generation. It renames a generation in which it can read nothing to ``.damaged``, and reads the
one before it if that still exists.
"""

from __future__ import annotations

import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, ClassVar

import msgspec

from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import BadFrame, StorageFailed
from headpond.storage.append import NEW_SUFFIX, Appender, Batch, decode_status
from headpond.storage.commit_lane import CommitLane
from headpond.storage.disk import Disk, DiskFile, SalvagedFile, open_salvaged
from headpond.storage.frame_file import Bad, Found
from headpond.storage.recovery import DamageReport, FileDamage, Recovery
from headpond.storage.seal import Seal, SealedFile
from headpond.wire.frame import Frame, FrameType, encode

VERSION = 1
SUFFIX = ".journal"
DAMAGED_SUFFIX = ".damaged"
SHARD_RECORD = 0
SHARD_HEADER = 1
NUMBER_MASK = 0xFFFFFFFF
RESERVE_BYTES = 1024 * 1024
_HEADER = struct.Struct("<BIQ")
encode_change = msgspec.msgpack.Encoder().encode


def file_name(generation: int) -> str:
    return f"{generation:08d}{SUFFIX}"


def encode_header(generation: int, epoch: int) -> bytes:
    return _HEADER.pack(VERSION, generation, epoch)


@dataclass
class JournalState:
    """The state from which a journal starts."""

    report: DamageReport = field(default_factory=DamageReport)
    bodies: list[bytes] = field(default_factory=list)
    generation: int = 0
    epoch: int = 0
    number: int = 0
    """The number of the next record in this generation."""
    file: DiskFile | None = None
    """The last generation; None if the next write begins a new one."""
    end: int = 0


def recover_journal(disk: Disk, folder: str, seal: Seal) -> JournalState:
    """Reads the last generation; removes unfinished ones, and earlier ones when a later one could be read."""
    found = JournalState()
    generations = []
    for name in disk.list(folder):
        digits = name.removesuffix(SUFFIX)
        if digits.isdecimal() and name == file_name(int(digits)):
            generations.append(int(digits))
        elif name.endswith(NEW_SUFFIX):
            disk.remove(f"{folder}/{name}")
    sealed = seal.last_in(folder)
    sealed_generation = -1 if sealed is None else int(sealed.name.removesuffix(SUFFIX))
    found.generation = max([*generations, sealed_generation, 0])
    if sealed is not None and sealed_generation not in generations and found.generation == sealed_generation:
        found.report.damaged.append(
            FileDamage(sealed.name, 0, sealed.bytes, (0, sealed.next), "the file is missing")
        )
    elif not generations and seal.in_use:
        found.report.damaged.append(FileDamage(folder, 0, 0, None, "the journal is missing"))
    if not generations:
        return found
    for generation in sorted(generations, reverse=True):
        _read_generation(disk, folder, generation, found, sealed if generation == sealed_generation else None)
        if found.file is not None:
            break
    disk.sync_folder(folder)  # make the file's name durable before the journal depends on it
    for generation in generations:
        if generation < found.generation:
            with suppress(OSError):
                disk.remove(f"{folder}/{file_name(generation)}")
    found.generation = max(found.generation, sealed_generation)  # the next generation needs a new name
    return found


def _read_generation(
    disk: Disk, folder: str, generation: int, found: JournalState, sealed: SealedFile | None
) -> None:
    path = f"{folder}/{file_name(generation)}"
    file = open_salvaged(disk, path, writable=True)
    _Replay(found, file, file_name(generation), sealed).run()
    if found.file is None:
        file.close()
        disk.rename(path, path + DAMAGED_SUFFIX)
    else:
        found.generation = generation


class _Replay:
    """One generation, frame by frame."""

    def __init__(self, found: JournalState, file: SalvagedFile, name: str, sealed: SealedFile | None) -> None:
        self.found = found
        self.name = name
        self.sealed = sealed
        self.bad: Bad | None = None
        self.fenced = False
        sealed_bytes = 0 if sealed is None else sealed.bytes
        self.recovery = Recovery(file, accept=self._accept, sealed_bytes=sealed_bytes)

    def run(self) -> None:
        found, recovery = self.found, self.recovery
        for item in recovery.items():
            if isinstance(item, Bad):
                self.bad = Bad(self.bad.offset if self.bad else item.offset, item.end)
            elif item.frame.type == FrameType.STATUS:
                status = decode_status(item.frame.body)
                self._expect(max(found.number, status.end_entry) if status is not None else found.number)
            elif item.frame.type == FrameType.RECORD:
                self._take(item)
        if recovery.unreadable:
            records = (0, self.sealed.next) if self.sealed is not None else None
            if self.name == file_name(0):
                records = (0, 0)
            end = recovery.tail.end if recovery.tail is not None else recovery.file.size()
            found.report.damaged.append(FileDamage(self.name, 0, end, records))
            return
        if recovery.tail is not None:
            self._take_tail(recovery.tail)
        found.end = recovery.settle(found.number, cut=not recovery.tail_damaged)
        found.file = recovery.file.inner

    def _take_tail(self, tail: Bad) -> None:
        found, recovery = self.found, self.recovery
        if not recovery.tail_damaged:
            reason = "a torn write, never recorded as synced, is cut off"
            found.report.torn.append(FileDamage(self.name, *tail, (found.number, found.number), reason))
            return
        records: tuple[int, int] | None = None
        if self.sealed is not None:
            records = (found.number, max(found.number, self.sealed.next))
        elif recovery.tail_is_status:
            records = (found.number, found.number)
        found.report.damaged.append(FileDamage(self.name, *tail, records))

    def _accept(self, offset: int, frame: Frame) -> bool:
        """A record behind bad bytes belongs here if its number is ahead, by no more than bytes were skipped."""
        if frame.type == FrameType.STATUS:
            status = decode_status(frame.body)
            return status is not None
        if frame.type != FrameType.RECORD or frame.shard not in (SHARD_RECORD, SHARD_HEADER):
            return False
        return (frame.segment - self.found.number) & NUMBER_MASK <= offset

    def _take(self, item: Found) -> None:
        found, frame = self.found, item.frame
        self._expect(found.number + ((frame.segment - found.number) & NUMBER_MASK))
        if frame.shard == SHARD_HEADER:
            if len(frame.body) == _HEADER.size and frame.body[0] == VERSION:
                epoch = _HEADER.unpack(frame.body)[2]
                self.fenced = epoch < found.epoch
                found.epoch = max(found.epoch, epoch)
            return
        if not self.fenced:
            found.bodies.append(frame.body)
        found.number += 1

    def _expect(self, number: int) -> None:
        """The next record has this number: the records before it were lost in the bad bytes."""
        found = self.found
        if self.bad is not None:
            span = (found.number, number)
            found.report.damaged.append(FileDamage(self.name, self.bad.offset, self.bad.end, span))
            self.bad = None
        found.number = number


class JournalBatch(Batch):
    """Records for one write."""

    generation = 0
    """The generation that it goes to."""
    snapshot_bytes = 0

    def __init__(self) -> None:
        super().__init__()
        self.bodies: list[bytes] = []
        """The appended records, without those of a snapshot."""


class FileJournal:
    """Opened with ``FileJournal.open``. One thread stages and takes; another may run the write meanwhile."""

    def __init__(self, disk: Disk, folder: str, found: JournalState) -> None:
        self.report = found.report
        self.epoch = found.epoch + 1
        self.size_bytes = found.end if found.generation else 0
        """The durable length of the present generation."""
        self.snapshot_bytes = 0
        """The length of the snapshot at the start of the present generation; 0 if unknown."""
        self.appender = Appender(JournalBatch, SHARD_RECORD, _reserve_to)
        self._disk = disk
        self._folder = folder
        self._generation = found.generation
        self._number = found.number
        self._bodies: list[bytes] | None = found.bodies
        self._headed = False
        """Whether the header of this writer's epoch is in the file, or staged."""
        self._failed = False
        if found.file is not None:
            self.appender.resume(self._path(found.generation), found.file, found.end)
        if found.report.damaged:  # the remaining records begin a sound generation
            self.compact(found.bodies)
            self._bodies = found.bodies

    @classmethod
    def open(cls, disk: Disk, folder: str, seal: Seal | None = None) -> FileJournal:
        """Recovers the journal in ``folder``, or begins a new one; ``seal`` is that of the data folder."""
        return cls(disk, folder, recover_journal(disk, folder, seal or Seal()))

    def ensure_file(self) -> None:
        """Stages generation 0 for a journal without a file: from then on a missing file means a loss.

        The first record begins generation 1.
        """
        if not self.appender.path and self._generation == 0 and not self.appender.staged.parts:
            self._begin_generation(0)
            self._headed = False

    @property
    def records(self) -> Iterator[bytes]:
        """All records at the time of opening. Read them before the first append, which releases them."""
        assert self._bodies is not None, "read the records before the first append"
        return iter(self._bodies)

    def append(self, body: bytes) -> None:
        """Stages a record. After ``failed``, call ``compact`` first."""
        if self._failed:
            raise StorageFailed(f"the journal {self._folder} lost a write and needs a snapshot before more")
        self._bodies = None
        batch = self.appender.staged
        if not batch.parts or batch.generation == 0:
            batch = self._begin()
        batch.bodies.append(body)
        self._stage(batch, body)

    def compact(self, snapshot: Iterable[bytes]) -> None:
        """Stages a new generation that begins with ``snapshot``, and replaces the old one once it is durable.

        The snapshot replaces everything committed or under way. Records that are staged and not yet taken
        follow it in the new generation, so replaying a record whose effect is in the snapshot must change
        nothing.
        """
        bodies = self.appender.staged.bodies
        self._bodies = None
        self._failed = False
        self._number = 0
        batch = self._begin_generation(self._newest() + 1)
        for body in snapshot:
            self._stage(batch, body)
        batch.snapshot_bytes = batch.bytes
        batch.bodies = bodies
        for body in bodies:
            self._stage(batch, body)

    def _newest(self) -> int:
        """The present generation, or the one that the write under way begins."""
        under_way = self.appender.under_way
        return self._generation if under_way is None else under_way.generation

    def _begin(self) -> JournalBatch:
        """The batch for the next record: it continues the present generation, if there is one with records."""
        newest = self._newest()
        if newest == 0 or self.appender.end is None:
            return self._begin_generation(newest + 1)
        self.appender.follow()
        batch = self.appender.staged
        batch.generation = newest
        if not self._headed:
            self._stage(batch, encode_header(newest, self.epoch), SHARD_HEADER)
        return batch

    def _begin_generation(self, generation: int) -> JournalBatch:
        """A batch that begins a generation, in place of the staged one."""
        batch = self.appender.staged = JournalBatch()
        batch.generation = generation
        self.appender.begin_file(self._path(generation))
        if self.appender.path:
            batch.removals.append(self._path(generation - 1))
        self._stage(batch, encode_header(generation, self.epoch), SHARD_HEADER)
        return batch

    def _stage(self, batch: JournalBatch, body: bytes, shard: int = SHARD_RECORD) -> None:
        batch.add(encode(FrameType.RECORD, body, shard=shard, segment=self._number & NUMBER_MASK))
        if shard == SHARD_HEADER:
            self._headed = True
        else:
            self._number += 1
        batch.end_entry = self._number

    def take(self) -> JournalBatch | None:
        """Everything staged as one write, or None. One write at a time."""
        return self.appender.take()

    def committed(self, write: JournalBatch) -> None:
        """The write is durable."""
        self.appender.committed(write)
        self._generation = write.generation
        if write.creates:
            self.snapshot_bytes = write.snapshot_bytes
        self.size_bytes = self.appender.durable_end if self._generation else 0

    def failed(self, write: JournalBatch) -> None:
        """The write did not become durable: drops it and everything staged since.

        The journal does not trust the file again: the caller has to ``compact`` into a new generation.
        """
        self.appender.failed(write)
        self._failed = True

    def done(self, write: JournalBatch, error: OSError | None, snapshot: Callable[[], Iterable[bytes]]) -> None:
        """The write ended. After a failure a new generation with the snapshot is staged in its place."""
        if error is None:
            self.committed(write)
        else:
            self.failed(write)
            self.compact(snapshot())

    def is_long(self, bytes_min: int) -> bool:
        """Whether the journal is longer than ``bytes_min``, and far longer than its last snapshot."""
        return self.size_bytes > max(bytes_min, 4 * self.snapshot_bytes)

    def close(self) -> SealedFile | None:
        """Writes what is staged and leaves the file synced, without reserved room. Does IO.

        Returns the entry for the seal. Does nothing while a write is under way: the next opening reads its
        result.
        """
        if self.appender.under_way is not None:
            return None
        write = self.take()
        if write is not None:
            write.run(self._disk)
            self.committed(write)
        there = bool(self.appender.path) and not self._failed
        self._failed = True
        self.appender.finish(self._disk)
        path, end = self.appender.path, self.appender.durable_end
        return SealedFile(path, end, self._number) if there else None

    def _path(self, generation: int) -> str:
        return f"{self._folder}/{file_name(generation)}"


def _reserve_to(batch: JournalBatch, end: int) -> int:
    return -(-end // RESERVE_BYTES) * RESERVE_BYTES if batch.generation else 0


class TableState(ABC):
    """A small table in memory that a journal restores."""

    decoder: ClassVar[msgspec.msgpack.Decoder[Any]]
    """Reads the changes that ``apply`` takes."""

    @abstractmethod
    def apply(self, change: Any) -> object:
        """Makes a change; one whose effect is already there changes nothing."""

    @abstractmethod
    def snapshot(self) -> Iterable[msgspec.Struct]:
        """The whole table as changes."""

    def on_damage(self, *, lost: bool) -> None:  # noqa: B027  (most tables do nothing)
        """Rot has destroyed records (``lost``), or a write was torn that was never acknowledged."""


class JournalTable:
    """A table in memory with a journal behind it: replayed at opening, changed, compacted."""

    def __init__(
        self,
        disk: Disk,
        folder: str,
        state: TableState,
        dirty: dict[CommitLane, None],
        *,
        compact_bytes: int,
        seal: Seal | None = None,
        memory_first: bool = False,
    ) -> None:
        """``memory_first``: the table has a change before the disk has it. A failed write is then repeated as a
        snapshot, and its waiters keep waiting; otherwise they get the error, and the table stays as it was.
        """
        self.journal = FileJournal.open(disk, folder, seal)
        bodies = list(self.journal.records)
        for body in bodies:
            try:
                state.apply(state.decoder.decode(body))
            except UNDECODABLE as error:
                raise BadFrame(f"the journal {folder} has a record that cannot be read: {error}") from error
        self.recovered = [f"{folder}: {line}" for line in self.journal.report.lines()]
        self.journal.ensure_file()
        self.lane = CommitLane(f"the journal {folder}", self.journal.appender, self._wrote, dirty)
        self._state = state
        self._compact_bytes = compact_bytes
        self._memory_first = memory_first
        nothing_left = bool(self.journal.size_bytes) and not bodies  # every file begins with a record
        self.lost = nothing_left or self.journal.report.lost
        """Whether acknowledged records are lost."""
        if self.recovered or nothing_left:
            state.on_damage(lost=self.lost)
            self.compact()

    def note(self, *changes: msgspec.Struct) -> None:
        """Makes changes in memory and stages their records; nobody waits for the disk."""
        for change in changes:
            self._state.apply(change)
        self.stage(*changes)

    def stage(self, *changes: msgspec.Struct) -> None:
        """Stages the records of changes."""
        for change in changes:
            self.journal.append(encode_change(change))
        self.lane.mark()

    def compact(self) -> None:
        """Replaces the records with a snapshot of the table."""
        self.journal.compact(self._snapshot())
        self.lane.mark()

    def compact_if_long(self) -> None:
        """Call it after the waiters of a write: only then does the table agree with the journal."""
        if self.journal.is_long(self._compact_bytes):
            self.compact()

    def _snapshot(self) -> Iterator[bytes]:
        return map(encode_change, self._state.snapshot())

    def _wrote(self, write: JournalBatch, error: OSError | None) -> bool:
        self.journal.done(write, error, self._snapshot)
        return not self._memory_first
