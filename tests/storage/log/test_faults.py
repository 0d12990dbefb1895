"""A log on a failing disk stores nothing in part, depends on no lost page, and continues."""

from __future__ import annotations

import errno
import random
from contextlib import suppress

import pytest

from headpond.storage.frame_file import Found, scan
from headpond.storage.log.batch import LogBatch, LogOptions
from headpond.storage.log.index import FileIndex, load_index
from headpond.storage.log.shard_log import ShardLog
from headpond.storage.memory_disk import Keep, MemoryDisk, Operation
from headpond.wire.control.links import RecordHead
from tests.storage.log.logs import (
    FOLDER,
    SHARD,
    SMALL,
    LogWriter,
    Row,
    admitted,
    filled,
    log_files,
    marked,
    open_log,
    read_all,
    readable,
)


def fail(log: ShardLog, disk: MemoryDisk) -> tuple[LogBatch, OSError]:
    """Runs the staged write, which is to fail."""
    write = log.take()
    assert write is not None
    with pytest.raises(OSError) as caught:  # noqa: PT011  # the tests order different ones
        write.run(disk)
    return write, caught.value


def rotating(disk: MemoryDisk) -> LogWriter:
    """A log whose next write begins a new file."""
    writer = filled(disk, rounds=5)
    writer.append(size=4_000, count=1)
    writer.commit(disk)
    return writer


def check_as_before(writer: LogWriter) -> None:
    """Marks, entries and reads show the committed rows alone."""
    log, rows = writer.log, writer.durable
    assert marked(log) == admitted(rows)
    assert log.entry_next == log.entry_durable == log.entry_taken == sum(row.count for row in rows)
    assert log.appender.staged.bytes == 0
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
def test_a_failed_write_undoes_itself_and_all_later_appends(operation: Operation, error: int) -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=5)
    writer.append(count=2)
    writer.append(count=0)
    writer.log.append_end(b"q" * 16, 5)
    disk.fail_next(operation, error)
    write, caught = fail(writer.log, disk)
    writer.append(count=1)
    writer.log.failed(write)
    assert caught.errno == error
    assert b"q" * 16 not in writer.log.marks
    check_as_before(writer)


@pytest.mark.parametrize("keep", ["none", "all", "some"])
@pytest.mark.parametrize(
    ("operation", "error", "new_file"),
    [(*fault, False) for fault in FAULTS] + [(*fault, True) for fault in FAULTS_OF_A_NEW_FILE],
)
def test_after_a_failure_the_log_continues_in_a_new_file_and_keeps_its_commits(
    operation: Operation, error: int, new_file: bool, keep: Keep
) -> None:
    disk = MemoryDisk(3)
    writer = rotating(disk) if new_file else filled(disk, rounds=5, options=LogOptions())
    trusted = log_files(disk)
    for _ in range(4):
        writer.append()
    disk.fail_next(operation, error)
    write, _ = fail(writer.log, disk)
    writer.log.failed(write)
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
    write, _ = fail(writer.log, disk)
    writer.log.failed(write)
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
        writer.log.failed(write)
        writer.staged.clear()
        check_as_before(writer)
        assert disk.free_bytes() >= 100, "what does not count keeps no room"
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
    assert not write.proven
    writer.log.committed(write)
    writer.durable += writer.staged
    writer.staged.clear()
    writer.append(count=1)
    writer.commit(disk)
    disk.crash(keep="none")
    again = open_log(disk, LogOptions())
    assert again.report.lines() == []
    assert read_all(again) == (readable(writer.durable), [])


def test_a_drop_whose_write_failed_is_undone() -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=20)
    log = writer.log
    before = log_files(disk)
    assert log.drop_before(log.entry_durable) == log.entry_first > 0
    disk.fail_next("sync", errno.EIO)
    write, _ = fail(log, disk)
    log.failed(write)
    assert log.entry_first == 0 and log_files(disk) == before
    check_as_before(writer)


def test_a_read_that_fails_once_is_repeated() -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=5)
    disk.fail_next("read", errno.EIO)
    check_as_before(writer)
    disk.fail_next("read", errno.EIO)
    again = open_log(disk)
    assert again.report.lines() == [] and list(again.damaged) == []


def test_a_read_error_other_than_a_bad_sector_is_raised_and_not_taken_for_damage() -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=5)
    disk.fail_next("read", errno.EACCES)
    with pytest.raises(OSError, match="Permission"):
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
    writer = LogWriter(open_log(disk), random.Random(1))
    writer.append(count=0)
    writer.commit(disk)
    writer.append(count=0)
    disk.fail_next("sync", errno.EIO)
    write, _ = fail(writer.log, disk)
    writer.log.failed(write)
    writer.staged.clear()
    writer.append(count=1)
    writer.commit(disk)
    assert log_files(disk) == [f"{FOLDER}/{0:020d}.log"]
    disk.crash(keep="none")
    again = open_log(disk)
    assert marked(again) == admitted(writer.durable)
    assert read_all(again) == (readable(writer.durable), [])


def without_entries(disk: MemoryDisk) -> LogWriter:
    """A log whose only file holds refusals alone and is left after a failed write."""
    writer = LogWriter(open_log(disk), random.Random(1))
    writer.append(count=0, size=300)
    writer.commit(disk)
    writer.append(count=1)
    disk.fail_next("sync", errno.EIO)
    write, _ = fail(writer.log, disk)
    writer.log.failed(write)
    writer.staged.clear()
    return writer


def test_no_index_of_a_file_is_left_beside_another_of_the_same_name() -> None:
    disk = MemoryDisk()
    writer = without_entries(disk)
    index = f"{FOLDER}/{0:020d}.index"
    disk.create(index).write_at(0, [b"of an earlier file"])
    writer.append(count=1)
    writer.commit(disk)
    assert not disk.exists(index)
    disk.crash(keep="none")
    assert not disk.exists(index)
    assert read_all(open_log(disk)) == (readable(writer.durable), [])


@pytest.mark.parametrize("loaded", [False, True])
def test_an_index_that_another_file_of_the_same_name_left_costs_no_entry(loaded: bool) -> None:
    index = f"{FOLDER}/{0:020d}.index"

    def three_files(seed: int) -> tuple[MemoryDisk, list[Row]]:
        disk = MemoryDisk()
        writer = LogWriter(open_log(disk), random.Random(seed))
        while len(log_files(disk)) < 3:
            writer.append(count=1, size=40)
            writer.commit(disk)
        return disk, writer.durable

    disk, rows = three_files(1)
    first_of_next = int(log_files(disk)[1][-24:-4])
    stale = three_files(2)[0].contents(index)
    if loaded:  # one that carries this file's proof, and is wrong all the same
        file = disk.open(log_files(disk)[0])
        head = file.read_at(0, 700)
        stale = FileIndex(0, first_of_next, len(head), []).encode_for(file, shard=SHARD)
    disk.remove(index)
    disk.create(index).write_at(0, [stale])
    assert (load_index(disk, index, disk.open(log_files(disk)[0]), 0) is not None) == loaded
    heads: list[RecordHead] = []
    assert open_log(disk.copy()).walk_heads(0, heads).lost == []
    assert sum(head.count for head in heads) == len(rows)
    assert read_all(open_log(disk)) == (rows, [])
    assert disk.contents(index) != stale


def test_an_index_appears_whole_or_not_at_all() -> None:
    for changes in range(20):
        disk = MemoryDisk(changes)
        writer = rotating(disk)
        writer.append(count=1)
        disk.cut_power_after(changes)
        write = writer.log.take()
        assert write is not None
        with suppress(OSError):
            write.run(disk)
        disk.crash(keep="all")
        for name in disk.list(FOLDER):
            if name.endswith(".index"):
                assert isinstance(next(scan(disk.open(f"{FOLDER}/{name}"))), Found)


@pytest.mark.parametrize("reserved", [0, 16_384])
def test_an_end_that_cannot_be_read_is_not_taken_for_a_torn_write(reserved: int) -> None:
    """The lost entries may have been served: the log does not assign them again."""
    disk = MemoryDisk()
    options = LogOptions(preallocate_bytes=reserved)
    writer = LogWriter(open_log(disk, options), random.Random(4))
    for _ in range(20):
        writer.append(count=1, size=700)
        writer.commit(disk)
    (path,) = log_files(disk)
    end = writer.log.bytes
    disk.spoil(path, end - end % 4096, 4096)
    before = disk.contents(path)
    log = open_log(disk, options)
    known = log.incarnation
    assert log.report.new_incarnation
    assert "cannot be read" in log.report.lines()[0]
    rows, lost = read_all(log)
    assert rows == writer.durable[: len(rows)] and 10 < len(rows) < 20
    assert lost == [(len(rows), log.entry_next)] and log.entry_next >= 20
    assert disk.contents(path)[: len(before)] == before, "nothing is cut off"
    writer = LogWriter(log, random.Random(1), durable=rows)
    writer.append(count=1)
    writer.commit(disk)
    disk.crash(keep="none")
    again = open_log(disk, options)
    assert read_all(again) == (writer.durable, lost)
    assert again.holds(known, lost[0][0]) and not again.holds(known, lost[0][0] + 1)


def test_a_log_with_a_write_under_way_is_closed_as_it_is() -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=3)
    writer.append(count=1)
    write = writer.log.take()
    assert write is not None
    row = writer.append(count=1)
    writer.log.close()
    write.run(disk)
    writer.log.committed(write)
    assert read_all(open_log(disk))[0] == readable(writer.durable + writer.staged[:-1])
    assert row.first_entry == open_log(disk).entry_next
