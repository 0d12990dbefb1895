"""The commit journal: writes of many files, durable with one sync. Version 2.

A round of hundreds of busy logs would cost one sync per log. Instead the node writes all bytes here first, with
one write and one sync, and then into the files themselves without a sync. A *generation* is a file
``commits/00000007.commits`` of fixed size whose blocks were written before, so that its sync waits for nothing
but its own bytes. It holds rounds, one behind the other, then zeros. The frames of a round, all of shard 2 and
with segment = the generation (mod 2**32) except in the first::

    STATUS  everything before this frame is durable (storage/append.py)
    INDEX   version u8 | generation u64 | bytes of the RECORD frames u32
            | for each of them how far its file is durable with it, as msgpack (``SealedFile``)
    RECORD  version u8 | generation u64 | offset u64 | length of the path u16 | path | the bytes for that offset

Opening writes all commits into their files again and syncs those; a missing file was dropped since. The rule of
every frame file (storage/recovery.py) tells damage from a round that was torn and never acknowledged. If a
damaged commit was the last one of its file, nothing in that file shows that bytes are missing; the INDEX does,
and the log then reports the exact entries.

When a generation is full, a checkpoint syncs the files that it names, renames it to ``.spare`` and fills it
with zeros; the next generation reuses its blocks under a new name. Renames are synced.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple

import msgspec

from headpond.model.bounds import UNDECODABLE
from headpond.storage.append import STATUS_BYTES, decode_status, encode_status
from headpond.storage.disk import Disk, DiskFile, SalvagedFile, open_salvaged
from headpond.storage.frame_file import Bad, looks_torn
from headpond.storage.recovery import Recovery
from headpond.storage.seal import SealedFile
from headpond.wire.frame import OVERHEAD_BYTES, Frame, FrameType, encode

FOLDER = "commits"
SUFFIX = ".commits"
SPARE_SUFFIX = ".spare"
VERSION = 2
SHARD_COMMIT = 2
NUMBER_MASK = 0xFFFFFFFF
_COMMIT_HEAD = struct.Struct("<BQQH")
_INDEX_HEAD = struct.Struct("<BQI")
_INDEX_ITEM_BYTES = 32
"""The most bytes of one file in an INDEX, without its path."""
ROUND_OVERHEAD_BYTES = STATUS_BYTES + OVERHEAD_BYTES + _INDEX_HEAD.size + 5
"""The most bytes of a round beside its commits."""
COMMIT_OVERHEAD_BYTES = OVERHEAD_BYTES + _COMMIT_HEAD.size + _INDEX_ITEM_BYTES
"""The most bytes of a commit, in its frame and in the INDEX, beside the data and twice the path."""
OPEN_MAX = 256
_ZEROS = bytes(1024 * 1024)
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[SealedFile])


class CommitRecord(NamedTuple):
    """Bytes for an offset in a file."""

    path: str
    offset: int
    data: bytes


class RoundIndex(NamedTuple):
    """The files of a round."""

    commit_bytes: int
    """The bytes of all commits."""
    files: list[SealedFile]


@dataclass
class ReplayReport:
    """What a replay wrote again, and the damage that it found."""

    writes: int = 0
    damaged: int = 0
    """Places with damaged bytes."""
    lost: list[SealedFile] = field(default_factory=list)
    """How far files were durable whose commits are damaged; their logs report which entries they lack."""

    def lines(self) -> list[str]:
        """One line of text if bytes are damaged."""
        if not self.damaged:
            return []
        lost = f"{len(self.lost):,} writes are damaged; the logs name the entries that are lost, if any"
        return [f"the commit journal is damaged in {self.damaged:,} places; {lost}"]


def generation_path(generation: int, suffix: str = SUFFIX) -> str:
    return f"{FOLDER}/{generation:08d}{suffix}"


def encode_commit(generation: int, path: str, offset: int, parts: Sequence[bytes]) -> bytes:
    name = path.encode()
    body = b"".join((_COMMIT_HEAD.pack(VERSION, generation, offset, len(name)), name, *parts))
    return encode(FrameType.RECORD, body, shard=SHARD_COMMIT, segment=generation & NUMBER_MASK)


def decode_commit(frame: Frame, generation: int) -> CommitRecord | None:
    """None for any frame but a commit of this generation."""
    body = frame.body
    if frame.type != FrameType.RECORD or frame.shard != SHARD_COMMIT or len(body) < _COMMIT_HEAD.size:
        return None
    version, its_generation, offset, length = _COMMIT_HEAD.unpack_from(body)
    if version != VERSION or its_generation != generation or len(body) < _COMMIT_HEAD.size + length:
        return None
    at = _COMMIT_HEAD.size + length
    try:
        path = body[_COMMIT_HEAD.size : at].decode()
    except UnicodeDecodeError:
        return None
    return CommitRecord(path, offset, body[at:])


def begin_round(generation: int, at: int, files: Sequence[SealedFile], commits: Sequence[bytes]) -> bytes:
    """The frames of a round before its commits; ``at`` is the offset of the round."""
    head = _INDEX_HEAD.pack(VERSION, generation, sum(map(len, commits)))
    index = encode(
        FrameType.INDEX, head + _encoder.encode(files), shard=SHARD_COMMIT, segment=generation & NUMBER_MASK
    )
    return encode_status(at, 0, SHARD_COMMIT) + index


def decode_round(frame: Frame, generation: int) -> RoundIndex | None:
    """None for any frame but an INDEX of this generation."""
    body = frame.body
    if frame.type != FrameType.INDEX or frame.shard != SHARD_COMMIT or len(body) < _INDEX_HEAD.size:
        return None
    version, its_generation, commit_bytes = _INDEX_HEAD.unpack_from(body)
    if version != VERSION or its_generation != generation:
        return None
    try:
        return RoundIndex(commit_bytes, _decoder.decode(body[_INDEX_HEAD.size :]))
    except UNDECODABLE:
        return None


def commits_in(file: SalvagedFile, generation: int, found: ReplayReport) -> Iterator[CommitRecord]:
    """The commits of a generation, in order, without those of a round that was torn behind their place."""
    recovery = Recovery(file, shard=SHARD_COMMIT, accept=partial(_accept, generation))
    missing: dict[str, SealedFile] = {}
    """The files of the round whose commits have not come yet."""
    rotten, round_end = False, 0
    for item in recovery.items():
        if isinstance(item, Bad):
            found.damaged += 1
            rotten = True
        elif item.frame.type == FrameType.STATUS:
            found.lost += missing.values()
            missing, rotten, round_end = {}, False, 0
        elif (index := decode_round(item.frame, generation)) is not None:
            missing = {each.path: each for each in index.files}
            round_end = item.end + index.commit_bytes
        elif (commit := decode_commit(item.frame, generation)) is not None:
            missing.pop(commit.path, None)
            yield commit
    tail = recovery.tail
    if tail is not None and (recovery.tail_damaged or _complete(file, tail, round_end)):
        found.damaged += 1
        rotten = True
    if rotten:
        found.lost += missing.values()


def _complete(file: DiskFile, tail: Bad, round_end: int) -> bool:
    """Whether the last round was written up to its end, so that its bad bytes are damage."""
    return 0 < round_end <= tail.end and not looks_torn(file, tail)


def _accept(generation: int, offset: int, frame: Frame) -> bool:
    if frame.type == FrameType.STATUS:
        return decode_status(frame.body) is not None
    return (decode_commit(frame, generation) or decode_round(frame, generation)) is not None


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


def retire_generation(disk: Disk, generation: int, used_bytes: int | None) -> None:
    """The commits of a generation are no longer needed: its file becomes spare, or is removed.

    ``used_bytes`` is the end of its last round; None removes the file.
    """
    if used_bytes is None:
        discard(disk, [generation])
        return
    spare = generation_path(generation, SPARE_SUFFIX)
    disk.rename(generation_path(generation), spare)
    disk.sync_folder(FOLDER)
    with closing(disk.open(spare, writable=True)) as file:
        _fill(file, used_bytes)


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
    """Finishes rounds that a crash cut short: makes all commits durable, and removes the journal.

    If commits are lost the journal stays: only it knows them until the logs have recorded the loss
    (``remove_journal``).
    """
    digits = [name.removesuffix(SUFFIX) for name in disk.list(FOLDER) if name.endswith(SUFFIX)]
    found = _write_again(disk, sorted(int(number) for number in digits if number.isdecimal()))
    if not found.lost:
        remove_journal(disk)
    return found


def remove_journal(disk: Disk) -> None:
    names = disk.list(FOLDER)
    for name in names:
        if name.endswith((SUFFIX, SPARE_SUFFIX)):
            disk.remove(f"{FOLDER}/{name}")
    if names:
        disk.sync_folder(FOLDER)


def discard(disk: Disk, generations: Collection[int]) -> None:
    """Removes generations whose commits are all durable in their files."""
    for generation in generations:
        for suffix in (SUFFIX, SPARE_SUFFIX):
            with suppress(FileNotFoundError):
                disk.remove(generation_path(generation, suffix))
    if generations:
        disk.sync_folder(FOLDER)
