"""Appending to frame files: the one way in which logs, journals and stage files become durable.

An ``Appender`` owns the file that is written now, the batch for its next write, the write under way, and the
durable end. Its user adds frames to ``staged``; ``take`` turns that batch into the write under way, which a
worker thread runs while the next batch fills; then ``committed`` or ``failed`` follows. After a failure the
appender never writes to that file again: the system may show bytes that are on no disk.

The order of steps in ``Batch.run`` makes a write safe:

- into an existing file: reserve room, one gathering write, one sync, then a STATUS behind it that says so. The
  STATUS itself is not synced; the next write repeats it, because the failed sync of a checkpoint may have
  dropped it, and its sync covers it. So a write may be reported first, and proven right after that.
- into a new file: the same under a name that recovery ignores (``.new``), then rename, then the sync of the
  folder. A file that recovery finds has a whole head.
- files that the batch replaces are removed last, when it is durable.
- in a round of many files: reserve room, then the sync of the commit journal, then everything with its STATUS
  into the file, which a checkpoint syncs later (commit_journal.py).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from contextlib import closing, suppress
from typing import Generic, NamedTuple, TypeVar

from headpond.storage.disk import Disk, DiskFile, is_disk_full
from headpond.wire.frame import OVERHEAD_BYTES, FrameType, encode

STATUS_BODY = struct.Struct("<QQ")
"""Body of a STATUS frame in a file: synced length u64 | one past the last entry before it u64."""
STATUS_BYTES = OVERHEAD_BYTES + STATUS_BODY.size
PLACE_MASK = 0xFFFFFFFF
AHEAD_BYTES_MAX = 64 * 1024
"""How far zeros go ahead of a short write."""
SHORT_BYTES_MAX = 4 * 1024
"""A longer write has no zeros behind it."""
NEW_SUFFIX = ".new"


class SyncStatus(NamedTuple):
    """The body of a STATUS: all frames before it, up to ``end_entry``, were durable when it was written."""

    synced_bytes: int
    """The offset of the frame itself, which exposes a copy elsewhere; 0 behind a write without a sync.

    The segment number in the frame's header is the offset in either case (mod 2**32).
    """
    end_entry: int


def encode_status(offset: int, end_entry: int, shard: int = 0, *, synced: bool = True) -> bytes:
    """The STATUS frame for ``offset``."""
    body = STATUS_BODY.pack(offset if synced else 0, end_entry)
    return encode(FrameType.STATUS, body, shard=shard, segment=offset & PLACE_MASK)


def decode_status(body: bytes) -> SyncStatus | None:
    """None for a body of another form."""
    return SyncStatus._make(STATUS_BODY.unpack(body)) if len(body) == STATUS_BODY.size else None


class Batch:
    """Frames for one write to one file: collected in memory, then written and synced by ``run``.

    A taken batch carries everything that its write needs, so a worker thread runs it.
    """

    path = ""
    offset = 0
    creates = False
    """Whether it begins the file."""
    end_entry = 0
    """One past the last entry of the file, for its STATUS."""
    proven = False
    """Whether its STATUS says that it is synced."""
    # ``take`` sets the rest.
    before = b""
    """The STATUS before ``offset``, to be written again."""
    end = 0
    """The offset of its STATUS."""
    status = b""
    """The STATUS behind its frames."""
    file: DiskFile | None = None
    """None if ``run`` has to create or open it, and stores it here."""
    sync = True
    """False leaves the sync to the operating system (durability ``os``)."""
    reserve_to = 0
    ahead_to = 0
    """Up to where ``append`` writes zeros behind its frames; 0 for none.

    For the first write to a reserved block, a file system records that the block is in use, and a sync waits
    until that is on the disk too. Zeros let the next short writes go without.
    """

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.bytes = 0
        self.removals: list[str] = []
        """Files to remove when it is durable."""

    def add(self, frame: bytes) -> None:
        self.parts.append(frame)
        self.bytes += len(frame)

    def run(self, disk: Disk) -> None:
        """Writes and syncs, with its STATUS; after an ``OSError`` nothing of it counts."""
        if self.creates:
            self._create(disk)
        elif disk.ordered:  # the STATUS is durable after the frames, or not at all
            self._open(disk)
            self.put(self.whole(), disk)
            return
        else:
            self.append(disk)
            self.prove()
        if self.removals:
            self._remove(disk)

    def append(self, disk: Disk) -> None:
        """Writes and syncs the frames alone, into a file that exists; ``prove`` follows."""
        file = self._open(disk)
        try:
            self._write(file, [self.before, *self.parts])
        except OSError as error:
            if is_disk_full(error):  # give the room back
                with suppress(OSError):
                    file.truncate(self.offset)
            raise

    def prove(self) -> None:
        """Writes the STATUS behind the frames, which are durable whether this succeeds or not."""
        assert self.file is not None
        try:
            self.file.write_at(self.end, [self.status])
        except OSError:
            return
        self.proven = self.sync

    def _open(self, disk: Disk) -> DiskFile:
        if self.file is None:
            self.file = disk.open(self.path, writable=True)
        return self.file

    def _create(self, disk: Disk) -> None:
        folder, path = self.path.rpartition("/")[0], self.path + NEW_SUFFIX
        file = create_new(disk, self.path)
        try:
            # The STATUS goes with the rest: the file gets its name only when all of it is synced.
            self._write(file, self.whole())
            self.proven = True
            self.before_name(disk)
            disk.rename(path, self.path)
            disk.sync_folder(folder)
        except OSError:
            file.close()
            with suppress(OSError):
                disk.remove(path)
            raise
        self.file = file
        self.after_name(disk)

    def before_name(self, disk: Disk) -> None:
        """For a subclass: the new file is synced and gets its name next."""

    def after_name(self, disk: Disk) -> None:
        """For a subclass: the new file is durable under its name. Must not fail."""

    def _write(self, file: DiskFile, parts: Sequence[bytes]) -> None:
        try:
            if self.reserve_to:
                file.preallocate(self.reserve_to)
        except OSError:
            # Without reserved room a write is slower, not wrong; a full disk fails the write itself.
            self.reserve_to = self.ahead_to = 0
        if self.ahead_to:
            parts = [*parts, bytes(self.ahead_to - self.end)]
        file.write_at(self.start, parts)
        if self.sync:
            file.sync()

    def _remove(self, disk: Disk) -> None:
        for path in self.removals:
            with suppress(OSError):  # the next opening removes the rest
                disk.remove(path)

    # --- as part of a round, whose commit journal has the bytes -------------------------------------

    def reserve(self, disk: Disk) -> None:
        """Reserves room, so that no later step fails for lack of it."""
        file = self._open(disk)
        if self.reserve_to:
            file.preallocate(self.reserve_to)

    @property
    def start(self) -> int:
        """The offset of its first byte in a file that exists."""
        return self.offset - len(self.before)

    def whole(self) -> list[bytes]:
        """All bytes for ``start``: the staged frames, and the STATUS that says that they are durable."""
        return [self.before, *self.parts, self.status]

    def put(self, whole: Sequence[bytes], disk: Disk) -> None:
        """Writes bytes that the commit journal, or the order of the disk, makes durable, without a sync."""
        assert self.file is not None, "``reserve`` opens the file"
        self.ahead_to = 0
        self.file.write_at(self.start, whole)
        self.proven = self.sync
        self._remove(disk)


AnyBatch = TypeVar("AnyBatch", bound=Batch)


class Appender(Generic[AnyBatch]):
    """The end of a log, of a journal or of the stage files. One thread stages, takes and reports.

    Its user decides, before the first frame of a batch, whether the batch continues the file (``follow``) or
    begins another one (``begin_file``).
    """

    def __init__(
        self,
        new_batch: Callable[[], AnyBatch],
        shard: int,
        reserve_to: Callable[[AnyBatch, int], int],
        on_new_file: Callable[[AnyBatch], None] | None = None,
    ) -> None:
        """``reserve_to`` returns up to where to reserve room for a batch that ends at an offset; 0 for none.

        ``on_new_file`` completes a batch that begins a file, when it is taken.
        """
        self.staged = new_batch()
        self.under_way: AnyBatch | None = None
        self.path = ""
        """The file being written; empty without one."""
        self.file: DiskFile | None = None
        """The open file. Between writes it may be closed; the next write opens it again."""
        self.end: int | None = None
        """The offset of the next batch, behind the write under way; None if it has to begin a file."""
        self.durable_end = 0
        """The end of the durable frames of the file."""
        self.sound = False
        """Whether the file may be written to again."""
        self.proven = True
        """Whether the file ends with a STATUS that proves its sync."""
        self.sync = True
        """False for durability ``os``."""
        self._new_batch = new_batch
        self._shard = shard
        self._reserve_to = reserve_to
        self._on_new_file = on_new_file
        self._reserved_bytes = 0
        self._ahead_bytes = 0
        """Up to where the file has frames, or zeros that were written ahead of them."""
        self._status = b""
        """The STATUS behind the last write, which the next one repeats."""
        self._durable_entry = 0

    def resume(self, path: str, file: DiskFile, end: int) -> None:
        """Continues a file that recovery has read and made durable up to ``end``."""
        self.path, self.file = path, file
        self.end = self.durable_end = end
        self._reserved_bytes = file.size()
        self.sound = True

    def follow(self) -> None:
        """The staged batch continues the file."""
        assert self.end is not None
        self.staged.path, self.staged.offset = self.path, self.end

    def begin_file(self, path: str) -> None:
        """The staged batch begins a file."""
        self.staged.path, self.staged.creates = path, True

    def take(self) -> AnyBatch | None:
        """The staged batch to run, None if it is empty; ``committed`` or ``failed`` comes before the next."""
        assert self.under_way is None, "the write before is not done"
        batch = self.staged
        if not batch.parts:
            return None
        reserved_bytes = 0
        if batch.creates:
            if self._on_new_file is not None:
                self._on_new_file(batch)
        else:
            batch.file, reserved_bytes = self.file, self._reserved_bytes
            batch.before = self._status
        # A new file is synced whatever the durability: recovery depends on its head.
        batch.sync = self.sync or batch.creates
        batch.end = batch.offset + batch.bytes
        batch.status = encode_status(batch.end, batch.end_entry, self._shard, synced=batch.sync)
        self.path, self.end = batch.path, batch.end + STATUS_BYTES
        if self.end > reserved_bytes:
            reserved_bytes = batch.reserve_to = self._reserve_to(batch, self.end)
        if self.end > self._ahead_bytes and batch.bytes <= SHORT_BYTES_MAX and not batch.creates:
            step = min(AHEAD_BYTES_MAX, 1 << self.end.bit_length())
            batch.ahead_to = min(reserved_bytes, -(-self.end // step) * step)
        self.under_way, self.staged = batch, self._new_batch()
        return batch

    def committed(self, batch: AnyBatch) -> None:
        """The write is durable."""
        assert batch is self.under_way
        self.under_way = None
        if batch.creates:
            self.release()
            self._reserved_bytes, self.sound = 0, True
            self._ahead_bytes = 0
        self.file = batch.file
        if batch.reserve_to:
            self._reserved_bytes = batch.reserve_to
        self._status = batch.status
        self._durable_entry = batch.end_entry
        self._ahead_bytes = max(self._ahead_bytes, batch.ahead_to)
        self._note_proof(batch)

    def prove(self, batch: AnyBatch) -> None:
        """Writes the STATUS of the last write, which was committed without one, while no write is under way."""
        assert self.under_way is None
        if batch.file is self.file is not None:  # the file may be closed by now: then the next write proves it
            batch.prove()
            self._note_proof(batch)

    def _note_proof(self, batch: AnyBatch) -> None:
        self.durable_end = batch.end + STATUS_BYTES if batch.proven else batch.end
        self.proven = batch.proven

    def failed(self, batch: AnyBatch) -> None:
        """The write did not become durable: drops it and everything staged since; the next begins a file."""
        assert batch is self.under_way
        self.under_way = None
        self.staged = self._new_batch()
        if batch.file is not None and batch.file is not self.file:
            batch.file.close()
        if not batch.creates:
            self.sound = False
        self.leave()

    def leave(self) -> None:
        """The next batch begins a file."""
        self.release()
        self.end = None
        self._status = b""

    def release(self) -> None:
        """Closes the file; the next write opens it again. Only the write under way may still use it."""
        if self.file is not None:
            self.file.close()
            self.file = None

    def finish(self, disk: Disk) -> None:
        """Leaves the file synced, without reserved room and with a STATUS at its end. Does IO."""
        end = self.durable_end
        done = self.file is None and self.proven and self._reserved_bytes <= end
        if self.end is not None and not done:
            file = self.file = self.file or disk.open(self.path, writable=True)
            file.truncate(end)
            file.sync()
            if not self.proven:
                file.write_at(end, [encode_status(end, self._durable_entry, self._shard)])
                file.sync()
        self.leave()


def create_new(disk: Disk, path: str) -> DiskFile:
    """Creates a file under the name that ``path`` has until its first write is durable."""
    new_path = path + NEW_SUFFIX
    if disk.exists(new_path):
        disk.remove(new_path)
    return disk.create(new_path)


def write_whole(disk: Disk, path: str, data: bytes, *, sync: bool = False) -> None:
    """Replaces a file in one step; without ``sync``, one that can be derived again."""
    with closing(create_new(disk, path)) as file:
        file.write_at(0, [data])
        if sync:
            file.sync()
    disk.rename(path + NEW_SUFFIX, path)
    if sync:
        disk.sync_folder(path.rpartition("/")[0])
