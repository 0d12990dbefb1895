"""The bytes of a journal's files, and what is read from them. Version 1.

A generation ``00000001.journal`` is a frame file::

    RECORD  shard 1, the header: version u8 | generation u32 | epoch u64
    RECORD  shard 0, segment = the record's number in this generation (mod 2**32): the caller's bytes
    STATUS  synced length u64 | number of the next record u64, behind every write, as in a log

Another header stands where a new writer began; what follows a header of an older epoch than one before it does
not count. A new generation is made under another name, synced and renamed, so one that is found begins whole;
only then is the one before it removed. Damage is reported with the numbers of the records that are lost, and
reading goes on behind it. A generation in which nothing can be read is put aside as ``.damaged``; one before
it is read in its place if it is still there.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.files.disk import Disk, DiskFile
from penstock.files.frame_file import Bad, Found
from penstock.files.frame_write import NEW_SUFFIX, decode_status
from penstock.files.recovery import Recovery
from penstock.files.salvage import SalvagedFile, open_salvaged
from penstock.wire.frame import Frame, FrameType

VERSION = 1
SUFFIX = ".journal"
DAMAGED_SUFFIX = ".damaged"
SHARD_RECORD = 0
SHARD_HEADER = 1
NUMBER_MASK = 0xFFFFFFFF
_HEADER = struct.Struct("<BIQ")


def file_name(generation: int) -> str:
    return f"{generation:08d}{SUFFIX}"


def encode_header(generation: int, epoch: int) -> bytes:
    return _HEADER.pack(VERSION, generation, epoch)


class Lost(NamedTuple):
    """Bytes of a journal that are no frames, and the numbers of the records that stood in them."""

    file: str
    offset: int
    end: int
    records: tuple[int, int]


@dataclass
class JournalReport:
    """What opening a journal found that is not as it was left."""

    torn_bytes: int = 0
    damaged: list[Lost] = field(default_factory=list)

    @property
    def lost(self) -> bool:
        """Whether records are gone that were acknowledged."""
        return any(damage.records[0] < damage.records[1] for damage in self.damaged)

    def lines(self) -> list[str]:
        """For a person; empty where all is well."""
        found = []
        if self.torn_bytes:
            found.append(f"cut off {self.torn_bytes:,} bytes of a journal write that was never acknowledged")
        for damage in self.damaged:
            count = damage.records[1] - damage.records[0]
            lost = f"{count} records are lost" if count else "no record is lost"
            found.append(f"{damage.file}, bytes {damage.offset} to {damage.end}: bytes are damaged; {lost}")
        return found


@dataclass
class JournalState:
    """All that a journal starts from."""

    report: JournalReport = field(default_factory=JournalReport)
    bodies: list[bytes] = field(default_factory=list)
    generation: int = 0
    epoch: int = 0
    number: int = 0
    """Of the next record in this generation."""
    file: DiskFile | None = None
    """The last generation; None where the next write begins a new one."""
    end: int = 0


def recover_journal(disk: Disk, folder: str) -> JournalState:
    """Reads the last generation; removes unfinished ones, and earlier ones when a later one could be read."""
    found = JournalState()
    generations = []
    for name in disk.list(folder):
        digits = name.removesuffix(SUFFIX)
        if digits.isdecimal() and name == file_name(int(digits)):
            generations.append(int(digits))
        elif name.endswith(NEW_SUFFIX):
            disk.remove(f"{folder}/{name}")
    if not generations:
        return found
    found.generation = max(generations)
    for generation in sorted(generations, reverse=True):
        _read_generation(disk, folder, generation, found)
        if found.file is not None:
            found.generation = generation
            break
    disk.sync_folder(folder)  # the file's name is durable before anything is built on it
    for generation in generations:
        if generation < found.generation:
            with suppress(OSError):
                disk.remove(f"{folder}/{file_name(generation)}")
    return found


def _read_generation(disk: Disk, folder: str, generation: int, found: JournalState) -> None:
    path = f"{folder}/{file_name(generation)}"
    file = open_salvaged(disk, path, writable=True)
    _Replay(found, file, file_name(generation)).run()
    if found.file is None:
        file.close()
        disk.rename(path, path + DAMAGED_SUFFIX)


class _Replay:
    """One generation, frame by frame."""

    def __init__(self, found: JournalState, file: SalvagedFile, name: str) -> None:
        self.found = found
        self.name = name
        self.bad: Bad | None = None
        self.fenced = False
        self.recovery = Recovery(file, accept=self._accept)

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
            found.report.damaged.append(Lost(self.name, 0, recovery.bad_bytes, (0, 0)))
            return
        hidden = recovery.bad_at is not None and recovery.hidden_bytes > 0
        if recovery.bad_at is not None and hidden:
            end = recovery.bad_at + recovery.bad_bytes
            found.report.damaged.append(Lost(self.name, recovery.bad_at, end, (found.number, found.number)))
        else:
            found.report.torn_bytes += recovery.bad_bytes
        found.end = recovery.settle(found.number, cut=not hidden)
        found.file = recovery.file.inner

    def _accept(self, offset: int, frame: Frame) -> bool:
        """A record behind bad bytes is ours if its number lies ahead, and not further than bytes allow."""
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
        """The next record's number is known: those between were lost in the bad bytes."""
        found = self.found
        if self.bad is not None:
            span = (found.number, number)
            found.report.damaged.append(Lost(self.name, self.bad.offset, self.bad.end, span))
            self.bad = None
        found.number = number
