"""A cut of the data folder: hard links to all files that a restart needs, and their lengths.

::

    backup/CUT/FILES    the files: one JSON object per line (``CutFile``)
    backup/CUT/0, …     links to them, by the number of the line

Files that are being written grow behind their length in the list. The commit journal is left out: what it
holds is in the logs too. Folders like those of the data folder would make the pause twice as long, so the
links have numbers. ``headpond backup`` copies them to their paths, beside the list.
"""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from headpond.model.errors import BadData
from headpond.storage.append import NEW_SUFFIX
from headpond.storage.commit_journal import FOLDER as COMMITS_FOLDER
from headpond.storage.disk import Disk
from headpond.storage.os_disk import LOCK_NAME
from headpond.storage.seal import SEAL_FILE

BACKUP_FOLDER = "backup"
FILES_NAME = "FILES"
_LEFT_OUT = (LOCK_NAME, SEAL_FILE, BACKUP_FOLDER, COMMITS_FOLDER, "lost+found")
"""At the top of the data folder."""


class CutFile(msgspec.Struct, frozen=True):
    """One file of a cut."""

    path: str
    bytes: int
    inode: int
    mtime_ns: int
    """With path, length and inode: two cuts that agree in all four have the same bytes."""


class LinkedCut:
    """Links below the data folder, so on the same file system."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._cuts = root / BACKUP_FOLDER

    def hold(self, lengths: Mapping[str, int], disk: Disk) -> str:
        """``lengths``: of files with reserved room. Called while nothing is written."""
        cut = self._cuts / uuid.uuid4().hex
        cut.mkdir(mode=0o700, parents=True)
        files: list[CutFile] = []
        for path in self._paths():
            with suppress(FileNotFoundError):  # of a topic that was deleted
                link = cut / str(len(files))
                os.link(self._root / path, link)
                found = link.stat()
                length = min(lengths.get(path, found.st_size), found.st_size)
                files.append(CutFile(path, length, found.st_ino, found.st_mtime_ns))
        (cut / FILES_NAME).write_bytes(msgspec.json.Encoder().encode_lines(files))
        return str(cut.absolute())

    def release(self, disk: Disk) -> None:
        with suppress(FileNotFoundError):
            shutil.rmtree(self._cuts)

    def _paths(self) -> Iterator[str]:
        for folder, folders, names in os.walk(self._root):
            above = Path(folder).relative_to(self._root)
            folders[:] = [name for name in folders if not is_left_out(str(above / name))]
            yield from (path for path in (str(above / name) for name in names) if not is_left_out(path))


def is_left_out(path: str) -> bool:
    """Whether a restart does not need this file or folder."""
    return path.partition("/")[0] in _LEFT_OUT or path.endswith(NEW_SUFFIX)


def read_cut(folder: Path) -> list[CutFile]:
    """The files of a cut, or of its copy."""
    try:
        lines = (folder / FILES_NAME).read_bytes()
        files: list[CutFile] = msgspec.json.Decoder(CutFile).decode_lines(lines)
    except FileNotFoundError:
        raise BadData(f"{folder} is not a backup: it has no file {FILES_NAME}") from None
    except msgspec.MsgspecError as error:
        raise BadData(f"{folder / FILES_NAME} cannot be read: {error}") from None
    for each in files:
        if Path(each.path).is_absolute() or ".." in Path(each.path).parts:  # it would be written elsewhere
            raise BadData(f"{folder / FILES_NAME} names a file outside of the folder: {each.path[:80]!r}")
    return files
