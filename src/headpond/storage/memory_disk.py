"""A disk in memory that knows which bytes are durable, and fails on request.

It has two images. The visible one changes at once; the durable one changes with ``sync`` (the bytes of a file)
and ``sync_folder`` (creations, renames, removals). ``crash`` is a power cut: of everything that was not durable
it keeps nothing, all, or some sectors and some names, drawn from the seed. A sync that fails behaves as on
Linux: the bytes look written from then on but are on no disk, and the next sync succeeds.

Everything is deterministic: the same seed and the same calls give the same disk.
"""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from headpond.model.ranges import RangeSet

SECTOR_BYTES = 512
"""A disk writes a sector whole or not at all."""

Keep = Literal["none", "all", "some"]
"""What a power cut keeps of the bytes that were not durable; ``some`` is drawn sector by sector."""
OPERATIONS_MAX = 200_000
"""How many operations the disk remembers; past that it drops the older half."""

Operation = Literal[
    "write", "sync", "read", "open", "create", "preallocate", "truncate", "rename", "remove", "sync_folder"
]
Operations = list[tuple[str | int, ...]]
Names = list[str]
_CHANGES = frozenset({"write", "sync", "create", "preallocate", "truncate", "rename", "remove", "sync_folder"})


@dataclass(slots=True, eq=False)
class FileImage:
    """The visible and the durable bytes of a file. Room behind ``data`` up to ``size`` reads as zeros."""

    data: bytearray = field(default_factory=bytearray)
    size: int = 0
    durable: bytearray = field(default_factory=bytearray)
    durable_size: int = 0
    dirty: RangeSet = field(default_factory=RangeSet)
    spoilt: RangeSet = field(default_factory=RangeSet)
    """Bytes that cannot be read until they are written again."""

    def read(self, offset: int, size: int) -> bytes:
        size = max(0, min(size, self.size - offset))
        found = bytes(self.data[offset : offset + size])
        return found + bytes(size - len(found))

    def write(self, offset: int, data: bytes) -> None:
        if not data:
            return
        end = offset + len(data)
        self.spoilt.discard(offset, end)
        if len(self.data) < offset:
            self.data.extend(bytes(offset - len(self.data)))
        self.data[offset:end] = data
        self.size = max(self.size, end)
        self.dirty.add(offset, end)

    def truncate(self, size: int) -> None:
        if size < self.size:
            self.dirty.add(size, self.size)
            del self.data[size:]
        self.size = size

    def sync(self) -> None:
        for start, end in self.dirty:
            self._persist(start, end)
        self.dirty = RangeSet()
        self.durable_size = self.size
        del self.durable[self.size :]

    def crash(self, keep: Keep, draw: random.Random) -> None:
        """Reduces the file to the bytes that a power cut leaves."""
        if keep == "all":
            self.sync()
        elif keep == "some":
            for start, end in self.dirty:
                for sector in range(start // SECTOR_BYTES, -(-end // SECTOR_BYTES)):
                    if draw.random() < 0.5:
                        at = sector * SECTOR_BYTES
                        self._persist(max(at, start), min(at + SECTOR_BYTES, end))
            self.durable_size = draw.choice((self.durable_size, self.size, max(self.size, self.durable_size)))
            del self.durable[self.durable_size :]
        self.dirty = RangeSet()
        self.size = self.durable_size
        self.data = bytearray(self.durable[: self.size])

    def _persist(self, start: int, end: int) -> None:
        """Copies the visible bytes between two offsets to the durable image."""
        if start >= min(end, self.size):
            return
        if len(self.durable) < start:
            self.durable.extend(bytes(start - len(self.durable)))
        end = min(end, self.size)
        self.durable[start:end] = self.read(start, end - start)


@dataclass(slots=True)
class _Fault:
    operation: str
    errno: int
    count: int
    path_prefix: str
    after: int


_Change = dict[str, FileImage | None]
"""Names that change together and are not durable yet; None if a name is gone."""


class MemoryDisk:
    """A disk in memory that can lose power, rot and fail."""

    ordered = False

    def __init__(self, seed: int = 0, *, capacity_bytes: int | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self.operations: Operations = []
        """All operations, oldest first: (operation, path), and for reads and writes offset and size."""
        self.generation = 0
        """How often the power was cut; files opened before that are dead."""
        self._random = random.Random(seed)
        self._names: dict[str, FileImage] = {}
        self._durable_names: dict[str, FileImage] = {}
        self._changes: list[_Change] = []
        self._trees: set[str] = set()
        """Folders that were removed with everything in them."""
        self._faults: list[_Fault] = []
        self._power_left: int | None = None
        self._lock = threading.RLock()

    # --- the MeasuredDisk protocol ------------------------------------------------------------------

    def create(self, path: str) -> MemoryFile:
        with self._lock:
            self.note("create", path)
            if path in self._names:
                raise _error(errno.EEXIST, path)
            node = self._names[path] = FileImage()
            self._changes.append({path: node})
            return MemoryFile(self, node, path, writable=True)

    def open(self, path: str, *, writable: bool = False) -> MemoryFile:
        with self._lock:
            self.note("open", path)
            return MemoryFile(self, self._node(path), path, writable=writable)

    def list(self, folder: str) -> Names:
        with self._lock:
            self._check_power()
            prefix = folder.strip("/") + "/" if folder.strip("/") else ""
            below = (path[len(prefix) :] for path in self._names if path.startswith(prefix))
            return sorted({name.split("/", 1)[0] for name in below})

    def exists(self, path: str) -> bool:
        with self._lock:
            self._check_power()
            return path in self._names or any(name.startswith(path + "/") for name in self._names)

    def rename(self, path: str, new_path: str) -> None:
        with self._lock:
            self.note("rename", path, new_path)
            node = self._node(path)
            del self._names[path]
            self._names[new_path] = node
            self._changes.append({path: None, new_path: node})

    def remove(self, path: str) -> None:
        with self._lock:
            self.note("remove", path)
            self._node(path)
            del self._names[path]
            self._changes.append({path: None})

    def remove_tree(self, folder: str) -> None:
        with self._lock:
            prefix = folder.strip("/") + "/"
            assert prefix != "/", "the root itself is not removed"
            for path in [path for path in self._names if path.startswith(prefix)]:
                self.remove(path)
            self._trees.add(prefix)

    def sync_folder(self, folder: str) -> None:
        with self._lock:
            self.note("sync_folder", folder)
            folder = folder.strip("/")
            trees = tuple(each for each in self._trees if each[:-1].rpartition("/")[0] == folder)
            self._trees -= set(trees)  # the names of folders that are gone
            waiting: list[_Change] = []
            for change in self._changes:
                rest = {}
                for path, node in change.items():
                    inside = path.rpartition("/")[0] == folder
                    if inside and path in self._names:
                        self._durable_names[path] = self._names[path]
                    elif inside or (path.startswith(trees) and path not in self._names):
                        self._durable_names.pop(path, None)
                    else:
                        rest[path] = node
                if rest:
                    waiting.append(rest)
            self._changes = waiting

    def free_bytes(self) -> int:
        with self._lock:
            if self.capacity_bytes is None:
                return 1 << 40
            return max(0, self.capacity_bytes - self.used_bytes())

    def measure(self, after_s: float = 0.0) -> None:
        """Its free room needs no measuring."""

    def when_durable(self, then: Callable[[OSError | None], None]) -> None:
        """A sync returns when it is done."""
        then(None)

    # --- faults on request --------------------------------------------------------------------------

    def crash(self, *, keep: Keep = "none") -> None:
        """Cuts the power and restores it. Files opened before are dead; requested faults are cleared."""
        with self._lock:
            for change in self._changes:
                if keep == "all" or (keep == "some" and self._random.random() < 0.5):
                    _apply(self._durable_names, change)
            self._changes = []
            self._trees = set()
            self._names = dict(self._durable_names)
            for path in sorted(self._names):
                self._names[path].crash(keep, self._random)
            self._faults = []
            self._power_left = None
            self.generation += 1

    def cut_power_after(self, changes: int) -> None:
        """Allows this many more changing operations; after them everything fails until ``crash``.

        A write that the cut hits is written in part.
        """
        self._power_left = changes

    def fail_next(
        self, operation: Operation, error: int, count: int = 1, path_prefix: str = "", *, after: int = 0
    ) -> None:
        """Makes the next ``count`` operations of a kind fail with this errno, after ``after`` successful ones.

        A failing write leaves a part of its bytes; a failing sync loses the bytes that it should make durable.
        """
        self._faults.append(_Fault(operation, error, count, path_prefix, after))

    @property
    def failing(self) -> bool:
        """Whether a requested fault is still to come."""
        return bool(self._faults)

    def fail_never(self) -> None:
        """Clears all requested faults."""
        self._faults = []

    def flip(self, path: str, offset: int, bit: int = 0) -> None:
        """Rot: flips one bit, in the visible and in the durable image."""
        with self._lock:
            node = self._node(path)
            for image, size in ((node.data, node.size), (node.durable, node.durable_size)):
                if offset < size:
                    image.extend(bytes(max(0, offset + 1 - len(image))))
                    image[offset] ^= 1 << bit

    def spoil(self, path: str, offset: int, size: int) -> None:
        """A bad sector: reads that touch these bytes fail with ``EIO`` until they are written again."""
        with self._lock:
            self._node(path).spoilt.add(offset, offset + size)

    def copy(self) -> MemoryDisk:
        """Another disk with the visible files of this one, all durable."""
        twin = MemoryDisk(self._random.randrange(2**32), capacity_bytes=self.capacity_bytes)
        for path in self.paths():
            node = twin._names[path] = twin._durable_names[path] = FileImage()
            node.write(0, self.contents(path))
            node.sync()
        return twin

    def contents(self, path: str) -> bytes:
        """The visible bytes of a file; records no operation."""
        node = self._node(path)
        return node.read(0, node.size)

    def paths(self) -> Names:
        """The paths of all files."""
        return sorted(self._names)

    # --- inside -------------------------------------------------------------------------------------

    def note(self, operation: str, path: str, *rest: str | int) -> None:
        """Records an operation, and fails it if that was requested."""
        self._check_power()
        self.operations.append((operation, path, *rest))
        if len(self.operations) > OPERATIONS_MAX:
            del self.operations[: OPERATIONS_MAX // 2]
        if operation in _CHANGES and self._power_left is not None:
            self._power_left -= 1
            if self._power_left < 0:
                raise _PowerIsOff(path)
        for fault in self._faults:
            if fault.operation == operation and path.startswith(fault.path_prefix):
                if fault.after > 0:
                    fault.after -= 1
                    continue
                fault.count -= 1
                if fault.count <= 0:
                    self._faults.remove(fault)
                raise _error(fault.errno, path)

    def _check_power(self) -> None:
        if self._power_left is not None and self._power_left < 0:
            raise _PowerIsOff

    def _node(self, path: str) -> FileImage:
        node = self._names.get(path)
        if node is None:
            raise _error(errno.ENOENT, path)
        return node

    def used_bytes(self) -> int:
        """The size of all files."""
        return sum(node.size for node in self._names.values())

    def room_for(self, node: FileImage, end: int) -> int:
        """How far a file may reach that wants to reach ``end``."""
        if self.capacity_bytes is None or end <= node.size:
            return end
        return min(end, node.size + max(0, self.capacity_bytes - self.used_bytes()))


class MemoryFile:
    """An open file of a ``MemoryDisk``."""

    __slots__ = ("_disk", "_generation", "_node", "_open", "_writable", "path")

    def __init__(self, disk: MemoryDisk, node: FileImage, path: str, *, writable: bool) -> None:
        self._disk = disk
        self._node = node
        self._generation = disk.generation
        self._writable = writable
        self._open = True
        self.path = path

    def size(self) -> int:
        with self._disk._lock:
            self._check()
            return self._node.size

    def read_at(self, offset: int, size: int) -> bytes:
        with self._disk._lock:
            self._check()
            self._disk.note("read", self.path, offset, size)
            if self._node.spoilt.overlap(offset, offset + size):
                raise _error(errno.EIO, self.path)
            return self._node.read(offset, size)

    def write_at(self, offset: int, parts: Sequence[bytes]) -> int:
        with self._disk._lock:
            self._check(writing=True)
            disk, data = self._disk, b"".join(parts)
            disk._check_power()
            try:
                disk.note("write", self.path, offset, len(data))
            except OSError:
                self._node.write(offset, data[: disk._random.randrange(len(data) + 1)])
                raise
            room = disk.room_for(self._node, offset + len(data)) - offset
            self._node.write(offset, data[: max(0, room)])
            if room < len(data):
                raise _error(errno.ENOSPC, self.path)
            return len(data)

    def preallocate(self, size: int) -> None:
        with self._disk._lock:
            self._check(writing=True)
            self._disk.note("preallocate", self.path, size)
            if self._disk.room_for(self._node, size) < size:
                raise _error(errno.ENOSPC, self.path)
            self._node.size = max(self._node.size, size)

    def truncate(self, size: int) -> None:
        with self._disk._lock:
            self._check(writing=True)
            self._disk.note("truncate", self.path, size)
            self._node.truncate(size)

    def sync(self) -> None:
        with self._disk._lock:
            self._check()
            try:
                self._disk.note("sync", self.path)
            except OSError as error:
                if not isinstance(error, _PowerIsOff):
                    self._node.dirty = RangeSet()  # clean for the system, and on no disk
                raise
            self._node.sync()

    def close(self) -> None:
        self._open = False

    def _check(self, *, writing: bool = False) -> None:
        if not self._open or self._generation != self._disk.generation:
            raise OSError(
                errno.EBADF, "the file is closed, or the power was cut since it was opened", self.path
            )
        if writing and not self._writable:
            raise OSError(errno.EBADF, "the file is open for reading only", self.path)


class _PowerIsOff(OSError):
    def __init__(self, path: str = "") -> None:
        super().__init__(errno.ENODEV, "the power is off", path)


def _error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def _apply(names: dict[str, FileImage], change: _Change) -> None:
    for path, node in change.items():
        if node is None:
            names.pop(path, None)
        else:
            names[path] = node
