"""The file of a refill: appended to, synced, cut back after a failure, read with every checksum verified.

The first write makes it, under another name, syncs it and then renames it: a file under its final name has a
complete beginning.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from contextlib import suppress

from google_crc32c import value as crc32c

from headpond.model.errors import BadFrame, BadRequest, Closed, DiskFull, HeadpondError, StorageFailed
from headpond.model.identity import SegmentKey
from headpond.producer.refill.form import NOTE_SUFFIX
from headpond.producer.refill.index import FrameSpan
from headpond.storage.append import NEW_SUFFIX
from headpond.storage.disk import Disk, DiskFile, SalvagedFile
from headpond.storage.frame_file import CHUNK_BYTES, CRC_RESIDUE
from headpond.wire.frame import HEADER, OVERHEAD_BYTES

_READ_BYTES_MAX = 4 * 1024 * 1024
"""How much is read at once; a frame may be larger."""
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


class RefillFile:
    def __init__(self, disk: Disk, path: str, durability: str, head: Sequence[bytes]) -> None:
        assert durability in ("sync", "os"), f"no durability: {durability!r}"
        self.path = path
        self.durability = durability
        self.end = 0
        """Where the next frame goes."""
        self.synced_bytes = 0
        """How long the file was when it was last synced."""
        self.dirty = False
        """Whether anything was written since."""
        self.exists = False
        self.released = False
        self._tried = False
        """Whether making the file was tried."""
        self._disk = disk
        self._head = head
        self._file: DiskFile | None = None
        self._note: DiskFile | None = None
        self._writable = False
        self._cut_owed = False
        """Whether bytes after ``end`` have to be cut off before anything is written."""
        self._tail = b""
        """The mark at ``end``, to be written again after the cut."""
        self._mark = b""
        """The mark after ``kept``."""
        self._unproven_from: int | None = None
        """From here on, readable bytes may not be on the disk."""

    @classmethod
    def create(cls, disk: Disk, path: str, head: Sequence[bytes], durability: str) -> RefillFile:
        _refuse_existing(disk, path)
        return cls(disk, path, durability, head)

    @classmethod
    def open(cls, disk: Disk, path: str, durability: str) -> RefillFile:
        """A file that exists, for reading; it is opened for writing when something is written."""
        refill = cls(disk, path, durability, ())
        try:
            refill._file = disk.open(path)
        except FileNotFoundError:
            raise BadRequest(
                f"there is no file {path}", hint="`headpond refill list` shows what there is."
            ) from None
        except OSError as error:
            hint = "Run as the user whose producer wrote it."
            raise BadRequest(f"cannot read {path}: {error.strerror or error}", hint=hint) from error
        refill.exists = True
        return refill

    def salvaged(self) -> SalvagedFile:
        """For reading all of it, around bytes that the disk cannot read."""
        assert self._file is not None
        return SalvagedFile(self._file)

    def found(self, end: int, proven_to: int) -> None:
        """The result of reading it: where it ends, and how much of that is certainly on the disk."""
        assert self._file is not None
        self.end = self.synced_bytes = end
        self._cut_owed = self._file.size() > end
        self._unproven_from = proven_to if proven_to < end else None

    # --- writing ------------------------------------------------------------------------------------

    def make(self) -> None:
        """Makes the file, if there is none."""
        self._for_writing()

    def append(self, parts: Sequence[bytes]) -> int:
        """Writes at the end, and returns where that was. A partial write is cut off again."""
        file = self._for_writing()
        offset = self.end
        try:
            file.write_at(offset, parts)
        except OSError as error:
            self._cut_back(offset, b"")
            raise self._failed("write to", error) from error
        self.end += sum(map(len, parts))
        self.dirty = True
        return offset

    def flush(self, *, forced: bool) -> None:
        """Syncs if the durability or ``forced`` asks for it; a failure cuts off all since the last sync."""
        file = self._for_writing()
        if forced or self.durability == "sync":
            try:
                file.sync()
            except OSError as error:
                # The system shows such bytes as written from now on, though they are on no disk.
                self._cut_back(self.synced_bytes, self._mark)
                self.dirty = False
                raise self._failed("sync", error) from error
        self.synced_bytes = self.end
        self._mark = b""
        self.dirty = False

    def roll_back(self) -> None:
        """Cuts off all since the last sync, and syncs that: even a power cut does not bring it back."""
        file = self._for_writing()
        try:
            if self.dirty:
                self.end, self._tail, self._cut_owed = self.synced_bytes, self._mark, True
                self._cut(file)
                self.dirty = False
            file.sync()
        except OSError as error:
            raise self._failed("cut back", error) from error

    def write_mark(self, encode: Callable[[], bytes]) -> None:
        """Marks the synced bytes as such, after them. The mark is not synced: losing it loses nothing."""
        self._mark = encode()
        offset = self.end
        try:
            self._for_writing().write_at(offset, [self._mark])
        except OSError:
            self._cut_back(offset, self._mark)
        else:
            self.end += len(self._mark)

    def write_note(self, frame: bytes) -> None:
        """Notes beside the file how much of it is synced. Nobody depends on the note, so faults are ignored."""
        with suppress(OSError):
            if self._note is None:
                path = self.path + NOTE_SUFFIX
                exists = self._disk.exists(path)
                self._note = self._disk.open(path, writable=True) if exists else self._disk.create(path)
            self._note.write_at(0, [frame])

    def remove(self) -> None:
        """Deletes it with all that it holds."""
        self.release()
        with suppress(OSError):  # first: a note without its file would look like a loss
            if self._disk.exists(self.path + NOTE_SUFFIX):
                self._disk.remove(self.path + NOTE_SUFFIX)
        if not self.exists and not (self._tried and self._disk.exists(self.path)):
            return
        try:
            self._disk.remove(self.path)
            self._disk.sync_folder(_folder_of(self.path))
        except OSError as error:
            raise self._failed("remove", error) from error
        self.exists, self.end = False, 0

    def release(self) -> None:
        """Closes it as it is."""
        self.released = True
        if self._note is not None:
            self._note.close()
            self._note = None
        if self._file is not None:
            self._file.close()
            self._file = None

    def _for_writing(self) -> DiskFile:
        """The file, open for writing, with nothing after its end."""
        if self.released:
            raise Closed(f"the refill {self.path} is closed")
        try:
            if not self.exists:
                self._create()
            elif not self._writable:
                self._reopen()
            assert self._file is not None
            if self._cut_owed:
                self._cut(self._file)
            return self._file
        except OSError as error:
            raise self._failed("write to", error) from error

    def _create(self) -> None:
        disk, path = self._disk, self.path
        if not self._tried:
            _refuse_existing(disk, path)
        self._tried = True
        new_path = path + NEW_SUFFIX
        for leftover in (new_path, path):  # of a making that failed, and whose removal did too
            if disk.exists(leftover):
                disk.remove(leftover)
        file = disk.create(new_path)
        try:
            file.write_at(0, self._head)
            file.sync()
            disk.rename(new_path, path)
            disk.sync_folder(_folder_of(path))
        except OSError:
            file.close()
            for each in (new_path, path):
                with suppress(OSError):
                    disk.remove(each)
            raise
        self._file, self._writable, self.exists = file, True, True
        self.end = self.synced_bytes = sum(map(len, self._head))

    def _reopen(self) -> None:
        file = self._disk.open(self.path, writable=True)
        try:
            if self._unproven_from is not None:
                _write_again(file, self._unproven_from, self.end)
                self._unproven_from = None
        except OSError:
            file.close()
            raise
        if self._file is not None:
            self._file.close()
        self._file, self._writable = file, True

    def _cut_back(self, end: int, tail: bytes) -> None:
        """Bytes after ``end`` do not count: they are cut off now, else before the next write."""
        self.end = end
        self._tail = tail
        self._cut_owed = True
        assert self._file is not None
        with suppress(OSError):
            self._cut(self._file)

    def _cut(self, file: DiskFile) -> None:
        file.truncate(self.end)
        if self._tail:
            file.write_at(self.end, [self._tail])
            self.end += len(self._tail)
            self._tail = b""
        self._cut_owed = False

    def _failed(self, what: str, error: OSError) -> HeadpondError:
        text = f"cannot {what} the refill {self.path}: {error.strerror or error}"
        if error.errno in _NO_ROOM:
            return DiskFull(
                text, hint="Free space on the disk of the refill's folder; the producer tries again."
            )
        hint = "Look at the disk of the refill's folder (dmesg, smartctl); the producer tries again."
        return StorageFailed(text, hint=hint)

    # --- reading ------------------------------------------------------------------------------------

    def check_frame(self, frame: bytes, type: int, shard: int, segment: int | None) -> int:
        """``BadFrame`` unless the frame is complete and matches; the segment in its header."""
        if len(frame) < OVERHEAD_BYTES or crc32c(frame) != CRC_RESIDUE:
            raise BadFrame(f"an incomplete frame was to be written to {self.path}")
        its_type, its_shard, its_segment, size = HEADER.unpack_from(frame)
        right = size + OVERHEAD_BYTES == len(frame) and (its_type, its_shard) == (type, shard)
        if not right or segment not in (None, its_segment):
            raise BadFrame(
                f"a frame of type {its_type}, shard {its_shard}, segment {its_segment} was to be written to "
                f"{self.path} as type {type:d}, shard {shard}, segment {segment}"
            )
        return int(its_segment)

    def read_frames(self, wanted: Sequence[tuple[int, SegmentKey, FrameSpan]]) -> list[bytes]:
        """The frames, each checked, up to the first that does not match."""
        if self.released:
            raise Closed(f"the refill {self.path} is closed")
        frames: list[bytes] = []
        at = 0
        while at < len(wanted):
            stop = _adjacent(wanted, at)
            start = wanted[at][2].offset
            data = self._read(start, wanted[stop - 1][2].end - start)
            for type_, key, place in wanted[at:stop]:
                frame = data[place.offset - start : place.end - start]
                try:
                    self.check_frame(frame, type_, *key)
                except BadFrame:
                    return frames
                frames.append(frame)
            at = stop
        return frames

    def _read(self, offset: int, size: int) -> bytes:
        """Unreadable bytes come back as bytes that are no frame."""
        assert self._file is not None, "a frame with a place is in the file"
        try:
            return SalvagedFile(self._file).read_at(offset, size)
        except OSError as error:
            raise self._failed("read", error) from error


def _adjacent(wanted: Sequence[tuple[int, SegmentKey, FrameSpan]], at: int) -> int:
    """One past the last frame that directly follows those from ``at`` on, within one read."""
    start = wanted[at][2].offset
    stop = at + 1
    while stop < len(wanted) and wanted[stop][2].offset == wanted[stop - 1][2].end:
        if wanted[stop][2].end - start > _READ_BYTES_MAX:
            break
        stop += 1
    return stop


def _write_again(file: DiskFile, start: int, end: int) -> None:
    """Bytes that a failed sync may have kept off the disk are written once more."""
    salvaged = SalvagedFile(file)
    for offset in range(start, end, CHUNK_BYTES):
        data = salvaged.read_at(offset, min(CHUNK_BYTES, end - offset))
        for first, stop in salvaged.unreadable.missing(offset, offset + len(data)):
            file.write_at(first, [data[first - offset : stop - offset]])
    file.sync()


def _refuse_existing(disk: Disk, path: str) -> None:
    if disk.exists(path):
        raise BadRequest(f"the refill file {path} exists already", hint="Open it, or use another name.")


def _folder_of(path: str) -> str:
    return path.rpartition("/")[0]
