"""The real disk: the Disk protocol over a folder of the machine.

Every call is the plain system call, plus what the protocol promises beyond it: short writes continue, a write
may have any number of parts, and the folders above a new file become durable with it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from headpond.model.errors import DataLocked
from headpond.storage.folder_lock import FolderLock

Names = list[str]
LOCK_NAME = "LOCK"
_PARTS_MAX = min(os.sysconf("SC_IOV_MAX"), 1024) if "SC_IOV_MAX" in os.sysconf_names else 16
CALL_BYTES_MAX = 1 << 20
"""For a longer call Linux looks for 2 MiB of memory in one piece, ten times as long as it copies the bytes."""
_CANNOT_PREALLOCATE = frozenset({errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS, errno.ENODEV})


class OsDisk:
    """The folder ``root`` and everything below it; created, for its owner alone, if it does not exist."""

    ordered = False

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock: FolderLock | None = None
        self._named = {root}
        """Folders whose names are durable: the folders above them need no further sync."""
        if not root.is_dir():
            root.mkdir(mode=0o700, parents=True, exist_ok=True)
            _sync_entries(root.parent)

    def create(self, path: str) -> OsDiskFile:
        place = self._place(path)
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        try:
            handle = os.open(place, flags, 0o600)
        except FileNotFoundError:
            self._named -= {above for above in (place.parent, *place.parent.parents) if not above.exists()}
            place.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(place, flags, 0o600)
        return OsDiskFile(handle, path)

    def open(self, path: str, *, writable: bool = False) -> OsDiskFile:
        flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        return OsDiskFile(os.open(self._place(path), flags), path)

    def list(self, folder: str) -> list[str]:
        try:
            return sorted(os.listdir(self._place(folder)))
        except FileNotFoundError:
            return []

    def exists(self, path: str) -> bool:
        return self._place(path).exists()

    def rename(self, path: str, new_path: str) -> None:
        os.replace(self._place(path), self._place(new_path))

    def remove(self, path: str) -> None:
        os.unlink(self._place(path))

    def remove_tree(self, folder: str) -> None:
        assert folder.strip("/"), "the root itself is not removed"
        place = self._place(folder)
        self._named -= {other for other in list(self._named) if other.is_relative_to(place)}
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(place)

    def sync_folder(self, folder: str) -> None:
        place = self._place(folder)
        _sync_entries(place)
        while place not in self._named:
            _sync_entries(place.parent)
            self._named.add(place)
            place = place.parent

    def free_bytes(self) -> int:
        room = os.statvfs(self.root)
        return room.f_bavail * room.f_frsize

    def paths(self) -> Names:
        """The paths of all files."""
        return sorted(
            str(Path(folder, name).relative_to(self.root))
            for folder, _, names in os.walk(self.root)
            for name in names
        )

    def lock(self) -> None:
        """Locks the folder for this process; ``DataLocked`` names the process that holds it."""
        self._lock = FolderLock.take(self.root, LOCK_NAME, DataLocked)

    def unlock(self) -> None:
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def lock_folder(self, folder: str) -> FolderLock:
        return FolderLock.take(self._place(folder))

    def _place(self, path: str) -> Path:
        assert not path.startswith("/") and ".." not in path.split("/"), f"not a path below the root: {path!r}"
        return self.root / path


class OsDiskFile:
    """An open file. Reads and writes name their offset, so threads may share it. Errors name the file."""

    __slots__ = ("_handle", "path")

    def __init__(self, handle: int, path: str) -> None:
        self._handle = handle
        self.path = path

    def size(self) -> int:
        return os.fstat(self._handle).st_size

    def read_at(self, offset: int, size: int) -> bytes:
        data = os.pread(self._handle, size, offset)
        if len(data) == size or not data:
            return data
        pieces = [data]
        have = len(data)
        while have < size and (data := os.pread(self._handle, size - have, offset + have)):
            pieces.append(data)
            have += len(data)
        return b"".join(pieces)

    def write_at(self, offset: int, parts: Sequence[bytes]) -> int:
        total = 0
        try:
            for group in _in_calls(parts):
                size = sum(map(len, group))
                done = os.pwritev(self._handle, group, offset + total)
                if done < size:
                    self._write_rest(offset + total, b"".join(group), done)
                total += size
        except OSError as error:
            raise self._named(error) from None
        return total

    def _write_rest(self, offset: int, data: bytes, done: int) -> None:
        """Continues after a short write; a full disk fails the next call."""
        view = memoryview(data)
        while done < len(data):
            written = os.pwrite(self._handle, view[done:], offset + done)
            if written == 0:
                raise OSError(errno.EIO, "the disk takes no more bytes", self.path)
            done += written

    def preallocate(self, size: int) -> None:
        have = self.size()
        if size <= have or not hasattr(os, "posix_fallocate"):
            return
        try:
            os.posix_fallocate(self._handle, have, size - have)
        except OSError as error:
            if error.errno not in _CANNOT_PREALLOCATE:
                raise self._named(error) from None

    def truncate(self, size: int) -> None:
        os.ftruncate(self._handle, size)

    def sync(self) -> None:
        try:
            if hasattr(os, "fdatasync"):
                os.fdatasync(self._handle)
            else:
                os.fsync(self._handle)
        except OSError as error:
            raise self._named(error) from None

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _named(self, error: OSError) -> OSError:
        return OSError(error.errno, error.strerror, self.path)


def _in_calls(parts: Sequence[bytes]) -> Iterable[Sequence[bytes | memoryview]]:
    """The parts of a write, as a system call each takes them."""
    if len(parts) <= _PARTS_MAX and sum(map(len, parts)) <= CALL_BYTES_MAX:
        return [parts]
    calls: list[list[bytes | memoryview]] = [[]]
    room = CALL_BYTES_MAX
    for part in parts:
        rest = memoryview(part)
        while rest:
            if not room or len(calls[-1]) == _PARTS_MAX:
                calls.append([])
                room = CALL_BYTES_MAX
            calls[-1].append(rest[:room])
            room, rest = room - len(rest[:room]), rest[room:]
    return calls


def _sync_entries(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
