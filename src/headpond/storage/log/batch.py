"""Everything appended to a log since the last write, with what undoes it; and when the log begins a file."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import dataclass, replace
from typing import NamedTuple

from google_crc32c import extend, value

from headpond.model.topic_settings import TopicSettings
from headpond.storage.append import Batch, write_whole
from headpond.storage.disk import Disk
from headpond.storage.log.format import LogPlace, expiry_name, index_name
from headpond.storage.log.index import FileIndex, Point
from headpond.storage.log.marks import DAY_US, Marks
from headpond.storage.log.read import FileView, StoredRecord
from headpond.wire.frame import HEADER, OVERHEAD_BYTES, TRAILER, FrameType
from headpond.wire.plain.packed import SEGMENTS_MIN
from headpond.wire.record import RECORD_HEADER, RECORD_HEADER_BYTES, RecordHeader

JOIN_BYTES_MAX = 16 * 1024
"""A body up to this size is copied into one part with its frame: cheaper than more parts in the write."""
RESERVE_BYTES_MIN = 64 * 1024
FILES_WANTED = 8
"""How many files share the time or the bytes of a topic's retention: at most an eighth of it stays too long."""
ROTATE_US_MIN = 1_000_000
ROTATE_BYTES_MIN = 64 * 1024
MEAN_BYTES_MAX = 2048
"""Larger segments are not packed: they cost their readers little more than their bytes."""
_SEGMENT = int(FrameType.SEGMENT)


@dataclass(frozen=True, slots=True)
class LogOptions:
    rotate_bytes: int = 64 * 1024 * 1024
    """A file that has this size behind its head is followed by a new one."""
    rotate_small_bytes: int = 4 * 1024 * 1024
    """The same for a file of small segments, which are packed once it is closed."""
    rotate_us: int = 0
    """A file whose first record is this old is followed by a new one when more is stored; 0 for never."""
    preallocate_bytes: int = 8 * 1024 * 1024
    """A file reserves room in steps of up to this size, smaller ones at its beginning; 0 for none."""
    index_every_bytes: int = 64 * 1024
    pack_segments_min: int = SEGMENTS_MIN
    """Shorter runs of small segments are not packed."""
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

    def reserve_to(self, end: int) -> int:
        """Up to where to reserve room for a write that ends at ``end``; 0 for none."""
        if not self.preallocate_bytes:
            return 0
        step = min(self.preallocate_bytes, max(RESERVE_BYTES_MIN, 1 << end.bit_length()))
        return -(-end // step) * step


class LogBatch(Batch):
    """Records and events for one write."""

    first = 0
    """The first entry of the file that it begins."""
    floor_us = 0
    """The time of the last record before that file."""
    closes_us: int | None = None
    """When all messages of the file before it have expired."""
    closed_file: ClosingFile | None = None
    """The file before it."""
    point_due = 0
    """The offset from which the next record is a point."""
    kept_before: int | None = None
    """The first kept entry before a drop; None without a drop."""
    removed: tuple[FileView, ...] = ()
    begun = False
    """Whether it begins an incarnation."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[StoredRecord] = []
        self.points: list[Point] = []
        self.admitted: list[tuple[bytes, int, str, bool]] = []
        """Block, segment, code of a refusal, and whether it filled a hole, for each record in order."""
        self.tallied: list[bytes] = []
        """Blocks whose tally is staged."""
        self.ended: list[tuple[bytes, int | None]] = []
        """Blocks that ended, or continued after an end, with the end in their marks before."""

    def add_record(self, header: RecordHeader, shard: int, segment: int, body: bytes) -> None:
        """Frames a segment; readers get it if it has entries."""
        size = RECORD_HEADER_BYTES + len(body)
        lead = HEADER.pack(_SEGMENT, shard, segment, size) + RECORD_HEADER.pack(*header)
        trailer = TRAILER.pack(extend(value(lead), body))
        parts = [b"".join((lead, body, trailer))] if size <= JOIN_BYTES_MAX else [lead, body, trailer]
        self.parts += parts
        self.bytes += OVERHEAD_BYTES + size
        if header[1]:
            self.records.append(StoredRecord(header, segment, parts))

    def drop(self, files: tuple[FileView, ...], folder: str) -> None:
        """Removes files once the batch is durable."""
        self.removed += files
        for file in files:
            self.removals += file.paths(folder)

    def withdraw_from(self, marks: Marks) -> None:
        """Sets the marks back to their state before this batch."""
        for block, ended_us in reversed(self.ended):
            if ended_us is None:
                marks.reopen(block)
            else:
                marks.end(block, ended_us)
        for block, segment, code, late in reversed(self.admitted):
            marks.withdraw(block, segment, code, late=late)
        marks.book.dirty.update(dict.fromkeys(self.tallied))

    def before_name(self, disk: Disk) -> None:
        """Removes the index of an earlier file of the same name."""
        folder = self.path.rpartition("/")[0]
        outdated = f"{folder}/{index_name(self.first)}"
        if disk.exists(outdated):
            disk.remove(outdated)
            disk.sync_folder(folder)

    def after_name(self, disk: Disk) -> None:
        if self.closed_file is not None:
            self.closed_file.close(disk)


class ClosingFile(NamedTuple):
    """How a write that begins a new file leaves the file before it."""

    place: LogPlace
    contents: FileIndex
    sound: bool
    """False for a file that the log must not write to again."""
    expires_us: int | None

    def close(self, disk: Disk) -> None:
        """Frees reserved room, writes the index and the expiry name. Best effort: an opening can do it too."""
        first, place = self.contents.first, self.place
        with suppress(OSError):
            with closing(disk.open(place.path(first), writable=self.sound)) as file:
                if self.sound:
                    file.truncate(self.contents.end_offset)
                encoded = self.contents.encode_for(file, place.shard)
            write_whole(disk, place.index_path(first), encoded)
            if self.expires_us is not None:
                write_whole(disk, f"{place.folder}/{expiry_name(first, self.expires_us)}", b"")
