"""The numbers of a block that all runs share: reserved on disk before they are used, so that none is used
twice.

A segment gets a number only if the file, synced, has reserved it. After a crash the next run begins after the
reserve, and declares the skipped numbers as a hole to the node. A clean end gives unused numbers back.

The file is one RECORD frame: msgpack of ``{block: {shard: first number that is free}}``.
"""

from __future__ import annotations

from typing import Final

import msgspec

from headpond.model.bounds import UNDECODABLE
from headpond.model.errors import BadData, BadFrame, StorageFailed
from headpond.storage.append import write_whole
from headpond.storage.disk import Disk, read_whole
from headpond.wire.frame import CONTROL_BYTES_MAX, FrameType, decode_at, encode

RESERVE: Final = 4096
"""Numbers that are reserved at a time, per shard."""

_Blocks = dict[bytes, dict[int, int]]
_decoder = msgspec.msgpack.Decoder(_Blocks)


class Numbers:
    """The numbers of one block; the file may hold those of others, which stay."""

    def __init__(self, disk: Disk, folder: str, name: str, block: bytes | None, new_block: bytes) -> None:
        """``block`` None takes the first block in the file, else ``new_block``."""
        self._disk = disk
        self._path = f"{folder}/{name}"
        self._blocks: _Blocks = self._read()
        self.block = block or next(iter(self._blocks), new_block)
        self._free = self._blocks.get(self.block, {})

    def first(self) -> dict[int, int]:
        """By shard, the first number that this run may use."""
        return dict(self._free)

    def reserve(self, shard: int, number: int) -> None:
        """Returns when ``number`` may be used."""
        if number >= self._free.get(shard, 0):
            self._write({**self._free, shard: number + RESERVE})

    def give_back(self, numbers_next: dict[int, int]) -> None:
        """The run ends in good order: the numbers from ``numbers_next`` on are free again."""
        self._write({**self._free, **numbers_next})

    def _read(self) -> _Blocks:
        if not self._disk.exists(self._path):
            return {}
        try:
            frame = decode_at(read_whole(self._disk, self._path), 0, CONTROL_BYTES_MAX)
            if frame is None or frame.type != FrameType.RECORD:
                raise BadFrame("it is cut short")
            return _decoder.decode(frame.body)
        except (BadFrame, *UNDECODABLE) as error:
            raise BadData(
                f"the reserved numbers in {self._path} cannot be read: {error}",
                hint="Begin a new block: name another one with block=.",
            ) from error

    def _write(self, free: dict[int, int]) -> None:
        """Numbers count as reserved only when the file has them, synced."""
        blocks = {**self._blocks, self.block: free}
        try:
            data = encode(FrameType.RECORD, msgspec.msgpack.encode(blocks))
            write_whole(self._disk, self._path, data, sync=True)
        except OSError as error:
            raise StorageFailed(
                f"numbers cannot be reserved in {self._path}: {error.strerror or error}",
                hint="Look at the disk of the refill's folder; a number must be reserved before it is used.",
            ) from error
        self._blocks, self._free = blocks, free
