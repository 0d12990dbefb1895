"""The append engine: what a file holds after writes, failed writes and a finish."""

from __future__ import annotations

import errno
from contextlib import suppress

import pytest

from headpond.storage.append import AHEAD_BYTES_MAX, STATUS_BYTES, Appender, Batch
from headpond.storage.disk import open_salvaged
from headpond.storage.frame_file import Found
from headpond.storage.memory_disk import MemoryDisk, Operation
from headpond.storage.recovery import Recovery
from headpond.wire.frame import FrameType, encode

SHARD = 3
ROOM = BLOCK = 4096
FIRST, SECOND = "folder/1", "folder/2"


def appender(room: int = ROOM) -> Appender[Batch]:
    return Appender(Batch, SHARD, lambda _batch, end: -(-end // room) * room if room else 0)


def stage(into: Appender[Batch], body: bytes, path: str | None = None) -> None:
    """Stages a record; with ``path``, as the first of a new file."""
    if not into.staged.parts:
        if path is None:
            into.follow()
        else:
            into.begin_file(path)
    into.staged.add(encode(FrameType.RECORD, body, shard=SHARD))
    into.staged.end_entry += 1


def write(into: Appender[Batch], disk: MemoryDisk, body: bytes, path: str | None = None) -> Batch:
    stage(into, body, path)
    batch = into.take()
    assert batch is not None
    batch.run(disk)
    into.committed(batch)
    return batch


def bodies(disk: MemoryDisk, path: str) -> list[bytes]:
    """The records of a file; all of them must be proven by a STATUS."""
    with open_salvaged(disk, path) as file:
        recovery = Recovery(file, shard=SHARD)
        frames = [item.frame for item in recovery.items() if isinstance(item, Found)]
    assert recovery.tail is None and recovery.proven >= recovery.stored_end
    return [frame.body for frame in frames if frame.type == FrameType.RECORD]


def write_ends(disk: MemoryDisk) -> list[int]:
    """The offset behind each write."""
    return [int(entry[2]) + int(entry[3]) for entry in disk.operations if entry[0] == "write"]


def test_each_write_ends_with_a_status_and_a_finish_frees_the_reserved_room() -> None:
    disk, log = MemoryDisk(), appender()
    write(log, disk, b"one", FIRST)
    assert len(disk.contents(FIRST)) == ROOM
    write(log, disk, b"two")
    end = log.durable_end
    log.finish(disk)
    assert bodies(disk, FIRST) == [b"one", b"two"] and len(disk.contents(FIRST)) == end
    assert log.file is None and log.end is None


def test_few_of_many_short_writes_are_the_first_to_reach_a_block() -> None:
    disk, log = MemoryDisk(), appender(1 << 20)
    write(log, disk, b"head", FIRST)
    for _ in range(2000):
        write(log, disk, bytes(100))
    highest, firsts = -1, 0
    for end in write_ends(disk):
        firsts += end // BLOCK > highest
        highest = max(highest, end // BLOCK)
    assert firsts < 20, "short writes reach new blocks together"
    write(log, disk, bytes(AHEAD_BYTES_MAX))
    assert write_ends(disk)[-2] == log.durable_end - STATUS_BYTES, "a long write has its STATUS behind it"
    assert bodies(disk, FIRST)[1:] == [bytes(100)] * 2000 + [bytes(AHEAD_BYTES_MAX)]


@pytest.mark.parametrize("bytes_left", range(0, 200, 40))
def test_zeros_need_no_room_that_the_disk_does_not_have(bytes_left: int) -> None:
    disk, log = MemoryDisk(), appender(1 << 20)
    write(log, disk, b"head", FIRST)
    log.finish(disk)
    file = disk.open(FIRST, writable=True)
    log.resume(FIRST, file, file.size())
    disk.capacity_bytes = file.size() + 3 * len(encode(FrameType.RECORD, bytes(9))) + bytes_left
    written = 0
    with suppress(OSError):
        while True:
            write(log, disk, bytes(9))
            written += 1
    assert written >= 1


def test_a_batch_that_fills_during_a_write_goes_behind_the_status_of_that_write() -> None:
    disk, log = MemoryDisk(), appender()
    stage(log, b"one", FIRST)
    under_way = log.take()
    assert under_way is not None
    stage(log, b"two")
    assert log.staged.offset == under_way.end + STATUS_BYTES
    under_way.run(disk)
    log.committed(under_way)
    behind = log.take()
    assert behind is not None
    behind.run(disk)
    log.committed(behind)
    assert bodies(disk, FIRST) == [b"one", b"two"]


@pytest.mark.parametrize("last", [False, True])
def test_a_status_that_could_not_be_written_is_written_by_the_next_write_or_the_finish(last: bool) -> None:
    disk, log = MemoryDisk(), appender()
    write(log, disk, b"one", FIRST)
    disk.fail_next("write", errno.EIO, after=1)
    batch = write(log, disk, b"two")
    assert not batch.proven and not log.proven and log.durable_end == batch.end
    if not last:
        write(log, disk, b"three")
        assert log.proven
    log.finish(disk)
    assert bodies(disk, FIRST) == [b"one", b"two", *([] if last else [b"three"])]


@pytest.mark.parametrize("fault", ["none", "status", "closed", "power"])
def test_a_write_may_be_committed_before_its_status_which_the_next_write_repeats(
    fault: str,
) -> None:
    disk, log = MemoryDisk(), appender()
    write(log, disk, b"one", FIRST)
    stage(log, b"two")
    batch = log.take()
    assert batch is not None
    batch.append(disk)
    log.committed(batch)
    assert not log.proven and log.durable_end == batch.end
    if fault == "power":
        disk.crash()
        with open_salvaged(disk, FIRST, writable=True) as file:
            recovery = Recovery(file, shard=SHARD)
            found = [item.frame.body for item in recovery.items() if isinstance(item, Found)]
        assert found[0] == b"one" and b"two" in found
        return
    if fault == "status":
        disk.fail_next("write", errno.EIO)
    elif fault == "closed":
        log.release()
    log.prove(batch)
    assert log.proven is (fault == "none")
    assert log.durable_end == batch.end + (STATUS_BYTES if log.proven else 0)
    write(log, disk, b"three")
    log.finish(disk)
    assert bodies(disk, FIRST) == [b"one", b"two", b"three"]


def test_a_write_repeats_the_status_before_it_which_a_failed_sync_of_others_may_have_dropped() -> None:
    disk, log = MemoryDisk(), appender()
    write(log, disk, b"one", FIRST)
    write(log, disk, b"two")
    disk.fail_next("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        disk.open(FIRST, writable=True).sync()  # as a checkpoint does
    write(log, disk, b"three")
    disk.crash(keep="none")
    with open_salvaged(disk, FIRST) as file:
        found = list(Recovery(file, shard=SHARD).items())
    frames = [item.frame for item in found if isinstance(item, Found)]
    assert len(frames) == len(found) and frames[-1].body == b"three"


@pytest.mark.parametrize("operation", ["write", "sync"])
def test_a_file_is_never_written_to_after_a_failed_write(operation: Operation) -> None:
    disk, log = MemoryDisk(), appender()
    write(log, disk, b"one", FIRST)
    stage(log, b"two")
    batch = log.take()
    assert batch is not None
    stage(log, b"three")
    disk.fail_next(operation, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        batch.run(disk)
    log.failed(batch)
    assert (log.end, log.sound, log.take()) == (None, False, None)
    operations = len(disk.operations)
    write(log, disk, b"four", SECOND)
    assert (log.sound, bodies(disk, SECOND)) == (True, [b"four"])
    touched = {path for _, path, *_ in disk.operations[operations:]}
    assert FIRST not in touched


@pytest.mark.parametrize("operation", ["create", "write", "sync", "rename", "sync_folder"])
def test_a_new_file_that_could_not_be_written_leaves_the_file_before_it_sound(operation: Operation) -> None:
    disk, log = MemoryDisk(), appender()
    write(log, disk, b"one", FIRST)
    stage(log, b"two", SECOND)
    log.staged.removals.append(FIRST)
    batch = log.take()
    assert batch is not None
    disk.fail_next(operation, errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        batch.run(disk)
    log.failed(batch)
    assert log.sound and log.end is None
    assert bodies(disk, FIRST) == [b"one"], "it is removed only after the new one is durable"
    write(log, disk, b"three", SECOND)
    disk.crash()
    assert bodies(disk, SECOND) == [b"three"]


def test_a_full_disk_gets_the_room_of_the_failed_write_back() -> None:
    disk, log = MemoryDisk(), appender(room=0)
    write(log, disk, b"one", FIRST)
    disk.capacity_bytes = len(disk.contents(FIRST)) + 10
    stage(log, b"x" * 100)
    batch = log.take()
    assert batch is not None
    with pytest.raises(OSError, match="No space"):
        batch.run(disk)
    log.failed(batch)
    assert len(disk.contents(FIRST)) == batch.offset and bodies(disk, FIRST) == [b"one"]


def test_a_write_without_a_sync_is_proven_by_the_finish() -> None:
    disk, log = MemoryDisk(), appender()
    write(log, disk, b"one", FIRST)
    log.sync = False
    write(log, disk, b"two")
    assert not log.proven
    log.release()
    log.finish(disk)
    disk.crash()
    assert bodies(disk, FIRST) == [b"one", b"two"]
