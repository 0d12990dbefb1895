"""The folder of an archive: its files, and how they get there exactly once.

::

    DIR/date=2026-01-31/part-00000012-0000.parquet    the rows, by the day they were stored (UTC)
    DIR/_headpond/archive.json                        which topic this is an archive of
    DIR/_headpond/checkpoint/                         Spark's checkpoint of the stream
    DIR/_headpond/batches/00000012.json               a batch that counts: its files, and where they came from
    DIR/_headpond/staging/                            files being written, or waiting to be moved
    DIR/_headpond/publish/lock                        held while files are moved
    DIR/_headpond/archiving/lock                      held by the process that archives
    DIR/_headpond/compacting/                         the same for compaction, and its new files

A batch is written to the staging folder and synced. Then one rename puts its record in place, which makes the
batch count; then its files are moved to where readers look. The next run moves files of a record that are still
in staging, so it continues after a kill at any moment: without a record it writes the batch again, with one it
does not. Readers see plain Parquet below ``date=…``; Spark and pyarrow skip names that start with ``_``.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from headpond.model.errors import BadRequest, RefillInUse
from headpond.storage.folder_lock import FolderLock

INSIDE = "_headpond"
RECORDS_KEPT = 100
"""Spark repeats the newest batch alone; older records are for people."""
_WAIT_TRIES = 3_000
_WAIT_S = 0.02


class ArchiveInfo(msgspec.Struct, frozen=True, kw_only=True):
    """``archive.json``."""

    version: int = 1
    topic: str
    topic_uuid: str


class BatchFile(msgspec.Struct, frozen=True, kw_only=True):
    staged: str
    """Below the staging folder."""
    place: str
    """Below the archive."""


class BatchRecord(msgspec.Struct, frozen=True, kw_only=True):
    """``batches/N.json``."""

    batch: int
    query: str
    """The id of the stream that wrote it: numbers of another stream mean something else."""
    rows: int
    files: list[BatchFile]
    cut: str
    """A digest of the offsets of the batch: the same number with another cut is other rows."""


class ArchiveFolder:
    """An archive on a disk of this machine, or on one that it shares with Spark's workers."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        text = os.fspath(path)
        if "://" in text:
            raise BadRequest(
                f"an archive cannot be at {text}: it needs a file system that renames in one step",
                hint="Name a folder on a disk that this machine and Spark's workers share.",
            )
        self.path = Path(text).expanduser().absolute()
        self.inside = self.path / INSIDE
        self.checkpoint = self.inside / "checkpoint"
        self.staging = self.inside / "staging"
        self.batches = self.inside / "batches"

    # --- ownership ---------------------------------------------------------------------------------

    def info(self) -> ArchiveInfo:
        """The topic of this archive; a folder that is no archive is an error."""
        try:
            return msgspec.json.decode((self.inside / "archive.json").read_bytes(), type=ArchiveInfo)
        except (FileNotFoundError, NotADirectoryError):
            raise BadRequest(
                f"{self.path} is not an archive", hint="Name a folder that `headpond spark archive` wrote."
            ) from None
        except msgspec.DecodeError as error:
            raise BadRequest(f"{self.inside / 'archive.json'} is damaged: {error}") from error

    def claim(self, info: ArchiveInfo) -> None:
        """Makes it the archive of this topic; raises if it is another topic's, or has other files."""
        if (self.inside / "archive.json").exists():
            there = self.info()
            if there != info:
                raise BadRequest(
                    f"{self.path} is an archive of {there.topic} ({there.topic_uuid}), not of {info.topic}"
                    f" ({info.topic_uuid})",
                    hint="Name another folder; a topic that was created again is another topic.",
                )
            return
        if self.path.is_file():
            raise BadRequest(f"{self.path} is a file", hint="Name a folder; it is made if it is not there.")
        if self.path.exists() and any(self.path.iterdir()):
            raise BadRequest(f"{self.path} is not empty, and not an archive", hint="Name a new folder.")
        try:
            self.inside.mkdir(parents=True, exist_ok=True)
            _write(self.inside / "archive.json", msgspec.json.encode(info))
        except OSError as error:
            raise BadRequest(f"cannot make the folder {self.path}: {error.strerror}") from error

    def check_stream(self) -> None:
        """Raises if the archive has batches and their checkpoint is gone: the stream would start over."""
        newest = self.newest()
        if newest is None:
            return
        try:
            query = msgspec.json.decode((self.checkpoint / "metadata").read_bytes())["id"]
        except (OSError, msgspec.DecodeError, KeyError, TypeError):
            query = None
        if query != newest.query:
            raise BadRequest(
                f"the checkpoint of {self.path} is gone, and only it knows how far the archive is",
                hint="Put _headpond/checkpoint back, or archive into a new folder.",
            )

    @contextmanager
    def held(self, doing: str) -> Iterator[None]:
        """Locks the archive for one process that does this: ``archiving`` or ``compacting``."""
        try:
            lock = FolderLock.take(self.inside / doing)
        except RefillInUse as error:
            raise BadRequest(
                f"the archive is in use: {error.message}", hint="Wait for it, or end it."
            ) from error
        with lock:
            yield

    @contextmanager
    def publishing(self) -> Iterator[None]:
        """Locks the archive while files are moved: archive and compaction take turns."""
        for _ in range(_WAIT_TRIES):
            try:
                lock = FolderLock.take(self.inside / "publish")
            except RefillInUse:
                time.sleep(_WAIT_S)
                continue
            with lock:
                yield
                return
        raise BadRequest(f"another process moves files into {self.path} and does not end")

    # --- batches ------------------------------------------------------------------------------------

    def newest(self) -> BatchRecord | None:
        names = sorted(self.batches.glob("*.json")) if self.batches.is_dir() else []
        return msgspec.json.decode(names[-1].read_bytes(), type=BatchRecord) if names else None

    def stage(self, batch: int) -> Path:
        """A new folder to write to: a Java whose Python was killed may still write to the one before."""
        self.staging.mkdir(parents=True, exist_ok=True)
        return self.staging / f"batch-{batch}-{uuid.uuid4().hex}"

    def commit(self, batch: int, query: str, staged: Path, rows: int, cut: str) -> None:
        """Makes the staged files count, and moves them to their place."""
        files = [
            BatchFile(
                staged=str(path.relative_to(self.staging)),
                place=f"{path.parent.name}/part-{batch:08}-{number:04}.parquet",
            )
            for number, path in enumerate(sorted(staged.glob("date=*/*.parquet")))
        ]
        sync(self.staging / file.staged for file in files)
        record = BatchRecord(batch=batch, query=query, rows=rows, files=files, cut=cut)
        self.batches.mkdir(parents=True, exist_ok=True)
        _write(self.batches / f"{batch:08}.json", msgspec.json.encode(record))
        self.finish(record)
        for old in sorted(self.batches.glob("*.json"))[:-RECORDS_KEPT]:
            old.unlink()

    def finish(self, record: BatchRecord) -> None:
        """Moves the files of a batch that are still in staging."""
        if self._waiting(record):
            with self.publishing():
                self._move(record)

    def _waiting(self, record: BatchRecord) -> list[BatchFile]:
        return [file for file in record.files if (self.staging / file.staged).exists()]

    def _move(self, record: BatchRecord) -> None:
        waiting = self._waiting(record)
        for file in waiting:
            (self.path / file.place).parent.mkdir(exist_ok=True)
            os.replace(self.staging / file.staged, self.path / file.place)
        if waiting:
            sync({(self.path / file.place).parent for file in waiting} | {self.path})

    def recover(self) -> None:
        """Completes the batch of a process that was killed, and removes its staging files."""
        newest = self.newest()
        if newest is not None:
            self.finish(newest)
        shutil.rmtree(self.staging, ignore_errors=True)

    # --- files --------------------------------------------------------------------------------------

    def days(self) -> list[Path]:
        return sorted(path for path in self.path.glob("date=*") if path.is_dir())

    def files(self) -> list[Path]:
        return [file for day in self.days() for file in sorted(day.glob("*.parquet"))]

    def whole_files(self) -> list[Path]:
        """The files, with none or all of each batch, for a reader that remembers how far it has read.

        Moves the files of a batch whose process was killed first.
        """
        try:
            with self.publishing():
                newest = self.newest()
                if newest is not None:
                    self._move(newest)
                return self.files()
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise
        # A read-only archive: check that no batch was being moved.
        newest = self.newest()
        waiting = newest is not None and bool(self._waiting(newest))
        found = self.files()
        if waiting or self.newest() != newest:
            raise BadRequest(
                f"a batch of {self.path} is being moved, and this process may not write there",
                hint="Run it again; if that does not help, archive the topic once more first.",
            )
        return found


def sync(paths: Iterable[Path]) -> None:
    """Syncs these files and folders to disk."""
    for path in paths:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _write(path: Path, data: bytes) -> None:
    """Writes a file atomically and durably."""
    beside = path.with_name(f".{path.name}.new")
    beside.write_bytes(data)
    sync([beside])
    os.replace(beside, path)
    sync([path.parent])
