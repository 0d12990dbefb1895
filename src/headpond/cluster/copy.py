"""A copy of a member's folder, for a member that is new or that the stream has left behind.

The source opens every file between two records; names and position belong together then. The receiver reads the
files through these handles while they change, saves the position, and replays the stream from there: replaying
gives the right bytes whatever later changes the copy has already (apply.py). It can become active only at the
end of the stream, so never before it has replayed everything that the copy may contain.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import msgspec

from headpond.cluster.apply import POSITION_FILE, Position, save_position
from headpond.storage.append import write_whole
from headpond.storage.disk import Disk, DiskFile, MeasuredDisk

FILES_PER_PAGE = 1000
PART_BYTES = 256 * 1024
COPYING_FILE = "cluster/COPYING"
LOCAL = ("LOCK", POSITION_FILE.partition("/")[0])
"""At the top of a folder: what belongs to the member, not to the group."""


class BeginCopy(msgspec.Struct, tag="begin_copy"):
    """Answered by a ``CopyBegun``."""


class ListCopy(msgspec.Struct, tag="list_copy"):
    """Answered by a list of paths, from a file on."""

    copy: int
    first: int


class ReadCopy(msgspec.Struct, tag="read_copy"):
    """Answered by up to ``PART_BYTES`` bytes of a file; none at its end."""

    copy: int
    file: int
    offset: int


class EndCopy(msgspec.Struct, tag="end_copy"):
    """Answered by nothing."""

    copy: int


CopyQuestion = BeginCopy | ListCopy | ReadCopy | EndCopy


class CopyBegun(msgspec.Struct):
    copy: int
    position: Position
    files: int


def shared_paths(disk: MeasuredDisk) -> list[str]:
    """The paths of the group's files."""
    return [path for path in disk.paths() if path.partition("/")[0] not in LOCAL]


class CopySource:
    """One copy at a time; the next one ends it."""

    def __init__(self, disk: MeasuredDisk) -> None:
        self._disk = disk
        self._number = 0
        self._files: list[tuple[str, DiskFile]] = []

    def begin(self, position: Position) -> CopyBegun:
        """Does IO, between two records."""
        self.end()
        self._number += 1
        self._files = [(path, self._disk.open(path)) for path in shared_paths(self._disk)]
        return CopyBegun(self._number, position, len(self._files))

    def names(self, ask: ListCopy) -> list[str]:
        return [path for path, _ in self._of(ask.copy)[ask.first : ask.first + FILES_PER_PAGE]]

    def read(self, ask: ReadCopy) -> bytes:
        return self._of(ask.copy)[ask.file][1].read_at(ask.offset, PART_BYTES)

    def end(self) -> None:
        for _, file in self._files:
            file.close()
        self._files = []

    def _of(self, copy: int) -> list[tuple[str, DiskFile]]:
        if copy != self._number or not self._files:
            raise LookupError(f"copy {copy} has ended")
        return self._files


async def fetch_copy(
    disk: MeasuredDisk,
    ask: Callable[[CopyQuestion], Awaitable[bytes]],
    on_begun: Callable[[Position], None],
) -> Position:
    """Replaces a folder by a copy; returns its position, which ``on_begun`` gets as soon as it is known.

    An exception leaves a folder without a position.
    """
    if disk.exists(POSITION_FILE):
        disk.remove(POSITION_FILE)
    write_whole(disk, COPYING_FILE, b"", sync=True)  # the folder is a member's, though it has no NODE yet
    removed = shared_paths(disk)
    for path in removed:
        disk.remove(path)
    begun = msgspec.msgpack.decode(await ask(BeginCopy()), type=CopyBegun)
    on_begun(begun.position)
    folders = {path.rpartition("/")[0] for path in removed}
    number = 0
    while number < begun.files:
        for path in msgspec.msgpack.decode(await ask(ListCopy(begun.copy, number)), type=list[str]):
            await _fetch_file(disk, path, begun.copy, number, ask)
            folders.add(path.rpartition("/")[0])
            number += 1
    for folder in sorted(folders | {""}):
        disk.sync_folder(folder)
    await ask(EndCopy(begun.copy))
    save_position(disk, begun.position)
    disk.remove(COPYING_FILE)
    return begun.position


async def _fetch_file(
    disk: Disk, path: str, copy: int, number: int, ask: Callable[[CopyQuestion], Awaitable[bytes]]
) -> None:
    file = disk.create(path)
    try:
        offset = 0
        while part := await ask(ReadCopy(copy, number, offset)):
            file.write_at(offset, [part])
            offset += len(part)
        file.sync()
    finally:
        file.close()
