"""The commit journal: writes of many files, durable with one sync. Version 1.

A round of hundreds of busy logs would cost one sync per log. Instead the node writes all bytes here first, with
one write and one sync, and then into the files themselves without a sync. A *generation* is a file
``commits/00000007.commits`` of fixed size whose blocks were written before, so that its sync waits for nothing
but its own bytes. It holds frames::

    RECORD  shard 2, segment = the generation (mod 2**32):
            version u8 | generation u64 | offset u64 | length of the path u16 | path | the bytes for that offset

When a generation is full, a checkpoint syncs the files that it names and renames it to ``.spare``; the next
generation reuses its blocks under a new name. Renames are synced, so a frame of another generation than its
file's name is a leftover of an earlier use. Opening writes all commits into their files again and syncs those;
a missing file was dropped since. A torn frame belongs to a round that was never acknowledged.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import NamedTuple

from headpond.model.errors import BadFrame
from headpond.storage.disk import Disk, DiskFile, open_salvaged
from headpond.storage.frame_file import claimed_end, read_frame
from headpond.wire.frame import OVERHEAD_BYTES, Frame, FrameType, encode

FOLDER = "commits"
SUFFIX = ".commits"
SPARE_SUFFIX = ".spare"
VERSION = 1
SHARD_COMMIT = 2
NUMBER_MASK = 0xFFFFFFFF
_HEAD = struct.Struct("<BQQH")
COMMIT_OVERHEAD_BYTES = OVERHEAD_BYTES + _HEAD.size
"""The bytes of a frame beside the path and the data."""
OPEN_MAX = 256
_ZEROS = bytes(1024 * 1024)


class CommitRecord(NamedTuple):
    """Bytes for an offset in a file."""

    path: str
    offset: int
    data: bytes


@dataclass
class ReplayReport:
    """How many writes of the commit journal were written again, and how many are damaged."""

    writes: int = 0
    damaged: int = 0
    """Rotten frames; the logs report which entries they lack."""

    def lines(self) -> list[str]:
        """One line of text if writes are damaged."""
        if not self.damaged:
            return []
        return [
            f"{self.damaged:,} writes in the commit journal are damaged; the logs name what is lost, if any"
        ]


def generation_path(generation: int, suffix: str = SUFFIX) -> str:
    return f"{FOLDER}/{generation:08d}{suffix}"


def encode_commit(generation: int, path: str, offset: int, parts: Sequence[bytes]) -> bytes:
    name = path.encode()
    body = b"".join((_HEAD.pack(VERSION, generation, offset, len(name)), name, *parts))
    return encode(FrameType.RECORD, body, shard=SHARD_COMMIT, segment=generation & NUMBER_MASK)


def decode_commit(frame: Frame, generation: int) -> CommitRecord | None:
    """None for any frame but a commit of this generation."""
    body = frame.body
    if frame.type != FrameType.RECORD or frame.shard != SHARD_COMMIT or len(body) < _HEAD.size:
        return None
    version, its_generation, offset, length = _HEAD.unpack_from(body)
    if version != VERSION or its_generation != generation or len(body) < _HEAD.size + length:
        return None
    at = _HEAD.size + length
    try:
        path = body[_HEAD.size : at].decode()
    except UnicodeDecodeError:
        return None
    return CommitRecord(path, offset, body[at:])


def commits_in(file: DiskFile, generation: int, found: ReplayReport | None = None) -> Iterator[CommitRecord]:
    """The commits of a generation, in order, up to the first frame that is torn or of another generation.

    A rotten frame is skipped, and counted in ``found``, if its header still shows where the next one begins.
    """
    at = 0
    while True:
        item = _read(file, at, generation)
        if item is None:
            end = claimed_end(file, at, SHARD_COMMIT)
            if end is None or _read(file, end, generation) is None:
                return
            at = end
            if found is not None:
                found.damaged += 1
            continue
        commit, at = item
        yield commit


def _read(file: DiskFile, at: int, generation: int) -> tuple[CommitRecord, int] | None:
    """The commit at an offset and its end; None if there is none of this generation."""
    try:
        item = read_frame(file, at)
    except BadFrame:
        return None
    commit = decode_commit(item.frame, generation)
    return None if commit is None else (commit, item.end)


def begin_generation(disk: Disk, generation: int, size: int, spare: int | None) -> DiskFile:
    """The file of a new generation, durable under its name; it reuses the file of ``spare``, if given."""
    path = generation_path(generation)
    if spare is not None:
        disk.rename(generation_path(spare, SPARE_SUFFIX), path)
        file = disk.open(path, writable=True)
    else:
        file = disk.create(path)
    try:
        if spare is None:
            _fill(file, size)
        disk.sync_folder(FOLDER)
    except OSError:
        file.close()
        raise
    return file


def _fill(file: DiskFile, size: int) -> None:
    for at in range(0, size, len(_ZEROS)):
        file.write_at(at, [_ZEROS[: size - at]])
    file.sync()


def sync_generation(disk: Disk, generation: int, paths: Collection[str], doubtful: Collection[str]) -> set[str]:
    """Makes the commits of a generation durable in the files themselves.

    After a failed sync the system takes bytes for written that are on no disk: so the commits of ``doubtful``
    files, and of files that cannot be synced now, are written again. Returns those files: they are doubtful in
    other generations too.
    """
    again = set(doubtful)
    for path in sorted(paths):
        if path not in again and not _sync(disk, path):
            again.add(path)
    if again:
        _write_again(disk, [generation], again)
    return again


def retire_generation(disk: Disk, generation: int, *, reuse: bool) -> None:
    """The commits of a generation are no longer needed: its file becomes spare, or is removed."""
    if reuse:
        disk.rename(generation_path(generation), generation_path(generation, SPARE_SUFFIX))
        disk.sync_folder(FOLDER)
    else:
        discard(disk, [generation])


def _sync(disk: Disk, path: str) -> bool:
    try:
        with suppress(FileNotFoundError), closing(disk.open(path)) as file:
            file.sync()
    except OSError:
        return False
    return True


def _write_again(disk: Disk, generations: list[int], only: Collection[str] | None = None) -> ReplayReport:
    """Writes the commits of generations into their files again, and syncs these."""
    found = ReplayReport()
    with closing(_Targets(disk)) as targets:
        for generation in generations:
            with open_salvaged(disk, generation_path(generation)) as file:
                for commit in commits_in(file, generation, found):
                    if only is None or commit.path in only:
                        found.writes += targets.put(commit)
        targets.sync()
    return found


class _Targets:
    """The files that are written again, at most ``OPEN_MAX`` open at a time."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._files: dict[str, DiskFile | None] = {}

    def put(self, commit: CommitRecord) -> bool:
        """False if the file was dropped since."""
        if commit.path not in self._files:
            if len(self._files) >= OPEN_MAX:
                self.sync()
                self.close()
            try:
                self._files[commit.path] = self._disk.open(commit.path, writable=True)
            except FileNotFoundError:
                self._files[commit.path] = None
        file = self._files[commit.path]
        if file is not None:
            file.write_at(commit.offset, [commit.data])
        return file is not None

    def sync(self) -> None:
        for file in self._files.values():
            if file is not None:
                file.sync()

    def close(self) -> None:
        for file in self._files.values():
            if file is not None:
                file.close()
        self._files.clear()


def replay(disk: Disk) -> ReplayReport:
    """Finishes rounds that a crash cut short: makes all commits durable, and empties the journal."""
    names = disk.list(FOLDER)
    digits = [name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX)]
    generations = sorted(int(number) for number in digits if number.isdecimal())
    found = _write_again(disk, generations)
    for name in names:
        if name.endswith((SUFFIX, SPARE_SUFFIX)):
            disk.remove(f"{FOLDER}/{name}")
    if names:
        disk.sync_folder(FOLDER)
    return found


def discard(disk: Disk, generations: Collection[int]) -> None:
    """Removes generations whose commits are all durable in their files."""
    for generation in generations:
        for suffix in (SUFFIX, SPARE_SUFFIX):
            with suppress(FileNotFoundError):
                disk.remove(generation_path(generation, suffix))
    if generations:
        disk.sync_folder(FOLDER)
