"""The bytes of a journal's files, and what is read from them. Version 1.

A generation ``00000001.journal`` is a frame file::

    RECORD  shard 1, the header: version u8 | generation u32 | epoch u64
    RECORD  shard 0, segment = the record's number in this generation (mod 2**32): the caller's bytes
    STATUS  synced length u64 | number of the next record u64, behind every write, as in a log

Another header stands where a new writer began; what follows a header of an older epoch than one before it does
not count. A new generation is made under another name, synced and renamed, so one that is found begins whole;
only then is the one before it removed. Generation 0 holds a header alone: every journal of a folder that is in
use has a file, so that a missing one is noticed. Damage is reported with the numbers of the records that are
lost, and reading goes on behind it; the records that are left begin a new generation. A generation in which
nothing can be read is put aside as ``.damaged``; one before it is read in its place if it is still there.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from headpond.files.disk import Disk, DiskFile
from headpond.files.frame_file import Bad, Found
from headpond.files.frame_write import NEW_SUFFIX, decode_status
from headpond.files.recovery import Recovery
from headpond.files.salvage import SalvagedFile, open_salvaged
from headpond.files.seal import Seal, SealedFile
from headpond.wire.frame import Frame, FrameType

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
    """Bytes of a journal that are damaged or missing, and the numbers of the records that stood in them."""

    file: str
    offset: int
    end: int
    records: tuple[int, int] | None
    """None where nothing tells how many there were."""
    reason: str = "bytes are damaged"


@dataclass
class JournalReport:
    """What opening a journal found that is not as it was left."""

    torn: list[Lost] = field(default_factory=list)
    """Bytes of writes that were never acknowledged."""
    damaged: list[Lost] = field(default_factory=list)

    @property
    def lost(self) -> bool:
        """Whether records are gone that were acknowledged."""
        return any(damage.records is None or damage.records[0] < damage.records[1] for damage in self.damaged)

    def lines(self) -> list[str]:
        """For a person; empty where all is well."""
        found = []
        for damage in (*self.torn, *self.damaged):
            place = f"{damage.file}, bytes {damage.offset} to {damage.end}" if damage.end else damage.file
            found.append(f"{place}: {damage.reason}; {_lost_text(damage.records)}")
        return found


def _lost_text(records: tuple[int, int] | None) -> str:
    if records is None:
        return "an unknown number of records is lost"
    first, end = records
    return f"records {first} to {end - 1} are lost" if first < end else "no record is lost"


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
        found.report.damaged.append(Lost(sealed.name, 0, sealed.bytes, (0, sealed.next), "the file is missing"))
    elif not generations and seal.in_use:
        found.report.damaged.append(Lost(folder, 0, 0, None, "the journal is missing"))
    if not generations:
        return found
    for generation in sorted(generations, reverse=True):
        _read_generation(disk, folder, generation, found, sealed if generation == sealed_generation else None)
        if found.file is not None:
            break
    disk.sync_folder(folder)  # the file's name is durable before anything is built on it
    for generation in generations:
        if generation < found.generation:
            with suppress(OSError):
                disk.remove(f"{folder}/{file_name(generation)}")
    found.generation = max(found.generation, sealed_generation)  # what takes its place has another name
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
            found.report.damaged.append(Lost(self.name, 0, end, records))
            return
        if recovery.tail is not None:
            self._take_tail(recovery.tail)
        found.end = recovery.settle(found.number, cut=not recovery.tail_damaged)
        found.file = recovery.file.inner

    def _take_tail(self, tail: Bad) -> None:
        found, recovery = self.found, self.recovery
        if not recovery.tail_damaged:
            reason = "a torn write, never recorded as synced, is cut off"
            found.report.torn.append(Lost(self.name, *tail, (found.number, found.number), reason))
            return
        records: tuple[int, int] | None = None
        if self.sealed is not None:
            records = (found.number, max(found.number, self.sealed.next))
        elif recovery.tail_is_status:
            records = (found.number, found.number)
        found.report.damaged.append(Lost(self.name, *tail, records))

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
