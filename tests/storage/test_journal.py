"""A journal returns its commits in order after restarts, power cuts, failures and compaction."""

from __future__ import annotations

import errno
import random
from pathlib import Path

import pytest

from headpond.model.errors import StorageFailed
from headpond.storage.disk import Disk
from headpond.storage.journal import FileJournal, encode_header
from headpond.storage.memory_disk import Keep, MemoryDisk, Operation
from headpond.storage.os_disk import OsDisk
from headpond.wire.frame import FrameType, encode

FOLDER = "catalog"


def open_journal(disk: Disk) -> FileJournal:
    return FileJournal.open(disk, FOLDER)


def commit(journal: FileJournal, disk: Disk) -> None:
    write = journal.take()
    if write is not None:
        write.run(disk)
        journal.committed(write)


def stored(disk: Disk) -> list[bytes]:
    journal = open_journal(disk)
    assert journal.report.lines() == []
    return list(journal.records)


@pytest.fixture(params=["memory", "os"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    return MemoryDisk() if request.param == "memory" else OsDisk(tmp_path)


def test_records_come_back_in_order_after_a_restart(disk: Disk) -> None:
    journal = open_journal(disk)
    assert list(journal.records) == [] and disk.list(FOLDER) == []
    journal = open_journal(disk)
    bodies = [b"one", b"", b"x" * 100_000, b"four"]
    for body in bodies:
        journal.append(body)
    assert disk.list(FOLDER) == [], "nothing is written before it is taken"
    commit(journal, disk)
    assert stored(disk) == bodies
    journal.append(b"five")
    commit(journal, disk)
    journal.close()
    assert stored(disk) == [*bodies, b"five"]


def test_every_writer_has_a_higher_epoch_and_an_older_one_is_fenced_off(disk: Disk) -> None:
    first = open_journal(disk)
    first.append(b"one")
    commit(first, disk)
    second = open_journal(disk)
    assert second.epoch > first.epoch
    second.append(b"two")
    commit(second, disk)
    # The first one, believed dead, writes on behind the second's records.
    (name,) = disk.list(FOLDER)
    file = disk.open(f"{FOLDER}/{name}", writable=True)
    file.truncate(second.size_bytes)
    file.write_at(
        second.size_bytes,
        [
            encode(FrameType.RECORD, encode_header(1, first.epoch), shard=1, segment=2),
            encode(FrameType.RECORD, b"from the grave", segment=2),
        ],
    )
    assert stored(disk) == [b"one", b"two"]


def test_compaction_begins_a_new_generation_with_the_snapshot_and_removes_the_old_one(disk: Disk) -> None:
    journal = open_journal(disk)
    for number in range(50):
        journal.append(b"change %d" % number)
    commit(journal, disk)
    size = journal.size_bytes
    journal.compact([b"snapshot a", b"snapshot b"])
    journal.append(b"after")
    assert disk.list(FOLDER) == ["00000001.journal"], "the old one stays until the new one is durable"
    commit(journal, disk)
    assert disk.list(FOLDER) == ["00000002.journal"]
    assert 0 < journal.snapshot_bytes < journal.size_bytes < size
    assert stored(disk) == [b"snapshot a", b"snapshot b", b"after"]
    journal.append(b"later")
    commit(journal, disk)
    journal.compact([])
    commit(journal, disk)
    assert stored(disk) == []


def test_records_staged_during_a_snapshot_follow_it(disk: Disk) -> None:
    journal = open_journal(disk)
    journal.append(b"under way")
    write = journal.take()
    assert write is not None
    journal.append(b"staged")
    journal.compact([b"snapshot"])
    write.run(disk)
    journal.committed(write)
    commit(journal, disk)
    assert stored(disk) == [b"snapshot", b"staged"]


def work(journal: FileJournal, disk: Disk, committed: list[list[bytes]]) -> None:
    """Appends and compacts; adds the stored records after each commit to ``committed``."""
    state: list[bytes] = []
    draw = random.Random(1)
    for number in range(10):
        for _ in range(3):
            body = b"%d " % number + draw.randbytes(draw.choice((0, 20, 600)))
            journal.append(body)
            state.append(body)
        commit(journal, disk)
        committed.append(list(state))
        if number in (3, 6):
            state = [b"snapshot %d" % number]
            journal.compact(state)


@pytest.mark.parametrize("keep", ["none", "all", "some"])
def test_a_power_cut_at_every_operation_keeps_all_commits(keep: Keep) -> None:
    states: list[list[bytes]] = [[]]
    whole = MemoryDisk()
    work(open_journal(whole), whole, states)
    changes = sum(one[0] not in ("open", "read") for one in whole.operations)
    for cut in range(changes + 1):
        disk = MemoryDisk(cut)
        journal = open_journal(disk)
        committed: list[list[bytes]] = [[]]
        disk.cut_power_after(cut)
        try:
            work(journal, disk, committed)
        except OSError as error:
            assert "power" in str(error)
        disk.crash(keep=keep)
        again = open_journal(disk)
        assert again.report.damaged == []
        found = list(again.records)
        following = states[min(len(committed), len(states) - 1)]
        if found != committed[-1]:  # a beginning of the batch that was under way, or all of it
            assert found == following[: len(found)] and (
                len(found) > len(committed[-1]) or found[0].startswith(b"snapshot")
            )
        again.append(b"more")
        commit(again, disk)
        disk.crash(keep="none")
        assert stored(disk) == [*found, b"more"]


FAULTS: list[Operation] = ["write", "sync", "create", "rename", "sync_folder"]


@pytest.mark.parametrize("operation", FAULTS)
@pytest.mark.parametrize("keep", ["none", "all"])
def test_after_a_failed_write_a_snapshot_takes_the_place_of_the_file(operation: Operation, keep: Keep) -> None:
    disk = MemoryDisk()
    journal = open_journal(disk)
    journal.append(b"one")
    commit(journal, disk)
    if operation in ("create", "rename", "sync_folder"):
        journal.compact([b"one"])
    journal.append(b"two")
    disk.fail_next(operation, errno.EIO)
    write = journal.take()
    assert write is not None
    with pytest.raises(OSError, match="Input/output"):
        write.run(disk)
    journal.append(b"three")
    journal.failed(write)
    with pytest.raises(StorageFailed):
        journal.append(b"four")
    assert journal.take() is None
    journal.compact([b"one", b"and what the caller knows"])
    journal.append(b"four")
    commit(journal, disk)
    disk.crash(keep=keep)
    assert stored(disk) == [b"one", b"and what the caller knows", b"four"]


def test_a_journal_in_which_nothing_can_be_read_is_put_aside_and_reported() -> None:
    disk = MemoryDisk()
    journal = open_journal(disk)
    journal.append(b"one")
    journal.close()
    path = f"{FOLDER}/00000001.journal"
    garbage = random.Random(1).randbytes(2_000)
    file = disk.open(path, writable=True)
    file.write_at(0, [garbage])
    file.sync()
    again = open_journal(disk)
    assert list(again.records) == [] and "damaged" in again.report.lines()[0]
    again.append(b"new")
    commit(again, disk)
    disk.crash()
    assert disk.contents(path + ".damaged") == garbage
    assert stored(disk) == [b"new"]


def test_records_are_read_before_the_first_append() -> None:
    journal = open_journal(MemoryDisk())
    journal.append(b"x")
    with pytest.raises(AssertionError, match="before the first append"):
        _ = journal.records


def compacted(disk: MemoryDisk) -> None:
    """Two generations: the newer one was durable before the older one was removed, and then the power went."""
    journal = open_journal(disk)
    journal.append(b"old")
    commit(journal, disk)
    journal.compact([b"snapshot"])
    disk.fail_next("remove", errno.EIO)
    commit(journal, disk)
    assert disk.list(FOLDER) == ["00000001.journal", "00000002.journal"]


def test_an_older_generation_goes_when_the_newer_one_was_read() -> None:
    disk = MemoryDisk()
    compacted(disk)
    assert stored(disk) == [b"snapshot"]
    assert disk.list(FOLDER) == ["00000002.journal"]


def test_an_older_generation_that_is_still_there_is_read_where_the_newer_one_cannot_be() -> None:
    disk = MemoryDisk()
    compacted(disk)
    disk.spoil(f"{FOLDER}/00000002.journal", 0, 1 << 20)
    again = open_journal(disk)
    assert list(again.records) == [b"old"] and "00000002.journal" in again.report.lines()[0]
    again.compact([b"old"])
    again.append(b"new")
    commit(again, disk)
    disk.crash()
    assert stored(disk) == [b"old", b"new"]
    assert f"{FOLDER}/00000002.journal.damaged" in disk.paths()


def test_an_end_that_cannot_be_read_is_reported_as_damage_and_not_cut_off() -> None:
    disk = MemoryDisk()
    journal = open_journal(disk)
    bodies = [b"%d" % number + bytes(900) for number in range(10)]
    for body in bodies:
        journal.append(body)
        commit(journal, disk)
    path = f"{FOLDER}/00000001.journal"
    disk.spoil(path, 8192, 4096)
    size = len(disk.contents(path))
    again = open_journal(disk)
    found = list(again.records)
    assert found == bodies[: len(found)] and 5 < len(found) < 10
    assert again.report.torn == [] and [damage.end for damage in again.report.damaged] == [12288]
    assert len(disk.contents(path)) == size
    again.compact(found)
    again.append(b"more")
    commit(again, disk)
    assert stored(disk) == [*found, b"more"]


def test_a_journal_with_a_write_under_way_is_closed_as_it_is() -> None:
    disk = MemoryDisk()
    journal = open_journal(disk)
    journal.append(b"one")
    write = journal.take()
    assert write is not None
    journal.append(b"two")
    journal.close()
    write.run(disk)
    journal.committed(write)
    assert stored(disk) == [b"one"]
