"""A disk that fails: nothing is half stored, nothing committed depends on a lost page, and the log goes on."""

from __future__ import annotations

import errno
import random

import pytest

from penstock.io.memory_disk import Keep, MemoryDisk, Operation
from penstock.node.core.log import LogOptions, LogWrite, ShardLog
from tests.node.core.logs import (
    FOLDER,
    SMALL,
    Row,
    Writer,
    admitted,
    filled,
    log_files,
    marked,
    open_log,
    read_all,
    readable,
)


def fail(log: ShardLog, disk: MemoryDisk) -> tuple[LogWrite, OSError]:
    """Runs the staged write, which is to fail."""
    write = log.take()
    assert write is not None
    with pytest.raises(OSError) as caught:  # noqa: PT011  # the tests order different ones
        write.run(disk)
    return write, caught.value


def rotating(disk: MemoryDisk) -> Writer:
    """A log whose next write begins a new file."""
    writer = filled(disk, rounds=5)
    writer.append(size=4_000, count=1)
    writer.commit(disk)
    return writer


def check_as_before(writer: Writer) -> None:
    """Marks, entries and what can be read are those of the committed rows alone."""
    log, rows = writer.log, writer.durable
    assert marked(log) == admitted(rows)
    assert log.entry_next == log.entry_durable == log.entry_taken == sum(row.count for row in rows)
    assert log.staged_bytes == 0
    assert read_all(log) == (readable(rows), [])


FAULTS: list[tuple[Operation, int]] = [
    ("write", errno.ENOSPC),
    ("write", errno.EIO),
    ("sync", errno.EIO),
]
FAULTS_OF_A_NEW_FILE: list[tuple[Operation, int]] = [
    *FAULTS,
    ("create", errno.ENOSPC),
    ("rename", errno.EIO),
    ("sync_folder", errno.EIO),
]


@pytest.mark.parametrize(("operation", "error"), FAULTS)
def test_a_failed_write_takes_back_all_that_it_and_later_appends_had_moved(
    operation: Operation, error: int
) -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=5)
    in_write = [writer.append(count=2), writer.append(count=0)]
    writer.log.append_end(b"q" * 16, 5)
    disk.fail_next(operation, error)
    write, caught = fail(writer.log, disk)
    since = [writer.append(count=1)]
    dropped = writer.log.failed(write, caught)
    assert [tuple(segment) for segment in dropped] == [
        (row.block, row.segment, row.first_entry, row.count) for row in in_write + since
    ]
    assert caught.errno == error
    assert b"q" * 16 not in writer.log.marks
    check_as_before(writer)


@pytest.mark.parametrize("keep", ["none", "all", "some"])
@pytest.mark.parametrize(
    ("operation", "error", "new_file"),
    [(*fault, False) for fault in FAULTS] + [(*fault, True) for fault in FAULTS_OF_A_NEW_FILE],
)
def test_after_a_failure_the_log_goes_on_in_a_new_file_and_keeps_what_it_commits(
    operation: Operation, error: int, new_file: bool, keep: Keep
) -> None:
    disk = MemoryDisk(3)
    writer = rotating(disk) if new_file else filled(disk, rounds=5, options=LogOptions())
    trusted = log_files(disk)
    for _ in range(4):
        writer.append()
    disk.fail_next(operation, error)
    write, caught = fail(writer.log, disk)
    writer.log.failed(write, caught)
    writer.staged.clear()
    check_as_before(writer)
    written_before = [one for one in disk.operations if one[0] == "write"]
    for _ in range(3):  # the same segments again, and more, in other batches
        for _ in range(3):
            writer.append()
        writer.commit(disk)
    check_as_before(writer)
    # The file that failed was not written again.
    written = [one for one in disk.operations if one[0] == "write"][len(written_before) :]
    assert all(str(one[1]).removesuffix(".new") not in trusted for one in written)
    disk.crash(keep=keep)
    again = open_log(disk)
    assert again.report.lines() == []
    assert read_all(again) == (readable(writer.durable), [])
    assert marked(again) == admitted(writer.durable)


@pytest.mark.parametrize("keep", ["none", "all"])
def test_pages_that_a_failed_sync_lost_are_not_served_after_a_restart_unless_they_are_made_durable(
    keep: Keep,
) -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=3)
    for _ in range(3):
        writer.append(count=1)
    disk.fail_next("sync", errno.EIO)
    write, caught = fail(writer.log, disk)
    writer.log.failed(write, caught)
    # The process ends without another append, and the system still shows the bytes: a restart finds them whole.
    again = open_log(disk)
    rows, _ = read_all(again)
    assert rows == readable(writer.durable + writer.staged)
    # They were served, so they have to outlive a power cut that comes now.
    disk.crash(keep=keep)
    assert read_all(open_log(disk)) == (rows, [])


def test_a_full_disk_refuses_and_takes_more_when_there_is_room() -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=4)
    disk.capacity_bytes = sum(len(disk.contents(path)) for path in disk.paths()) + 100
    for _ in range(3):
        writer.append(size=3_000, count=1)
        write, caught = fail(writer.log, disk)
        assert caught.errno == errno.ENOSPC
        writer.log.failed(write, caught)
        writer.staged.clear()
        check_as_before(writer)
    disk.capacity_bytes = None
    writer.append(size=3_000, count=1)
    writer.commit(disk)
    check_as_before(writer)
    assert open_log(disk).report.lines() == []


def test_room_that_cannot_be_reserved_does_not_keep_a_small_write_out() -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=4, options=LogOptions(preallocate_bytes=0))
    writer.log.close()
    log = open_log(disk, LogOptions(preallocate_bytes=1 << 30))
    disk.capacity_bytes = sum(len(disk.contents(path)) for path in disk.paths()) + 500
    writer.log = log
    writer.append(size=40, count=1)
    writer.commit(disk)
    assert read_all(log) == (readable(writer.durable), [])


def test_a_status_that_could_not_be_written_is_written_with_the_next_commit() -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=2, options=LogOptions())
    writer.append(count=1)
    write = writer.log.take()
    assert write is not None
    disk.fail_next("write", errno.EIO, after=1)
    write.run(disk)
    assert write.status_owed is not None
    writer.log.committed(write)
    writer.durable += writer.staged
    writer.staged.clear()
    writer.append(count=1)
    writer.commit(disk)
    disk.crash(keep="none")
    again = open_log(disk, LogOptions())
    assert again.report.lines() == []
    assert read_all(again) == (readable(writer.durable), [])


def test_a_drop_whose_write_failed_is_taken_back() -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=20)
    log = writer.log
    before = log_files(disk)
    assert log.drop_before(log.entry_durable) == log.entry_first > 0
    disk.fail_next("sync", errno.EIO)
    write, caught = fail(log, disk)
    log.failed(write, caught)
    assert log.entry_first == 0 and log_files(disk) == before
    check_as_before(writer)


def test_a_read_error_is_told_and_not_taken_for_damage() -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=5)
    disk.fail_next("read", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        writer.log.read(0, 100)
    check_as_before(writer)
    assert list(writer.log.damaged) == []


def test_durability_os_skips_the_sync_and_what_a_cut_takes_is_a_clean_end() -> None:
    options = LogOptions(rotate_bytes=SMALL.rotate_bytes, preallocate_bytes=2_048, sync=False)
    for seed in range(10):
        disk = MemoryDisk(seed)
        writer = filled(disk, rounds=1, options=options, seed=seed)
        synced = sum(one[0] == "sync" for one in disk.operations)
        rows: list[Row] = list(writer.durable)
        for _ in range(3):
            rows.append(writer.append(size=100, count=1))
            writer.commit(disk)
        assert sum(one[0] == "sync" for one in disk.operations) == synced
        disk.crash(keep="some")
        again = open_log(disk, options)
        found, lost = read_all(again)
        assert lost == [] and again.report.damaged == []
        assert found == readable(rows)[: len(found)]


def test_closing_a_log_of_durability_os_syncs_it() -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=3, options=LogOptions(sync=False))
    writer.log.close()
    disk.crash(keep="none")
    assert read_all(open_log(disk)) == (readable(writer.durable), [])


def test_a_new_file_takes_the_place_of_one_without_entries() -> None:
    """Refusals alone leave a file whose name the next one would share: the marks in its head replace them."""
    disk = MemoryDisk()
    writer = Writer(open_log(disk), random.Random(1))
    writer.append(count=0)
    writer.commit(disk)
    writer.append(count=0)
    disk.fail_next("sync", errno.EIO)
    write, caught = fail(writer.log, disk)
    writer.log.failed(write, caught)
    writer.staged.clear()
    writer.append(count=1)
    writer.commit(disk)
    assert log_files(disk) == [f"{FOLDER}/{0:020d}.log"]
    disk.crash(keep="none")
    again = open_log(disk)
    assert marked(again) == admitted(writer.durable)
    assert read_all(again) == (readable(writer.durable), [])
