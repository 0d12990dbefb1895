"""Lets one process at a time use a folder: ``flock`` on a file in it.

The system releases the lock when its process ends in any way, so the folder of a dead process is free. The file
holds the process id, which a refused process reports. ``holder`` takes the lock shared for a moment; a process
that wants the folder can tell that from a holder, and waits.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

from headpond.model.errors import HeadpondError, RefillInUse

LOCK_NAME = "lock"
STATE_VARIABLE = "HEADPOND_STATE"
REFILL_FOLDER = "refill"
_BUSY = frozenset({errno.EWOULDBLOCK, errno.EACCES, errno.EAGAIN})
_ASKED_S = 0.01
_TRIES = 500


class FolderLock:
    """Held until ``release``, or to the end of a ``with`` block."""

    def __init__(self, folder: Path, handle: int) -> None:
        self.folder = folder
        self._handle = handle

    @classmethod
    def take(cls, folder: Path, name: str = LOCK_NAME, in_use: type[HeadpondError] = RefillInUse) -> FolderLock:
        """Locks a folder, created if needed; the error ``in_use`` names the process that holds it."""
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for _ in range(_TRIES):
            handle = os.open(folder / name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
            try:
                if _try(handle, fcntl.LOCK_EX):
                    if _is_still_there(handle, folder / name):
                        with suppress(OSError):  # a full disk cannot store the process id
                            os.ftruncate(handle, 0)
                            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
                        lock, handle = cls(folder, handle), -1
                        return lock
                    continue  # the folder was removed between opening and locking
                if not _try(handle, fcntl.LOCK_SH):
                    raise in_use(f"the folder {folder} is used by process {_written_pid(handle) or 'unknown'}")
            finally:
                if handle >= 0:
                    os.close(handle)
            time.sleep(_ASKED_S)  # another process runs ``holder`` at this moment
        raise in_use(
            f"the folder {folder} cannot be locked: other processes keep asking for its lock; try again"
        )

    def release(self) -> None:
        """Releases the lock. The file stays: removing it could take the lock from the next holder."""
        if self._handle >= 0:
            with suppress(OSError):  # the release counts even if a full disk keeps the old process id
                os.ftruncate(self._handle, 0)
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.release()


def holder(folder: Path) -> int | None:
    """The id of the process that uses a folder; 0 if the file does not name it, None if no process does."""
    try:
        handle = os.open(folder / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return None if _try(handle, fcntl.LOCK_SH) else _written_pid(handle)
    finally:
        os.close(handle)


def _try(handle: int, kind: int) -> bool:
    try:
        fcntl.flock(handle, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _BUSY:
            raise
        return False
    return True


def _is_still_there(handle: int, path: Path) -> bool:
    try:
        found = path.stat()
    except FileNotFoundError:
        return False
    mine = os.fstat(handle)
    return (mine.st_dev, mine.st_ino) == (found.st_dev, found.st_ino)


def _written_pid(handle: int) -> int:
    text = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
    return int(text) if text.isdecimal() else 0


def state_folder(given: str | Path | None = None, environment: Mapping[str, str] | None = None) -> Path:
    """``given``, ``$HEADPOND_STATE``, ``$XDG_STATE_HOME/headpond`` or ``~/.local/state/headpond``."""
    names = os.environ if environment is None else environment
    if given:
        return Path(given).expanduser()
    if names.get(STATE_VARIABLE):
        return Path(names[STATE_VARIABLE]).expanduser()
    base = names.get("XDG_STATE_HOME", "")
    # The XDG standard says that a relative path is invalid.
    return (Path(base) if os.path.isabs(base) else Path.home() / ".local" / "state") / "headpond"


def refill_root(given: str | Path | None = None) -> Path:
    """The folder of all slots (producer/refill/folder)."""
    return state_folder(given) / REFILL_FOLDER
