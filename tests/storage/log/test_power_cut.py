"""A power cut at any moment loses nothing that was committed, and serves nothing that was torn."""

from __future__ import annotations

import errno
import os
import random

import pytest

from headpond.storage.log.batch import LogOptions
from headpond.storage.memory_disk import Keep, MemoryDisk
from tests.storage.log.logs import (
    FOLDER,
    LogWriter,
    admitted,
    commit,
    filled,
    marked,
    open_log,
    read_all,
    readable,
)


def work(writer: LogWriter, disk: MemoryDisk, rounds: int = 9) -> None:
    """Appends, rotates, ends a block and drops a prefix; stops where the power does."""
    for number in range(rounds):
        for _ in range(writer.draw.randrange(1, 6)):
            writer.append()
        if number == 4:
            writer.log.append_end(b"z" * 16, 77)
        if number == 7:
            writer.log.drop_before(writer.log.entry_durable // 2)
        writer.commit(disk)


def changes_of_all_work(seed: int) -> int:
    """How many operations the whole work takes: as many places for a cut."""
    disk = MemoryDisk(seed)
    work(LogWriter(open_log(disk), random.Random(seed)), disk)
    return sum(operation[0] not in ("read", "open") for operation in disk.operations)


def check_after_cut(disk: MemoryDisk, writer: LogWriter) -> None:
    log = open_log(disk)
    assert log.report.damaged == [] and log.report.missing == [] and not log.report.new_incarnation
    assert list(log.damaged) == []
    rows, lost = read_all(log)
    assert lost == []
    # The batch under way may have survived in part, but only from its beginning.
    kept_staged = [row for row in writer.staged if row.segment in marked(log).get(row.block, set())]
    assert kept_staged == writer.staged[: len(kept_staged)]
    everything = writer.durable + kept_staged
    assert rows == readable(everything, log.entry_first)
    assert log.entry_durable == log.entry_next == sum(row.count for row in everything)
    assert {block: segments for block, segments in marked(log).items() if segments} == admitted(everything)
    for row in everything:
        found = log.find_segments([(row.block, row.segment)])[row.block, row.segment]
        assert found == (row.segment * 7, row.first_entry, row.count) or row.first_entry < log.entry_first
    check_goes_on(disk, LogWriter(log, random.Random(5), everything))


def check_goes_on(disk: MemoryDisk, writer: LogWriter) -> None:
    """The recovered log takes more, and keeps it over another cut."""
    for _ in range(3):
        writer.append(count=1)
    writer.commit(disk)
    disk.crash(keep="none")
    again = open_log(disk)
    assert again.report.lines() == []
    assert read_all(again) == (readable(writer.durable, again.entry_first), [])


@pytest.mark.parametrize("keep", ["none", "all", "some"])
@pytest.mark.parametrize("seed", range(2))
def test_a_cut_at_every_operation_keeps_all_commits(keep: Keep, seed: int) -> None:
    for changes in range(changes_of_all_work(seed) + 1):
        disk = MemoryDisk(seed * 1_000 + changes)
        writer = LogWriter(open_log(disk), random.Random(seed))
        disk.cut_power_after(changes)
        try:
            work(writer, disk)
        except OSError as error:
            assert "power" in str(error)
        disk.crash(keep=keep)
        check_after_cut(disk, writer)


@pytest.mark.parametrize("keep", ["none", "all", "some"])
def test_a_cut_while_a_torn_log_is_being_recovered_loses_nothing_either(keep: Keep) -> None:
    for seed in range(6):
        for changes in range(8):
            disk = MemoryDisk(seed)
            writer = filled(disk, rounds=4, seed=seed)
            for _ in range(4):
                writer.append()
            disk.cut_power_after(seed % 2)
            with pytest.raises(OSError, match="power"):
                commit(writer.log, disk)
            disk.crash(keep="some")
            disk.cut_power_after(changes)
            try:
                open_log(disk)
            except OSError as error:
                assert "power" in str(error)
            disk.crash(keep=keep)
            check_after_cut(disk, writer)


def test_an_unfinished_file_is_removed() -> None:
    disk = MemoryDisk()
    writer = filled(disk, rounds=1)
    disk.create(f"{FOLDER}/{999:020d}.log.new").write_at(0, [b"half a head"])
    assert read_all(open_log(disk)) == (readable(writer.durable), [])
    assert not any(name.endswith(".new") for name in disk.list(FOLDER))


@pytest.mark.parametrize("rounds", [1, 2])
def test_opening_syncs_the_folder_only_while_the_last_files_name_may_not_be_durable(rounds: int) -> None:
    """A file that was written to again has its name for good: only one that was just made may not."""
    disk = MemoryDisk()
    filled(disk, rounds=rounds, options=LogOptions())
    disk.operations.clear()
    open_log(disk)
    assert (("sync_folder", FOLDER) in disk.operations) == (rounds == 1)


def test_records_in_a_file_whose_name_was_not_durable_survive_the_next_cut() -> None:
    disk = MemoryDisk()
    writer = LogWriter(open_log(disk), random.Random(1))
    writer.append()
    disk.fail_next("sync_folder", errno.EIO)
    with pytest.raises(OSError, match=os.strerror(errno.EIO)):
        commit(writer.log, disk)
    again = LogWriter(open_log(disk), random.Random(2))  # the process was killed; its new file is still there
    again.append()
    again.commit(disk)
    disk.crash(keep="none")
    assert open_log(disk).entry_next == again.log.entry_next
