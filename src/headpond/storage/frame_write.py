"""One write of staged frames: the only part of a log or a journal that touches the disk while it grows.

It carries everything that it needs, so a worker thread runs it while its owner stages more. The order of its
steps makes it safe:

- into an existing file: reserve room, one gathering write, one sync, then a STATUS behind it that says so. The
  STATUS itself is not synced; the next sync covers it.
- into a new file: the same under a name that recovery ignores (``.new``), then rename, then the sync of the
  folder. A file that recovery finds has a whole head.
- dropped files are removed last, when the record of the drop is durable.
- in a round of many files: reserve room, then the sync of the commit journal, then everything with its STATUS
  into the file, which a checkpoint syncs later (commit_journal.py).
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from headpond.storage.disk import Disk, DiskFile, is_disk_full
from headpond.wire.frame import OVERHEAD_BYTES, FrameType, encode

STATUS_BODY = struct.Struct("<QQ")
"""Body of a STATUS frame in a file: synced length u64 | one past the last entry before it u64."""
STATUS_BYTES = OVERHEAD_BYTES + STATUS_BODY.size
PLACE_MASK = 0xFFFFFFFF
NEW_SUFFIX = ".new"


class SyncStatus(NamedTuple):
    """The body of a STATUS: all frames before it, up to ``end_entry``, were durable when it was written."""

    synced_bytes: int
    """The offset of the frame itself, which exposes a copy elsewhere; 0 behind a write without a sync.

    The segment number in the frame's header is the offset in either case (mod 2**32).
    """
    end_entry: int


def encode_status(status: SyncStatus, shard: int = 0, *, place: int | None = None) -> bytes:
    """``place`` is the offset of the frame, if ``status`` itself does not say it."""
    place = status.synced_bytes if place is None else place
    return encode(FrameType.STATUS, STATUS_BODY.pack(*status), shard=shard, segment=place & PLACE_MASK)


def decode_status(body: bytes) -> SyncStatus | None:
    """None for a body of another form."""
    return SyncStatus._make(STATUS_BODY.unpack(body)) if len(body) == STATUS_BODY.size else None


class FileRotation(NamedTuple):
    """How a write that begins a new file leaves the file before it."""

    path: str
    truncate_to: int | None
    """The start of its reserved room; None for a file that the log must not touch again."""
    index_path: str
    index_of: Callable[[DiskFile], bytes]
    """Encodes the index of the file."""
    note_path: str | None = None
    """An empty file to create beside it, whose name is the information."""


class FrameWrite:
    """All staged frames for one file."""

    def __init__(
        self,
        *,
        folder: str,
        path: str,
        shard: int,
        file: DiskFile | None,
        offset: int,
        parts: Sequence[bytes],
        size: int,
        end_entry: int,
        sync: bool = True,
        reserve_to: int = 0,
        rotation: FileRotation | None = None,
        removals: Sequence[str] = (),
        outdated: str | None = None,
        reopen: bool = False,
    ) -> None:
        self.folder = folder
        self.path = path
        self.shard = shard
        self.file = file
        """The open file; None if ``run`` has to create or open it, and stores it here."""
        self.created = file is None and not reopen
        self.offset = offset
        self.parts = parts
        self.bytes = size
        self.end_entry = end_entry
        self.sync = sync
        """False leaves the sync to the operating system (durability ``os``)."""
        self.reserve_to = reserve_to
        self.rotation = rotation
        self.removals = removals
        self.outdated = outdated
        """The index of an earlier file of the same name; removed before the new file gets that name."""
        self.status_owed: bytes | None = None
        """The STATUS, if writing it failed: the next write writes it at its place."""

    @property
    def end(self) -> int:
        """The offset of the STATUS."""
        return self.offset + self.bytes

    def run(self, disk: Disk) -> None:
        """Writes and syncs; after an ``OSError`` nothing of it counts."""
        if self.created:
            self._create(disk)
        else:
            file = self._opened(disk)
            try:
                self._fill(file, self.parts)
            except OSError as error:
                if is_disk_full(error):  # give the room back
                    with contextlib.suppress(OSError):
                        file.truncate(self.offset)
                raise
            self._mark_synced(file)
        if self.rotation is not None:
            self._leave_behind(disk, self.rotation)
        self._remove(disk)

    # --- as part of a round, whose commit journal has the bytes -------------------------------------

    def reserve(self, disk: Disk) -> None:
        """Reserves room, so that no later step fails for lack of it."""
        file = self._opened(disk)
        if self.reserve_to:
            file.preallocate(self.reserve_to)

    def whole(self) -> list[bytes]:
        """All bytes for ``offset``: the staged frames, and the STATUS that says that they are durable."""
        return [*self.parts, self._status()]

    def put(self, disk: Disk, whole: Sequence[bytes]) -> None:
        """Writes bytes that the commit journal has made durable, without a sync."""
        self._opened(disk).write_at(self.offset, whole)
        self._remove(disk)

    # --- inside -------------------------------------------------------------------------------------

    def _opened(self, disk: Disk) -> DiskFile:
        if self.file is None:
            self.file = disk.open(self.path, writable=True)
        return self.file

    def _remove(self, disk: Disk) -> None:
        for path in self.removals:
            with contextlib.suppress(OSError):  # the next opening removes the rest
                disk.remove(path)

    def _create(self, disk: Disk) -> None:
        path = self.path + NEW_SUFFIX
        if disk.exists(path):
            disk.remove(path)
        file = disk.create(path)
        try:
            # A new file is synced whatever the durability: recovery depends on its head.
            self.sync = True
            # The STATUS goes with the rest: the file gets its name only when all of it is synced.
            self._fill(file, [*self.parts, self._status()])
            if self.outdated is not None and disk.exists(self.outdated):
                disk.remove(self.outdated)
                disk.sync_folder(self.folder)
            disk.rename(path, self.path)
            disk.sync_folder(self.folder)
        except OSError:
            file.close()
            with contextlib.suppress(OSError):
                disk.remove(path)
            raise
        self.file = file

    def _fill(self, file: DiskFile, parts: Sequence[bytes]) -> None:
        if self.reserve_to:
            # Without reserved room a write is slower, not wrong; a full disk fails the write itself.
            with contextlib.suppress(OSError):
                file.preallocate(self.reserve_to)
        file.write_at(self.offset, parts)
        if self.sync:
            file.sync()

    def _mark_synced(self, file: DiskFile) -> None:
        status = self._status()
        try:
            file.write_at(self.end, [status])
        except OSError:  # the frames before it are durable all the same
            self.status_owed = status

    def _status(self) -> bytes:
        status = SyncStatus(self.end if self.sync else 0, self.end_entry)
        return encode_status(status, self.shard, place=self.end)

    def _leave_behind(self, disk: Disk, rotation: FileRotation) -> None:
        """Best effort: an opening can free the room and build the index at any time."""
        with contextlib.suppress(OSError):
            file = disk.open(rotation.path, writable=rotation.truncate_to is not None)
            try:
                if rotation.truncate_to is not None:
                    file.truncate(rotation.truncate_to)
                index = rotation.index_of(file)
            finally:
                file.close()
            write_whole(disk, rotation.index_path, index)
            if rotation.note_path is not None:
                write_whole(disk, rotation.note_path, b"")


def write_whole(disk: Disk, path: str, data: bytes) -> None:
    """Replaces a file that can be derived again, in one step and without a sync."""
    new_path = path + NEW_SUFFIX
    if disk.exists(new_path):
        disk.remove(new_path)
    file = disk.create(new_path)
    try:
        file.write_at(0, [data])
    finally:
        file.close()
    disk.rename(new_path, path)
