"""The one recovery rule of every frame file that is appended to and synced.

A STATUS frame says that its file was synced up to its own place when it was written; the seal of a clean stop
(seal.py) says so of the whole file. With that:

1. Bad bytes with a later valid frame behind them are damage. They stay where they are; their contents are lost.
2. Bytes that the seal covers and that are unreadable or missing are damage.
3. Bytes past the last recorded sync that look torn (``looks_torn``) and have nothing valid behind them are the
   tail of a write that was never acknowledged. Recovery cuts them off. It also cuts off valid frames behind
   bytes that look torn, unless a STATUS there proves a sync: the end of a write without its beginning would
   break the order.
4. Bytes there that do not look torn are damage: a disk writes whole sectors, so they were once written whole.
   If they are no longer than a STATUS, they held only a STATUS.
5. Recovery writes and syncs valid frames again, before they count, if no STATUS proves their sync. After a
   failed sync a system may show bytes that are not on its disk, and a later sync would not put them there.
6. A file gets its name when its first write is synced. So a file without one valid frame is damaged, not torn.
7. Bytes that the disk cannot read are damage anywhere: a torn tail is readable.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from headpond.model.errors import BadFrame
from headpond.storage.append import PLACE_MASK, STATUS_BYTES, decode_status, encode_status
from headpond.storage.disk import DiskFile, SalvagedFile
from headpond.storage.frame_file import (
    CHUNK_BYTES,
    FILE_TYPES,
    Bad,
    Found,
    looks_torn,
    read_frame,
    scan,
)
from headpond.wire.frame import HEADER, HEADER_BYTES, OVERHEAD_BYTES, Frame, FrameType

_STATUS = int(FrameType.STATUS)


class FileDamage(NamedTuple):
    """Bytes of a file that are torn, damaged or missing, and the entries or records that they held."""

    file: str
    offset: int
    end: int
    lost: tuple[int, int] | None
    """Often none; None if the number is unknown."""
    reason: str = "bytes are damaged"

    def line(self, one: str, many: str) -> str:
        """A line of text; ``one`` and ``many`` name what the file holds."""
        place = f"{self.file}, bytes {self.offset} to {self.end}" if self.end else self.file
        lost = f"an unknown number of {many} is lost"
        if self.lost is not None:
            first, end = self.lost
            lost = f"{many} {first} to {end - 1} are lost" if first < end else f"no {one} is lost"
        return f"{place}: {self.reason}; {lost}"


@dataclass
class DamageReport:
    """Torn and damaged bytes that opening a log or a journal found."""

    torn: list[FileDamage] = field(default_factory=list)
    """Bytes of writes that were never acknowledged."""
    damaged: list[FileDamage] = field(default_factory=list)

    @property
    def lost(self) -> bool:
        """Whether acknowledged records are lost."""
        return any(damage.lost is None or damage.lost[0] < damage.lost[1] for damage in self.damaged)

    def lines(self, one: str = "record", many: str = "records") -> list[str]:
        """One line of text per fault."""
        return [damage.line(one, many) for damage in (*self.torn, *self.damaged)]


class Recovery:
    """Reads one file: first ``items``, then ``settle`` if the file will be appended to."""

    def __init__(
        self,
        file: SalvagedFile,
        *,
        shard: int | None = None,
        accept: Callable[[int, Frame], bool] | None = None,
        sealed_bytes: int = 0,
    ) -> None:
        """``sealed_bytes``: what was durable for certain, the length at a clean stop or of a file that was
        whole before it got its name; 0 if unknown."""
        self.file = file
        self.end = 0
        """The end of the last frame that counts."""
        self.proven = 0
        """The last synced length that a STATUS recorded."""
        self.stored_end = 0
        """The end of the last frame that counts and is no STATUS."""
        self.tail: Bad | None = None
        """The bytes behind ``end`` that are no frames, or are missing."""
        self.tail_damaged = False
        """Whether the tail was once durable. If not it is torn: its write was never acknowledged."""
        self._shard = shard
        self._accept = accept
        self._sealed_bytes = sealed_bytes

    @property
    def unreadable(self) -> bool:
        """Whether the file has no valid frame."""
        return self.end == 0

    @property
    def tail_is_status(self) -> bool:
        """Whether the tail is too short to have held more than the STATUS behind the last write."""
        return self.tail is not None and self.tail.end - self.tail.offset <= STATUS_BYTES

    def items(self) -> Iterator[Found | Bad]:
        """Frames that count, and damage before a frame, in order, without the tail."""
        held: list[Found | Bad] = []
        torn = False
        for item in scan(self.file, shard=self._shard, accept=self._belongs):
            if isinstance(item, Bad):
                held.append(item)
                torn = torn or (item.offset >= self._sealed_bytes and looks_torn(self.file, item))
                continue
            if held:
                if torn and not self._proves(item):
                    held.append(item)
                    continue
                for one in held:
                    if isinstance(one, Found):
                        self._count(one)
                    yield one
                held, torn = [], False
            self._count(item)
            yield item
        self._judge_tail(held, torn=torn)

    def _judge_tail(self, held: list[Found | Bad], *, torn: bool) -> None:
        end = max(held[-1].end if held else 0, self._sealed_bytes)
        if end <= self.end:
            return
        self.tail = tail = Bad(self.end, end)
        sealed = self.end < self._sealed_bytes
        self.tail_damaged = sealed or bool(self.file.unreadable.overlap(*tail))
        if not self.tail_damaged and not torn:
            self.tail_damaged = not looks_torn(self.file, tail, shard=self._shard, last=True)

    def settle(self, end_entry: int, *, cut: bool = True) -> int:
        """Cuts off the tail and makes the rest durable; returns the offset for the next append.

        Without ``cut`` the tail stays, and the caller must not append.
        """
        file = self.file
        if self.tail is not None and cut:
            file.truncate(self.end)
        if self.stored_end > self.proven:
            self._write_again(self.proven, self.end)
            if not cut:
                return self.end
            file.write_at(self.end, [encode_status(self.end, end_entry, self._shard or 0)])
            self.proven = self.end
            return self.end + STATUS_BYTES
        if self.tail is not None and cut:
            file.sync()
        return self.end

    def _write_again(self, start: int, end: int) -> None:
        for begin, stop in self.file.unreadable.missing(start, end):
            for offset in range(begin, stop, CHUNK_BYTES):
                data = self.file.read_at(offset, min(CHUNK_BYTES, stop - offset))
                self.file.write_at(offset, [data])
        self.file.sync()

    def _count(self, item: Found) -> None:
        self.end = item.offset + item.size
        if item.frame.type != _STATUS:
            self.stored_end = self.end
        elif self._proves(item):
            self.proven = item.offset

    def _proves(self, item: Found) -> bool:
        """Whether a frame says that everything before it was durable."""
        status = decode_status(item.frame.body) if item.frame.type == _STATUS else None
        return status is not None and status.synced_bytes == item.offset

    def _belongs(self, offset: int, frame: Frame, led: bool) -> bool:
        """Whether a frame behind bad bytes belongs to this file; asked only during a search."""
        if self._accept is not None and not self._accept(offset, frame):
            return False
        return stands_here(self.file, offset, self.file.size(), led=led)


def stands_here(file: DiskFile, offset: int, end: int, *, led: bool) -> bool:
    """False if the frames from ``offset`` on are a copy, such as a log file that a sender put into a message.

    Every write ends with a STATUS that names its own offset; the frames of a copy lead to one that names
    another. If they lead to none, because the write was torn or the file cut short, the frames belong here only
    if the bad frame before them ``led`` here.
    """
    while offset + OVERHEAD_BYTES <= end:
        head = file.read_at(offset, HEADER_BYTES)
        if len(head) < HEADER_BYTES:
            return led
        type_, _, _, size = HEADER.unpack(head)
        if type_ not in FILE_TYPES:
            return led
        if type_ == _STATUS:
            try:
                frame = read_frame(file, offset).frame
            except BadFrame:
                return led
            status = decode_status(frame.body)
            if status is None:
                return False
            unsynced_here = status.synced_bytes == 0 and frame.segment == offset & PLACE_MASK
            return unsynced_here or status.synced_bytes == offset
        offset += OVERHEAD_BYTES + size
    return led
