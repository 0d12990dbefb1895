"""The stage of records that are not on disk yet, the file they go to, and the write that takes them there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from google_crc32c import extend, value

from headpond.model.topic_settings import TopicSettings
from headpond.storage.disk import Disk, DiskFile
from headpond.storage.frame_write import STATUS_BYTES, FileRotation, FrameWrite, SyncStatus, encode_status
from headpond.storage.log.format import (
    Event,
    encode_event,
    expiry_name,
    file_name,
    index_name,
)
from headpond.storage.log.index import FileIndex, Point
from headpond.storage.log.marks import DAY_US, Marks
from headpond.storage.log.read import FileView, StoredRecord, View
from headpond.storage.log.replay import RecoveredLog
from headpond.wire.frame import HEADER, TRAILER, FrameType
from headpond.wire.record import RECORD_HEADER, RECORD_HEADER_BYTES, RecordHeader

JOIN_BYTES_MAX = 16 * 1024
"""A body up to this size is copied into one part with its frame: cheaper than more parts in the write."""
RESERVE_BYTES_MIN = 64 * 1024
FILES_WANTED = 8
"""How many files share the time or the bytes of a topic's retention: at most an eighth of it stays too long."""
ROTATE_US_MIN = 1_000_000
ROTATE_BYTES_MIN = 64 * 1024
_SEGMENT = int(FrameType.SEGMENT)


@dataclass(frozen=True, slots=True)
class LogOptions:
    rotate_bytes: int = 64 * 1024 * 1024
    """A file that has this size behind its head is followed by a new one."""
    rotate_us: int = 0
    """A file whose first record is this old is followed by a new one when more is stored; 0 for never."""
    preallocate_bytes: int = 8 * 1024 * 1024
    """A file reserves room in steps of up to this size, smaller ones at its beginning; 0 for none."""
    index_every_bytes: int = 64 * 1024
    forget_silent_us: int = 30 * DAY_US
    """After how much silence the log forgets an unclosed block: 30 days, or the retention if longer."""
    sync: bool = True
    """False for durability ``os``."""

    def for_topic(self, settings: TopicSettings) -> LogOptions:
        """The options for a topic: its files are short enough that retention can delete whole ones in time."""
        ttls = [ttl for ttl in (settings.soft_ttl, settings.hard_ttl) if ttl is not None]
        bytes_max = settings.max_bytes
        return replace(
            self,
            sync=settings.durability == "sync",
            rotate_us=max(ROTATE_US_MIN, round(min(ttls) * 1e6 / FILES_WANTED)) if ttls else 0,
            rotate_bytes=self.rotate_bytes
            if bytes_max is None
            else min(self.rotate_bytes, max(ROTATE_BYTES_MIN, bytes_max // FILES_WANTED)),
            forget_silent_us=max(self.forget_silent_us, *(round(ttl * 1e6) for ttl in ttls), 0),
        )

    def reserve_for(self, end: int, reserved: int) -> int:
        """Up to where to reserve room for a write that ends at ``end``; 0 if there is enough."""
        if not self.preallocate_bytes or end <= reserved:
            return 0
        step = min(self.preallocate_bytes, max(RESERVE_BYTES_MIN, 1 << end.bit_length()))
        return -(-end // step) * step

    def full(self, size: int, oldest_us: int | None, now_us: int) -> bool:
        """Whether the next record begins a new file."""
        if self.rotate_us and oldest_us is not None and now_us - oldest_us >= self.rotate_us:
            return True
        return size >= self.rotate_bytes


class LogStage:
    """Everything appended since the last ``take``, with the information to undo it."""

    __slots__ = (
        "admitted",
        "begun",
        "bytes",
        "closes_us",
        "ended",
        "floor_us",
        "head_bytes",
        "head_first",
        "kept_before",
        "offset",
        "parts",
        "point_due",
        "points",
        "records",
        "removed",
        "tallied",
    )

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.bytes = 0
        self.offset = 0
        """Its place in the file."""
        self.head_first: int | None = None
        """The first entry of the file that it begins; None if it appends to the last one."""
        self.head_bytes = 0
        self.floor_us = 0
        """The time of the last record before that file."""
        self.closes_us: int | None = None
        """When all messages of the file before it have expired."""
        self.records: list[StoredRecord] = []
        self.points: list[Point] = []
        self.point_due = 0
        """The offset from which the next record is a point."""
        self.admitted: list[tuple[bytes, int, str, bool]] = []
        """Block, segment, code of a refusal, and whether it filled a hole, for each record in order."""
        self.tallied: list[bytes] = []
        """Blocks whose tally is staged."""
        self.ended: list[tuple[bytes, int | None]] = []
        """Blocks that ended, or continued after an end, with the end in their marks before."""
        self.kept_before: int | None = None
        """The first kept entry before a drop; None without a drop."""
        self.removed: tuple[FileView, ...] = ()
        self.begun = False
        """Whether it begins an incarnation."""

    def begin_file(self, first: int, head: bytes, floor_us: int) -> None:
        """Makes the write the first of a new file."""
        self.parts = [head]
        self.bytes = self.head_bytes = len(head)
        self.head_first = first
        self.floor_us = floor_us

    def add_record(self, header: RecordHeader, shard: int, segment: int, body: bytes) -> None:
        """Frames a segment; readers get it if it has entries."""
        size = RECORD_HEADER_BYTES + len(body)
        lead = HEADER.pack(_SEGMENT, shard, segment, size) + RECORD_HEADER.pack(*header)
        trailer = TRAILER.pack(extend(value(lead), body))
        parts = [b"".join((lead, body, trailer))] if size <= JOIN_BYTES_MAX else [lead, body, trailer]
        self.parts += parts
        self.bytes += len(lead) + len(body) + len(trailer)
        if header.count:
            self.records.append(StoredRecord(header, segment, parts))

    def note_point(self, entry: int, stored_at_us: int, every_bytes: int) -> None:
        """Adds an index point for the next record, if the last point is far enough back."""
        offset = self.offset + self.bytes
        if offset >= self.point_due:
            self.points.append(Point(entry, stored_at_us, offset))
            self.point_due = offset + every_bytes

    def take_back(self, marks: Marks) -> None:
        """Sets the marks back to their state before this stage."""
        for block, ended_us in reversed(self.ended):
            if ended_us is None:
                marks.reopen(block)
            else:
                marks.end(block, ended_us)
        for block, segment, code, late in reversed(self.admitted):
            marks.withdraw(block, segment, code, late=late)
        marks.book.dirty.update(dict.fromkeys(self.tallied))

    def removals(self, folder: str) -> list[str]:
        """The paths of the dropped files."""
        if not self.removed:
            return []
        names = [name(*file.id) for file in self.removed for name in (file_name, index_name)]
        noted = [(file.first, file.expires_us) for file in self.removed]
        names += [expiry_name(first, time_us) for first, time_us in noted if time_us is not None]
        return [f"{folder}/{name}" for name in names]

    def add_event(self, event: Event, shard: int) -> None:
        frame = encode_event(event, shard)
        self.parts.append(frame)
        self.bytes += len(frame)


class Tail:
    """The file that a log is appended to: where the next write goes, and what is known of its end.

    It is open only for a while after a write, so that thousands of logs do not hold a file each.
    """

    def __init__(self, found: RecoveredLog) -> None:
        there = found.file is not None
        self.file: DiskFile | None = None
        self.first = found.files[-1].first if found.files else -1
        """Its first entry; -1 without a file."""
        self.end: int | None = found.end_offset if there else None
        """The offset of the next write after the one under way; None if it begins a new file."""
        self.head_bytes = found.head_bytes
        """The length of its head, which does not count for rotation."""
        self.oldest_us: int | None = found.points[0].stored_at_us if there and found.points else None
        """The time of its first record."""
        self.expires_us: int | None = found.expires_us if there else None
        """When all its messages have expired; 0 if it has none, None if some never do."""
        self.reserved_bytes = 0
        self.status_owed: bytes | None = None
        self.sound = there
        """Whether the log may touch it again."""
        self.proven = True
        """Whether it ends with a STATUS that proves its sync."""
        if found.file is not None:
            self.reserved_bytes = found.file.size()
            found.file.close()

    def begin(self) -> int | None:
        """Begins a new file; returns when all messages of the one before have expired, if known."""
        closed_us = self.expires_us or None
        self.oldest_us, self.expires_us = None, 0
        return closed_us

    def append(self, stored_at_us: int, expires_us: int | None) -> None:
        """Counts a record of the file."""
        if self.oldest_us is None:
            self.oldest_us = stored_at_us
        if self.expires_us is not None:
            self.expires_us = None if expires_us is None else max(self.expires_us, expires_us)

    def planned(self, write: FrameWrite, head_bytes: int) -> None:
        """A write is under way; ``head_bytes`` is 0 if it begins no file."""
        self.end = write.end + STATUS_BYTES
        if write.created:
            self.head_bytes = head_bytes
        self.status_owed = None

    def wrote(self, write: FrameWrite) -> None:
        """The write is durable: its file is the tail from now on."""
        if write.created:
            self.release()
            self.reserved_bytes = 0
            self.sound = True
        self.file = write.file
        self.reserved_bytes = max(self.reserved_bytes, write.reserve_to)
        self.proven = write.sync and write.status_owed is None
        self.status_owed = write.status_owed

    def failed(self, write: FrameWrite) -> None:
        """The write did not become durable: the log does not write to the file again."""
        if write.file is not None and write.file is not self.file:
            write.file.close()
        self.leave()
        if not write.created:
            self.sound = False

    def leave(self) -> None:
        """The next append begins a new file."""
        self.release()
        self.end = None
        self.status_owed = None
        self.expires_us = None

    def release(self) -> None:
        """Closes the file; the next write opens it again. No write may be under way."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def finish(self, disk: Disk, path: str, end: int, entry: int, shard: int) -> None:
        """Leaves the file synced and without reserved room. Does IO."""
        if self.end is None:
            return
        if self.file is None:
            if self.reserved_bytes <= end and self.proven:
                return  # it is already in this state
            self.file = disk.open(path, writable=True)
        self.file.truncate(end)
        self.file.sync()
        if not self.proven:
            self.file.write_at(end, [encode_status(SyncStatus(end, entry), shard)])
            self.file.sync()
        self.leave()


class LogWrite(FrameWrite):
    """The stage of one ``take``; ``run(disk)`` writes and syncs it."""

    stage: LogStage


def rotation_of(
    view: View, next_first: int, folder: str, shard: int, *, sound: bool, expires_us: int | None
) -> FileRotation | None:
    """How to leave the last file when a new one begins; a file that is not ``sound`` stays untouched.

    None for a file without entries: the new one has the same name and replaces it.
    """
    if not view.files or view.files[-1].first == next_first:
        return None
    first = view.files[-1].first
    index = FileIndex(first, view.entry_durable, view.end_offset, list(view.points))
    return FileRotation(
        path=f"{folder}/{file_name(first)}",
        truncate_to=view.end_offset if sound else None,
        index_path=f"{folder}/{index_name(first)}",
        index_of=partial(index.encode_for, shard=shard),
        note_path=None if expires_us is None else f"{folder}/{expiry_name(first, expires_us)}",
    )
