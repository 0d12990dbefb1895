"""The seal: the length of every file when the node stopped cleanly. Version 1.

A STATUS frame says how far its own file was synced, but rot can hit the last STATUS together with the data
before it. Recovery then cannot prove that those bytes were ever acknowledged. A clean stop leaves no unfinished
write, so the length of each file is enough proof: a file that is now shorter, or fails a checksum before that
length, was damaged. ``SEAL`` is a frame file in the data folder::

    RECORD  shard 3, segment 0: version u8 | number of files u32
    RECORD  shard 3, segment 1, 2, …: one file, as msgpack (``SealedFile``)

A clean stop writes and syncs it last. The next start reads it, makes its repairs durable, and removes it before
the node accepts anything. A start that crashes leaves it: opening a folder only appends to files or begins
newer ones, so every length in the seal stays a lower bound, and recovery ignores the entry of a superseded
file.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from headpond.model.bounds import UNDECODABLE
from headpond.storage.append import write_whole
from headpond.storage.disk import Disk, open_salvaged
from headpond.storage.frame_file import Bad, scan
from headpond.wire.frame import Frame, FrameType, encode

SEAL_FILE = "SEAL"
VERSION = 1
SHARD_SEAL = 3
_HEAD = struct.Struct("<BI")


class SealedFile(msgspec.Struct, array_like=True, frozen=True):
    """One file at a clean stop."""

    path: str
    bytes: int
    """Everything before this offset was synced."""
    next: int = 0
    """The number of the next entry or record."""
    kept: int = 0
    """The first entry that a log keeps."""

    @property
    def folder(self) -> str:
        return self.path.rpartition("/")[0]

    @property
    def name(self) -> str:
        return self.path.rpartition("/")[2]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(SealedFile)


class Seal:
    """The entries of a seal, known before the files of the data folder are opened."""

    def __init__(
        self, files: Iterable[SealedFile] = (), *, found: bool = False, faults: Sequence[str] = ()
    ) -> None:
        self.found = found
        """Whether the seal exists: the last stop was clean."""
        self.in_use = found
        """Whether a node has served this folder before, so that a journal without a file has lost it."""
        self.faults = list(faults)
        """Damage of the seal itself, one line each."""
        self._by_folder: dict[str, list[SealedFile]] = {}
        self.include(files)

    def include(self, files: Iterable[SealedFile]) -> None:
        """Adds files whose durable length is known from elsewhere."""
        for file in files:
            self._by_folder.setdefault(file.folder, []).append(file)

    def files_in(self, folder: str) -> list[SealedFile]:
        return self._by_folder.get(folder, [])

    def last_in(self, folder: str) -> SealedFile | None:
        """The last file of a log or a journal."""
        return max(self.files_in(folder), key=lambda file: (file.name, file.bytes), default=None)

    def get(self, path: str) -> SealedFile | None:
        folder = path.rpartition("/")[0]
        return next((file for file in self.files_in(folder) if file.path == path), None)

    def __iter__(self) -> Iterator[SealedFile]:
        for files in self._by_folder.values():
            yield from files


def decode_sealed(frame: Frame) -> SealedFile | None:
    """The entry in a frame of a seal; None for its head, or for a frame of another file."""
    if frame.type != FrameType.RECORD or frame.shard != SHARD_SEAL or frame.segment == 0:
        return None
    try:
        return _decoder.decode(frame.body)
    except UNDECODABLE:
        return None


def read_seal(disk: Disk) -> Seal:
    """The seal of a data folder. A damaged seal still counts for the files whose frames are whole."""
    if not disk.exists(SEAL_FILE):
        return Seal()
    files: list[SealedFile] = []
    faults: list[str] = []
    count: int | None = None
    with open_salvaged(disk, SEAL_FILE) as file:
        for item in scan(file, shard=SHARD_SEAL):
            if isinstance(item, Bad):
                faults.append(f"{SEAL_FILE}, bytes {item.offset} to {item.end}: bytes are damaged")
            elif (sealed := decode_sealed(item.frame)) is not None:
                files.append(sealed)
            elif item.frame.segment == 0 and len(item.frame.body) == _HEAD.size:
                count = _HEAD.unpack(item.frame.body)[1]
    if count is None or len(files) < count:
        named = "an unknown number of" if count is None else f"{count - len(files)} of {count}"
        faults.append(
            f"{SEAL_FILE}: the entries of {named} files are lost; damage at their ends may go unnoticed"
        )
    return Seal(files, found=True, faults=faults)


def write_seal(disk: Disk, files: Sequence[SealedFile]) -> None:
    """Call it last: everything that ``files`` name is synced, and no write follows."""
    head = _HEAD.pack(VERSION, len(files))
    bodies = [head, *map(_encoder.encode, files)]
    frames = [
        encode(FrameType.RECORD, body, shard=SHARD_SEAL, segment=number) for number, body in enumerate(bodies)
    ]
    write_whole(disk, SEAL_FILE, b"".join(frames), sync=True)


def remove_seal(disk: Disk) -> None:
    """Removes the seal durably; from now on files may be replaced."""
    if disk.exists(SEAL_FILE):
        disk.remove(SEAL_FILE)
        disk.sync_folder("")
