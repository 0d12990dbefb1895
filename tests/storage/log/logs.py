"""Shared by the tests of logs: opens a log, writes to it, and keeps a plain list to compare it with."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from headpond.storage.disk import Disk
from headpond.storage.log.batch import LogOptions
from headpond.storage.log.read import StoredRecord
from headpond.storage.log.shard_log import ShardLog
from headpond.storage.memory_disk import MemoryDisk
from headpond.storage.seal import SealedFile
from headpond.wire.frame import HEADER_BYTES, OVERHEAD_BYTES, FrameType, decode_at
from headpond.wire.record import RECORD_HEADER_BYTES
from headpond.wire.title import Title

FOLDER = "topics/orders/00003"
TITLE = Title("default/default/default/orders", b"u" * 16)
SHARD = 3
SMALL = LogOptions(rotate_bytes=4_000, preallocate_bytes=2_048, index_every_bytes=500)
BLOCKS = (b"a" * 16, b"b" * 16)


@dataclass(frozen=True)
class Row:
    """One appended segment, as a reader is to get it back."""

    first_entry: int
    count: int
    block: bytes
    segment: int
    body: bytes


def open_log(disk: Disk, options: LogOptions = SMALL, sealed: SealedFile | None = None) -> ShardLog:
    return ShardLog.open(
        disk, FOLDER, title=TITLE, shard=SHARD, shard_power=2, now_us=10, options=options, sealed=sealed
    )


def commit(log: ShardLog, disk: Disk) -> list[StoredRecord]:
    """Writes the stage; an error of the disk goes to the caller and leaves the log as a power cut would."""
    write = log.take()
    if write is None:
        return []
    write.run(disk)
    return log.committed(write)


@dataclass
class LogWriter:
    """Appends segments of its blocks in order and remembers them."""

    log: ShardLog
    draw: random.Random
    durable: list[Row] = field(default_factory=list)
    staged: list[Row] = field(default_factory=list)
    clock_us: int = 1_000

    def append(self, *, size: int | None = None, count: int | None = None) -> Row:
        block = self.draw.choice(BLOCKS)
        segment = self.log.marks.next(block)
        size = self.draw.choice((0, 1, 40, 300, 700)) if size is None else size
        body = bytes(size) if self.draw.random() < 0.2 else self.draw.randbytes(size)
        count = self.draw.choice((0, 1, 1, 3)) if count is None else count
        self.clock_us += 10
        first = self.log.append(
            block=block,
            segment=segment,
            count=count,
            origin_crc=segment * 7,
            stored_at_us=self.clock_us,
            body=body,
        )
        row = Row(first, count, block, segment, body)
        self.staged.append(row)
        return row

    def commit(self, disk: Disk) -> None:
        commit(self.log, disk)
        self.durable += self.staged
        self.staged = []


def row_of(record: StoredRecord) -> Row:
    """The contents of a record's frame, with its checksum checked."""
    raw = b"".join(record.parts)
    frame = decode_at(raw, 0, len(raw))
    assert frame is not None
    assert (frame.type, frame.shard, frame.segment) == (FrameType.SEGMENT, SHARD, record.segment)
    assert len(raw) == OVERHEAD_BYTES + len(frame.body) and HEADER_BYTES == 11
    header = record.header
    return Row(header.first_entry, header.count, header.block, record.segment, frame.body[RECORD_HEADER_BYTES:])


def read_all(
    log: ShardLog, entry: int | None = None, bytes_max: int = 1_500
) -> tuple[list[Row], list[tuple[int, int]]]:
    """All rows that can be read, in several reads, and all spans reported lost."""
    at = log.entry_first if entry is None else entry
    rows: list[Row] = []
    lost: list[tuple[int, int]] = []
    while at < log.entry_durable:
        run = log.read(at, bytes_max)
        assert run.next_entry > at, "a read makes progress"
        rows += map(row_of, run.records)
        lost += run.lost
        at = run.next_entry
    return rows, lost


def readable(rows: list[Row], from_entry: int = 0) -> list[Row]:
    """Refusals take no entry and are not read back."""
    return [row for row in rows if row.count and row.first_entry + row.count > from_entry]


def admitted(rows: list[Row]) -> dict[bytes, set[int]]:
    found: dict[bytes, set[int]] = {}
    for row in rows:
        found.setdefault(row.block, set()).add(row.segment)
    return found


def marked(log: ShardLog) -> dict[bytes, set[int]]:
    return {
        block: {number for start, end in ranges for number in range(start, end)}
        for block, ranges in log.marks.admitted().items()
    }


def filled(disk: MemoryDisk, *, rounds: int = 12, seed: int = 1, options: LogOptions = SMALL) -> LogWriter:
    """A log with several files, everything committed."""
    writer = LogWriter(open_log(disk, options), random.Random(seed))
    for _ in range(rounds):
        for _ in range(writer.draw.randrange(1, 5)):
            writer.append()
        writer.commit(disk)
    return writer


def log_files(disk: Disk) -> list[str]:
    return [f"{FOLDER}/{name}" for name in disk.list(FOLDER) if name.endswith(".log")]


Step = Callable[[LogWriter, Disk], None]
