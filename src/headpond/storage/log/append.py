"""What was appended to a log and is not on its disk yet; and the write that takes it there."""

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
"""A body up to this size is copied into one piece with its frame: cheaper than more pieces in the write."""
RESERVE_BYTES_MIN = 64 * 1024
FILES_WANTED = 8
"""So many files share the time or the bytes that a topic keeps: what is kept too long is an eighth of that."""
ROTATE_US_MIN = 1_000_000
ROTATE_BYTES_MIN = 64 * 1024
_SEGMENT = int(FrameType.SEGMENT)


@dataclass(frozen=True, slots=True)
class LogOptions:
    rotate_bytes: int = 64 * 1024 * 1024
    """A file that has grown to this size behind its head is followed by a new one."""
    rotate_us: int = 0
    """A file whose first record is this old is followed by a new one when more is stored; 0 for never."""
    preallocate_bytes: int = 8 * 1024 * 1024
    """Room is reserved in steps of up to this size, a young file's in smaller ones; 0 for none."""
    index_every_bytes: int = 64 * 1024
    forget_silent_us: int = 30 * DAY_US
    """After how much silence a block that nobody closed is forgotten: 30 days, or the retention if longer."""
    sync: bool = True
    """False for durability ``os``."""

    def for_topic(self, settings: TopicSettings) -> LogOptions:
        """As a topic's settings want it: files so short that whole ones can go in time."""
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
        """How far room is to be reserved for a write that ends at ``end``; 0 where there is enough."""
        if not self.preallocate_bytes or end <= reserved:
            return 0
        step = min(self.preallocate_bytes, max(RESERVE_BYTES_MIN, 1 << end.bit_length()))
        return -(-end // step) * step

    def full(self, size: int, oldest_us: int | None, now_us: int) -> bool:
        """Whether the next record is to begin a new file."""
        if self.rotate_us and oldest_us is not None and now_us - oldest_us >= self.rotate_us:
            return True
        return size >= self.rotate_bytes


class LogStage:
    """Everything appended since the last ``take``, and how to undo it."""

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
        """Where in the file it goes."""
        self.head_first: int | None = None
        """The first entry of the file that this begins; None where it goes on in the last one."""
        self.head_bytes = 0
        self.floor_us = 0
        """When the last record before that file was stored."""
        self.closes_us: int | None = None
        """When all messages of the file before it have expired."""
        self.records: list[StoredRecord] = []
        self.points: list[Point] = []
        self.point_due = 0
        """The offset from which the next record is a point."""
        self.admitted: list[tuple[bytes, int, str, bool]] = []
        """Of each record and refusal, in order: block, segment, why it was refused, if it filled a hole."""
        self.tallied: list[bytes] = []
        """Blocks that the ledger is told of."""
        self.ended: list[tuple[bytes, int | None]] = []
        """Blocks that ended, or went on after an end, with what their marks said before."""
        self.kept_before: int | None = None
        """The first kept entry before a prefix was dropped; None where none was."""
        self.removed: tuple[FileView, ...] = ()
        self.begun = False
        """Whether an incarnation begins in it."""

    def begin_file(self, first: int, head: bytes, floor_us: int) -> None:
        """The write is the first of a new file."""
        self.parts = [head]
        self.bytes = self.head_bytes = len(head)
        self.head_first = first
        self.floor_us = floor_us

    def add_record(self, header: RecordHeader, shard: int, segment: int, body: bytes) -> None:
        """Frames a segment; one with entries is a record to be read."""
        size = RECORD_HEADER_BYTES + len(body)
        lead = HEADER.pack(_SEGMENT, shard, segment, size) + RECORD_HEADER.pack(*header)
        trailer = TRAILER.pack(extend(value(lead), body))
        parts = [b"".join((lead, body, trailer))] if size <= JOIN_BYTES_MAX else [lead, body, trailer]
        self.parts += parts
        self.bytes += len(lead) + len(body) + len(trailer)
        if header.count:
            self.records.append(StoredRecord(header, segment, parts))

    def note_point(self, entry: int, stored_at_us: int, every_bytes: int) -> None:
        """Remembers where the next record stands, if the last such point lies far enough back."""
        offset = self.offset + self.bytes
        if offset >= self.point_due:
            self.points.append(Point(entry, stored_at_us, offset))
            self.point_due = offset + every_bytes

    def take_back(self, marks: Marks) -> None:
        """Puts the marks back to what they were before all this."""
        for block, ended_us in reversed(self.ended):
            if ended_us is None:
                marks.reopen(block)
            else:
                marks.end(block, ended_us)
        for block, segment, code, late in reversed(self.admitted):
            marks.withdraw(block, segment, code, late=late)
        marks.book.dirty.update(dict.fromkeys(self.tallied))

    def removals(self, folder: str) -> list[str]:
        """The paths of what was dropped."""
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
        """Its first entry; -1 where there is no file."""
        self.end: int | None = found.end_offset if there else None
        """Where the next write goes once the one under way is done; None where it begins a new file."""
        self.head_bytes = found.head_bytes
        """A long head must not make a file full by itself."""
        self.oldest_us: int | None = found.points[0].stored_at_us if there and found.points else None
        """When the first record in it was stored."""
        self.expires_us: int | None = found.expires_us if there else None
        """When all messages in it have expired: 0 where there are none, None where some never do."""
        self.reserved_bytes = 0
        self.status_owed: bytes | None = None
        self.sound = there
        """Whether it may be touched again."""
        self.proven = True
        """Whether it ends with a STATUS that says that all of it was synced."""
        if found.file is not None:
            self.reserved_bytes = found.file.size()
            found.file.close()

    def begin(self) -> int | None:
        """A new file begins; returns when all messages of the one before have expired, if that is known."""
        closed_us = self.expires_us or None
        self.oldest_us, self.expires_us = None, 0
        return closed_us

    def append(self, stored_at_us: int, expires_us: int | None) -> None:
        """A record goes there."""
        if self.oldest_us is None:
            self.oldest_us = stored_at_us
        if self.expires_us is not None:
            self.expires_us = None if expires_us is None else max(self.expires_us, expires_us)

    def planned(self, write: FrameWrite, head_bytes: int) -> None:
        """A write is on its way; ``head_bytes`` is 0 where it begins no file."""
        self.end = write.end + STATUS_BYTES
        if write.created:
            self.head_bytes = head_bytes
        self.status_owed = None

    def wrote(self, write: FrameWrite) -> None:
        """The write is durable: its file is the one that is appended to from now on."""
        if write.created:
            self.release()
            self.reserved_bytes = 0
            self.sound = True
        self.file = write.file
        self.reserved_bytes = max(self.reserved_bytes, write.reserve_to)
        self.proven = write.sync and write.status_owed is None
        self.status_owed = write.status_owed

    def failed(self, write: FrameWrite) -> None:
        """The write did not become durable: the file is not written again."""
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
        """Closes the file; the next write opens it again. None may be under way."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def finish(self, disk: Disk, path: str, end: int, entry: int, shard: int) -> None:
        """Leaves the file synced and without reserved room. Does IO."""
        if self.end is None:
            return
        if self.file is None:
            if self.reserved_bytes <= end and self.proven:
                return  # nothing was written to it since it was left like this
            self.file = disk.open(path, writable=True)
        self.file.truncate(end)
        self.file.sync()
        if not self.proven:
            self.file.write_at(end, [encode_status(SyncStatus(end, entry), shard)])
            self.file.sync()
        self.leave()


class LogWrite(FrameWrite):
    """Everything staged at one ``take``; ``run(disk)`` writes and syncs it."""

    stage: LogStage


def rotation_of(
    view: View, next_first: int, folder: str, shard: int, *, sound: bool, expires_us: int | None
) -> FileRotation | None:
    """How the last file is left when a new one begins; one that is not ``sound`` is not touched.

    One without entries has the name of the new one, which takes its place: nothing is left of it.
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
